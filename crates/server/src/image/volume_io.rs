//! I/O to a volume from threads other than reactors.

use std::sync::Arc;

use engine::{AttachedVolume, Extent, Volume};
use reactor::{Buffer, Remote};

use crate::error::Result;

/// A volume, with the reactor that performs its I/O.
#[derive(Clone)]
pub(super) struct VolumeIo {
    volume: Arc<Volume>,
    reactor: Remote,
}

impl VolumeIo {
    pub(super) fn new(volume: Volume, reactor: Remote) -> Self {
        Self { volume: Arc::new(volume), reactor }
    }

    /// Returns the size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.volume.size()
    }

    /// Reads `length` bytes. Offset and length are multiples of the sector size.
    ///
    /// # Errors
    /// The engine's error.
    pub(super) async fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let read = async move |volume: AttachedVolume| {
            let buffer = Buffer::new(length);
            volume.read(offset, &buffer.span()).await?;
            Ok(buffer.as_slice().to_vec())
        };
        self.call(read).await
    }

    /// Writes bytes. Offset and length are multiples of the sector size.
    ///
    /// # Errors
    /// The engine's error.
    pub(super) async fn write(&self, offset: u64, data: Vec<u8>) -> Result<()> {
        let write =
            async move |volume: AttachedVolume| volume.write(offset, &Buffer::copy_of(&data).span()).await;
        self.call(write).await
    }

    /// Makes all completed writes durable.
    ///
    /// # Errors
    /// The engine's error.
    pub(super) async fn flush(&self) -> Result<()> {
        self.call(async move |volume: AttachedVolume| volume.flush().await).await
    }

    /// Returns the extents from `offset` on, or the first part of them if there are many.
    ///
    /// # Errors
    /// The engine's error.
    pub(super) async fn extents(&self, offset: u64) -> Result<Vec<Extent>> {
        let length = self.size().saturating_sub(offset);
        self.call(async move |volume: AttachedVolume| volume.extents(offset, length).await).await
    }

    async fn call<T, F>(&self, work: F) -> Result<T>
    where
        F: AsyncFnOnce(AttachedVolume) -> engine::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let volume = self.volume.clone();
        Ok(self.reactor.call(move || async move { work(volume.attach()).await }).await??)
    }
}
