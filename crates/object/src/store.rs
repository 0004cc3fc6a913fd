//! The interface between protocols and object stores.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use futures_channel::oneshot;

use crate::body::Body;
use crate::error::{ObjectError, ObjectErrorKind, Result};
use crate::events::{ChangeSource, EventRule, ObjectEvent, OutboxInfo};
use crate::types::{
    BucketInfo, Change, ListPage, ListQuery, ObjectInfo, ObjectRef, Outcome, PartInfo, UploadInfo,
};

/// Buckets and objects. Reads block the calling thread; changes are queued.
///
/// A read sees every change that was acknowledged before it began.
pub trait ObjectStore: Send + Sync + 'static {
    /// Queues a change. The change is durable when the answer arrives, and so are its events.
    /// Changes that are queued one after the other are applied in this order.
    fn commit_from(&self, change: Change, source: ChangeSource) -> Pending;

    /// Queues a change without a sender, as [`ObjectStore::commit_from`].
    fn commit(&self, change: Change) -> Pending {
        self.commit_from(change, ChangeSource::default())
    }

    /// Returns a writer for a body too large for memory.
    ///
    /// `length` is the expected length in bytes, or an estimate of it.
    fn body_writer(&self, length: u64) -> Box<dyn BodyWriter>;

    /// Returns a number that changes with every change of a bucket or its settings, before the
    /// change is answered: for callers that keep settings in memory.
    fn settings_epoch(&self) -> u64;

    /// Returns all buckets by name.
    ///
    /// # Errors
    /// `Io`.
    fn buckets(&self) -> Result<Vec<BucketInfo>>;

    /// Returns a bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Io`.
    fn bucket(&self, name: &str) -> Result<BucketInfo>;

    /// Returns an object or a version of it.
    ///
    /// # Errors
    /// `NoSuchBucket`; `NoSuchKey`, also if the current version is a delete marker;
    /// `NoSuchVersion`; `DeleteMarker` for the version of one; `Io`.
    fn object(&self, object: &ObjectRef) -> Result<ObjectInfo>;

    /// Opens an object. Its body remains readable until the reader is dropped, even if the object
    /// is deleted.
    ///
    /// # Errors
    /// As [`ObjectStore::object`].
    fn open(&self, object: &ObjectRef) -> Result<(ObjectInfo, Box<dyn BodyReader>)>;

    /// Lists the objects of a bucket by key.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Io`.
    fn list(&self, query: &ListQuery) -> Result<ListPage<ObjectInfo>>;

    /// Lists the versions of a bucket by key, the newest version of a key first.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Io`.
    fn list_versions(&self, query: &ListQuery) -> Result<ListPage<ObjectInfo>>;

    /// Lists the uploads of a bucket by key.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Io`.
    fn uploads(&self, bucket: &str) -> Result<Vec<UploadInfo>>;

    /// Returns an upload.
    ///
    /// # Errors
    /// `NoSuchUpload`, `Io`.
    fn upload(&self, upload: &str) -> Result<UploadInfo>;

    /// Returns up to `limit` parts of an upload by number, from the one after `after` on.
    ///
    /// # Errors
    /// `NoSuchUpload`, `Io`.
    fn parts(&self, upload: &str, after: u16, limit: usize) -> Result<Vec<PartInfo>>;

    /// Returns the rules for events of a bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Io`.
    fn event_rules(&self, bucket: &str) -> Result<Vec<EventRule>>;

    /// Returns the outboxes by target.
    ///
    /// # Errors
    /// `Io`.
    fn outboxes(&self) -> Result<Vec<OutboxInfo>>;

    /// Returns up to `limit` events of a target, the oldest first.
    ///
    /// # Errors
    /// `Io`.
    fn events(&self, target: &str, limit: usize) -> Result<Vec<ObjectEvent>>;
}

/// Stores a body while it arrives. Its space is freed if it is dropped before the end.
pub trait BodyWriter: Send {
    /// Appends bytes. All calls but the last one have a multiple of 4 KiB.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    fn write(&mut self, data: &[u8]) -> Result<()>;

    /// Appends bytes, without a copy where the device reads them in place.
    ///
    /// # Errors
    /// As [`BodyWriter::write`].
    fn write_bytes(&mut self, data: Bytes) -> Result<()> {
        self.write(&data)
    }

    /// Returns the body for a change.
    ///
    /// # Errors
    /// `Io`.
    fn finish(self: Box<Self>) -> Result<Body>;
}

/// Bytes of a piece of a body, in which services receive and send bodies.
pub const PIECE_BYTES: usize = 1 << 20;

/// Reads the body of an open object.
pub trait BodyReader: Send + Sync {
    /// Returns up to `length` bytes from `offset` on; fewer only at the end.
    ///
    /// # Errors
    /// `Io`.
    fn read(&self, offset: u64, length: usize) -> Result<Bytes>;

    /// Begins a read as [`BodyReader::read`], without blocking. `None` if only a thread that may
    /// block can read the range. The bytes are those of the body if the reader lives until then.
    fn begin_read(&self, offset: u64, length: usize) -> Option<BodyRead> {
        let _ = (offset, length);
        None
    }
}

/// A read of a body in progress.
pub type BodyRead = Pin<Box<dyn Future<Output = Result<Bytes>> + Send + Sync>>;

/// The answer to a change, once it is durable.
pub struct Pending {
    receiver: oneshot::Receiver<Result<Outcome>>,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}

impl Pending {
    pub(crate) fn new() -> (oneshot::Sender<Result<Outcome>>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self { receiver })
    }

    /// Returns an answer that has arrived.
    pub(crate) fn ready(result: Result<Outcome>) -> Self {
        let (sender, pending) = Self::new();
        // The receiver exists.
        let _ = sender.send(result);
        pending
    }

    /// Waits for the answer on this thread.
    ///
    /// # Errors
    /// As the change.
    pub fn wait(self) -> Result<Outcome> {
        let parker = Arc::new(Parker::default());
        let waker = Waker::from(parker.clone());
        let mut pending = self;
        loop {
            if let Poll::Ready(result) = Pin::new(&mut pending).poll(&mut Context::from_waker(&waker)) {
                return result;
            }
            parker.park();
        }
    }
}

impl Future for Pending {
    type Output = Result<Outcome>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver).poll(context).map(|received| {
            received.unwrap_or_else(|_| {
                Err(ObjectError::new(ObjectErrorKind::Closed, "the object store is closed"))
            })
        })
    }
}

/// Wakes a thread that waits for an answer.
#[derive(Default)]
struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Parker {
    fn park(&self) {
        let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = self.changed.wait_while(woken, |woken| !*woken);
        *woken.unwrap_or_else(PoisonError::into_inner) = false;
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }
}
