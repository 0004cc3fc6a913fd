//! Files by FUSE, as the kernel sees them: real mounts over a volume in memory. They need root and a kernel with FUSE; where there
//! is neither, these tests say that they do not apply.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod bytes;
mod end;
mod served;
