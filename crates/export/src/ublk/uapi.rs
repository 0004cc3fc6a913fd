//! The kernel's interface (`include/uapi/linux/ublk_cmd.h`): numbers of commands, and their
//! structures as bytes.
//!
//! Always true: numbers have this machine's byte order, since both ends are on one machine. Must
//! not know the sequence of commands.
#![allow(clippy::host_endian_bytes, reason = "the kernel of this machine reads and writes them")]

use reactor::LONG_COMMAND_BYTES;

/// Bytes of a sector in the kernel's units.
pub(super) const SECTOR: u64 = 512;
/// Bytes of a device description.
pub(super) const INFO_BYTES: usize = 64;
/// Bytes of the disk parameters: length, kinds, basic values, discard.
pub(super) const PARAMETERS_BYTES: usize = 60;
/// Bytes of a request descriptor.
pub(super) const REQUEST_BYTES: usize = 24;
/// Distance of the request descriptors of consecutive queues in a device's memory, in bytes: room
/// for 4096.
pub(super) const QUEUE_STRIDE: u64 = 4096 * REQUEST_BYTES as u64;

/// Another process may take over the device after its server has ended.
pub(super) const USER_RECOVERY: u64 = 1 << 3;
/// Requests that the earlier server did not complete are issued again.
pub(super) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// The kernel can change a device's size.
pub(super) const UPDATE_SIZE: u64 = 1 << 10;

/// Commands for the control device: `_IOR` and `_IOWR` of `'u'`, a number, and a structure of 32
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum ControlCommand {
    GetInfo = 0x8020_7502,
    Add = 0xC020_7504,
    Delete = 0xC020_7505,
    Start = 0xC020_7506,
    Stop = 0xC020_7507,
    SetParameters = 0xC020_7508,
    GetParameters = 0x8020_7509,
    StartRecovery = 0xC020_7510,
    EndRecovery = 0xC020_7511,
    GetFeatures = 0x8020_7513,
    DeleteLater = 0x8020_7514,
    UpdateSize = 0xC020_7515,
}

/// Fetches the first request for a tag of a queue.
pub(super) const FETCH: u32 = 0xC010_7520;
/// Completes a request, and fetches the next one for its tag.
pub(super) const COMMIT_AND_FETCH: u32 = 0xC010_7521;

/// Number of a device to be added: the kernel chooses one.
pub(super) const NEW: u32 = u32::MAX;
/// Placeholder for a queue in commands without one.
const NO_QUEUE: u16 = u16::MAX;

/// Encodes `struct ublksrv_ctrl_cmd`: `address` is the location of `length` more bytes.
pub(super) fn control_command(device: u32, length: u16, address: u64, data: u64) -> [u8; LONG_COMMAND_BYTES] {
    let mut bytes = [0; LONG_COMMAND_BYTES];
    put(&mut bytes, 0, &device.to_ne_bytes());
    put(&mut bytes, 4, &NO_QUEUE.to_ne_bytes());
    put(&mut bytes, 6, &length.to_ne_bytes());
    put(&mut bytes, 8, &address.to_ne_bytes());
    put(&mut bytes, 16, &data.to_ne_bytes());
    bytes
}

/// Encodes `struct ublksrv_io_cmd`: `address` is the data buffer of the next request.
pub(super) fn io_command(queue: u16, tag: u16, result: i32, address: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    put(&mut bytes, 0, &queue.to_ne_bytes());
    put(&mut bytes, 2, &tag.to_ne_bytes());
    put(&mut bytes, 4, &result.to_ne_bytes());
    put(&mut bytes, 8, &address.to_ne_bytes());
    bytes
}

/// `struct ublksrv_ctrl_dev_info`, limited to the fields that we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) request_bytes_max: u32,
    pub(super) id: u32,
    pub(super) flags: u64,
    /// Has no meaning to the kernel; identifies the owner.
    pub(super) mark: u64,
}

/// The device has no server yet, or no longer.
pub(super) const STATE_DEAD: u16 = 0;

impl DeviceInfo {
    pub(super) fn encode(&self) -> [u8; INFO_BYTES] {
        let mut bytes = [0; INFO_BYTES];
        put(&mut bytes, 0, &self.queues.to_ne_bytes());
        put(&mut bytes, 2, &self.depth.to_ne_bytes());
        put(&mut bytes, 4, &self.state.to_ne_bytes());
        put(&mut bytes, 8, &self.request_bytes_max.to_ne_bytes());
        put(&mut bytes, 12, &self.id.to_ne_bytes());
        put(&mut bytes, 24, &self.flags.to_ne_bytes());
        put(&mut bytes, 32, &self.mark.to_ne_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; INFO_BYTES]) -> Self {
        Self {
            queues: u16::from_ne_bytes(take(bytes, 0)),
            depth: u16::from_ne_bytes(take(bytes, 2)),
            state: u16::from_ne_bytes(take(bytes, 4)),
            request_bytes_max: u32::from_ne_bytes(take(bytes, 8)),
            id: u32::from_ne_bytes(take(bytes, 12)),
            flags: u64::from_ne_bytes(take(bytes, 24)),
            mark: u64::from_ne_bytes(take(bytes, 32)),
        }
    }
}

