//! Imports and exports of images as operations of the daemon.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::copy::{export_raw, fill_raw};
use super::counters::CopyCounters;
use super::nbd::PrivateNbd;
use super::volume_io::VolumeIo;
use super::{AtomicFile, Image, RAW, format_to_write, invalid, qemu_img};
use crate::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::operations::{Operations, Progress};
use crate::pools::Pools;
use crate::reactors::Reactors;
use crate::request;
use crate::state::{State, UnfinishedRecord};
use api::Size;
use api::types::{CreateVolume, ExportImage, ImageCopy, ImageFormat, ImportImage, OperationKind, Volume};

/// Volume sizes are multiples of this many bytes.
const VOLUME_UNIT: u64 = 4096;
/// Interval between two updates of the progress of qemu-img.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Performs the copies between images and volumes.
pub(crate) struct ImageOperations {
    pools: Arc<Pools>,
    reactors: Arc<Reactors>,
    state: Arc<State>,
    /// Directory of the private sockets.
    runtime_directory: PathBuf,
}

impl ImageOperations {
    pub(crate) fn new(
        pools: Arc<Pools>,
        reactors: Arc<Reactors>,
        state: Arc<State>,
        runtime_directory: PathBuf,
    ) -> Self {
        Self { pools, reactors, state, runtime_directory }
    }

    /// Deletes the volumes that copies before a crash of the daemon have left in a pool. Each
    /// deletion is an operation.
    pub(crate) async fn clean_up(self: &Arc<Self>, pool: &str, operations: &Arc<Operations>) {
        let unfinished = self.state.get().unfinished;
        for record in unfinished.into_iter().filter(|record| record.pool == pool) {
            let found = self.pools.volume(pool, &record.volume).await;
            if found.is_ok_and(|volume| volume.id == record.id) {
                tracing::warn!(pool, volume = record.volume, "deleting an incomplete copy of an image");
                let (images, target) = (self.clone(), format!("{pool}/{}", record.volume));
                let delete = |progress| async move { images.delete(&record, &progress).await };
                if let Err(error) = operations.start(OperationKind::VolumeDelete, &target, delete) {
                    tracing::warn!(pool, %error, "an incomplete copy of an image is not deleted yet");
                }
            } else if let Err(error) = self.forget(&record) {
                tracing::warn!(pool, %error, "cannot update the list of unfinished copies");
            }
        }
    }

    /// Records a volume that must not survive a crash of the daemon.
    fn record(&self, volume: &Volume) -> Result<UnfinishedRecord> {
        let Volume { pool, name, id, .. } = volume.clone();
        let record = UnfinishedRecord { pool, volume: name, id };
        self.state.update(|state| state.unfinished.push(record.clone()))?;
        Ok(record)
    }

    fn forget(&self, record: &UnfinishedRecord) -> Result<()> {
        self.state.update(|state| state.unfinished.retain(|other| other != record))
    }

    async fn delete(&self, record: &UnfinishedRecord, progress: &Progress) -> Result<()> {
        self.pools.delete_volume(&record.pool, &record.volume, progress).await?;
        self.forget(record)
    }

    /// Creates a volume from an image.
    ///
    /// # Errors
    /// If the image cannot be read, or the volume cannot be created or written; the volume is
    /// deleted then.
    pub(crate) async fn import(&self, pool: &str, request: ImportImage, progress: &Progress) -> Result<()> {
        let ImportImage { name, file, format, size, sector, shards } = request;
        let path = request::path(&file)?;
        let image = blocking(move || Image::inspect(&path, format)).await??;
        let size = volume_size(&image, size)?;
        let create = CreateVolume { sector, shards, ..CreateVolume::new(&name, size) };
        let created = self.pools.create_volume(pool, create).await?;
        let counters = Arc::new(CopyCounters::default());
        progress.step(format!("copying {}, in bytes", image.description()));
        if let Err(error) = self.fill_new(&created, &image, &counters, progress).await {
            return Err(self.roll_back(&created, error, progress).await);
        }
        let copied = (image.format == RAW).then(|| counters.moved());
        progress.set_image(ImageCopy { file, format: image.format, size, copied, allocated: None });
        Ok(())
    }

    /// Copies an image to a new volume. A crash of the daemon before the end deletes the volume.
    async fn fill_new(
        &self,
        volume: &Volume,
        image: &Image,
        counters: &Arc<CopyCounters>,
        progress: &Progress,
    ) -> Result<()> {
        let record = self.record(volume)?;
        self.fill(&volume.pool, &volume.name, image, counters, progress).await?;
        // A cancellation after the copy counts as well.
        progress.check_cancelled()?;
        self.forget(&record)
    }

    /// Deletes the volume of a failed import. Returns the error of the import.
    async fn roll_back(&self, volume: &Volume, error: Error, progress: &Progress) -> Error {
        let Volume { pool, name, id, .. } = volume.clone();
        progress.step("deleting the incomplete volume");
        let record = UnfinishedRecord { pool: pool.clone(), volume: name.clone(), id };
        match self.delete(&record, progress).await {
            Ok(()) => error,
            Err(failure) => {
                tracing::error!(pool, volume = name, error = %failure, "cannot delete an incomplete volume");
                let message = format!("{error}; volume '{pool}/{name}' is incomplete: {failure}");
                Error::new(error.kind(), message)
                    .hint(format!("delete it: 'gabion volume delete {pool}/{name}'"))
            }
        }
    }

