//! The data of identify commands.

use super::bytes::FieldWriter;
use super::logs::ACCESS_GROUP;
use crate::AtomicLimits;

/// Bytes of every structure here.
pub(in crate::nvme) const IDENTIFY_BYTES: usize = 4096;

/// The properties of a controller that its host reads.
#[derive(Clone, Debug)]
pub(in crate::nvme) struct ControllerProperties<'a> {
    pub(in crate::nvme) is_discovery: bool,
    pub(in crate::nvme) id: u16,
    pub(in crate::nvme) subsystem: &'a str,
    pub(in crate::nvme) serial: &'a str,
    pub(in crate::nvme) firmware: &'a str,
    pub(in crate::nvme) version: u32,
    /// The most bytes of a command's data, as a power of two of 4 KiB.
    pub(in crate::nvme) transfer_pages_log: u8,
    /// The most bytes of data in the capsule of an I/O command.
    pub(in crate::nvme) capsule_data: u32,
    pub(in crate::nvme) queue_entries: u16,
    /// The most commands that are being aborted.
    pub(in crate::nvme) aborts: u8,
    /// The most asynchronous event requests.
    pub(in crate::nvme) event_requests: u8,
    /// Asynchronous events that the host can enable.
    pub(in crate::nvme) events: u32,
    /// In units of 100 ms.
    pub(in crate::nvme) keep_alive_units: u16,
    /// The largest id of a namespace.
    pub(in crate::nvme) namespaces: u32,
    /// Optional commands.
    pub(in crate::nvme) optional_commands: u16,
}

impl ControllerProperties<'_> {
    /// The controller data structure.
    pub(in crate::nvme) fn encode(&self) -> Vec<u8> {
        let mut data = FieldWriter::new(IDENTIFY_BYTES);
        data.text(4, 20, self.serial, b' ').text(24, 40, "Gabion", b' ').text(64, 8, self.firmware, b' ');
        data.u8(77, self.transfer_pages_log).u16(78, self.id).u32(80, self.version);
        data.u32(92, self.events);
        // A host identifier of 128 bits, and a keep alive timer that every command restarts.
        data.u32(96, 1 | 1 << 6);
        data.u8(111, if self.is_discovery { 2 } else { 1 });
        data.u8(258, self.aborts - 1).u8(259, self.event_requests - 1);
        // Log pages can be read from an offset, and the effects of commands have a page.
        data.u8(261, 1 << 1 | 1 << 2);
        data.u16(320, self.keep_alive_units);
        data.u16(514, self.queue_entries);
        // Descriptors without alignment; keyed and transport descriptors; data by offset in
        // capsules.
        data.u32(536, 1 | 1 << 20 | 1 << 21);
        data.text(768, 256, self.subsystem, 0);
        if self.is_discovery {
            return data.finish();
        }
        // Several ports, several controllers, and asymmetric access, of one group: its state and
        // that of a namespace never change. The time of a change is without meaning, and not 0.
        data.u8(76, 1 | 1 << 1 | 1 << 3).u8(342, 1).u8(343, 1 | 1 << 6);
        data.u32(344, ACCESS_GROUP).u32(348, 1).u32(540, self.namespaces);
        // Sizes of queue entries: 64 and 16 bytes, required and largest.
        data.u8(512, 0x66).u8(513, 0x44);
        data.u32(516, self.namespaces).u16(520, self.optional_commands);
        // A fused compare and write, and copies with descriptors of format 0.
        data.u16(522, 1).u16(534, 1);
        // A volatile write cache, and a flush of all namespaces.
        data.u8(525, 1 | 3 << 1);
        data.u32(1792, (64 + self.capsule_data) / 16).u32(1796, 1);
        // One descriptor for each command.
        data.u8(1803, 1);
        data.finish()
    }
}

/// The properties of a namespace that a host reads.
#[derive(Clone, Copy, Debug)]
pub(in crate::nvme) struct NamespaceProperties {
    /// Bytes.
    pub(in crate::nvme) size: u64,
    /// Bytes of a logical block.
    pub(in crate::nvme) sector: u32,
    pub(in crate::nvme) read_only: bool,
    pub(in crate::nvme) identity: [u8; 16],
    pub(in crate::nvme) atomic: AtomicLimits,
    /// The most source ranges of a copy.
    pub(in crate::nvme) copy_ranges: usize,
    /// The most bytes of a copy.
    pub(in crate::nvme) copy_max: u64,
}

/// Bytes of the blocks of a volume: the best unit of writes.
const BLOCK: u32 = 4096;

impl NamespaceProperties {
    /// The namespace data structure.
    pub(in crate::nvme) fn encode(&self) -> Vec<u8> {
        let blocks = self.size / u64::from(self.sector);
        let mut data = FieldWriter::new(IDENTIFY_BYTES);
        data.u64(0, blocks).u64(8, blocks).u64(16, blocks);
        // Thin provisioning, the namespace's own atomic units, deallocation, and preferred units.
        data.u8(24, 1 | 1 << 1 | 1 << 2 | 1 << 4);
        // Several controllers share the namespace.
        data.u8(30, 1);
        // Reservations of all types, which can survive a restart; existing keys as of version 1.3.
        data.u8(31, 0xff).u32(92, ACCESS_GROUP);
        // Deallocated blocks read as zeros, and zeroing can deallocate.
        data.u8(33, 1 | 1 << 3);
        let unit = (BLOCK.max(self.sector) / self.sector - 1) as u16;
        let blocks_of = |bytes: u64| bytes / u64::from(self.sector);
        let less_one = |blocks: u64| u16::try_from(blocks.saturating_sub(1)).unwrap_or(u16::MAX);
        // Atomic writes at a power failure as otherwise, atomic comparisons, and the boundaries
        // that they do not cross.
        let (atomic, boundary) = (less_one(blocks_of(self.atomic.bytes.into())), self.atomic.boundary);
        data.u16(34, atomic).u16(36, atomic).u16(38, atomic);
        let boundary = boundary.map_or(0, |bytes| less_one(blocks_of(bytes)));
        data.u16(40, boundary).u16(44, boundary);
        // The limits of copies: one range, all ranges, and their number.
        data.u16(74, u16::MAX).u32(76, u32::try_from(blocks_of(self.copy_max)).unwrap_or(u32::MAX));
        data.u8(80, (self.copy_ranges - 1) as u8);
        for preferred in [64, 66, 68, 70] {
            data.u16(preferred, unit);
        }
        data.u8(99, u8::from(self.read_only));
        data.put(104, self.identity);
        data.u32(128, self.sector.trailing_zeros() << 16);
        data.finish()
    }

    /// The list of namespace identification descriptors.
    pub(in crate::nvme) fn descriptors(&self) -> Vec<u8> {
        let mut data = FieldWriter::new(IDENTIFY_BYTES);
        // NGUID, UUID, and the command set: NVM.
        data.put(0, [2, 16]).put(4, self.identity);
        data.put(20, [3, 16]).put(24, self.identity);
        data.put(40, [4, 1]);
        data.finish()
    }
}

/// A list of the namespaces after `after`, of up to 1024 entries.
pub(in crate::nvme) fn namespace_list(ids: impl IntoIterator<Item = u32>, after: u32) -> Vec<u8> {
    let mut data = FieldWriter::new(IDENTIFY_BYTES);
    let later = ids.into_iter().filter(|id| *id > after);
    for (at, id) in (0..IDENTIFY_BYTES).step_by(4).zip(later) {
        data.u32(at, id);
    }
    data.finish()
}
