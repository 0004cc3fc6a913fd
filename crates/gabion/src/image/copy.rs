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

use super::extents::{BLOCK, PIECE, Pieces, Source, not_zero};
use super::nbd::{Connection, Place};
use super::progress::{Counted, per_second, show};
use super::{Beside, Format, Image, RAW, of_file, program};

/// Connections to the export, each with one request under way.
const CONNECTIONS: usize = 4;

/// What was copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    /// Bytes that were moved, if we moved them ourselves: the others were holes or zeros.
    pub(crate) data: Option<u64>,
    /// How long that took.
    pub(crate) time: Duration,
}

impl Copied {
    /// Bytes in each second.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.data.map(|data| per_second(data, self.time))
    }
}

/// Copies an image to an export of zeros, durably.
///
/// # Errors
/// When the image or the export fails, or the image changes meanwhile.
pub(crate) async fn fill(image: &Image, place: &Place, quiet: bool) -> Result<Copied> {
    let counted = Arc::new(Counted::default());
    let work = async {
        if image.format == RAW {
            fill_raw(image, place, &counted).await.map(|()| true)
        } else {
            program::import(image, &place.uri(), &counted).await.map(|()| false)
        }
    };
    shown("import", image.size, quiet, &counted, work).await
}

/// Copies an export into a new image, durable once it is put in place.
///
/// # Errors
/// When the image or the export fails, or what came of it is of another size.
pub(crate) async fn export(
    place: &Place,
    to: &Beside,
    format: Format,
    size: u64,
    quiet: bool,
) -> Result<Copied> {
    let counted = Arc::new(Counted::default());
    let work = async {
        if format == Format::Raw {
            return export_raw(place, to, size, &counted).await.map(|()| true);
        }
        program::export(&place.uri(), to.path(), format, size, &counted).await?;
        let written = program::look(to.path(), Some(format))?;
        same_size(to, written.size, size)?;
        Ok(false)
    };
    shown("export", size, quiet, &counted, work).await
}

/// Fails early if an image of this format cannot be written here.
///
/// # Errors
/// What is missing.
pub(crate) fn can_write(format: Format) -> Result<()> {
    match format {
        Format::Raw => Ok(()),
        Format::Qcow2 => program::find(),
    }
}

fn same_size(to: &Beside, written: u64, size: u64) -> Result<()> {
    if written == size {
        return Ok(());
    }
    let message = format!("{}: it holds {written} bytes instead of {size}", to.target().display());
    Err(Error::new(ErrorKind::Io, message).into())
}

/// Does the work, and shows how far it is meanwhile. The work says whether it counted what it moved.
async fn shown(
    what: &str,
    size: u64,
    quiet: bool,
    counted: &Arc<Counted>,
    work: impl Future<Output = Result<bool>>,
) -> Result<Copied> {
    let started = Instant::now();
    let has_counted = if quiet {
        work.await?
    } else {
        tokio::select! {
            done = work => done?,
            never = show(what, size, counted.clone()) => match never {},
        }
    };
    Ok(Copied { data: has_counted.then(|| counted.moved()), time: started.elapsed() })
}

fn of_export(error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull => ErrorKind::NoSpace,
        _ => ErrorKind::Io,
    };
    let known = Error::new(kind, format!("the volume's export: {error}"));
    match kind {
        ErrorKind::NoSpace => known.hint("the pool is full; 'gabion pool status' says how full each is"),
        _ => known.hint("the daemon's log says why: 'journalctl -u gabion'"),
    }
}

async fn fill_raw(image: &Image, place: &Place, counted: &Arc<Counted>) -> Result<()> {
    let of_image = |error: &io::Error| of_file(&image.path, error);
    let file = File::open(&image.path).map_err(|error| of_image(&error))?;
    let before = file.metadata().map_err(|error| of_image(&error))?;
    let source = Source::File(file.try_clone().map_err(|error| of_image(&error))?);
    let pieces = Arc::new(Mutex::new(Pieces::new(source, image.size, counted.clone())));
    let file = Arc::new(file);
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let client = place.connect().await.map_err(of_export)?;
        let work = Work { client, file: file.clone(), pieces: pieces.clone(), counted: counted.clone() };
        let path = image.path.clone();
        clients.spawn(async move { work.fill().await.map_err(|failed| failed.with_file(&path)) });
    }
    all(clients).await?;
    let mut client = place.connect().await.map_err(of_export)?;
    client.flush().await.map_err(of_export)?;
    let after = file.metadata().map_err(|error| of_image(&error))?;
    if before.len() != after.len() || before.modified().ok() != after.modified().ok() {
        let message = format!("{} was written while it was copied", image.path.display());
        return Err(Error::new(ErrorKind::Busy, message)
            .hint("stop what uses it, then import it again")
            .into());
    }
    Ok(())
}

