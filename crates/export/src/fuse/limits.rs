//! Every limit of the FUSE export, with units.

/// The most bytes of one read or write; the kernel takes longer ones apart.
pub(super) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Requests that the kernel has under way at once of those that nobody waits for one by one: direct I/O of a loop device.
pub(super) const BACKGROUND_MAX: u16 = 128;

/// Requests of one file that are under way at once. While there are as many, no further one is taken from the kernel.
pub(super) const REQUESTS_MAX: usize = 512;

/// Bytes that these read and write. At least one request is always taken.
pub(super) const BYTES_MAX: usize = 64 << 20;

/// Bytes of a range that are zeroed at once.
pub(super) const ZERO_STEP: u64 = 4 << 30;

/// How long the kernel need not ask again for the attributes, in seconds. It is told when the size changes.
pub(super) const ATTRIBUTES_SECONDS: u64 = 1;
