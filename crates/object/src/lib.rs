//! Objects: buckets, objects, versions and multipart uploads, stored on one volume of a pool.
//!
//! Owns the trait [`ObjectStore`] and its two implementations: [`VolumeStore`] on a block volume
//! and [`MemoryStore`] in memory. Always true: a completed change is durable and complete, the
//! counters of a bucket match its objects, an event is stored with its change, and space is reused
//! only after the change that freed it is durable. Must not know: HTTP, the S3 protocol, pools.

mod allocator;
mod apply;
mod body;
mod body_file;
mod committer;
mod conditions;
mod database;
mod error;
mod event_signal;
mod events;
mod free_list;
mod index;
mod keys;
mod layout;
mod listing;
mod lock;
mod memory;
mod memory_outboxes;
mod names;
mod outbox;
mod read_ahead;
mod record;
mod region;
mod segment;
mod space;
mod store;
mod types;
mod upload;
mod versions;
mod volume;
mod volume_store;

pub use body::Body;
pub use error::{ObjectError, ObjectErrorKind, Result};
pub use event_signal::EventSignal;
pub use events::{ChangeOrigin, ChangeSource, EventKind, EventRule, ObjectEvent, OutboxInfo};
pub use free_list::FreeList;
pub use memory::MemoryStore;
pub use names::{KEY_BYTES_MAX, check_bucket_name, check_key};
pub use store::{BodyRead, BodyReader, BodyWriter, ObjectStore, PIECE_BYTES, Pending};
pub use types::{
    BucketInfo, Change, Conditions, CopyObject, CopyPart, Counters, DeleteObject, Deletion, ListPage,
    ListQuery, ObjectInfo, ObjectLock, ObjectRef, Outcome, PartInfo, PutObject, PutPart, Retention,
    RetentionMode, UploadInfo, Versioning,
};
pub use volume::{BlockVolume, MemoryBlocks, VolumeRead};
pub use volume_store::{StoreOptions, VolumeStore};

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
