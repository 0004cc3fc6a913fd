//! Puts of files and of standard input.
//!
//! A short body is one request. A longer one is a multipart upload with several parts in flight;
//! the service verifies the checksum of each part, and that of the whole object at the end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use api::{Error, ErrorKind};
use bytes::Bytes;
use s3_client::{Checksum, UploadedPart};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::{JoinSet, LocalSet};

use super::progress::TransferProgress;
use super::session::ObjectSession;
use crate::image::Interrupt;

/// The least size of a part, and the largest body of a single request, in bytes.
const PART_BYTES: u64 = 16 << 20;
/// The largest number of parts of an upload.
const PARTS_MAX: u64 = 10_000;
/// Parts of a body of unknown size grow by [`PART_BYTES`] after this number of parts.
const GROWTH_INTERVAL: u64 = 1000;
/// Parts in flight.
const PARALLEL_PARTS: usize = 4;

/// The origin of a body.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
}

impl Source {
    /// Reads an argument: `-` is standard input.
    pub(crate) fn of(path: &Path) -> Self {
        if path == Path::new("-") { Self::Stdin } else { Self::File(path.to_owned()) }
    }

    /// Opens the source. Returns its size too, if it has one.
    fn open(&self) -> Result<(Box<dyn Read + Send>, Option<u64>)> {
        let Self::File(path) = self else { return Ok((Box::new(std::io::stdin()), None)) };
        let unreadable = || format!("cannot read {}", path.display());
        let file = File::open(path).with_context(unreadable)?;
        let metadata = file.metadata().with_context(unreadable)?;
        if metadata.is_dir() {
            let message = format!("{} is a directory", path.display());
            return Err(Error::new(ErrorKind::Invalid, message)
                .hint("give a file, or '-' for standard input")
                .into());
        }
        Ok((Box::new(file), metadata.is_file().then_some(metadata.len())))
    }
}

/// Puts an object. Returns the checksum and length of its body.
///
/// # Errors
/// For an unreadable source; those of the service; after a signal. No upload is left behind.
pub(crate) async fn put(
    session: &Arc<ObjectSession>,
    key: &str,
    source: &Source,
    quiet: bool,
) -> Result<Checksum> {
    let (reader, size) = source.open()?;
    put_body(session, key, reader, size, quiet).await
}

/// Puts an object from a reader; `size` is its length if that is known. Returns the checksum and
/// length of its body.
///
/// # Errors
/// When the reader or the service fails; after a signal. No upload is left behind.
pub(super) async fn put_body(
    session: &Arc<ObjectSession>,
    key: &str,
    reader: Box<dyn Read + Send>,
    size: Option<u64>,
    quiet: bool,
) -> Result<Checksum> {
    let mut interrupt = Interrupt::new()?;
    let mut parts = PartReader::new(reader, size);
    let first = interrupt.or(parts.next()).await?.unwrap_or_default();
    let bucket = &session.bucket.volume;
    if (first.len() as u64) < PART_BYTES {
        let (body, checksum) = (Bytes::from(first.clone()), Checksum::of(&first));
        let request = async || session.client.put_object(bucket, key, body.clone(), &checksum).await;
        interrupt.or(session.retry(key, request)).await?;
        return Ok(checksum);
    }
    // Not interrupted, so that the id is known and the upload can be aborted.
    let create = async || session.client.create_upload(bucket, key).await;
    let id = session.retry(key, create).await?;
    let upload = Upload { session: session.clone(), key: key.to_owned(), id };
    let mut progress = TransferProgress::new(format!("put {}/{key}", session.bucket), size, quiet);
    let local = LocalSet::new();
    let sending = local.run_until(upload.send(first, &mut parts, &mut progress));
    let done = match interrupt.or(sending).await {
        // Not interrupted either, so that the result is known.
        Ok(sent) => upload.complete(&sent).await,
        Err(error) => Err(error),
    };
    if done.is_err() {
        upload.abort().await;
    }
    done
}

/// A multipart upload.
#[derive(Clone)]
struct Upload {
    session: Arc<ObjectSession>,
    key: String,
    id: String,
}

impl Upload {
    fn names(&self) -> (&str, &str, &str) {
        (&self.session.bucket.volume, &self.key, &self.id)
    }

