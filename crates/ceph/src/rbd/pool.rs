//! A pool of images, and their administration. Methods block their thread.
//!
//! Always true: the context outlives every open image of the pool; an image is deleted only after
//! this process has closed it.
//!
//! Contains unsafe code: calls of `librbd`.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::client::{RadosClient, RadosOptions, check, errno, text};
use crate::error::{Error, ErrorKind, Result};
use crate::library::{self, ImageSpec, IoContext, RbdLibrary};

/// Settings of the connection. Without a cache, a completed write is on all copies. The libraries
/// copy the data of writes, because guests may change theirs meanwhile. Exports limit the requests
/// in flight: a second limit in the library would block the reactor. Clones do not protect their
/// snapshot from deletion.
const SETTINGS: [(&str, &str); 5] = [
    ("rbd_cache", "false"),
    ("rbd_disable_zero_copy_writes", "true"),
    ("objecter_inflight_ops", "0"),
    ("objecter_inflight_op_bytes", "0"),
    ("rbd_default_clone_format", "2"),
];
/// `RBD_IMAGE_OPTION_DATA_POOL`.
const DATA_POOL_OPTION: c_int = 10;
/// Limit of waiting for an image that is being closed.
const CLOSE_WAIT: Duration = Duration::from_secs(60);
/// Size of a list of images that fits most pools.
const LIST_FIRST: usize = 256;
/// `ERANGE`: the list is longer than the buffer.
const TOO_LONG: i32 = -34;

/// A pool of images. Usable from any thread.
pub struct RbdPool {
    pub(super) client: Arc<RadosClient>,
    pub(super) library: &'static RbdLibrary,
    pub(super) context: IoContext,
    name: String,
    /// Number of handles that are being closed, by image.
    closing: Mutex<BTreeMap<String, usize>>,
    closed: Condvar,
}

// SAFETY: librados and librbd document their contexts as safe for use by several threads.
unsafe impl Send for RbdPool {}
// SAFETY: as above.
unsafe impl Sync for RbdPool {}

