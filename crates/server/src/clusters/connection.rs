//! A connection to a cluster, and the images that are open on it. Methods block their thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ceph::{OpenImage, RbdImage, RbdPool, Result};

/// A connection to a cluster.
pub(super) struct Connection {
    pub(super) pool: Arc<RbdPool>,
    /// The monitors and the key of the connection. A deployment under the same name has others.
    pub(super) identity: String,
    former_owners: Vec<String>,
    /// The images that are open for writing, by name.
    writable: Mutex<BTreeMap<String, Weak<RbdImage>>>,
}

impl Connection {
    pub(super) fn new(pool: Arc<RbdPool>, identity: String, former_owners: Vec<String>) -> Self {
        Self { pool, identity, former_owners, writable: Mutex::default() }
    }

    /// Opens a volume, or a snapshot `volume@snapshot`. A volume that is open for writing already
    /// is shared.
    ///
    /// # Errors
    /// As [`RbdImage::open`].
    pub(super) fn open(&self, name: &str, read_only: bool) -> Result<Arc<RbdImage>> {
        let (image, snapshot) = split(name);
        if snapshot.is_some() {
            let options = OpenImage { snapshot, read_only: true, ..OpenImage::new(image) };
            return RbdImage::open(&self.pool, &options);
        }
        // Held while the image is opened: two handles would compete for its lock.
        let mut writable = self.writable.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = writable.get(image).and_then(Weak::upgrade) {
            return Ok(open);
        }
        if read_only {
            drop(writable);
            return RbdImage::open(&self.pool, &OpenImage { read_only, ..OpenImage::new(image) });
        }
        let former_owners = self.former_owners.clone();
        let options = OpenImage { exclusive: true, former_owners, ..OpenImage::new(image) };
        let opened = RbdImage::open(&self.pool, &options)?;
        writable.retain(|_, image| image.strong_count() > 0);
        writable.insert(image.to_owned(), Arc::downgrade(&opened));
        Ok(opened)
    }

    /// Opens a volume to change its size or snapshots: the handle that has its lock, or else one
    /// without a lock.
    ///
    /// # Errors
    /// As [`RbdImage::open`].
    pub(super) fn administer(&self, image: &str) -> Result<Arc<RbdImage>> {
        let writable = self.writable.lock().unwrap_or_else(PoisonError::into_inner);
        let open = writable.get(image).and_then(Weak::upgrade);
        drop(writable);
        match open {
            Some(open) => Ok(open),
            None => RbdImage::open(&self.pool, &OpenImage::new(image)),
        }
    }
}

/// Splits a name into the image and the snapshot.
pub(super) fn split(name: &str) -> (&str, Option<String>) {
    match name.split_once('@') {
        Some((image, snapshot)) => (image, Some(snapshot.to_owned())),
        None => (name, None),
    }
}