/// The parameters of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DiskParameters {
    /// Size in bytes.
    pub(super) size: u64,
    /// Logical sector size in bytes.
    pub(super) sector: u32,
    pub(super) read_only: bool,
    /// Maximum bytes of a read or write.
    pub(super) request_bytes_max: u32,
    /// Maximum bytes of one discard or write-zeroes request.
    pub(super) range_bytes_max: u32,
}

const HAS_BASIC: u32 = 1 << 0;
const HAS_DISCARD: u32 = 1 << 1;
const READ_ONLY: u32 = 1 << 0;
const VOLATILE_CACHE: u32 = 1 << 2;
const FUA: u32 = 1 << 3;
/// Preferred I/O size and discard granularity in bytes: a block of the engine.
const BLOCK: u32 = 4096;

impl DiskParameters {
    /// Encodes `struct ublk_params`.
    pub(super) fn encode(&self) -> [u8; PARAMETERS_BYTES] {
        let mut bytes = Self::query();
        let shift = |bytes: u32| [bytes.max(1).ilog2() as u8];
        let read_only = if self.read_only { READ_ONLY } else { 0 };
        let sectors = |bytes: u32| (bytes / SECTOR as u32).to_ne_bytes();
        put(&mut bytes, 4, &(HAS_BASIC | HAS_DISCARD).to_ne_bytes());
        put(&mut bytes, 8, &(read_only | VOLATILE_CACHE | FUA).to_ne_bytes());
        put(&mut bytes, 12, &shift(self.sector));
        // Physical sector, optimal and minimum I/O size.
        for at in 13..16 {
            put(&mut bytes, at, &shift(self.sector.max(BLOCK)));
        }
        put(&mut bytes, 16, &sectors(self.request_bytes_max));
        put(&mut bytes, 24, &(self.size / SECTOR).to_ne_bytes());
        put(&mut bytes, 44, &self.sector.max(BLOCK).to_ne_bytes());
        put(&mut bytes, 48, &sectors(self.range_bytes_max));
        put(&mut bytes, 52, &sectors(self.range_bytes_max));
        put(&mut bytes, 56, &1u16.to_ne_bytes());
        bytes
    }

    /// Returns the bytes of a query: the structure without its values.
    pub(super) fn query() -> [u8; PARAMETERS_BYTES] {
        let mut bytes = [0; PARAMETERS_BYTES];
        put(&mut bytes, 0, &(PARAMETERS_BYTES as u32).to_ne_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; PARAMETERS_BYTES]) -> Self {
        let number = |at| u32::from_ne_bytes(take(bytes, at));
        let [shift] = take(bytes, 12);
        Self {
            size: u64::from_ne_bytes(take(bytes, 24)).saturating_mul(SECTOR),
            sector: 1u32.checked_shl(shift.into()).unwrap_or(0),
            read_only: number(8) & READ_ONLY != 0,
            request_bytes_max: number(16).saturating_mul(SECTOR as u32),
            range_bytes_max: number(48).saturating_mul(SECTOR as u32),
        }
    }
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UblkOperation {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes,
    /// Any other operation, by its number.
    Other(u8),
}

/// A request of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UblkRequest {
    pub(super) operation: UblkOperation,
    /// The request must be durable before it is completed (FUA).
    pub(super) durable: bool,
    /// Offset in bytes.
    pub(super) offset: u64,
    /// Length in bytes.
    pub(super) length: u64,
}

impl UblkRequest {
    /// Decodes `struct ublksrv_io_desc`.
    pub(super) fn decode(bytes: &[u8; REQUEST_BYTES]) -> Self {
        let word = u32::from_ne_bytes(take(bytes, 0));
        let operation = match word as u8 {
            0 => UblkOperation::Read,
            1 => UblkOperation::Write,
            2 => UblkOperation::Flush,
            3 => UblkOperation::Discard,
            5 => UblkOperation::WriteZeroes,
            other => UblkOperation::Other(other),
        };
        Self {
            operation,
            durable: word & 1 << 13 != 0,
            offset: u64::from_ne_bytes(take(bytes, 8)).saturating_mul(SECTOR),
            length: u64::from(u32::from_ne_bytes(take(bytes, 4))) * SECTOR,
        }
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    match bytes.get_mut(at..at + value.len()) {
        Some(place) => place.copy_from_slice(value),
        None => unreachable!("offsets are constants within the structure"),
    }
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(value) => *value,
        None => unreachable!("offsets are constants within the structure"),
    }
}

#[cfg(test)]
#[path = "uapi_tests.rs"]
mod tests;
