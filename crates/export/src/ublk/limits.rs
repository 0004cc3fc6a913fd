//! Every limit of the ublk export, with units.

/// Concurrent requests of one queue.
pub(super) const QUEUE_DEPTH: u16 = 128;

/// Maximum bytes of one read or write; the kernel splits longer ones. Each tag of a queue has
/// address space for as many, and memory for as many as it has ever transferred.
pub(super) const REQUEST_BYTES_MAX: u32 = 512 << 10;

/// Maximum bytes of one discard or write-zeroes request.
pub(super) const RANGE_BYTES_MAX: u32 = 2 << 30;

/// Queues of a device.
pub const QUEUES_MAX: u16 = 64;

/// Maximum number of devices that are examined to find an earlier daemon's device.
pub(super) const DEVICES_MAX: usize = 65_536;
