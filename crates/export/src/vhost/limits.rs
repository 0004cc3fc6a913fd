//! Every limit of the vhost-user export, with units.

/// Memory regions of one guest. Front ends that hot-plug memory in small steps need the most.
pub(super) const REGIONS_MAX: usize = 64;

/// Queues of one device.
pub const QUEUES_MAX: u16 = 64;

/// Entries of one queue: the maximum of front ends. It also bounds the guest's concurrent requests,
/// and thus their memory.
pub(super) const QUEUE_SIZE_MAX: u16 = 1024;

/// Descriptors of one request, including its indirect table.
pub(super) const DESCRIPTORS_MAX: usize = 1024;

/// Maximum bytes of one memory segment of a request. Advertised.
pub(super) const SEGMENT_BYTES_MAX: u32 = 1 << 20;

/// Maximum number of memory segments of one request. Advertised: enough for 1 MiB of scattered
/// pages, with header and status in an indirect table of one page.
pub(super) const SEGMENTS_MAX: u32 = 254;

/// Maximum bytes of one read or write, from the two limits above.
pub(super) const REQUEST_BYTES_MAX: u64 = SEGMENT_BYTES_MAX as u64 * SEGMENTS_MAX as u64;

/// Maximum number of ranges of one discard or write-zeroes request. Advertised.
pub(super) const RANGES_MAX: u32 = 16;

/// Maximum number of 512-byte sectors of one such range. Advertised; 4 GiB.
pub(super) const RANGE_SECTORS_MAX: u32 = 1 << 23;

/// Memory segments of at least this size are read and written directly. Consecutive smaller ones
/// share one bounce buffer: a copy is cheaper than further volume operations.
pub(super) const DIRECT_MIN: u32 = 64 << 10;

/// Writes up to this size use one bounce buffer if their data is scattered, and so are one volume
/// operation. The volume's atomicity guarantee then covers the guest's write.
pub(super) const WHOLE_WRITE_MAX: u64 = 256 << 10;

/// Maximum bytes of one bounce buffer.
pub(super) const BOUNCE_BUFFER_MAX: u64 = 1 << 20;

/// Bytes of all bounce buffers of one queue. Further requests wait.
pub(super) const BOUNCE_BYTES_MAX: usize = 32 << 20;

/// Concurrent transfers of one request.
pub(super) const TRANSFERS_MAX: usize = 16;

/// Requests that a queue begins before it publishes completed ones.
pub(super) const BATCH: u16 = 8;
