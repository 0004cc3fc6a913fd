//! Opens the pool of a run and compares it with the models.

use std::rc::Rc;

use engine::Pool;
use reactor::Buffer;

use super::{SwarmRun, plan};
use crate::model::VolumeModel;
use crate::sparse_layout::SparseVolume;

impl SwarmRun {
    /// Opens the pool and compares all of it with the models.
    pub(super) async fn open_and_verify(self: Rc<Self>) -> Result<Pool, String> {
        self.change_tuning();
        let (pool, report) = self.machine.open().await.map_err(|error| format!("open: {error:?}"))?;
        self.trace(|| format!("opened: {report:?}"));
        self.count(|stats| {
            stats.replayed += report.replayed as u64;
            stats.completed += report.completed;
            stats.returned += report.returned.len() as u64;
        });
        self.mark_acknowledged_durable();
        self.reconcile_snapshots(&pool).await?;
        self.reconcile(&pool).await?;
        self.update_write_through();
        self.verify_settings(&pool).await?;
        self.schedule_scrubs(&pool).await;
        let names: Vec<String> = self.volumes.borrow().keys().cloned().collect();
        for name in names {
            let volume = pool.open_volume(&name).await.map_err(|error| format!("open {name}: {error:?}"))?;
            let volume = SparseVolume::new(volume.attach(), self.plan.stretch);
            let bytes = read_all(&volume).await.map_err(|error| format!("read {name}: {error:?}"))?;
            let mut volumes = self.volumes.borrow_mut();
            let Some(model) = volumes.get_mut(&name) else { continue };
            let adopted = model.adopt_after_crash(&bytes);
            match self.rolled_back.borrow_mut().remove(&name) {
                Some(mut other) if adopted.is_err() => {
                    let adopted = other.adopt_after_crash(&bytes);
                    adopted
                        .map_err(|error| format!("volume {name}, with and without its rollback: {error}"))?;
                    *model = other;
                }
                _ => adopted.map_err(|error| format!("volume {name}: {error}"))?,
            }
        }
        Ok(pool)
    }

    /// Changes the engine settings of this opening, if the plan requires it.
    pub(super) fn change_tuning(&self) {
        if self.plan.extras.as_ref().is_some_and(|extras| extras.retunes) {
            let tuning = plan::tuning(&self.extras_random, self.plan.setup.tuning);
            self.trace(|| format!("opening with {tuning:?}"));
            self.machine.set_tuning(tuning);
        }
    }

    /// After a clean close or a process kill, the drives hold everything that they acknowledged.
    /// The opening makes it durable.
    fn mark_acknowledged_durable(&self) {
        if self.drives_kept_writes.take() {
            let now = self.clock.get();
            self.volumes.borrow_mut().values_mut().for_each(|model| model.note_flush(now));
        }
    }

    /// Makes later writes durable when they are acknowledged, if no drive has a volatile cache.
    pub(super) fn update_write_through(&self) {
        let write_through = self.is_write_through();
        self.volumes.borrow_mut().values_mut().for_each(|model| model.set_write_through(write_through));
    }

    /// Returns true if no drive of the pool has ever had a volatile cache. Spares have one.
    fn is_write_through(&self) -> bool {
        !self.plan.setup.volatile.contains(&true) && !self.spare_joined.get()
    }

    /// Adds the model of an existing volume.
    pub(super) fn insert_volume(&self, name: String, mut model: VolumeModel) {
        model.set_write_through(self.is_write_through());
        self.volumes.borrow_mut().insert(name, model);
    }
}

/// Reads an entire volume.
pub(super) async fn read_all(volume: &SparseVolume) -> engine::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let size = volume.size();
    let mut offset = 0;
    while offset < size {
        let length = (size - offset).min(1 << 20);
        let buffer = Buffer::new(usize::try_from(length).unwrap_or(0));
        volume.read(offset, &buffer.span()).await?;
        bytes.extend_from_slice(buffer.as_slice());
        offset += length;
    }
    Ok(bytes)
}
