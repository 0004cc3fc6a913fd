//! An open image: its data on reactors, and its administration.
//!
//! Always true: an image that is open for writing has its exclusive lock, so that no other client
//! writes; a handle is closed on a thread of its own, because closing waits for the cluster.
//!
//! Contains unsafe code: calls of `librbd`.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reactor::Span;

use super::aio::{self, PendingOperation};
use super::diff::{ImageDiff, diff};
use super::info::{ImageInfo, ImageSnapshot};
use super::pool::RbdPool;
use crate::client::{check, text};
use crate::error::{Error, ErrorKind, Result};
use crate::library::{
    CompletionHandle, ImageHandle, LinkedImageSpec, LinkedSnapshotSpec, RbdLibrary, SnapshotSpec, Timestamp,
};

/// The feature by which one client at a time writes.
const EXCLUSIVE_LOCK: u64 = 1 << 2;
/// `RBD_LOCK_MODE_EXCLUSIVE`.
const LOCK_MODE: c_int = 0;
/// Longest identity of an image.
const ID_MAX: usize = 256;

/// The way in which an image is opened.
#[derive(Clone, Debug)]
pub struct OpenImage {
    /// Name of the image.
    pub name: String,
    /// Snapshot to open, which is read-only.
    pub snapshot: Option<String>,
    /// Refuse writes.
    pub read_only: bool,
    /// Acquire the exclusive lock, and keep it until the image is closed.
    pub exclusive: bool,
    /// Addresses of earlier runs of this daemon: their locks are broken.
    pub former_owners: Vec<String>,
}

impl OpenImage {
    /// Opens the image itself, without its lock.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            snapshot: None,
            read_only: false,
            exclusive: false,
            former_owners: Vec::new(),
        }
    }
}

/// An open image. Usable from any thread.
pub struct RbdImage {
    pool: Arc<RbdPool>,
    library: &'static RbdLibrary,
    handle: ImageHandle,
    name: String,
    read_only: bool,
    id: String,
    size: AtomicU64,
}

// SAFETY: librbd documents its handles as safe for use by several threads.
unsafe impl Send for RbdImage {}
// SAFETY: as above.
unsafe impl Sync for RbdImage {}

impl RbdImage {
    /// Opens an image. Blocks its thread.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if another client has the lock; `Io`, `Unreachable`.
    pub fn open(pool: &Arc<RbdPool>, options: &OpenImage) -> Result<Arc<Self>> {
        let name = text(&options.name)?;
        let snapshot = options.snapshot.as_deref().map(text).transpose()?;
        let snapshot = snapshot.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        let read_only = options.read_only || options.snapshot.is_some();
        let library = pool.library;
        if options.exclusive {
            // A handle of this process that is being closed still has the lock.
            pool.wait_closed(&options.name);
        }
        let open = if read_only { library.open_read_only } else { library.open };
        let mut handle = ptr::null_mut();
        // SAFETY: the context is open and outlives the image; the names outlive the call.
        let code = unsafe { open(pool.context, name.as_ptr(), &raw mut handle, snapshot) };
        check(code, &pool.what("open", &options.name))?;
        let mut image = Self {
            pool: pool.clone(),
            library,
            handle,
            name: options.name.clone(),
            read_only,
            id: String::new(),
            size: AtomicU64::new(0),
        };
        image.id = image.read_id()?;
        image.refresh_size()?;
        if options.exclusive && !read_only {
            image.acquire(&options.former_owners)?;
        }
        Ok(Arc::new(image))
    }

