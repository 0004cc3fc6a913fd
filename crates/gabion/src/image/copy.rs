//! Copying images into exports and exports into images.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::{Error, ErrorKind};
use tokio::sync::Mutex;
use tokio::task::{JoinSet, spawn_blocking};

use super::extents::{BLOCK, CHUNK, ChunkIter, Source, nonzero_ranges};
use super::nbd::{Connection, NbdEndpoint};
use super::progress::{CopyCounters, per_second, show};
use super::{AtomicFile, Format, Image, RAW, of_file, qemu_img};

/// Number of connections to the export, each with one request in flight.
const CONNECTIONS: usize = 4;

/// The result of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    /// Copied bytes, without holes and zeros; `None` if another program copied them.
    pub(crate) data: Option<u64>,
    /// Duration of the copy.
    pub(crate) time: Duration,
}

impl Copied {
    /// Returns bytes per second.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.data.map(|data| per_second(data, self.time))
    }
}

/// Copies an image to an export of zeros, and flushes it.
///
/// # Errors
/// If the image or the export fails, or the image changes during the copy.
pub(crate) async fn fill(image: &Image, endpoint: &NbdEndpoint, quiet: bool) -> Result<Copied> {
    let counters = Arc::new(CopyCounters::default());
    let work = async {
        if image.format == RAW {
            fill_raw(image, endpoint, &counters).await.map(|()| true)
        } else {
            qemu_img::import(image, &endpoint.uri(), &counters).await.map(|()| false)
        }
    };
    with_progress("import", image.size, quiet, &counters, work).await
}

/// Copies an export into a new image, which is durable after `AtomicFile::persist`.
///
/// # Errors
/// If the image or the export fails, or the image has the wrong size.
pub(crate) async fn export(
    endpoint: &NbdEndpoint,
    to: &AtomicFile,
    format: Format,
    size: u64,
    quiet: bool,
) -> Result<Copied> {
    let counters = Arc::new(CopyCounters::default());
    let work = async {
        if format == Format::Raw {
            return export_raw(endpoint, to, size, &counters).await.map(|()| true);
        }
        qemu_img::export(&endpoint.uri(), to.path(), format, size, &counters).await?;
        let written = qemu_img::inspect(to.path(), Some(format))?;
        same_size(to, written.size, size)?;
        Ok(false)
    };
    with_progress("export", size, quiet, &counters, work).await
}

/// Checks that images of this format can be written on this host.
///
/// # Errors
/// If a required program is missing.
pub(crate) fn can_write(format: Format) -> Result<()> {
    match format {
        Format::Raw => Ok(()),
        Format::Qcow2 => qemu_img::check_installed(),
    }
}

fn same_size(to: &AtomicFile, written: u64, size: u64) -> Result<()> {
    if written == size {
        return Ok(());
    }
    let message = format!("{}: the image holds {written} bytes instead of {size}", to.target().display());
    Err(Error::new(ErrorKind::Io, message).into())
}

/// Runs a copy and shows its progress. The copy returns true if it counted its bytes.
async fn with_progress(
    operation: &str,
    size: u64,
    quiet: bool,
    counters: &Arc<CopyCounters>,
    work: impl Future<Output = Result<bool>>,
) -> Result<Copied> {
    let started = Instant::now();
    let is_counted = if quiet {
        work.await?
    } else {
        tokio::select! {
            done = work => done?,
            never = show(operation, size, counters.clone()) => match never {},
        }
    };
    Ok(Copied { data: is_counted.then(|| counters.moved()), time: started.elapsed() })
}

fn of_export(error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull => ErrorKind::NoSpace,
        _ => ErrorKind::Io,
    };
    let failure = Error::new(kind, format!("the volume's export: {error}"));
    match kind {
        ErrorKind::NoSpace => {
            failure.hint("the pool is full; 'gabion pool status' shows the space of each pool")
        }
        _ => failure.hint("see the daemon's log: 'journalctl -u gabion'"),
    }
}

