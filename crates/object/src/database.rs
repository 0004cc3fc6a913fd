//! The database of the index. It is opened again after a full pool has failed it.
//!
//! Always true: a database that has failed never writes again, so the next one starts from its last
//! durable commit, as after a crash; nobody reads the failed one when the next one is opened, which
//! may reuse its pages.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use redb::{Database, WriteTransaction};

use crate::error::{ObjectError, ObjectErrorKind, Result};
use crate::region::IndexRegion;

/// The database in use, which readers keep.
pub(crate) type OpenDatabase<'d> = RwLockReadGuard<'d, Option<Database>>;

/// The database of the index.
pub(crate) struct IndexDatabase {
    region: IndexRegion,
    cache_bytes: usize,
    /// `None` if it could not be opened again yet.
    current: RwLock<Option<Database>>,
}

impl IndexDatabase {
    /// Opens the database in a region; creates it in an empty one.
    ///
    /// # Errors
    /// When the region fails or is damaged.
    pub(crate) fn open(region: IndexRegion, cache_bytes: usize) -> Result<Self> {
        let current = RwLock::new(Some(open(&region, cache_bytes)?));
        Ok(Self { region, cache_bytes, current })
    }

    /// Begins a commit.
    ///
    /// # Errors
    /// `NoSpace` if the database waits for space in the pool.
    pub(crate) fn begin_write(&self) -> Result<WriteTransaction> {
        in_use(&self.read())?.begin_write().map_err(failed)
    }

    /// Keeps the database in use.
    pub(crate) fn read(&self) -> OpenDatabase<'_> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the database again after it has failed. Waits for readers, and later ones wait for it.
    ///
    /// # Errors
    /// When the region fails. `NoSpace` if the pool has no space; this can be tried again.
    pub(crate) fn reopen(&self) -> Result<()> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = None;
        self.region.forget_pending();
        *current = Some(open(&self.region, self.cache_bytes)?);
        Ok(())
    }
}

/// Returns the database in use.
///
/// # Errors
/// `NoSpace` if it waits for space in the pool.
pub(crate) fn in_use<'a>(database: &'a OpenDatabase<'_>) -> Result<&'a Database> {
    let message = "the pool has no space for the index of the object store; remove volumes or snapshots, \
        or add a drive";
    database.as_ref().ok_or_else(|| ObjectError::new(ObjectErrorKind::NoSpace, message))
}

fn open(region: &IndexRegion, cache_bytes: usize) -> Result<Database> {
    let mut builder = Database::builder();
    builder.set_cache_size(cache_bytes);
    region.with_read_ahead(|| builder.create_with_backend(region.clone())).map_err(failed)
}

/// An error of the database.
pub(crate) fn failed(error: impl Into<redb::Error>) -> ObjectError {
    let error = error.into();
    let kind = match &error {
        redb::Error::Io(error) if error.kind() == std::io::ErrorKind::StorageFull => ObjectErrorKind::NoSpace,
        _ => ObjectErrorKind::Io,
    };
    ObjectError::new(kind, format!("the index of the object store failed: {error}"))
}