impl RbdPool {
    /// Connects to a cluster and opens a pool.
    ///
    /// # Errors
    /// As [`RadosClient::connect`]; `NotFound` without the pool.
    pub fn connect(options: &RadosOptions, name: &str) -> Result<Arc<Self>> {
        let library = library::rbd()?;
        let client = RadosClient::connect_with(options, &SETTINGS)?;
        let context = client.open_pool(name).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                let message = format!("cluster '{}' has no pool '{name}' for volumes", options.cluster);
                Error::new(ErrorKind::NotFound, message)
                    .hint(format!("run 'gabion cluster services {}'", options.cluster))
            }
            _ => error,
        })?;
        let (closing, closed) = (Mutex::default(), Condvar::new());
        Ok(Arc::new(Self { client, library, context, name: name.to_owned(), closing, closed }))
    }

    /// Name of the pool.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Name of the cluster.
    pub fn cluster(&self) -> &str {
        self.client.cluster()
    }

    /// Addresses of this connection, by which the locks of images name their owner.
    pub fn addresses(&self) -> String {
        self.client.addresses()
    }

    /// Number of the pool in the cluster.
    pub fn id(&self) -> i64 {
        self.client.pool_id(self.context)
    }

    /// Prepares the pool for images, and sets the pool of their data if it is another one.
    ///
    /// # Errors
    /// `Io`, `Unreachable`.
    pub fn initialise(&self, data_pool: Option<&str>) -> Result<()> {
        // SAFETY: the context is open.
        let code = unsafe { (self.library.pool_init)(self.context, false) };
        check(code, &format!("cannot prepare pool '{}' for images", self.name))?;
        let Some(data) = data_pool else { return Ok(()) };
        let data = text(data)?;
        let key = c"conf_rbd_default_data_pool";
        // SAFETY: the context is open, and the texts outlive the call.
        let code = unsafe { (self.library.pool_metadata_set)(self.context, key.as_ptr(), data.as_ptr()) };
        check(code, &format!("cannot set the data pool of pool '{}'", self.name))
    }

    /// Creates an image. Its data is in `data_pool`, or else in the default pool of data.
    ///
    /// # Errors
    /// `Exists`, `Invalid`, `NotFound` without the pool of its data, `NoSpace`, `Io`.
    pub fn create(&self, name: &str, size: u64, data_pool: Option<&str>) -> Result<()> {
        let (image, data) = (text(name)?, data_pool.map(text).transpose()?);
        let mut options = ptr::null_mut();
        // SAFETY: the first call sets the options, which are destroyed below; the texts outlive
        // the calls.
        let code = unsafe {
            (self.library.options_create)(&raw mut options);
            let set = data
                .as_ref()
                .map_or(0, |pool| (self.library.options_set_text)(options, DATA_POOL_OPTION, pool.as_ptr()));
            let code = if set < 0 {
                set
            } else {
                (self.library.create)(self.context, image.as_ptr(), size, options)
            };
            (self.library.options_destroy)(options);
            code
        };
        let place = data_pool.map_or(String::new(), |pool| format!(" with its data in pool '{pool}'"));
        check(code, &(self.what("create", name) + &place)).map_err(|error| match data_pool {
            Some(pool) if error.kind() == ErrorKind::NotFound => {
                let message = format!("cluster '{}' has no pool '{pool}'", self.cluster());
                Error::new(ErrorKind::NotFound, message).hint(data_pool_hint(self.cluster(), pool))
            }
            Some(pool) if error.kind() != ErrorKind::Exists => {
                error.hint(data_pool_hint(self.cluster(), pool))
            }
            _ => error,
        })
    }

    /// Creates an image from a snapshot, whose data it shares.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Io`.
    pub fn clone_image(&self, image: &str, snapshot: &str, name: &str) -> Result<()> {
        let (parent, of, child) = (text(image)?, text(snapshot)?, text(name)?);
        let mut options = ptr::null_mut();
        // SAFETY: as in `create`; both contexts are that of this pool.
        let code = unsafe {
            (self.library.options_create)(&raw mut options);
            let code = (self.library.clone)(
                self.context,
                parent.as_ptr(),
                of.as_ptr(),
                self.context,
                child.as_ptr(),
                options,
            );
            (self.library.options_destroy)(options);
            code
        };
        check(code, &self.what("clone a snapshot to", name))
    }

    /// Deletes an image without snapshots, and its data.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if it has snapshots or another client uses it; `Io`.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.wait_closed(name);
        let image = text(name)?;
        // SAFETY: the context is open, and the name outlives the call.
        let code = unsafe { (self.library.remove)(self.context, image.as_ptr()) };
        check(code, &self.what("delete", name)).map_err(|error| match error.kind() {
            ErrorKind::Busy => error.hint(
                "it has snapshots, or another client uses it; the lock of a client that died expires after 30 s",
            ),
            _ => error,
        })
    }

    /// Returns the names of the images, sorted.
    ///
    /// # Errors
    /// `Io`, `Unreachable`.
    pub fn images(&self) -> Result<Vec<String>> {
        let mut room = LIST_FIRST;
        loop {
            let mut list: Vec<ImageSpec> = Vec::with_capacity(room);
            let mut count = room;
            // SAFETY: the list has room for `count` entries; the call sets the number of entries.
            let code = unsafe { (self.library.list)(self.context, list.as_mut_ptr(), &raw mut count) };
            if code == TOO_LONG {
                room = count.max(room * 2);
                continue;
            }
            check(code, &format!("cannot list the images of cluster '{}'", self.cluster()))?;
            // SAFETY: the library has written that many entries, whose texts end in NUL; they are
            // copied before the cleanup frees them.
            let mut names: Vec<String> = unsafe {
                list.set_len(count.min(room));
                let names =
                    list.iter().map(|image| CStr::from_ptr(image.name).to_string_lossy().into_owned());
                let names = names.collect();
                (self.library.list_cleanup)(list.as_mut_ptr(), list.len());
                names
            };
            names.sort();
            return Ok(names);
        }
    }

    /// Counts a handle that is being closed.
    pub(super) fn begin_closing(&self, image: &str) {
        *self.closing.lock().unwrap_or_else(PoisonError::into_inner).entry(image.to_owned()).or_default() +=
            1;
    }

    /// Ends the count of [`RbdPool::begin_closing`].
    pub(super) fn end_closing(&self, image: &str) {
        let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = closing.get_mut(image) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                closing.remove(image);
            }
        }
        drop(closing);
        self.closed.notify_all();
    }

    /// Waits a limited time until handles of an image that are being closed are closed.
    pub(super) fn wait_closed(&self, image: &str) {
        let closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        // The caller finds out whether the image is free.
        drop(self.closed.wait_timeout_while(closing, CLOSE_WAIT, |closing| closing.contains_key(image)));
    }

    /// Waits a limited time until no handle is being closed. Returns false after the limit.
    pub fn wait_idle(&self, limit: Duration) -> bool {
        let closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        match self.closed.wait_timeout_while(closing, limit, |closing| !closing.is_empty()) {
            Ok((_, waited)) => !waited.timed_out(),
            Err(_) => false,
        }
    }

    /// Names an operation on an image, for errors.
    pub(super) fn what(&self, verb: &str, image: &str) -> String {
        format!("cannot {verb} '{}/{image}'", self.cluster())
    }

    /// Returns the error of an operation on an image.
    pub(super) fn failure(&self, code: i64, verb: &str, image: &str) -> Error {
        errno(code, &self.what(verb, image))
    }
}

/// Returns the command that creates a pool of data for images, or permits its use.
fn data_pool_hint(cluster: &str, pool: &str) -> String {
    format!("'gabion cluster services {cluster} --pool {pool}=ec:2+2,rbd' creates a pool for data of volumes")
}

impl Drop for RbdPool {
    fn drop(&mut self) {
        self.client.close_pool(self.context);
    }
}
