//! A volume of the engine as the export room wants one, which can be taken away from its client.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::AttachedVolume;
use export::{Extent, VolumeError, VolumeErrorKind};
use reactor::Span;

use super::table::Active;

/// A volume that one client has open, on the reactor that serves it.
pub(super) struct ExportedVolume {
    lease: Rc<Lease>,
}

/// What ties a client to a volume. Revoked, it gives the volume back, and the client's requests fail.
pub(super) struct Lease {
    active: Arc<AtomicU64>,
    attached: RefCell<Option<Rc<AttachedVolume>>>,
    sector: u32,
    read_only: bool,
}

impl ExportedVolume {
    /// The volume for the reactor that runs on this thread, for one client.
    pub(super) fn open(active: &Active, read_only: bool) -> Self {
        Self::counted(&active.volume, active.connections.clone(), read_only)
    }

    /// The volume for the reactor that runs on this thread, for one of the queues of a client, which counts itself.
    pub(super) fn of(volume: &engine::Volume, read_only: bool) -> Self {
        Self::counted(volume, Arc::default(), read_only)
    }

    fn counted(volume: &engine::Volume, active: Arc<AtomicU64>, read_only: bool) -> Self {
        active.fetch_add(1, Ordering::Relaxed);
        let attached = volume.attach();
        let lease = Lease {
            active,
            sector: attached.sector(),
            attached: RefCell::new(Some(Rc::new(attached))),
            read_only,
        };
        Self { lease: Rc::new(lease) }
    }

    /// For taking the volume away later.
    pub(super) fn lease(&self) -> Weak<Lease> {
        Rc::downgrade(&self.lease)
    }

    fn attached(&self) -> Result<Rc<AttachedVolume>, VolumeError> {
        let attached = self.lease.attached.borrow().clone();
        attached.ok_or_else(|| VolumeError::new(VolumeErrorKind::Closed, "the export was ended"))
    }
}

impl Lease {
    /// True if it is on a volume that is exported as `active`.
    pub(super) fn is_on(&self, active: &Active) -> bool {
        Arc::ptr_eq(&self.active, &active.connections)
    }

    /// Takes the volume away; what is in flight still holds what it gives.
    pub(super) fn revoke(&self) -> Option<Weak<AttachedVolume>> {
        self.attached.borrow_mut().take().map(|attached| Rc::downgrade(&attached))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl export::Volume for ExportedVolume {
    fn size(&self) -> u64 {
        self.attached().map_or(0, |volume| volume.size())
    }

    fn sector(&self) -> u32 {
        self.lease.sector
    }

    fn read_only(&self) -> bool {
        self.lease.read_only
    }

    fn expect(&self, offset: u64) {
        if let Some(attached) = &*self.lease.attached.borrow() {
            attached.expect(offset);
        }
    }

    fn prefetch_hint(&self, offset: u64) {
        if let Some(attached) = &*self.lease.attached.borrow() {
            attached.prefetch_hint(offset);
        }
    }

    async fn read(&self, offset: u64, into: &Span) -> Result<(), VolumeError> {
        self.attached()?.read(offset, into).await.map_err(translate)
    }

    async fn write(&self, offset: u64, data: &Span) -> Result<(), VolumeError> {
        self.writable()?.write(offset, data).await.map_err(translate)
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        self.attached()?.flush().await.map_err(translate)
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.writable()?.discard(offset, length).await.map_err(translate)
    }

    async fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.writable()?.write_zeroes(offset, length).await.map_err(translate)
    }

    async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, VolumeError> {
        let found = self.attached()?.extents(offset, length).await.map_err(translate)?;
        Ok(found.into_iter().map(|extent| Extent { length: extent.length, data: extent.data }).collect())
    }
}

impl ExportedVolume {
    fn writable(&self) -> Result<Rc<AttachedVolume>, VolumeError> {
        if self.lease.read_only {
            return Err(VolumeError::new(VolumeErrorKind::ReadOnly, "the export is read-only"));
        }
        self.attached()
    }
}

fn translate(error: engine::Error) -> VolumeError {
    use engine::ErrorKind as Engine;
    let kind = match error.kind() {
        Engine::NoSpace => VolumeErrorKind::NoSpace,
        Engine::Invalid => VolumeErrorKind::Invalid,
        Engine::ReadOnly => VolumeErrorKind::ReadOnly,
        Engine::Closed | Engine::NotFound => VolumeErrorKind::Closed,
        Engine::Io
        | Engine::Corrupt
        | Engine::PoolFailed
        | Engine::Exists
        | Engine::Busy
        | Engine::NotAPool
        | Engine::Stale
        | Engine::Version => VolumeErrorKind::Io,
    };
    VolumeError::new(kind, error.to_string())
}
