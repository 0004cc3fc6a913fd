//! Every limit of the ublk export, with units.

/// Requests of one queue that are under way at once.
pub(super) const QUEUE_DEPTH: u16 = 128;

/// The most bytes of one read or write; the kernel takes longer ones apart. Each place of a queue has an address for as many, and
/// memory for as many as it has ever moved.
pub(super) const REQUEST_BYTES_MAX: u32 = 512 << 10;

/// The most bytes that are discarded or zeroed by one request.
pub(super) const RANGE_BYTES_MAX: u32 = 2 << 30;

/// Queues of a device.
pub const QUEUES_MAX: u16 = 64;

/// Devices that are looked at to find one that an earlier daemon has left.
pub(super) const DEVICES_MAX: usize = 65_536;
