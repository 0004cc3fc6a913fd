//! Copying images into volumes and volumes into images.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::counters::CopyCounters;
use super::extents::{BLOCK, ChunkIter, Source, nonzero_ranges};
use super::volume_io::VolumeIo;
use super::{AtomicFile, Image, file_error};
use crate::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::operations::Progress;

/// Number of chunks that are copied in parallel.
const CHUNKS_IN_FLIGHT: usize = 4;

/// Copies a raw image to a volume of zeros, and flushes it.
///
/// # Errors
/// If the image or the volume fails, or the image changes during the copy; `Cancelled`.
pub(super) async fn fill_raw(
    image: &Image,
    volume: &VolumeIo,
    counters: &Arc<CopyCounters>,
    progress: &Progress,
) -> Result<()> {
    let of_image = |error: std::io::Error| file_error(&image.path, &error);
    let file = File::open(&image.path).map_err(of_image)?;
    let before = file.metadata().map_err(of_image)?;
    let source = Source::File { file: file.try_clone().map_err(of_image)?, path: image.path.clone() };
    let chunks = ChunkIter::new(source, image.size, counters.clone());
    let worker = Worker::new(volume, &file, &image.path, chunks, counters, progress).map_err(of_image)?;
    run(&worker, |worker| async move { worker.fill().await }).await?;
    volume.flush().await?;
    let after = file.metadata().map_err(of_image)?;
    if before.len() != after.len() || before.modified().ok() != after.modified().ok() {
        let message = format!("{} changed during the copy", image.path.display());
        return Err(Error::new(ErrorKind::Busy, message)
            .hint("stop the programs that write to it, and import it again"));
    }
    Ok(())
}

/// Copies a snapshot into a new raw image, which is durable after [`AtomicFile::persist`].
///
/// # Errors
/// If the image or the volume fails; `Cancelled`.
pub(super) async fn export_raw(
    volume: &VolumeIo,
    to: &AtomicFile,
    counters: &Arc<CopyCounters>,
    progress: &Progress,
) -> Result<()> {
    let of_image = |error: std::io::Error| file_error(to.target(), &error);
    to.file().set_len(volume.size()).map_err(of_image)?;
    let source = Source::Volume { volume: volume.clone(), pending: VecDeque::new() };
    let chunks = ChunkIter::new(source, volume.size(), counters.clone());
    let worker = Worker::new(volume, to.file(), to.target(), chunks, counters, progress).map_err(of_image)?;
    run(&worker, |worker| async move { worker.export().await }).await
}

/// Runs copies of a worker in parallel, and waits until all of them have ended: no I/O is in flight
/// afterwards. Returns the first error.
async fn run<F>(worker: &Worker, work: impl Fn(Worker) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for _ in 0..CHUNKS_IN_FLIGHT {
        tasks.spawn(work(worker.clone()));
    }
    let mut result = Ok(());
    while let Some(ended) = tasks.join_next().await {
        let bug = |panic| Error::new(ErrorKind::Internal, format!("a copy ended because of a bug: {panic}"));
        let ended = ended.map_err(bug).flatten();
        if ended.is_err() {
            worker.chunks.lock().await.stop();
        }
        result = result.and(ended);
    }
    result
}

/// The state that the parallel copies share.
#[derive(Clone)]
struct Worker {
    volume: VolumeIo,
    file: Arc<File>,
    path: Arc<PathBuf>,
    chunks: Arc<Mutex<ChunkIter>>,
    counters: Arc<CopyCounters>,
    progress: Progress,
}

impl Worker {
    fn new(
        volume: &VolumeIo,
        file: &File,
        path: &Path,
        chunks: ChunkIter,
        counters: &Arc<CopyCounters>,
        progress: &Progress,
    ) -> std::io::Result<Self> {
        Ok(Self {
            volume: volume.clone(),
            file: Arc::new(file.try_clone()?),
            path: Arc::new(path.to_owned()),
            chunks: Arc::new(Mutex::new(chunks)),
            counters: counters.clone(),
            progress: progress.clone(),
        })
    }

    /// Returns the next chunk and its length.
    async fn next(&self) -> Result<Option<(u64, usize)>> {
        self.progress.check_cancelled()?;
        let chunk = self.chunks.lock().await.next().await?;
        self.progress.done(self.counters.done(), self.volume.size());
        let length = |chunk: &std::ops::Range<u64>| usize::try_from(chunk.end - chunk.start).ok();
        Ok(chunk.and_then(|chunk| Some((chunk.start, length(&chunk)?))))
    }

    /// Runs a file operation off the API's thread.
    async fn on_file<T: Send + 'static>(
        &self,
        work: impl FnOnce(&File) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let file = self.file.clone();
        let result = blocking(move || work(&file)).await?;
        result.map_err(|error| file_error(&self.path, &error))
    }

    /// Copies chunks from the file to the volume, without zero blocks.
    async fn fill(self) -> Result<()> {
        while let Some((at, length)) = self.next().await? {
            let read = move |file: &File| {
                // Pads the last block with zeros, which the volume holds there anyway.
                let mut data = vec![0; length.next_multiple_of(BLOCK)];
                let buffer = data.get_mut(..length).unwrap_or_default();
                file.read_exact_at(buffer, at).map(|()| data)
            };
            let data = self.on_file(read).await?;
            for range in nonzero_ranges(&data) {
                let part = data.get(range.clone()).unwrap_or_default().to_vec();
                let bytes = part.len();
                self.volume.write(at + range.start as u64, part).await?;
                self.counters.add_moved(bytes);
            }
        }
        Ok(())
    }

    /// Copies chunks from the volume to the file. Holes stay holes.
    async fn export(self) -> Result<()> {
        while let Some((at, length)) = self.next().await? {
            let data = self.volume.read(at, length).await?;
            self.on_file(move |file| file.write_all_at(&data, at)).await?;
            self.counters.add_moved(length);
        }
        Ok(())
    }
}