    async fn fill(
        &self,
        pool: &str,
        name: &str,
        image: &Image,
        counters: &Arc<CopyCounters>,
        progress: &Progress,
    ) -> Result<()> {
        let volume = self.pools.open_volume(pool, name).await?;
        let reactor = self.reactors.next();
        if image.format == RAW {
            return fill_raw(image, &VolumeIo::new(volume, reactor), counters, progress).await;
        }
        let socket = PrivateNbd::serve(volume, &reactor, &self.socket(progress)).await?;
        let uri = socket.uri();
        let convert = qemu_img::import(image, &uri, counters);
        let converted = with_progress(convert, counters, image.size, progress).await;
        socket.shut_down().await;
        converted
    }

    /// Writes a volume or snapshot to an image. A volume is copied from a temporary snapshot.
    ///
    /// # Errors
    /// If the volume cannot be read or the image cannot be written; the file does not appear then.
    pub(crate) async fn export(
        &self,
        pool: &str,
        name: &str,
        request: ExportImage,
        progress: &Progress,
    ) -> Result<()> {
        let ExportImage { file, format, replace } = request;
        let path = request::path(&file)?;
        let format = format.map_or_else(|| format_to_write(&path), Ok)?;
        let volume = self.pools.volume(pool, name).await?;
        if format != ImageFormat::Raw {
            blocking(qemu_img::check_installed).await??;
        }
        let output = Arc::new(blocking(move || AtomicFile::new(&path, replace)).await??);
        let counters = Arc::new(CopyCounters::default());
        let copied = if volume.snapshot {
            self.export_snapshot(pool, name, format, &output, &counters, progress).await
        } else {
            let snapshot = format!("{name}@image-{:016x}", request::random()?);
            let created = self.pools.create_snapshot(pool, &snapshot).await?;
            let record = self.record(&created);
            let copied = match &record {
                Ok(_) => self.export_snapshot(pool, &snapshot, format, &output, &counters, progress).await,
                Err(error) => Err(error.clone()),
            };
            progress.step("deleting the temporary snapshot");
            let deleted = match &record {
                Ok(record) => self.delete(record, progress).await,
                Err(_) => self.pools.delete_volume(pool, &snapshot, progress).await,
            };
            if let Err(error) = deleted {
                tracing::error!(pool, snapshot, %error, "cannot delete a temporary snapshot");
            }
            copied
        };
        copied?;
        progress.step("writing the image to its disk");
        let (written, target) = (output.clone(), output.target().to_owned());
        let disk_usage = blocking(move || written.disk_usage()).await??;
        progress.check_cancelled()?;
        match Arc::try_unwrap(output) {
            Ok(output) => blocking(move || output.persist()).await??,
            Err(_) => return Err(Error::new(ErrorKind::Internal, "a copy of an image has not ended")),
        }
        progress.set_image(ImageCopy {
            file: target.to_string_lossy().into_owned(),
            format: format.name().to_owned(),
            size: volume.size,
            copied: (format == ImageFormat::Raw).then(|| counters.moved()),
            allocated: Some(disk_usage),
        });
        Ok(())
    }

    async fn export_snapshot(
        &self,
        pool: &str,
        name: &str,
        format: ImageFormat,
        output: &Arc<AtomicFile>,
        counters: &Arc<CopyCounters>,
        progress: &Progress,
    ) -> Result<()> {
        let snapshot = self.pools.open_volume(pool, name).await?;
        let (reactor, size) = (self.reactors.next(), snapshot.size());
        progress.step(format!("copying {pool}/{name} ({}), in bytes", Size(size)));
        if format == ImageFormat::Raw {
            return export_raw(&VolumeIo::new(snapshot, reactor), output, counters, progress).await;
        }
        let socket = PrivateNbd::serve(snapshot, &reactor, &self.socket(progress)).await?;
        let uri = socket.uri();
        let convert = qemu_img::export(&uri, output.path(), format, size, counters);
        let converted = with_progress(convert, counters, size, progress).await;
        socket.shut_down().await;
        converted?;
        let written = output.clone();
        let image = blocking(move || qemu_img::inspect(written.path(), Some(format))).await??;
        if image.size != size {
            let (path, written) = (output.target(), image.size);
            let message = format!("{}: the image holds {written} bytes instead of {size}", path.display());
            return Err(Error::new(ErrorKind::Io, message));
        }
        Ok(())
    }

    fn socket(&self, progress: &Progress) -> PathBuf {
        self.runtime_directory.join(format!("image-{}.sock", progress.id()))
    }
}

/// Returns the size of a new volume for an image.
fn volume_size(image: &Image, requested: Option<u64>) -> Result<u64> {
    match requested {
        Some(size) if size < image.size => {
            let message = format!(
                "a size of {size} bytes is smaller than the disk in the image ({} bytes)",
                image.size
            );
            Err(invalid(message).hint("omit the size, or give a larger one"))
        }
        Some(size) => Ok(size),
        None => Ok(image.size.next_multiple_of(VOLUME_UNIT)),
    }
}

/// Runs qemu-img, reports its progress, and ends it when the operation is cancelled.
async fn with_progress(
    convert: impl Future<Output = Result<()>>,
    counters: &CopyCounters,
    size: u64,
    progress: &Progress,
) -> Result<()> {
    let report = async {
        loop {
            progress.done(counters.done(), size);
            tokio::time::sleep(PROGRESS_INTERVAL).await;
        }
    };
    tokio::select! {
        converted = progress.unless_cancelled(convert) => converted,
        never = report => never,
    }
}
