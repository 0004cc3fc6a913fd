//! Mirrors of a directory or a bucket in a bucket of a pool.
//!
//! Listings of both sides are compared by key, so an interrupted mirror continues where it ended,
//! and needs memory for a page of each. Always true: an object appears in the bucket only if its
//! body is complete and verified; an object that only the bucket has stays.

use std::cmp::Ordering;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use api::{Error, ErrorKind, Size};
use bytes::Bytes;
use s3_client::{ListPage, ListRequest};
use serde::Serialize;
use tokio::sync::mpsc::channel;
use tokio::task::{JoinSet, LocalSet};

use super::mirror_source::{MirrorEntry, MirrorSource, Origin, PageBuffer, PieceReader};
use super::put::{Source, put, put_body};
use super::session::ObjectSession;
use crate::image::Interrupt;
use crate::progress::StatusLine;

/// Objects in flight.
const PARALLEL_OBJECTS: usize = 4;
/// Pieces of a body in memory.
const PIECES: usize = 16;
/// Failures that the result names.
const FAILURES_MAX: usize = 100;
/// Interval of the lines without a terminal; the first one comes after two seconds.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
const FIRST_LINE: Duration = Duration::from_secs(2);

/// The settings of a mirror.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MirrorOptions {
    /// Compare only.
    pub(crate) dry_run: bool,
    /// ETags of one of the sides are not MD5s.
    pub(crate) ignore_etags: bool,
    pub(crate) quiet: bool,
}

/// The result of a mirror.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct MirrorResult {
    /// True if nothing was copied, and `copied` would have been.
    pub(crate) dry_run: bool,
    pub(crate) copied: u64,
    pub(crate) copied_bytes: u64,
    /// Objects that the bucket had already.
    pub(crate) unchanged: u64,
    pub(crate) failed: u64,
    /// The first failures.
    pub(crate) failures: Vec<String>,
}

impl MirrorResult {
    fn fail(&mut self, failure: String) {
        self.failed += 1;
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(failure);
        }
    }
}

/// True if the bucket has the object already: the same size, and the same MD5 or a later time.
/// Times are in seconds, so the source may have changed after a copy of the same second.
fn is_current(wanted: &MirrorEntry, found: &MirrorEntry, ignore_etags: bool) -> bool {
    if wanted.size != found.size {
        return false;
    }
    match (wanted.md5(), found.md5()) {
        (Some(wanted), Some(found)) if !ignore_etags => wanted.eq_ignore_ascii_case(found),
        _ => wanted.modified.zip(found.modified).is_some_and(|(wanted, found)| found > wanted),
    }
}

/// The object of the bucket for each key of the source, which are in order.
struct Existing<'s> {
    session: &'s ObjectSession,
    prefix: String,
    pages: PageBuffer,
    next: Option<MirrorEntry>,
}

impl Existing<'_> {
    async fn find(&mut self, key: &str) -> Result<Option<MirrorEntry>> {
        let (session, prefix) = (self.session, self.prefix.as_str());
        let list = async |token: Option<&str>| -> Result<ListPage> {
            let request = ListRequest { prefix, token, limit: 1000, ..ListRequest::default() };
            session.retry("", async || session.client.list(&session.bucket.volume, &request).await).await
        };
        loop {
            match self.next.as_ref().map(|next| next.key.as_str().cmp(key)) {
                Some(Ordering::Greater) => return Ok(None),
                Some(Ordering::Equal) => return Ok(self.next.take()),
                Some(Ordering::Less) | None => self.next = self.pages.next(list).await?,
            }
            if self.next.is_none() {
                return Ok(None);
            }
        }
    }
}

/// Copies what the bucket of the session lacks. `show` is called for each object to be copied.
///
/// # Errors
/// When a listing fails; when the pool is full or the quota of the bucket is reached; after a
/// signal. Failures of single objects are in the result.
pub(crate) async fn mirror(
    session: &Arc<ObjectSession>,
    mut source: MirrorSource,
    options: MirrorOptions,
    show: impl FnMut(&MirrorEntry) -> Result<()>,
) -> Result<MirrorResult> {
    let mut run = MirrorRun {
        session: session.clone(),
        options,
        result: MirrorResult { dry_run: options.dry_run, ..MirrorResult::default() },
        flights: JoinSet::new(),
        full: None,
        line: StatusLine::new(options.quiet),
        next_line: Instant::now() + FIRST_LINE,
    };
    std::mem::take(&mut source.refused).into_iter().for_each(|failure| run.result.fail(failure));
    let local = LocalSet::new();
    local
        .run_until(async {
            let compared = run.compare(&mut source, show).await;
            // Also after a signal, which ends the transfers in flight and aborts their uploads.
            while run.join().await {}
            compared
        })
        .await?;
    match run.full {
        None => Ok(run.result),
        Some(error) => {
            Err(error.context(format!("the mirror stopped after {} objects", run.result.copied)).into())
        }
    }
}

/// A mirror in progress.
struct MirrorRun {
    session: Arc<ObjectSession>,
    options: MirrorOptions,
    result: MirrorResult,
    flights: JoinSet<(MirrorEntry, Result<()>)>,
    /// The reason why the bucket takes no more objects.
    full: Option<Error>,
    line: StatusLine,
    next_line: Instant,
}

