//! Publishing: writes the superblock to all online drives, one round for all waiting callers.

use std::rc::Rc;

use format::limits::SUPERBLOCK_SLOT;
use format::{DriveId, DriveIndex, DriveState, Generation, Superblock};
use reactor::{Buffer, Drive, IoError};

use super::{Control, State};
use crate::error::{Error, ErrorKind, Result};
use crate::in_flight::InFlight;
use crate::invariant::element;

impl Control {
    /// Changes the superblock and waits until the change is flushed on all online drives (C1).
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
            state.requested += 1;
            state.requested
        };
        self.changed.notify();
        self.published
            .until(|| {
                let state = self.state.borrow();
                match &state.failure {
                    Some(failure) => Some(Err(failure.clone())),
                    None => (state.completed >= ticket).then_some(Ok(())),
                }
            })
            .await
    }

    /// Writes superblocks on request until [`Control::stop`]. One task per pool.
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
        state.failure.is_none() && state.completed < state.requested
    }

    /// Stops the control's tasks; afterwards no I/O to the drives is running.
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

    /// Writes the current superblock to every online drive; drives that fail are lost.
    async fn publish_round(self: &Rc<Self>) {
        self.admit().await;
        let (superblock, ticket) = {
            let mut state = self.state.borrow_mut();
            (state.next_generation(), state.requested)
        };
        let failed = self.write_superblock(&superblock).await;
        if failed.is_empty() {
            self.state.borrow_mut().published = Some(superblock.stamp());
            self.remember(&superblock).await;
            self.state.borrow_mut().completed = ticket;
            self.published.wake_all();
            return;
        }
        for (drive, error) in failed {
            // The state has changed; the next round writes it to the remaining drives.
            self.drive_error(drive, "a superblock write failed", error);
        }
        self.published.wake_all();
    }

    /// Stores the published state in the [`crate::PoolStateStore`] if drive states or the clean
    /// flag have changed, or the last attempt failed. A failure does not stop the pool: the drives
    /// hold the state.
    async fn remember(&self, superblock: &Superblock) {
        let Some(memory) = self.memory.clone() else { return };
        let members: Vec<DriveState> = superblock.drives.iter().map(|drive| drive.state).collect();
        let now = Some((superblock.clean, members));
        if self.state.borrow().memory_state == now {
            return;
        }
        let result = memory.remember(superblock.pool, superblock.stamp()).await;
        let mut state = self.state.borrow_mut();
        match result {
            Ok(()) => (state.memory_state, state.unrecorded) = (now, None),
            Err(error) => {
                tracing::error!(pool = %superblock.pool, %error, "cannot record the newest state of the pool: older copies of its drives may be opened unnoticed");
                (state.memory_state, state.unrecorded) = (None, Some(error.to_string()));
            }
        }
    }

    /// Returns the reason why the newest state is not recorded outside of the drives.
    pub(crate) fn unrecorded(&self) -> Option<String> {
        self.state.borrow().unrecorded.clone()
    }

    async fn write_superblock(&self, superblock: &Superblock) -> Vec<(DriveIndex, IoError)> {
        let mut failed = Vec::new();
        let drives = self.in_use(superblock);
        if !self.has_published.replace(true) {
            // After a crash, the newest superblock may be only in a drive's volatile cache: flush
            // it before overwriting the other slot.
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
            let slot = element(&self.slots.borrow(), index.index(), "C1").other();
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
                Ok(_) => self.confirm_slot(index),
                Err(error) => failed.push((index, error)),
            }
        }
        failed
    }

    /// Records that the other slot of a drive holds its newest superblock.
    fn confirm_slot(&self, drive: DriveIndex) {
        match self.slots.borrow_mut().get_mut(drive.index()) {
            Some(slot) => *slot = slot.other(),
            None => panic!("C1: drive {drive} has no superblock"),
        }
    }

    fn in_use(&self, superblock: &Superblock) -> Vec<(DriveIndex, DriveId, Rc<dyn Drive>)> {
        let numbered = (0..).map(DriveIndex::new).zip(&superblock.drives);
        let in_use = numbered.filter(|(_, record)| record.state.is_in_use());
        in_use.filter_map(|(index, record)| Some((index, record.id, self.drive(index)?))).collect()
    }
}

impl State {
    /// Returns the next superblock to write.
    pub(super) fn next_generation(&mut self) -> Superblock {
        // The previous state is on every online drive; drives that joined since got it when they
        // joined.
        if let Some(published) = self.published {
            let online = self.superblock.drives.iter_mut().filter(|record| record.state.is_in_use());
            online.for_each(|record| record.confirmed = published);
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
