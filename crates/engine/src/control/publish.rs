//! Publishing: the superblock onto every drive in use, one round for everybody who asked before it began.

use std::rc::Rc;

use format::limits::SUPERBLOCK_SLOT;
use format::{DriveId, DriveIndex, DriveState, Generation, Superblock};
use reactor::{Buffer, Drive, IoError};

use super::{Control, State};
use crate::error::{Error, ErrorKind, Result};
use crate::in_flight::InFlight;

impl Control {
    /// Changes the superblock and waits until the change is on the drives (C1).
    pub(crate) async fn publish(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let ticket = {
            let mut state = self.state.borrow_mut();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if !self.running.get() {
                return Err(Error::new(ErrorKind::Closed, "the pool was closed"));
            }
            change(&mut state.superblock);
            state.wanted += 1;
            state.wanted
        };
        self.changed.notify();
        self.published
            .until(|| {
                let state = self.state.borrow();
                match &state.failure {
                    Some(failure) => Some(Err(failure.clone())),
                    None => (state.done >= ticket).then_some(Ok(())),
                }
            })
            .await
    }

    /// Writes superblocks whenever one is wanted, until [`Control::stop`]. One task a pool.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            self.changed.notified().await;
            while self.has_work() {
                self.publish_round().await;
            }
            if self.state.borrow().stopping {
                self.running.set(false);
                self.published.wake_all();
                return;
            }
        }
    }

    fn has_work(&self) -> bool {
        let state = self.state.borrow();
        state.failure.is_none() && state.done < state.wanted
    }

    /// Ends the tasks; when this ends, nothing is done to the drives any more.
    pub(crate) async fn stop(self: Rc<Self>) {
        let membership = self.membership.acquire().await;
        self.state.borrow_mut().stopping = true;
        self.scrubbing.wake();
        drop(membership);
        self.changed.notify();
        self.published.until(|| (!self.running.get()).then_some(())).await;
        self.drive_changes_finished().await;
        self.discards_finished().await;
    }

    /// Writes the superblock as it is now to every drive in use, and loses the drives that do not take it.
    async fn publish_round(self: &Rc<Self>) {
        self.admit().await;
        let (superblock, ticket) = {
            let mut state = self.state.borrow_mut();
            (state.next_generation(), state.wanted)
        };
        let failed = self.write_superblock(&superblock).await;
        if failed.is_empty() {
            self.state.borrow_mut().published = Some(superblock.stamp());
            self.remember(&superblock).await;
            self.state.borrow_mut().done = ticket;
            self.published.wake_all();
            return;
        }
        for (drive, error) in failed {
            // The state has changed; the next round writes it to the drives that are left.
            self.drive_error(drive, "a superblock write failed", error);
        }
        self.published.wake_all();
    }

    /// Has the memory beside the pool keep a state that is on the drives, if other drives could show an older one later.
    async fn remember(&self, superblock: &Superblock) {
        let Some(memory) = self.memory.clone() else { return };
        let members: Vec<DriveState> = superblock.drives.iter().map(|drive| drive.state).collect();
        let now = Some((superblock.clean, members));
        if self.state.borrow().remembered != now {
            memory.remember(superblock.pool, superblock.stamp()).await;
            self.state.borrow_mut().remembered = now;
        }
    }

    async fn write_superblock(&self, superblock: &Superblock) -> Vec<(DriveIndex, IoError)> {
        let mut failed = Vec::new();
        let drives = self.in_use(superblock);
        if !self.has_published.replace(true) {
            // What was found may be in the drives' caches only, left there by a process that died: each drive must have it
            // safe before its other slot is written.
            let flushes: Vec<_> =
                drives.iter().map(|(index, _, drive)| (*index, InFlight::new(drive.flush()))).collect();
            for (index, flush) in flushes {
                failed.extend(flush.await.err().map(|error| (index, error)));
            }
            if !failed.is_empty() {
                return failed;
            }
        }
        let mut writes = Vec::new();
        for (index, id, drive) in drives {
            let slot = self.slots.borrow().get(index.index()).copied().unwrap_or_default().other();
            let write = InFlight::new(drive.write(slot.offset(), &[encoded(superblock, id).span()]));
            writes.push((index, drive, write));
        }
        let mut flushes = Vec::new();
        for (index, drive, write) in writes {
            match write.await {
                Ok(_) => flushes.push((index, InFlight::new(drive.flush()))),
                Err(error) => failed.push((index, error)),
            }
        }
        for (index, flush) in flushes {
            match flush.await {
                Ok(_) => {
                    if let Some(slot) = self.slots.borrow_mut().get_mut(index.index()) {
                        *slot = slot.other();
                    }
                }
                Err(error) => failed.push((index, error)),
            }
        }
        failed
    }

    fn in_use(&self, superblock: &Superblock) -> Vec<(DriveIndex, DriveId, Rc<dyn Drive>)> {
        let numbered = (0..).map(DriveIndex::new).zip(&superblock.drives);
        let in_use = numbered.filter(|(_, record)| record.state.is_in_use());
        in_use.filter_map(|(index, record)| Some((index, record.id, self.drive(index)?))).collect()
    }
}

impl State {
    /// The superblock to be written next.
    pub(super) fn next_generation(&mut self) -> Superblock {
        // The state before is on every drive that was in use; one that has joined since got it as it did.
        if let Some(published) = self.published {
            let held = self.superblock.drives.iter_mut().filter(|record| record.state.is_in_use());
            held.for_each(|record| record.confirmed = published);
        }
        self.superblock.generation = Generation::new(self.superblock.generation.get() + 1);
        self.superblock.clone()
    }
}

/// A drive's copy of the superblock.
pub(super) fn encoded(superblock: &Superblock, drive: DriveId) -> Buffer {
    let bytes = superblock.encode(drive);
    assert!(bytes.len() as u64 <= SUPERBLOCK_SLOT, "a superblock fits its slot");
    Buffer::copy_of(&bytes)
}