    /// Name within the pool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<RbdPool> {
        &self.pool
    }

    /// Identity within the pool.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// True if writes are refused.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Takes the exclusive lock for as long as the image is open.
    fn acquire(&self, former_owners: &[String]) -> Result<()> {
        let mut features = 0;
        // SAFETY: the handle is open.
        check(unsafe { (self.library.features)(self.handle, &raw mut features) }, "cannot read features")?;
        if features & EXCLUSIVE_LOCK == 0 {
            let message = format!(
                "image '{}' cannot be locked, so that two hosts could write to it at the same time",
                self.name
            );
            let hint = format!(
                "enable its feature: rbd feature enable {}/{} exclusive-lock",
                self.pool.name(),
                self.name
            );
            return Err(Error::new(ErrorKind::Invalid, message).hint(hint));
        }
        let owner = self.lock_owner();
        if let Some(owner) =
            owner.as_ref().filter(|owner| former_owners.iter().any(|former| has(former, owner)))
        {
            let owner = text(owner)?;
            // SAFETY: the handle is open, and the text outlives the call. Fences the dead process
            // off, so that none of its writes arrives later.
            let code = unsafe { (self.library.lock_break)(self.handle, LOCK_MODE, owner.as_ptr()) };
            // `NotFound`: the lock is free meanwhile.
            match check(code, &self.pool.what("break the lock of", &self.name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // SAFETY: the handle is open.
        let code = unsafe { (self.library.lock_acquire)(self.handle, LOCK_MODE) };
        check(code, &self.pool.what("lock", &self.name)).map_err(|error| match error.kind() {
            ErrorKind::ReadOnly | ErrorKind::Busy => {
                let owner = self.lock_owner().or(owner).unwrap_or_else(|| "another client".into());
                let message = format!("'{}/{}' is in use by {owner}", self.pool.cluster(), self.name);
                Error::new(ErrorKind::Busy, message)
                    .hint("delete its export on the other host, or wait 30 s if that client died")
            }
            _ => error,
        })
    }

    /// Returns the address of the client that has the lock.
    fn lock_owner(&self) -> Option<String> {
        let (mut mode, mut owner, mut count) = (0, ptr::null_mut::<c_char>(), 1);
        // SAFETY: the handle is open, and there is room for one owner; its text is copied before it
        // is freed.
        unsafe {
            let code = (self.library.lock_owners)(self.handle, &raw mut mode, &raw mut owner, &raw mut count);
            if code < 0 || count == 0 || owner.is_null() {
                return None;
            }
            let text = CStr::from_ptr(owner).to_string_lossy().into_owned();
            (self.library.lock_owners_cleanup)(&raw mut owner, count);
            Some(text)
        }
    }

    fn read_id(&self) -> Result<String> {
        let mut id = [0 as c_char; ID_MAX];
        // SAFETY: the handle is open, and the library writes a text that ends in NUL.
        unsafe {
            check((self.library.id)(self.handle, id.as_mut_ptr(), ID_MAX), "cannot read the id of an image")?;
            Ok(CStr::from_ptr(id.as_ptr()).to_string_lossy().into_owned())
        }
    }

    /// Reads the size, which another client may have changed.
    ///
    /// # Errors
    /// `Io`.
    pub fn refresh_size(&self) -> Result<()> {
        let mut size = 0;
        // SAFETY: the handle is open.
        let code = unsafe { (self.library.size)(self.handle, &raw mut size) };
        check(code, &self.pool.what("read the size of", &self.name))?;
        self.size.store(size, Ordering::Relaxed);
        Ok(())
    }

    /// Changes the size. Blocks its thread.
    ///
    /// # Errors
    /// `Invalid` for a smaller size without `shrink`; `Io`.
    pub fn resize(&self, size: u64, shrink: bool) -> Result<()> {
        // SAFETY: the handle is open; the callback has no argument.
        let code =
            unsafe { (self.library.resize)(self.handle, size, shrink, ignore_progress, ptr::null_mut()) };
        check(code, &self.pool.what("resize", &self.name))?;
        self.refresh_size()
    }

    /// Creates a snapshot of every completed write. Blocks its thread.
    ///
    /// # Errors
    /// `Exists`, `Io`.
    pub fn create_snapshot(&self, snapshot: &str) -> Result<()> {
        self.on_snapshot(self.library.snapshot_create, "take a snapshot of", snapshot)
    }

    /// Deletes a snapshot. Clones keep its data. Blocks its thread.
    ///
    /// # Errors
    /// `NotFound`, `Busy`, `Io`.
    pub fn remove_snapshot(&self, snapshot: &str) -> Result<()> {
        self.on_snapshot(self.library.snapshot_remove, "delete a snapshot of", snapshot)
    }

    /// Returns to the data of a snapshot. Blocks its thread.
    ///
    /// # Errors
    /// `NotFound`, `Busy`, `Io`.
    pub fn roll_back(&self, snapshot: &str) -> Result<()> {
        self.on_snapshot(self.library.snapshot_rollback, "roll back", snapshot)?;
        self.refresh_size()
    }

    fn on_snapshot(
        &self,
        function: unsafe extern "C" fn(ImageHandle, *const c_char) -> c_int,
        verb: &str,
        snapshot: &str,
    ) -> Result<()> {
        let name = text(snapshot)?;
        // SAFETY: the handle is open, and the name outlives the call.
        let code = unsafe { function(self.handle, name.as_ptr()) };
        check(code, &self.pool.what(verb, &format!("{}@{snapshot}", self.name)))
    }

    /// Returns the properties of the image. Blocks its thread.
    ///
    /// # Errors
    /// `Io`.
    pub fn info(&self) -> Result<ImageInfo> {
        self.refresh_size()?;
        let mut created = Timestamp { seconds: 0, nanoseconds: 0 };
        // SAFETY: the handle is open.
        let code = unsafe { (self.library.created)(self.handle, &raw mut created) };
        check(code, &self.pool.what("examine", &self.name))?;
        Ok(ImageInfo {
            name: self.name.clone(),
            id: self.id.clone(),
            size: self.size(),
            created: u64::try_from(created.seconds).unwrap_or(0),
            parent: self.parent(),
            snapshots: self.snapshots()?,
        })
    }

    /// Returns the snapshot that the image was cloned from.
    fn parent(&self) -> Option<String> {
        let mut image = MaybeUninit::<LinkedImageSpec>::zeroed();
        let mut snapshot = MaybeUninit::<LinkedSnapshotSpec>::zeroed();
        // SAFETY: the handle is open; the call sets both on success, and their texts are copied
        // before they are freed.
        unsafe {
            let code = (self.library.parent)(self.handle, image.as_mut_ptr(), snapshot.as_mut_ptr());
            if code < 0 {
                return None;
            }
            let (image, snapshot) = (image.assume_init_mut(), snapshot.assume_init_mut());
            let name = |text: *const c_char| CStr::from_ptr(text).to_string_lossy().into_owned();
            // A deleted snapshot that clones use stays in another name space.
            let found = (snapshot.namespace == 0 && !image.image_name.is_null() && !snapshot.name.is_null())
                .then(|| format!("{}@{}", name(image.image_name), name(snapshot.name)));
            (self.library.parent_cleanup)(image);
            (self.library.parent_snapshot_cleanup)(snapshot);
            found
        }
    }

    fn snapshots(&self) -> Result<Vec<ImageSnapshot>> {
        let mut room = 64;
        loop {
            let capacity = usize::try_from(room).unwrap_or(0);
            let mut list: Vec<SnapshotSpec> = Vec::with_capacity(capacity);
            let mut count = room;
            // SAFETY: the handle is open; the list has room for `count` entries.
            let code =
                unsafe { (self.library.snapshot_list)(self.handle, list.as_mut_ptr(), &raw mut count) };
            if code == -34 {
                room = count.max(room.saturating_mul(2)).saturating_add(1);
                continue;
            }
            check(code, &self.pool.what("list the snapshots of", &self.name))?;
            let length = usize::try_from(code).unwrap_or(0);
            if length == 0 {
                return Ok(Vec::new());
            }
            // SAFETY: the library has written that many entries, whose texts end in NUL; they are
            // copied before they are freed.
            return Ok(unsafe {
                list.set_len(length.min(capacity));
                let copy = |entry: &SnapshotSpec| ImageSnapshot {
                    name: CStr::from_ptr(entry.name).to_string_lossy().into_owned(),
                    id: entry.id,
                    size: entry.size,
                };
                let snapshots = list.iter().map(copy).collect();
                (self.library.snapshot_list_end)(list.as_mut_ptr());
                snapshots
            });
        }
    }

    /// Lists the ranges that differ from the snapshot `from`, or from an empty image. Blocks its
    /// thread.
    ///
    /// # Errors
    /// `NotFound`, `Io`.
    pub fn diff(
        &self,
        from: Option<&str>,
        offset: u64,
        length: u64,
        whole_objects: bool,
    ) -> Result<Vec<ImageDiff>> {
        let length = length.min(self.size().saturating_sub(offset));
        if length == 0 {
            return Ok(Vec::new());
        }
        diff(self.library, self.handle, from, (offset, length), whole_objects)
    }

    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `Invalid` beyond the end; `Io`.
    pub async fn read(&self, offset: u64, into: &Span) -> Result<()> {
        self.check_range(offset, into.len() as u64)?;
        let begin = |completion: CompletionHandle| {
            // SAFETY: the image is open; the memory stays allocated until the completion.
            unsafe { (self.library.read)(self.handle, offset, into.len(), into.as_ptr().cast(), completion) }
        };
        let result = aio::begin(self.library, Some(into.clone()), begin).await;
        if result >= 0 && result.unsigned_abs() < into.len() as u64 {
            return Err(self.beyond(offset, into.len() as u64));
        }
        self.ended(result, "read")
    }

    /// Writes `data` at `offset`. On all copies when it completes.
    ///
    /// # Errors
    /// `Invalid` beyond the end, `ReadOnly`, `NoSpace`, `Io`.
    pub async fn write(&self, offset: u64, data: &Span) -> Result<()> {
        self.check_writable(offset, data.len() as u64)?;
        let begin = |completion: CompletionHandle| {
            // SAFETY: as in `read`.
            unsafe { (self.library.write)(self.handle, offset, data.len(), data.as_ptr().cast(), completion) }
        };
        let result = aio::begin(self.library, Some(data.clone()), begin).await;
        self.ended(result, "write")
    }

    /// Waits until all writes that began before are on all copies.
    ///
    /// # Errors
    /// `Io`.
    pub async fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        // SAFETY: the image is open.
        let result = self.begin(|completion| unsafe { (self.library.flush)(self.handle, completion) }).await;
        self.ended(result, "flush")
    }

    /// Discards a range: it keeps its data or reads as zeros.
    ///
    /// # Errors
    /// As [`RbdImage::write`].
    pub async fn discard(&self, offset: u64, length: u64) -> Result<()> {
        self.check_writable(offset, length)?;
        let discard = |completion: CompletionHandle| {
            // SAFETY: the image is open.
            unsafe { (self.library.discard)(self.handle, offset, length, completion) }
        };
        let result = self.begin(discard).await;
        self.ended(result, "discard")
    }

    /// Zeroes a range, and frees whole objects in it.
    ///
    /// # Errors
    /// As [`RbdImage::write`].
    pub async fn write_zeroes(&self, offset: u64, length: u64) -> Result<()> {
        self.check_writable(offset, length)?;
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        let zero = |completion: CompletionHandle| {
            // SAFETY: the image is open.
            unsafe { (self.library.write_zeroes)(self.handle, offset, bytes, completion, 0, 0) }
        };
        let result = self.begin(zero).await;
        self.ended(result, "write zeros to")
    }

    fn begin(&self, begin: impl FnOnce(CompletionHandle) -> c_int) -> PendingOperation {
        aio::begin(self.library, None, begin)
    }

    fn check_writable(&self, offset: u64, length: u64) -> Result<()> {
        if self.read_only {
            let message = format!("'{}/{}' is open for reading only", self.pool.cluster(), self.name);
            return Err(Error::new(ErrorKind::ReadOnly, message));
        }
        self.check_range(offset, length)
    }

    fn check_range(&self, offset: u64, length: u64) -> Result<()> {
        let end = offset.checked_add(length);
        if end.is_some_and(|end| end <= self.size()) { Ok(()) } else { Err(self.beyond(offset, length)) }
    }

    fn beyond(&self, offset: u64, length: u64) -> Error {
        let (cluster, size) = (self.pool.cluster(), self.size());
        let message =
            format!("{length} bytes at {offset} are beyond the end of '{cluster}/{}' at {size}", self.name);
        Error::new(ErrorKind::Invalid, message)
    }

    fn ended(&self, result: i64, verb: &str) -> Result<()> {
        if result >= 0 { Ok(()) } else { Err(self.pool.failure(result, verb, &self.name)) }
    }
}

/// Returns true if the addresses of a client have the address of a lock's owner.
fn has(addresses: &str, owner: &str) -> bool {
    let plain = |address: &str| address.trim_start_matches("v1:").trim_start_matches("v2:").to_owned();
    addresses
        .trim_matches(['[', ']'])
        .split(',')
        .any(|address| plain(address) == plain(owner.trim_matches(['[', ']'])))
}

/// Lets a resize continue.
unsafe extern "C" fn ignore_progress(_: u64, _: u64, _: *mut c_void) -> c_int {
    0
}

impl Drop for RbdImage {
    fn drop(&mut self) {
        /// A handle on its way to the thread that closes it.
        struct Closing(Arc<RbdPool>, usize, String);
        self.pool.begin_closing(&self.name);
        let closing = Closing(self.pool.clone(), self.handle.expose_provenance(), self.name.clone());
        let close = move || {
            let Closing(pool, handle, name) = closing;
            // SAFETY: the handle is open, and this is its last user.
            unsafe { (pool.library.close)(ptr::with_exposed_provenance_mut(handle)) };
            pool.end_closing(&name);
        };
        let pool = self.pool.clone();
        if std::thread::Builder::new().name("rbd-close".into()).spawn(close).is_err() {
            // Without a thread the image stays open, and so must the pool that it uses.
            let _: &'static mut Arc<RbdPool> = Box::leak(Box::new(pool));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_owner_is_recognised_by_its_address() {
        let former = "10.61.1.1:0/3921004711";
        assert!(has(former, "10.61.1.1:0/3921004711") && has(former, "v1:10.61.1.1:0/3921004711"));
        assert!(has("[v2:10.61.1.1:0/3921004711,v1:10.61.1.1:0/3921004711]", "10.61.1.1:0/3921004711"));
        assert!(!has(former, "10.61.1.1:0/39210047") && !has("", "10.61.1.1:0/1"));
    }
}
