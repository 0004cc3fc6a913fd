//! Every limit of the vhost-user export, with units.

/// Memory regions of one guest. Front ends that plug memory in piece by piece have the most.
pub(super) const REGIONS_MAX: usize = 64;

/// Queues of one device.
pub const QUEUES_MAX: u16 = 64;

/// Entries of one queue: what front ends have at most, and no more requests at once than that costs a guest's share of
/// memory.
pub(super) const QUEUE_SIZE_MAX: u16 = 1024;

/// Descriptors of one request, those of its indirect table included.
pub(super) const DESCRIPTORS_MAX: usize = 1024;

/// The most bytes of one piece of memory of a request. Advertised.
pub(super) const SEGMENT_BYTES_MAX: u32 = 1 << 20;

/// The most pieces of memory of one request. Advertised: 1 MiB of scattered pages, and a header and status fit into an
/// indirect table of one page.
pub(super) const SEGMENTS_MAX: u32 = 254;

/// The most bytes of one read or write: what a guest can make of the two above.
pub(super) const REQUEST_BYTES_MAX: u64 = SEGMENT_BYTES_MAX as u64 * SEGMENTS_MAX as u64;

/// The most ranges of one discard or write-zeroes request. Advertised.
pub(super) const RANGES_MAX: u32 = 16;

/// The most sectors of 512 bytes of one such range. Advertised; 4 GiB.
pub(super) const RANGE_SECTORS_MAX: u32 = 1 << 23;

/// Pieces of memory from this size on are read and written where they are. Smaller ones that follow each other go through
/// one buffer: the volume does one operation for all of them, which a copy is cheap against.
pub(super) const DIRECT_MIN: u32 = 64 << 10;

/// Writes up to this size go through one buffer wherever the guest's memory holds their data: one operation of the volume, so
/// that the volume's promise for whole writes holds for the guest's.
pub(super) const WHOLE_WRITE_MAX: u64 = 256 << 10;

/// Bytes that go through one such buffer at most.
pub(super) const GATHER_MAX: u64 = 1 << 20;

/// Bytes of all such buffers of one queue. What needs more waits for them.
pub(super) const GATHERS_BYTES: usize = 32 << 20;

/// Parts of one request that are under way at once.
pub(super) const PARTS_AT_ONCE: usize = 16;

/// Requests that a queue begins before it tells the guest of those that have ended.
pub(super) const BATCH: u16 = 8;
