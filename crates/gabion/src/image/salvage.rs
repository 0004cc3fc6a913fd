//! Copies a volume of a salvaged pool into a sparse raw image.
//!
//! Always true: unreadable ranges are holes in the image, and all of them are listed; the target
//! name never refers to a partial image.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context, Result};
use api::types::{ByteRange, SalvagedImage, UnreadableRange};
use server::image::{AtomicFile, BLOCK, CHUNK, file_error, nonzero_ranges};
use server::salvage::{ExtentState, ReadPart, Salvage};
use tokio::task::{JoinSet, spawn_blocking};

use super::Interrupt;
use super::progress::{CopyCounters, show};

/// Number of chunks that are read in parallel.
const CHUNKS_IN_FLIGHT: usize = 8;

/// The progress of a copy.
#[derive(Default)]
struct SalvageCopy {
    written: u64,
    lost: Vec<UnreadableRange>,
    stale: Vec<ByteRange>,
}

/// Writes an image of a volume or snapshot. An interruption removes the partial image.
///
/// # Errors
/// If the image cannot be written.
pub(crate) async fn salvage_image(
    pool: &Arc<Salvage>,
    name: &str,
    path: &Path,
    force: bool,
    quiet: bool,
    interrupt: &mut Interrupt,
) -> Result<SalvagedImage> {
    let started = Instant::now();
    let size =
        pool.report().volumes.iter().find(|volume| volume.name == name).map_or(0, |volume| volume.size);
    let output_file = AtomicFile::new(path, force)?;
    output_file.file().set_len(size).map_err(|error| file_error(output_file.target(), &error))?;
    let counters = Arc::new(CopyCounters::default());
    let copy = async {
        if quiet {
            return copy(pool, name, size, &output_file, &counters).await;
        }
        tokio::select! {
            done = copy(pool, name, size, &output_file, &counters) => done,
            never = show("salvage", size, counters.clone()) => match never {},
        }
    };
    let mut copy = interrupt.or(copy).await?;
    // A signal that arrived after the copy.
    interrupt.or(async { Ok(()) }).await?;
    copy.lost.sort_by_key(|range| range.offset);
    copy.lost.dedup_by(|next, last| {
        let follows = last.offset + last.length == next.offset;
        if follows {
            last.length += next.length;
        }
        follows
    });
    let file = output_file.target().to_string_lossy().into_owned();
    output_file.persist()?;
    Ok(SalvagedImage {
        volume: name.to_owned(),
        file,
        size,
        written_bytes: copy.written,
        lost_bytes: copy.lost.iter().map(|range| range.length).sum(),
        lost: copy.lost,
        stale_bytes: copy.stale.iter().map(|range| range.length).sum(),
        stale_ranges: copy.stale,
        seconds: started.elapsed().as_secs_f64(),
    })
}

async fn copy(
    pool: &Arc<Salvage>,
    name: &str,
    size: u64,
    to: &AtomicFile,
    counters: &Arc<CopyCounters>,
) -> Result<SalvageCopy> {
    let mut done = SalvageCopy::default();
    let file = Arc::new(to.file().try_clone().map_err(|error| file_error(to.target(), &error))?);
    let accepts_stale = pool.report().accepts_stale;
    let mut reading = JoinSet::new();
    let mut at = 0;
    let mut pending = VecDeque::new();
    while at < size {
        if pending.is_empty() {
            pending.extend(pool.extents(name, at).await?);
        }
        let Some(extent) = pending.pop_front() else { break };
        let range = ByteRange { offset: at, length: extent.length.min(size - at) };
        at += range.length;
        counters.done.store(range.offset, Ordering::Relaxed);
        if extent.state == ExtentState::Lost || extent.stale && !accepts_stale {
            // One read returns the reason for the whole extent.
            let part = pool.read(name, range.offset, first_block(range)).await?;
            let reason = part.unreadable.into_iter().next().map(|range| range.reason).unwrap_or_default();
            done.lost.push(UnreadableRange { offset: range.offset, length: range.length, reason });
            continue;
        }
        if extent.stale {
            note_stale(&mut done.stale, range);
        }
        if extent.state == ExtentState::Hole {
            continue;
        }
        let mut next = range.offset;
        while next < at {
            let until = at.min((next / CHUNK + 1) * CHUNK);
            if reading.len() >= CHUNKS_IN_FLIGHT {
                join_one(&mut reading, &mut done, counters).await?;
            }
            let (pool, name, file) = (pool.clone(), name.to_owned(), file.clone());
            let path = to.target().to_owned();
            reading.spawn(async move { copy_chunk(&pool, &name, next..until, file, &path).await });
            next = until;
        }
    }
    while !reading.is_empty() {
        join_one(&mut reading, &mut done, counters).await?;
    }
    counters.done.store(size, Ordering::Relaxed);
    Ok(done)
}

/// The result of a chunk: number of written bytes, and unreadable ranges.
type ChunkResult = Result<(u64, Vec<UnreadableRange>)>;

async fn join_one(
    reading: &mut JoinSet<ChunkResult>,
    done: &mut SalvageCopy,
    counters: &CopyCounters,
) -> Result<()> {
    let Some(result) = reading.join_next().await else { return Ok(()) };
    let (written, lost) = result.context("a read task failed")??;
    done.written += written;
    counters.moved.fetch_add(written, Ordering::Relaxed);
    done.lost.extend(lost);
    Ok(())
}

/// Copies one chunk without zero blocks.
async fn copy_chunk(
    pool: &Salvage,
    name: &str,
    range: std::ops::Range<u64>,
    file: Arc<std::fs::File>,
    path: &Path,
) -> ChunkResult {
    let length = usize::try_from(range.end - range.start).unwrap_or(0);
    let ReadPart { bytes, unreadable } = pool.read(name, range.start, length).await?;
    let write = move || {
        let mut written = 0;
        for part in nonzero_ranges(&bytes) {
            let data = bytes.get(part.clone()).unwrap_or_default();
            file.write_all_at(data, range.start + part.start as u64)?;
            written += data.len() as u64;
        }
        Ok(written)
    };
    let written = spawn_blocking(write).await.map_err(std::io::Error::other).flatten();
    Ok((written.map_err(|error| file_error(path, &error))?, unreadable))
}

/// Returns the length of the first block of a range, which may be shorter than a block.
fn first_block(range: ByteRange) -> usize {
    usize::try_from(range.length).unwrap_or(BLOCK).min(BLOCK)
}

fn note_stale(stale: &mut Vec<ByteRange>, range: ByteRange) {
    match stale.last_mut() {
        Some(last) if last.offset + last.length == range.offset => last.length += range.length,
        _ => stale.push(range),
    }
}
