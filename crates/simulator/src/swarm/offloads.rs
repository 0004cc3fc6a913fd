//! Operations that clients offload to the engine: compare-and-write, and copies from snapshots.
//! Their results are checked.

use engine::{Comparison, ErrorKind, Pool};
use reactor::Buffer;

use super::SwarmRun;
use super::errors::NO_SPACE;
use crate::model::{content, sector_tag};
use crate::sparse_layout::SparseVolume;

impl SwarmRun {
    /// Returns true if an offloaded operation comes next.
    pub(super) fn next_is_offload(&self) -> bool {
        self.plan.offload_once_in > 0 && self.offload_random.once_in(self.plan.offload_once_in)
    }

    /// Runs a compare-and-write, or a copy from a snapshot, on a random volume.
    pub(super) async fn operate_offload(&self, pool: &Pool) {
        let Some(name) = self.random_volume() else { return };
        let _use = self.uses.begin(&name);
        let Some(volume) = self.attach(pool, &name).await else { return };
        if self.offload_random.once_in(3) {
            self.copy_from_snapshot(pool, &name, &volume).await;
        } else {
            self.compare_and_write(&name, &volume).await;
        }
    }

    /// Opens a volume. Returns `None` if another worker deletes it, or after a failure.
    pub(super) async fn attach(&self, pool: &Pool, name: &str) -> Option<SparseVolume> {
        match pool.open_volume(name).await {
            Ok(volume) => return Some(SparseVolume::new(volume.attach(), self.plan.stretch)),
            Err(_) if self.uncertain.borrow().contains(name) => {}
            Err(_) if !self.volumes.borrow().contains_key(name) => {}
            Err(error) => self.fail(format!("open {name}: {error:?}")),
        }
        None
    }

    /// Compares a range with its content, or with one wrong byte, and writes to it.
    async fn compare_and_write(&self, name: &str, volume: &SparseVolume) {
        let (offset, length) = self.range(volume, 256 << 10);
        if !self.is_atomic(volume, offset, length) {
            return;
        }
        let sector = volume.sector();
        let (first, count) = (offset / u64::from(sector), length / u64::from(sector));
        let expected = Buffer::new(usize::try_from(length).unwrap_or(0));
        if volume.read(offset, &expected.span()).await.is_err() {
            return;
        }
        let mut bytes = expected.as_slice().to_vec();
        let wrong = self.offload_random.once_in(3).then(|| self.offload_random.below(length));
        let place = wrong.and_then(|at| bytes.get_mut(usize::try_from(at).unwrap_or(0)));
        if let Some(byte) = place {
            *byte ^= 1;
        }
        let expected = Buffer::copy_of(&bytes);
        let start = self.tick();
        let data = (first..first + count).flat_map(|cell| content(start, cell, sector));
        let data = Buffer::copy_of(&data.collect::<Vec<u8>>());
        let token =
            self.volumes.borrow_mut().get_mut(name).map(|m| m.begin_write(start, first, count, start, true));
        let result = volume.compare_and_write(offset, &expected.span(), &data.span()).await;
        self.trace(|| format!("compare and write {name} {offset}+{length} value {start}: {result:?}"));
        let end = self.tick();
        let mut volumes = self.volumes.borrow_mut();
        let Some((model, token)) = volumes.get_mut(name).zip(token) else { return };
        let checked = match &result {
            Ok(Comparison::Differs { at }) => {
                model.forget_write(token, end);
                let is_inside = (offset..offset + length).contains(at);
                let is_certain = wrong.is_none() && model.is_certain(first, &bytes, start, end);
                match is_inside && !is_certain && wrong.is_none_or(|wrong| *at <= offset + wrong) {
                    true => Ok(()),
                    false => Err(format!("the range differs at {at}")),
                }
            }
            Ok(Comparison::Written) => {
                // Before the write counts as acknowledged, because it supersedes the old content.
                let held = model.check_read(first, &bytes, start, end);
                model.end_write(token, end, true);
                held
            }
            Err(_) => {
                model.end_write(token, end, false);
                Ok(())
            }
        };
        drop(volumes);
        self.count(|stats| stats.compared += 1);
        if let Err(message) = checked {
            self.fail(format!("compare and write {name} {offset}+{length} at {start}: {message}"));
        }
        self.tolerate("compare and write", result.map(|_| ()), NO_SPACE);
    }

    /// Copies a range from a snapshot with the same sector size, to the same offset: the content of
    /// a sector depends on its number.
    async fn copy_from_snapshot(&self, pool: &Pool, name: &str, volume: &SparseVolume) {
        let Some(from) = self.random_snapshot() else { return };
        let sector = volume.sector();
        if self.snapshots.borrow().get(&from).is_none_or(|model| model.sector != sector) {
            return;
        }
        let _use = self.uses.begin(&from);
        let Ok(source) = pool.open_volume(&from).await else { return };
        let source = SparseVolume::new(source.attach(), self.plan.stretch);
        let (offset, length) = self.range(volume, 4 << 20);
        if offset + length > source.size() {
            return;
        }
        let held = Buffer::new(usize::try_from(length).unwrap_or(0));
        if source.read(offset, &held.span()).await.is_err() {
            return;
        }
        let start = self.tick();
        let tags: Vec<u64> = held.as_slice().chunks(sector as usize).map(sector_tag).collect();
        let mut tokens = Vec::new();
        let mut cell = offset / u64::from(sector);
        for run in tags.chunk_by(|a, b| a == b) {
            let (value, count) = (run.first().copied().unwrap_or(0), run.len() as u64);
            let begin = |model: &mut crate::model::VolumeModel| {
                tokens.push(model.begin_write(start, cell, count, value, false));
            };
            self.volumes.borrow_mut().get_mut(name).map(begin);
            cell += count;
        }
        let result = volume.copy_from(&source, offset, length).await;
        self.trace(|| format!("copy {from} to {name} {offset}+{length} at {start}: {result:?}"));
        let end = self.tick();
        if let Some(model) = self.volumes.borrow_mut().get_mut(name) {
            tokens.into_iter().for_each(|token| model.end_write(token, end, result.is_ok()));
        }
        self.count(|stats| stats.copied += 1);
        // Another worker may delete the snapshot meanwhile.
        let is_deleted = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Closed);
        if !(is_deleted && self.is_being_deleted(&from)) {
            self.tolerate("copy", result, NO_SPACE);
        }
    }
}