impl MirrorRun {
    /// Compares both sides, and begins a transfer for each difference.
    async fn compare(
        &mut self,
        source: &mut MirrorSource,
        mut show: impl FnMut(&MirrorEntry) -> Result<()>,
    ) -> Result<()> {
        let mut interrupt = Interrupt::new()?;
        let (session, prefix) = (self.session.clone(), source.prefix().to_owned());
        let mut existing = Existing { session: &session, prefix, pages: PageBuffer::default(), next: None };
        while let Some(entry) = or_signal(&mut interrupt, source.next()).await? {
            let found = or_signal(&mut interrupt, existing.find(&entry.key)).await?;
            self.progress();
            if found.is_some_and(|found| is_current(&entry, &found, self.options.ignore_etags)) {
                self.result.unchanged += 1;
                continue;
            }
            show(&entry)?;
            if self.options.dry_run {
                self.count(&entry);
                continue;
            }
            if self.flights.len() >= PARALLEL_OBJECTS {
                self.join().await;
            }
            if self.full.is_some() {
                break;
            }
            let (session, origin) = (session.clone(), source.origin.clone());
            let is_md5 = !self.options.ignore_etags;
            self.flights.spawn_local(async move {
                let copied = copy(&session, &origin, &entry, is_md5).await;
                (entry, copied)
            });
        }
        Ok(())
    }

    /// Waits for the end of a transfer. Returns false if there is none.
    async fn join(&mut self) -> bool {
        let Some(joined) = self.flights.join_next().await else { return false };
        match joined {
            Ok((entry, Ok(()))) => self.count(&entry),
            Ok((entry, Err(error))) => match full(&error) {
                Some(full) => drop(self.full.get_or_insert(full)),
                None => self.result.fail(format!("{}: {error:#}", entry.key)),
            },
            Err(error) => self.result.fail(format!("a transfer failed: {error}")),
        }
        self.progress();
        true
    }

    fn count(&mut self, entry: &MirrorEntry) {
        self.result.copied += 1;
        self.result.copied_bytes += entry.size;
    }

    fn progress(&mut self) {
        let MirrorResult { copied, copied_bytes, unchanged, failed, .. } = &self.result;
        let text = format!(
            "mirror {}: {copied} objects copied ({}), {unchanged} unchanged, {failed} failed",
            self.session.bucket,
            Size(*copied_bytes)
        );
        self.line.show(&text);
        let is_due = !self.options.quiet && Instant::now() >= self.next_line;
        if is_due && !std::io::stderr().is_terminal() {
            eprintln!("{text}");
            self.next_line = Instant::now() + LINE_INTERVAL;
        }
    }
}

/// Returns the error of a full pool or bucket, which all other objects would get too.
fn full(error: &anyhow::Error) -> Option<Error> {
    error.downcast_ref::<Error>().filter(|error| error.kind() == ErrorKind::NoSpace).cloned()
}

/// Waits for the end of some work, or for a signal.
async fn or_signal<T>(interrupt: &mut Interrupt, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        biased;
        () = interrupt.wait() => {
            let message = "interrupted; the objects that were copied stay";
            Err(Error::new(ErrorKind::Io, message).hint("the same command continues").into())
        }
        done = work => done,
    }
}

/// Copies an object.
async fn copy(
    session: &Arc<ObjectSession>,
    origin: &Origin,
    entry: &MirrorEntry,
    is_md5: bool,
) -> Result<()> {
    let key = &entry.key;
    let bucket = match origin {
        Origin::Directory(root) => {
            let path = root.join(key);
            let stored = put(session, key, &Source::File(path.clone()), true).await?;
            if stored.length() == entry.size {
                return Ok(());
            }
            let message = format!("{} changed during the transfer", path.display());
            return Err(Error::new(ErrorKind::Busy, message).hint("run the command again").into());
        }
        Origin::Bucket(bucket) => bucket,
    };
    let (sender, pieces) = channel(PIECES);
    let reader = Box::new(PieceReader { pieces, current: Bytes::new() });
    let sending = async {
        let sent = bucket.send(entry, is_md5, &sender).await;
        // The end of the body.
        drop(sender);
        sent
    };
    let (sent, stored) = tokio::join!(sending, put_body(session, key, reader, Some(entry.size), true));
    // The error of the source is the reason for that of the put.
    sent.and(stored.map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(size: u64, etag: Option<&str>, second: i64) -> MirrorEntry {
        let modified = jiff::Timestamp::from_second(second).ok();
        MirrorEntry { key: "k".to_owned(), size, etag: etag.map(str::to_owned), modified }
    }

    #[test]
    fn objects_with_the_same_md5_or_a_later_time_are_current() {
        let (one, other) = ("00112233445566778899aabbccddeeff", "ff112233445566778899aabbccddeeff");
        for (wanted, found, ignore_etags, expected) in [
            (entry(1, Some(one), 9), entry(1, Some(one), 5), false, true),
            (entry(1, Some(one), 5), entry(1, Some(other), 9), false, false),
            (entry(1, Some(one), 5), entry(1, Some(other), 9), true, true),
            (entry(1, Some(one), 5), entry(2, Some(one), 9), true, false),
            (entry(1, Some("0-2"), 5), entry(1, Some("1-3"), 6), false, true),
            (entry(1, Some("0-2"), 5), entry(1, Some("1-3"), 5), false, false),
            (entry(1, None, 6), entry(1, Some(one), 5), false, false),
        ] {
            assert_eq!(is_current(&wanted, &found, ignore_etags), expected, "{wanted:?} {found:?}");
        }
    }
}
