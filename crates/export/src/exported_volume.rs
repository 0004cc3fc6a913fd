//! A volume as one client of an export uses it: read-only if the export is, and revocable.
//!
//! Always true: after [`Lease::revoke`] no request begins on the volume. Must not know protocols,
//! how a volume stores.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reactor::Span;

use crate::{AtomicLimits, Comparison, Execution, Extent, Volume, VolumeError, VolumeErrorKind};

/// A volume that one client, or one queue of it, has open on the reactor that serves it.
pub(crate) struct ExportedVolume<V> {
    lease: Rc<Lease<V>>,
}

/// The tie between a client and a volume. Once revoked, the client's requests fail.
pub(crate) struct Lease<V> {
    /// Counts the leases of an export, and identifies it.
    connections: Arc<AtomicU64>,
    volume: RefCell<Option<Rc<V>>>,
    sector: u32,
    read_only: bool,
}

impl<V: Volume> ExportedVolume<V> {
    /// Opens a volume for a client that `connections` counts.
    pub(crate) fn counted(volume: V, read_only: bool, connections: Arc<AtomicU64>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        let sector = volume.sector();
        let volume = RefCell::new(Some(Rc::new(volume)));
        Self { lease: Rc::new(Lease { connections, volume, sector, read_only }) }
    }

    /// Opens a volume for a client that is counted elsewhere.
    pub(crate) fn uncounted(volume: V, read_only: bool) -> Self {
        Self::counted(volume, read_only, Arc::default())
    }

    /// The lease, to revoke the volume later.
    pub(crate) fn lease(&self) -> Weak<Lease<V>> {
        Rc::downgrade(&self.lease)
    }

    fn volume(&self) -> Result<Rc<V>, VolumeError> {
        let volume = self.lease.volume.borrow().clone();
        volume.ok_or_else(|| VolumeError::new(VolumeErrorKind::Closed, "the export was removed"))
    }

    fn writable(&self) -> Result<Rc<V>, VolumeError> {
        if self.lease.read_only {
            return Err(VolumeError::new(VolumeErrorKind::ReadOnly, "the export is read-only"));
        }
        self.volume()
    }
}

impl<V> Lease<V> {
    /// True if `connections` counts this lease.
    pub(crate) fn is_counted_by(&self, connections: &Arc<AtomicU64>) -> bool {
        Arc::ptr_eq(&self.connections, connections)
    }

    /// Revokes the volume. Requests in flight keep the returned reference alive.
    pub(crate) fn revoke(&self) -> Option<Weak<V>> {
        self.volume.borrow_mut().take().map(|volume| Rc::downgrade(&volume))
    }
}

impl<V> Drop for Lease<V> {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<V: Volume> Volume for ExportedVolume<V> {
    fn size(&self) -> u64 {
        self.volume().map_or(0, |volume| volume.size())
    }

    fn sector(&self) -> u32 {
        self.lease.sector
    }

    fn read_only(&self) -> bool {
        self.lease.read_only || self.volume().is_ok_and(|volume| volume.read_only())
    }

    fn prefetch_hint(&self, offset: u64) {
        if let Some(volume) = &*self.lease.volume.borrow() {
            volume.prefetch_hint(offset);
        }
    }

    async fn read(&self, offset: u64, into: &Span) -> Result<(), VolumeError> {
        self.volume()?.read(offset, into).await
    }

    async fn write(&self, offset: u64, data: &Span) -> Result<(), VolumeError> {
        self.writable()?.write(offset, data).await
    }

    fn may_defer(&self) -> bool {
        self.lease.volume.borrow().as_ref().is_some_and(|volume| volume.may_defer())
    }

    async fn read_unless(
        &self,
        offset: u64,
        into: &Span,
        abort: impl Future<Output = ()>,
    ) -> Result<Execution, VolumeError> {
        self.volume()?.read_unless(offset, into, abort).await
    }

    async fn write_unless(
        &self,
        offset: u64,
        data: &Span,
        abort: impl Future<Output = ()>,
    ) -> Result<Execution, VolumeError> {
        self.writable()?.write_unless(offset, data, abort).await
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        self.volume()?.flush().await
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.writable()?.discard(offset, length).await
    }

    async fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.writable()?.write_zeroes(offset, length).await
    }

    async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, VolumeError> {
        self.volume()?.extents(offset, length).await
    }

    fn atomic_limits(&self) -> AtomicLimits {
        let none = AtomicLimits { bytes: self.sector(), boundary: None };
        self.volume().map_or(none, |volume| volume.atomic_limits())
    }

    async fn compare_and_write(
        &self,
        offset: u64,
        expected: &Span,
        data: &Span,
    ) -> Result<Comparison, VolumeError> {
        self.writable()?.compare_and_write(offset, expected, data).await
    }

    async fn copy_from(&self, source: &Self, from: u64, offset: u64, length: u64) -> Result<(), VolumeError> {
        let (target, source) = (self.writable()?, source.volume()?);
        target.copy_from(&source, from, offset, length).await
    }
}
