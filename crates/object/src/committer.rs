//! The thread that applies changes: all waiting changes in one commit of the index.
//!
//! Always true: bodies are durable before the index refers to them; a change is answered after its
//! commit is durable; after a failed flush, or another failure than that of a full pool, no change
//! is applied.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use futures_channel::oneshot;

use crate::allocator::BodyRun;
use crate::body::Body;
use crate::body_file::padded;
use crate::database::IndexDatabase;
use crate::error::{ObjectError, ObjectErrorKind, Result};
use crate::event_signal::EventSignalSender;
use crate::events::ChangeSource;
use crate::index::{ChangedRuns, IndexSnapshot, IndexTxn, failed};
use crate::space::{BodySpace, StoredBody, allocate};
use crate::types::{Change, Outcome, PutObject, PutPart};
use crate::volume::BLOCK;

/// The largest number of changes in one commit.
const GROUP_MAX: usize = 256;
/// The bytes of bodies in memory after which a group is closed.
const GROUP_BYTES_MAX: u64 = 32 << 20;
/// Larger bodies are written to runs; smaller ones become part of the index.
const INLINE_MAX: usize = 1024;
/// The frontier advances by this, when fewer than `FREE_BYTES_MIN` bytes are free.
const FRONTIER_STEP: u64 = 16 << 30;
const FREE_BYTES_MIN: u64 = 1 << 30;
/// The largest write of bodies at once, in bytes.
const WRITE_MAX: usize = 1 << 20;

/// A request to the committer.
pub(crate) enum CommitRequest {
    /// A change with its sender, and the receiver of its answer.
    Change(Box<(Change, ChangeSource)>, oneshot::Sender<Result<Outcome>>),
    /// Makes new blocks available.
    Advance(Sender<Result<()>>),
    /// Ends the thread after a clean commit.
    Close,
}

/// The state of the thread that applies changes.
pub(crate) struct Committer {
    pub(crate) database: Arc<IndexDatabase>,
    pub(crate) space: Arc<BodySpace>,
    /// The number of commits that changed buckets.
    pub(crate) settings_epoch: Arc<AtomicU64>,
    /// The largest number of events that wait for a target.
    pub(crate) outbox_max: u64,
    pub(crate) event_signal: Arc<EventSignalSender>,
    /// The error of the commit or flush that failed.
    pub(crate) failed: Option<ObjectError>,
    /// The runs of a commit that a full pool failed, until the index is open again.
    pub(crate) uncertain: Option<BTreeSet<BodyRun>>,
}

/// A change and its sender.
type SentChange = (Change, ChangeSource);
type QueuedChange = (SentChange, oneshot::Sender<Result<Outcome>>);

impl Committer {
    /// Applies changes until the store is closed.
    pub(crate) fn run(mut self, requests: &Receiver<CommitRequest>) {
        while let Ok(first) = requests.recv() {
            let mut group = Group::default();
            let mut is_open = group.add(first);
            while is_open && !group.is_full() {
                match requests.try_recv() {
                    Ok(request) => is_open = group.add(request),
                    Err(_) => break,
                }
            }
            self.commit_group(group);
            if !is_open {
                break;
            }
        }
        if self.failed.is_none()
            && let Err(error) = self.close()
        {
            tracing::warn!(%error, "the object store was not closed cleanly");
        }
    }

    fn commit_group(&mut self, group: Group) {
        let Group { changes, advances, .. } = group;
        let changes = self.write_bodies(changes);
        if changes.is_empty() && advances.is_empty() {
            return;
        }
        let (changes, senders): (Vec<_>, Vec<_>) = changes.into_iter().unzip();
        let (results, advanced) = match self.commit(changes, !advances.is_empty()) {
            Ok(results) => (results, Ok(())),
            Err(error) => (vec![Err(error.clone()); senders.len()], Err(error)),
        };
        for (result, sender) in results.into_iter().zip(senders) {
            answer(sender, result);
        }
        for sender in advances {
            // The writer may have given up.
            let _ = sender.send(advanced.clone());
        }
    }