async fn export_raw(place: &Place, to: &Beside, size: u64, counted: &Arc<Counted>) -> Result<()> {
    let of_image = |error: &io::Error| of_file(to.target(), error);
    to.file().set_len(size).map_err(|error| of_image(&error))?;
    let file = Arc::new(to.file().try_clone().map_err(|error| of_image(&error))?);
    let scout = place.connect().await.map_err(of_export)?;
    same_size(to, size, scout.size())?;
    let source = Source::Export { client: scout, told: std::collections::VecDeque::new() };
    let pieces = Arc::new(Mutex::new(Pieces::new(source, size, counted.clone())));
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let client = place.connect().await.map_err(of_export)?;
        let work = Work { client, file: file.clone(), pieces: pieces.clone(), counted: counted.clone() };
        let path = to.target().to_owned();
        clients.spawn(async move { work.export().await.map_err(|failed| failed.with_file(&path)) });
    }
    all(clients).await?;
    let written = to.file().metadata().map_err(|error| of_image(&error))?;
    same_size(to, written.len(), size)
}

/// Waits for all of them; the first that fails ends the others.
async fn all(mut clients: JoinSet<Result<(), Error>>) -> Result<()> {
    while let Some(ended) = clients.join_next().await {
        ended.context("a connection was lost sight of")??;
    }
    Ok(())
}

/// Who failed.
enum Failed {
    File(io::Error),
    Export(io::Error),
}

impl Failed {
    fn with_file(self, path: &std::path::Path) -> Error {
        match self {
            Self::File(error) => of_file(path, &error),
            Self::Export(error) => of_export(error),
        }
    }
}

/// One connection's part of a copy.
struct Work {
    client: Connection,
    file: Arc<File>,
    pieces: Arc<Mutex<Pieces>>,
    counted: Arc<Counted>,
}

/// Does something that may wait for the file's drive.
async fn on_file<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Failed> {
    spawn_blocking(work).await.map_err(io::Error::other).flatten().map_err(Failed::File)
}

impl Work {
    /// Copies pieces from the file to the export, without their zeros.
    async fn fill(mut self) -> Result<(), Failed> {
        loop {
            let piece = self.pieces.lock().await.next().await.map_err(Failed::File)?;
            let Some(piece) = piece else { return Ok(()) };
            let (file, at) = (self.file.clone(), piece.start);
            let length = usize::try_from(piece.end - piece.start).unwrap_or(0);
            let data = on_file(move || {
                // Whole blocks, whatever the image's end: zeros behind it are what the volume has there.
                let mut data = vec![0; length.next_multiple_of(BLOCK)];
                let place = data.get_mut(..length).unwrap_or_default();
                file.read_exact_at(place, at).map(|()| data)
            })
            .await?;
            for range in not_zero(&data) {
                let part = data.get(range.clone()).unwrap_or_default();
                self.client.write(at + range.start as u64, part).await.map_err(Failed::Export)?;
                self.counted.moved.fetch_add(part.len() as u64, Ordering::Relaxed);
            }
        }
    }

    /// Copies pieces from the export to the file, whose holes stay where it has no data.
    async fn export(mut self) -> Result<(), Failed> {
        let mut data = Vec::with_capacity(usize::try_from(PIECE).unwrap_or(0));
        loop {
            let piece = self.pieces.lock().await.next().await.map_err(Failed::Export)?;
            let Some(piece) = piece else { return Ok(()) };
            data.resize(usize::try_from(piece.end - piece.start).unwrap_or(0), 0);
            self.client.read(piece.start, &mut data).await.map_err(Failed::Export)?;
            let file = self.file.clone();
            data = on_file(move || file.write_all_at(&data, piece.start).map(|()| data)).await?;
            self.counted.moved.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
    }
}
