//! The limits of the FUSE frontend, with units.

/// The most bytes of one read or write; the kernel splits longer ones.
pub(super) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// The most asynchronous requests of the kernel in flight, such as direct I/O of a loop device.
pub(super) const BACKGROUND_MAX: u16 = 128;

/// The most requests of one file in flight. While the limit is reached, no request is received from
/// the kernel.
pub(super) const REQUESTS_MAX: usize = 512;

/// The most bytes of payload in flight. One request is always allowed.
pub(super) const BYTES_MAX: usize = 64 << 20;

/// Bytes that are zeroed at once.
pub(super) const ZERO_STEP: u64 = 4 << 30;

/// Time for which the kernel may cache attributes, in seconds. A change of the size is announced.
pub(super) const ATTRIBUTES_SECONDS: u64 = 1;