    /// Writes the bodies in memory to runs, and flushes these and all bodies that were written
    /// while they arrived. Refuses changes whose body cannot be stored; returns the others.
    fn write_bodies(&mut self, changes: Vec<QueuedChange>) -> Vec<QueuedChange> {
        let mut writes: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut placed = Vec::with_capacity(changes.len());
        for (mut change, sender) in changes {
            match self.place_body(&mut change.0, &mut writes) {
                Ok(()) => placed.push((change, sender)),
                Err(error) => answer(sender, Err(error)),
            }
        }
        if !placed.iter().any(|((change, _), _)| has_runs(change)) {
            return placed;
        }
        let written = if writes.is_empty() { Ok(()) } else { self.space.volume().write_many(writes) };
        if let Err(error) = written {
            let error = ObjectError::from(error);
            let (refused, others): (Vec<_>, Vec<_>) =
                placed.into_iter().partition(|((change, _), _)| has_runs(change));
            refused.into_iter().for_each(|(_, sender)| answer(sender, Err(error.clone())));
            return others;
        }
        // A failed flush may have lost bodies of later changes too, which a flush that succeeds
        // afterwards does not show: no change is applied any longer.
        if let Err(error) = self.space.volume().flush() {
            self.failed.get_or_insert_with(|| error.into());
        }
        placed
    }

    fn place_body(&mut self, change: &mut Change, writes: &mut Vec<(u64, Vec<u8>)>) -> Result<()> {
        if let Change::Put(PutObject { body, .. }) | Change::PutPart(PutPart { body, .. }) = change
            && let Body::Bytes(bytes) = body
            && bytes.len() > INLINE_MAX
        {
            *body = Body::Stored(self.place(bytes, writes)?);
        }
        Ok(())
    }

    fn place(&mut self, bytes: &[u8], writes: &mut Vec<(u64, Vec<u8>)>) -> Result<StoredBody> {
        let space = self.space.clone();
        let runs = allocate(&space, bytes.len() as u64, || self.advance())?;
        let mut rest: &[u8] = &padded(bytes);
        for run in &runs {
            let count = usize::try_from(run.blocks * BLOCK).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at(count);
            match writes.last_mut() {
                Some((start, data))
                    if *start + data.len() as u64 == run.start * BLOCK && data.len() < WRITE_MAX =>
                {
                    data.extend_from_slice(now);
                }
                _ => writes.push((run.start * BLOCK, now.to_vec())),
            }
            rest = later;
        }
        Ok(StoredBody::new(space, runs, bytes.len() as u64))
    }

    fn advance(&mut self) -> Result<()> {
        self.commit(Vec::new(), true).map(drop)
    }