async fn fill_raw(image: &Image, endpoint: &NbdEndpoint, counters: &Arc<CopyCounters>) -> Result<()> {
    let of_image = |error: &io::Error| of_file(&image.path, error);
    let file = File::open(&image.path).map_err(|error| of_image(&error))?;
    let before = file.metadata().map_err(|error| of_image(&error))?;
    let source = Source::File(file.try_clone().map_err(|error| of_image(&error))?);
    let chunks = Arc::new(Mutex::new(ChunkIter::new(source, image.size, counters.clone())));
    let file = Arc::new(file);
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let client = endpoint.connect().await.map_err(of_export)?;
        let work = Worker { client, file: file.clone(), chunks: chunks.clone(), counters: counters.clone() };
        let path = image.path.clone();
        clients.spawn(async move { work.fill().await.map_err(|error| error.with_file(&path)) });
    }
    join_all(clients).await?;
    let mut client = endpoint.connect().await.map_err(of_export)?;
    client.flush().await.map_err(of_export)?;
    let after = file.metadata().map_err(|error| of_image(&error))?;
    if before.len() != after.len() || before.modified().ok() != after.modified().ok() {
        let message = format!("{} changed during the copy", image.path.display());
        return Err(Error::new(ErrorKind::Busy, message)
            .hint("stop the programs that write to it, and import it again")
            .into());
    }
    Ok(())
}

async fn export_raw(
    endpoint: &NbdEndpoint,
    to: &AtomicFile,
    size: u64,
    counters: &Arc<CopyCounters>,
) -> Result<()> {
    let of_image = |error: &io::Error| of_file(to.target(), error);
    to.file().set_len(size).map_err(|error| of_image(&error))?;
    let file = Arc::new(to.file().try_clone().map_err(|error| of_image(&error))?);
    let extents_client = endpoint.connect().await.map_err(of_export)?;
    same_size(to, size, extents_client.size())?;
    let source = Source::Export { client: extents_client, pending: std::collections::VecDeque::new() };
    let chunks = Arc::new(Mutex::new(ChunkIter::new(source, size, counters.clone())));
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let client = endpoint.connect().await.map_err(of_export)?;
        let work = Worker { client, file: file.clone(), chunks: chunks.clone(), counters: counters.clone() };
        let path = to.target().to_owned();
        clients.spawn(async move { work.export().await.map_err(|error| error.with_file(&path)) });
    }
    join_all(clients).await?;
    let written = to.file().metadata().map_err(|error| of_image(&error))?;
    same_size(to, written.len(), size)
}

/// Waits for all tasks. The first error aborts the others.
async fn join_all(mut clients: JoinSet<Result<(), Error>>) -> Result<()> {
    while let Some(result) = clients.join_next().await {
        result.context("a copy task failed")??;
    }
    Ok(())
}

/// An error of a copy, by side.
enum CopyError {
    File(io::Error),
    Export(io::Error),
}

impl CopyError {
    fn with_file(self, path: &std::path::Path) -> Error {
        match self {
            Self::File(error) => of_file(path, &error),
            Self::Export(error) => of_export(error),
        }
    }
}

/// The state of one connection of a copy.
struct Worker {
    client: Connection,
    file: Arc<File>,
    chunks: Arc<Mutex<ChunkIter>>,
    counters: Arc<CopyCounters>,
}

/// Runs a blocking file operation.
async fn on_file<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, CopyError> {
    spawn_blocking(work).await.map_err(io::Error::other).flatten().map_err(CopyError::File)
}

impl Worker {
    /// Copies chunks from the file to the export, without zero blocks.
    async fn fill(mut self) -> Result<(), CopyError> {
        loop {
            let chunk = self.chunks.lock().await.next().await.map_err(CopyError::File)?;
            let Some(chunk) = chunk else { return Ok(()) };
            let (file, at) = (self.file.clone(), chunk.start);
            let length = usize::try_from(chunk.end - chunk.start).unwrap_or(0);
            let data = on_file(move || {
                // Pads the last block with zeros, which the volume holds there anyway.
                let mut data = vec![0; length.next_multiple_of(BLOCK)];
                let buffer = data.get_mut(..length).unwrap_or_default();
                file.read_exact_at(buffer, at).map(|()| data)
            })
            .await?;
            for range in nonzero_ranges(&data) {
                let part = data.get(range.clone()).unwrap_or_default();
                self.client.write(at + range.start as u64, part).await.map_err(CopyError::Export)?;
                self.counters.moved.fetch_add(part.len() as u64, Ordering::Relaxed);
            }
        }
    }

    /// Copies chunks from the export to the file. Holes stay holes.
    async fn export(mut self) -> Result<(), CopyError> {
        let mut data = Vec::with_capacity(usize::try_from(CHUNK).unwrap_or(0));
        loop {
            let chunk = self.chunks.lock().await.next().await.map_err(CopyError::Export)?;
            let Some(chunk) = chunk else { return Ok(()) };
            data.resize(usize::try_from(chunk.end - chunk.start).unwrap_or(0), 0);
            self.client.read(chunk.start, &mut data).await.map_err(CopyError::Export)?;
            let file = self.file.clone();
            data = on_file(move || file.write_all_at(&data, chunk.start).map(|()| data)).await?;
            self.counters.moved.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
    }
}
