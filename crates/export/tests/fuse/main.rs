//! FUSE files with real mounts over a volume in memory. The tests need root and a kernel with FUSE.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod bytes;
mod end;
mod served;
