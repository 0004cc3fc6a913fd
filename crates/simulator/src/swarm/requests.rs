//! The operations of the swarm's workers on existing volumes, and the checks of their results.

use engine::{ErrorKind, Pool};
use reactor::Buffer;

use super::SwarmRun;
use super::errors::{NO_ERRORS, NO_SPACE};
use crate::model::{VolumeModel, content};
use crate::sparse_layout::SparseVolume;

impl SwarmRun {
    /// Returns a random range of whole sectors: mostly short, sometimes aligned to blocks.
    pub(super) fn range(&self, volume: &SparseVolume, most: u64) -> (u64, u64) {
        let sector = u64::from(volume.sector());
        let unit = if self.random.once_in(2) { 4096u64.min(volume.size()) } else { sector };
        let most = if self.random.once_in(3) { most } else { 4 * unit };
        let length =
            (self.random.between(1, (most / unit).max(1)) * unit).min(volume.size() / sector * sector);
        let offset = self.random.below((volume.size() - length) / unit + 1) * unit;
        let length = length / sector * sector;
        (offset / sector * sector, length.max(sector).min(volume.size() - offset / sector * sector))
    }

    pub(super) async fn write(&self, pool: &Pool, name: &str, volume: &SparseVolume) {
        let was_thick = self.is_thick(name);
        let result = self.write_somewhere(name, volume).await;
        if was_thick && result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace) {
            self.check_thick_reservation(pool, name).await;
        }
        let written = result.is_ok();
        self.tolerate("write", result, NO_SPACE);
        if written && self.added_random.once_in(self.plan.flush_after) {
            self.flush(name, volume).await;
        }
    }

    /// Writes to a random range, and records the write in the model while the volume exists.
    pub(super) async fn write_somewhere(&self, name: &str, volume: &SparseVolume) -> engine::Result<()> {
        let (offset, length) = self.range(volume, self.plan.write_bytes);
        let sector = volume.sector();
        let (first, count) = (offset / u64::from(sector), length / u64::from(sector));
        let start = self.tick();
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        (first..first + count).for_each(|cell| bytes.extend(content(start, cell, sector)));
        let data = Buffer::copy_of(&bytes);
        let atomic = self.is_atomic(volume, offset, length);
        let begin = |model: &mut VolumeModel| model.begin_write(start, first, count, start, atomic);
        let token = self.volumes.borrow_mut().get_mut(name).map(begin);
        let result = volume.write(offset, &data.span()).await;
        self.trace(|| format!("write {name} {offset}+{length} value {start}: {result:?}"));
        let end = self.tick();
        if let (Some(model), Some(token)) = (self.volumes.borrow_mut().get_mut(name), token) {
            model.end_write(token, end, result.is_ok());
        }
        result
    }

    /// Returns true if the engine guarantees that a crash leaves all of this write or nothing.
    pub(super) fn is_atomic(&self, volume: &SparseVolume, offset: u64, length: u64) -> bool {
        let parts = self.plan.stretch.parts(offset, length);
        let [(first, _, bytes)] = parts.as_slice() else { return false };
        crate::model::is_atomic(volume.atomic_write_bytes(), *first, *bytes)
    }

    pub(super) fn data_columns(&self) -> u64 {
        self.plan.setup.scheme.split_once('+').and_then(|(data, _)| data.parse().ok()).unwrap_or(1)
    }

    pub(super) async fn zero(&self, name: &str, volume: &SparseVolume, all: bool) {
        let (offset, length) = self.range(volume, self.plan.volume_bytes);
        let sector = u64::from(volume.sector());
        let (from, until) = if all {
            (offset, offset + length)
        } else {
            (offset.next_multiple_of(4096), (offset + length) / 4096 * 4096)
        };
        let count = until.saturating_sub(from) / sector;
        let start = self.tick();
        let token = match self.volumes.borrow_mut().get_mut(name) {
            Some(model) => model.begin_write(start, from / sector, count, 0, false),
            None => return,
        };
        let result = if all {
            volume.write_zeroes(offset, length).await
        } else {
            volume.discard(offset, length).await
        };
        self.trace(|| format!("zero {name} {offset}+{length} all {all} at {start}: {result:?}"));
        let end = self.tick();
        if let Some(model) = self.volumes.borrow_mut().get_mut(name) {
            model.end_write(token, end, result.is_ok());
        }
        self.tolerate("zero", result, NO_SPACE);
    }

    pub(super) async fn flush(&self, name: &str, volume: &SparseVolume) {
        let start = self.tick();
        let result = volume.flush().await;
        self.trace(|| format!("flush {name} at {start}: {result:?}"));
        if result.is_ok()
            && let Some(model) = self.volumes.borrow_mut().get_mut(name)
        {
            model.note_flush(start);
        }
        self.tolerate("flush", result, NO_ERRORS);
    }

    pub(super) async fn read(&self, name: &str, volume: &SparseVolume) {
        let (offset, length) = self.range(volume, self.plan.write_bytes);
        let start = self.tick();
        let buffer = Buffer::new(usize::try_from(length).unwrap_or(0));
        let result = volume.read(offset, &buffer.span()).await;
        self.trace(|| format!("read {name} {offset}+{length} at {start}: {result:?}"));
        let end = self.tick();
        if result.is_ok()
            && let Some(model) = self.volumes.borrow().get(name)
            && let Err(message) =
                model.check_read(offset / u64::from(volume.sector()), buffer.as_slice(), start, end)
        {
            self.fail(format!("read of {name}: {message}"));
        }
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt) {
            self.count(|stats| stats.unreadable += 1);
        }
        let watched = self.buffers.watch(format!("read of {name} at {start}"), buffer);
        watched.unwrap_or_else(|message| self.fail(message));
        self.tolerate("read", result, NO_ERRORS);
    }

    pub(super) async fn extents(&self, name: &str, volume: &SparseVolume) {
        let (offset, length) = self.range(volume, self.plan.volume_bytes);
        match volume.extents(offset, length).await {
            Ok(covered) if covered != length => {
                self.fail(format!("extents of {name} {offset}+{length} cover {covered} bytes"));
            }
            Ok(_) => {}
            Err(error) => self.tolerate("extents", Err(error), NO_ERRORS),
        }
    }
}