    /// Sends all parts, on a local set. Returns them in order.
    async fn send(
        &self,
        first: Vec<u8>,
        reader: &mut PartReader,
        progress: &mut TransferProgress,
    ) -> Result<Vec<UploadedPart>> {
        let mut sent = BTreeMap::new();
        // Dropping it ends the requests in flight.
        let mut flights = JoinSet::new();
        let (mut next, mut number) = (Some(first), 0);
        loop {
            if let Some(part) = next {
                number += 1;
                flights.spawn_local(self.clone().send_part(number, part.into()));
                next = reader.next().await?;
                if next.is_some() && flights.len() < PARALLEL_PARTS {
                    continue;
                }
            }
            let Some(done) = flights.join_next().await else { break };
            let (number, part) = done.context("a request failed")??;
            progress.add(part.checksum.length());
            sent.insert(number, part);
        }
        Ok(sent.into_values().collect())
    }

    async fn send_part(self, number: u16, part: Bytes) -> Result<(u16, UploadedPart)> {
        let request = async || self.session.client.upload_part(self.names(), number, part.clone()).await;
        let sent = self.session.retry(&self.key, request).await?;
        Ok((number, sent))
    }

    async fn complete(&self, parts: &[UploadedPart]) -> Result<Checksum> {
        let mut whole = Checksum::default();
        parts.iter().for_each(|part| whole.append(&part.checksum));
        let wanted = (whole.length(), whole.to_base64());
        let request = async || {
            let client = &self.session.client;
            let completed = client.complete_upload(self.names(), parts).await;
            match completed {
                // An earlier attempt may have succeeded without an answer.
                Err(error) if error.code() == Some("NoSuchUpload") => {
                    let head = client.head_object(&self.session.bucket.volume, &self.key).await;
                    let is_done =
                        head.is_ok_and(|head| (head.length, head.checksum.unwrap_or_default()) == wanted);
                    if is_done { Ok(()) } else { Err(error) }
                }
                completed => completed,
            }
        };
        self.session.retry(&self.key, request).await?;
        Ok(whole)
    }

    async fn abort(&self) {
        let request = async || self.session.client.abort_upload(self.names()).await;
        if let Err(error) = self.session.retry(&self.key, request).await {
            eprintln!("gabion: the upload {} of {} was not aborted: {error:#}", self.id, self.key);
        }
    }
}

/// Reads the parts of a body on a thread, one ahead. The end of the process ends the thread, which
/// may wait for standard input.
struct PartReader {
    parts: Receiver<io::Result<Vec<u8>>>,
}

impl PartReader {
    fn new(mut reader: Box<dyn Read + Send>, size: Option<u64>) -> Self {
        let (sender, parts) = channel(1);
        std::thread::spawn(move || {
            for number in 0.. {
                let length = part_length(number, size);
                let part = read_part(&mut *reader, length);
                let is_end = part.as_ref().map_or(true, |part| (part.len() as u64) < length);
                let is_empty = number > 0 && part.as_ref().is_ok_and(Vec::is_empty);
                if is_empty || sender.blocking_send(part).is_err() || is_end {
                    break;
                }
            }
        });
        Self { parts }
    }

    /// Returns the next part, or `None` at the end of the body.
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        self.parts.recv().await.transpose().context("cannot read the body")
    }
}

/// Returns the length of a part by its number from 0 on.
fn part_length(number: u64, size: Option<u64>) -> u64 {
    match size {
        Some(size) => PART_BYTES.max(size.div_ceil(PARTS_MAX).next_multiple_of(1 << 20)),
        None => PART_BYTES * (1 + number / GROWTH_INTERVAL),
    }
}

fn read_part(reader: &mut dyn Read, length: u64) -> io::Result<Vec<u8>> {
    let mut part = Vec::new();
    reader.take(length).read_to_end(&mut part)?;
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_objects_fit_into_the_parts_of_an_upload() {
        for size in [5 << 40, (5 << 40) - 1, 200 << 30, 100] {
            let length = part_length(0, Some(size));
            assert!(size.div_ceil(length) <= PARTS_MAX && length <= 5 << 30, "{size}");
        }
        let unknown: u64 = (0..PARTS_MAX).map(|number| part_length(number, None)).sum();
        assert!(unknown > 800 << 30);
    }

    #[tokio::test]
    async fn a_body_is_cut_into_parts() {
        let whole = PART_BYTES * 2;
        for (length, expected) in [(0, vec![0]), (5, vec![5]), (whole, vec![PART_BYTES; 2])] {
            let mut reader = PartReader::new(Box::new(io::repeat(1).take(length)), None);
            let mut found = Vec::new();
            while let Some(part) = reader.next().await.unwrap() {
                found.push(part.len() as u64);
            }
            assert_eq!(found, expected);
        }
    }
}
