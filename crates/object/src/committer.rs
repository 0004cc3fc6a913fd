//! The thread that applies changes: all waiting changes in one commit of the index.
//!
//! Always true: bodies are durable before the index refers to them; a change is answered after its
//! commit is durable; after a failed commit or flush no change is applied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use futures_channel::oneshot;
use redb::Database;

use crate::body::Body;
use crate::body_file::padded;
use crate::error::{ObjectError, ObjectErrorKind, Result};
use crate::index::{IndexTxn, failed};
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
    /// A change, and the receiver of its answer.
    Change(Box<Change>, oneshot::Sender<Result<Outcome>>),
    /// Makes new blocks available.
    Advance(Sender<Result<()>>),
    /// Ends the thread after a clean commit.
    Close,
}

/// The state of the thread that applies changes.
pub(crate) struct Committer {
    pub(crate) database: Arc<Database>,
    pub(crate) space: Arc<BodySpace>,
    /// The number of commits that changed buckets.
    pub(crate) settings_epoch: Arc<AtomicU64>,
    /// The error of the commit or flush that failed.
    pub(crate) failed: Option<ObjectError>,
}

type QueuedChange = (Change, oneshot::Sender<Result<Outcome>>);

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
        if !changes.is_empty() || !advances.is_empty() {
            let (applied, senders) = self.commit_changes(changes, !advances.is_empty());
            for (result, sender) in applied.into_iter().zip(senders) {
                answer(sender, result);
            }
        }
        for sender in advances {
            let result = self.failed.clone().map_or(Ok(()), Err);
            // The writer may have given up.
            let _ = sender.send(result);
        }
    }

    /// Writes the bodies in memory to runs, and flushes these and all bodies that were written
    /// while they arrived. Refuses changes whose body cannot be stored; returns the others.
    fn write_bodies(&mut self, changes: Vec<QueuedChange>) -> Vec<QueuedChange> {
        let mut writes: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut placed = Vec::with_capacity(changes.len());
        for (mut change, sender) in changes {
            match self.place_body(&mut change, &mut writes) {
                Ok(()) => placed.push((change, sender)),
                Err(error) => answer(sender, Err(error)),
            }
        }
        if !placed.iter().any(|(change, _)| has_runs(change)) {
            return placed;
        }
        let written = if writes.is_empty() { Ok(()) } else { self.space.volume().write_many(writes) };
        if let Err(error) = written {
            let error = ObjectError::from(error);
            let (refused, others): (Vec<_>, Vec<_>) =
                placed.into_iter().partition(|(change, _)| has_runs(change));
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
        self.commit_changes(Vec::new(), true);
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Applies changes in one commit. Returns their results.
    fn commit_changes(
        &mut self,
        changes: Vec<QueuedChange>,
        advance: bool,
    ) -> (Vec<Result<Outcome>>, Vec<oneshot::Sender<Result<Outcome>>>) {
        let count = changes.len();
        let (changes, senders): (Vec<_>, Vec<_>) = changes.into_iter().unzip();
        let result = match &self.failed {
            Some(error) => Err(error.clone()),
            None => self.try_commit(changes, advance),
        };
        let results = result.unwrap_or_else(|error| {
            self.failed.get_or_insert_with(|| error.clone());
            vec![Err(error); count]
        });
        (results, senders)
    }

    fn try_commit(&mut self, changes: Vec<Change>, advance: bool) -> Result<Vec<Result<Outcome>>> {
        let transaction = self.database.begin_write().map_err(failed)?;
        let mut index = IndexTxn::open(&transaction)?;
        let mut results = Vec::with_capacity(changes.len());
        let has_buckets = changes.iter().any(Change::is_of_bucket);
        for change in changes {
            let result = index.apply(change);
            if let Err(error) = &result
                && matches!(error.kind(), ObjectErrorKind::Io | ObjectErrorKind::NoSpace)
            {
                return Err(error.clone());
            }
            results.push(result);
        }
        let least = if advance { u64::MAX } else { FREE_BYTES_MIN };
        let frontier = self.space.wanted_frontier(least, FRONTIER_STEP);
        if let Some(frontier) = frontier {
            index.set_frontier(frontier)?;
        }
        let freed = index.into_freed();
        transaction.commit().map_err(failed)?;
        if let Some(frontier) = frontier {
            self.space.advance(frontier);
        }
        self.space.committed(freed);
        if has_buckets {
            self.settings_epoch.fetch_add(1, Ordering::Release);
        }
        Ok(results)
    }

    fn close(&mut self) -> Result<()> {
        let is_clean = self.space.end();
        self.space.volume().flush()?;
        let transaction = self.database.begin_write().map_err(failed)?;
        let mut index = IndexTxn::open(&transaction)?;
        index.set_clean(is_clean)?;
        drop(index);
        transaction.commit().map_err(failed)
    }
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
                | Change::PutPart(PutPart { body: Body::Bytes(bytes), .. }) = &*change
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
