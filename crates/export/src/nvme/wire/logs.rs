//! Log pages.

use std::net::SocketAddr;

use super::bytes::FieldWriter;

/// Log page identifiers.
pub(in crate::nvme) mod log {
    pub(in crate::nvme) const ERRORS: u8 = 0x01;
    pub(in crate::nvme) const HEALTH: u8 = 0x02;
    pub(in crate::nvme) const FIRMWARE: u8 = 0x03;
    pub(in crate::nvme) const CHANGED_NAMESPACES: u8 = 0x04;
    pub(in crate::nvme) const EFFECTS: u8 = 0x05;
    pub(in crate::nvme) const ACCESS: u8 = 0x0c;
    pub(in crate::nvme) const DISCOVERY: u8 = 0x70;
    pub(in crate::nvme) const RESERVATION: u8 = 0x80;
}

/// Bytes of an entry of the discovery log, and of its header.
const ENTRY_BYTES: usize = 1024;

/// A subsystem at one address, as discovery lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nvme) struct DiscoveryEntry {
    pub(in crate::nvme) subsystem: String,
    pub(in crate::nvme) address: SocketAddr,
    /// The entry is the discovery service itself.
    pub(in crate::nvme) is_discovery: bool,
    /// Connections to it use TLS.
    pub(in crate::nvme) requires_tls: bool,
}

/// The discovery log.
pub(in crate::nvme) fn discovery_log(generation: u64, entries: &[DiscoveryEntry]) -> Vec<u8> {
    let mut data = FieldWriter::new(ENTRY_BYTES * (1 + entries.len()));
    data.u64(0, generation).u64(8, entries.len() as u64);
    for (number, entry) in (1..).zip(entries) {
        let start = number * ENTRY_BYTES;
        let ip = entry.address.ip().to_canonical();
        let family = if ip.is_ipv4() { 1 } else { 2 };
        // TCP; the type of the subsystem. Flow control can be disabled. Without TLS, nothing is
        // specified about a secure channel: hosts with libnvme 1.3 ask for TLS if it is "not
        // required".
        data.u8(start, 3).u8(start + 1, family).u8(start + 2, if entry.is_discovery { 3 } else { 2 });
        data.u8(start + 3, 1 << 2 | u8::from(entry.requires_tls));
        // Any controller; the entries of its admin queue.
        data.u16(start + 4, number as u16).u16(start + 6, 0xffff).u16(start + 8, 32);
        // Changes are reported to the discovery controller.
        if entry.is_discovery {
            data.u16(start + 10, 1 << 1);
        }
        data.text(start + 32, 32, &entry.address.port().to_string(), 0);
        data.text(start + 256, 256, &entry.subsystem, 0);
        data.text(start + 512, 256, &ip.to_string(), 0);
        // The address subtype of TCP: the type of security, TLS 1.3.
        data.u8(start + 768, if entry.requires_tls { 2 } else { 0 });
    }
    data.finish()
}

/// The health log: nothing is measured here, and nothing is wrong.
pub(in crate::nvme) fn health_log() -> Vec<u8> {
    let mut data = FieldWriter::new(512);
    // A temperature in kelvin that no threshold exceeds, and all of the spare capacity.
    data.u16(1, 300).u8(3, 100).u8(4, 10);
    data.finish()
}

/// The firmware log: one slot.
pub(in crate::nvme) fn firmware_log(version: &str) -> Vec<u8> {
    let mut data = FieldWriter::new(512);
    data.u8(0, 1).text(8, 8, version, b' ');
    data.finish()
}

/// The list of changed namespaces; one entry that means any if there are too many.
pub(in crate::nvme) fn changed_log(namespaces: impl ExactSizeIterator<Item = u32>) -> Vec<u8> {
    let mut data = FieldWriter::new(4096);
    if namespaces.len() > 1024 {
        return data.u32(0, u32::MAX).finish();
    }
    for (at, id) in (0..4096).step_by(4).zip(namespaces) {
        data.u32(at, id);
    }
    data.finish()
}

/// The group of namespaces to which all namespaces belong: every path to them is equal.
pub(in crate::nvme) const ACCESS_GROUP: u32 = 1;

/// The asymmetric namespace access (ANA) log: one optimized group. `change` changes with the
/// namespaces of the group, which are listed unless only groups were asked for.
pub(in crate::nvme) fn access_log(change: u64, namespaces: &[u32]) -> Vec<u8> {
    const OPTIMIZED: u8 = 1;
    let mut data = FieldWriter::new(16 + 32 + 4 * namespaces.len());
    data.u64(0, change).u16(8, 1);
    data.u32(16, ACCESS_GROUP).u32(20, namespaces.len() as u32).u64(24, change).u8(32, OPTIMIZED);
    for (at, id) in (48..).step_by(4).zip(namespaces) {
        data.u32(at, *id);
    }
    data.finish()
}

/// The reservation notification log: the event of this number and type in a namespace, and the
/// number of further ones; zeros for none.
pub(in crate::nvme) fn reservation_log(event: Option<(u64, u8, u32)>, further: u8) -> Vec<u8> {
    let (count, kind, namespace) = event.unwrap_or_default();
    let mut data = FieldWriter::new(64);
    data.u64(0, count).u8(8, kind).u8(9, further).u32(12, namespace);
    data.finish()
}

/// A registrant as the report of a reservation lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) struct RegistrantEntry {
    /// A controller of the host; none if it is not connected.
    pub(in crate::nvme) controller: Option<u16>,
    pub(in crate::nvme) is_holder: bool,
    pub(in crate::nvme) host_id: [u8; 16],
    pub(in crate::nvme) key: u64,
}

/// The extended data structure of a report. `kind`: the type of the reservation, 0 for none.
pub(in crate::nvme) fn reservation_report(
    generation: u32,
    kind: u8,
    persists: bool,
    registrants: &[RegistrantEntry],
) -> Vec<u8> {
    /// Bytes of the header, and of an entry.
    const ENTRY: usize = 64;
    let mut data = FieldWriter::new(ENTRY * (1 + registrants.len()));
    data.u32(0, generation).u8(4, kind).u16(5, registrants.len() as u16).u8(9, u8::from(persists));
    for (number, registrant) in (1..).zip(registrants) {
        let start = number * ENTRY;
        data.u16(start, registrant.controller.unwrap_or(u16::MAX)).u8(start + 2, registrant.is_holder.into());
        data.u64(start + 8, registrant.key).put(start + 16, registrant.host_id);
    }
    data.finish()
}

/// The effects of commands. `admin` and `io`: opcodes, and whether the command changes data.
pub(in crate::nvme) fn effects_log(admin: &[u8], io: &[(u8, bool)]) -> Vec<u8> {
    let mut data = FieldWriter::new(4096);
    for opcode in admin {
        data.u32(4 * usize::from(*opcode), 1);
    }
    for (opcode, changes) in io {
        data.u32(1024 + 4 * usize::from(*opcode), 1 | u32::from(*changes) << 1);
    }
    data.finish()
}