    /// Applies changes in one commit. Returns their results.
    ///
    /// # Errors
    /// When the index fails, for all changes. After another failure than that of a full pool, no
    /// change is applied any longer.
    fn commit(&mut self, changes: Vec<SentChange>, advance: bool) -> Result<Vec<Result<Outcome>>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut runs = ChangedRuns::default();
        let committed = self.reopen_index().and_then(|()| self.try_commit(changes, advance, &mut runs));
        let Err(error) = committed else { return committed };
        let mut failure = Some(&error).filter(|error| error.kind() != ObjectErrorKind::NoSpace).cloned();
        if failure.is_none() {
            // If the index waits for space already, this commit has no runs.
            self.uncertain.get_or_insert_default().extend(runs.added.into_iter().chain(runs.freed));
            // If there is no space to open the index, the next change tries it.
            let reopened = self.reopen_index().err();
            failure = reopened.filter(|error| error.kind() != ObjectErrorKind::NoSpace);
        }
        if failure.is_some() {
            self.failed = failure;
        }
        Err(error)
    }

    fn try_commit(
        &mut self,
        changes: Vec<SentChange>,
        advance: bool,
        runs: &mut ChangedRuns,
    ) -> Result<Vec<Result<Outcome>>> {
        let transaction = self.database.begin_write()?;
        let mut index = IndexTxn::open(&transaction)?;
        index.outbox_max = self.outbox_max;
        let has_buckets = changes.iter().any(|(change, _)| change.is_of_bucket());
        let least = if advance { u64::MAX } else { FREE_BYTES_MIN };
        let frontier = self.space.wanted_frontier(least, FRONTIER_STEP);
        let applied = apply_all(&mut index, changes, frontier);
        let has_new_events = index.has_new_events;
        *runs = index.into_changed_runs();
        let results = applied?;
        transaction.commit().map_err(failed)?;
        if let Some(frontier) = frontier {
            self.space.advance(frontier);
        }
        self.space.committed(std::mem::take(&mut runs.freed));
        if has_buckets {
            self.settings_epoch.fetch_add(1, Ordering::Release);
        }
        if has_new_events {
            self.event_signal.send();
        }
        Ok(results)
    }

    /// Opens the index again if a full pool has failed it. The commit that failed may have taken
    /// effect, as in a crash.
    fn reopen_index(&mut self) -> Result<()> {
        let Some(runs) = &self.uncertain else { return Ok(()) };
        tracing::warn!("the pool had no space for the index of the object store: opening it again");
        self.database.reopen()?;
        let snapshot = IndexSnapshot::begin(&self.database)?;
        let unused = snapshot.without(runs.iter().copied())?;
        self.space.advance(snapshot.frontier()?);
        self.space.committed(unused);
        self.settings_epoch.fetch_add(1, Ordering::Release);
        drop(snapshot);
        self.uncertain = None;
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let is_clean = self.space.end();
        self.space.volume().flush()?;
        self.reopen_index()?;
        let transaction = self.database.begin_write()?;
        let mut index = IndexTxn::open(&transaction)?;
        index.set_clean(is_clean)?;
        drop(index);
        transaction.commit().map_err(failed)
    }
}

/// Applies changes, and advances the frontier. Returns the results of the changes.
///
/// # Errors
/// When the index fails.
fn apply_all(
    index: &mut IndexTxn<'_>,
    changes: Vec<SentChange>,
    frontier: Option<u64>,
) -> Result<Vec<Result<Outcome>>> {
    let mut results = Vec::with_capacity(changes.len());
    for (change, source) in changes {
        let result = index.apply(change, source);
        if let Err(error) = &result
            && matches!(error.kind(), ObjectErrorKind::Io | ObjectErrorKind::NoSpace)
        {
            return Err(error.clone());
        }
        results.push(result);
    }
    if let Some(frontier) = frontier {
        index.set_frontier(frontier)?;
    }
    Ok(results)
}

fn has_runs(change: &Change) -> bool {
    matches!(
        change,
        Change::Put(PutObject { body: Body::Stored(_), .. })
            | Change::PutPart(PutPart { body: Body::Stored(_), .. })
    )
}

fn answer(sender: oneshot::Sender<Result<Outcome>>, result: Result<Outcome>) {
    // The requester may have given up.
    let _ = sender.send(result);
}

/// Requests for one commit.
#[derive(Default)]
struct Group {
    changes: Vec<QueuedChange>,
    advances: Vec<Sender<Result<()>>>,
    bytes: u64,
}

impl Group {
    /// Adds a request. Returns false if the store is to be closed.
    fn add(&mut self, request: CommitRequest) -> bool {
        match request {
            CommitRequest::Change(change, sender) => {
                if let Change::Put(PutObject { body: Body::Bytes(bytes), .. })
                | Change::PutPart(PutPart { body: Body::Bytes(bytes), .. }) = &change.0
                {
                    self.bytes += bytes.len() as u64;
                }
                self.changes.push((*change, sender));
            }
            CommitRequest::Advance(sender) => self.advances.push(sender),
            CommitRequest::Close => return false,
        }
        true
    }

    fn is_full(&self) -> bool {
        self.changes.len() >= GROUP_MAX || self.bytes >= GROUP_BYTES_MAX
    }
}
