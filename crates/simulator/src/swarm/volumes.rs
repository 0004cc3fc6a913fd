//! Creation, deletion and resizing of volumes in a swarm run.

use engine::{NewVolume, Pool, VolumeInfo};

use super::SwarmRun;
use super::errors::NO_SPACE;
use crate::model::VolumeModel;

impl SwarmRun {
    pub(super) async fn create(&self, pool: &Pool) {
        if self.volumes.borrow().len() >= 4 {
            return;
        }
        let sector = *self.random.choose(&[512u32, 4096]);
        let size = self.random.between(1, self.plan.volume_bytes / u64::from(sector)) * u64::from(sector);
        let size = self.size_at_limit(sector.into()).unwrap_or(size);
        let name = format!("v{}", self.names.get());
        self.names.set(self.names.get() + 1);
        self.uncertain.borrow_mut().insert(name.clone());
        let shards = self.random.once_in(2).then(|| self.random.between(1, self.plan.setup.shards.into()));
        let shards = shards.and_then(|shards| u16::try_from(shards).ok());
        let wanted =
            NewVolume { size: self.plan.stretch.engine_size(size), sector, thick: false, shards, now: 0 };
        let result = pool.create_volume_with(&name, wanted).await;
        self.trace(|| format!("create {name} {size} {sector} on {shards:?} shards: {result:?}"));
        if result.is_ok() {
            self.insert_volume(name.clone(), VolumeModel::new(size, sector));
            self.uncertain.borrow_mut().remove(&name);
        }
        self.tolerate("create", result, NO_SPACE);
    }

    pub(super) async fn delete(&self, pool: &Pool) {
        let Some(name) = self.claim_idle_volume() else { return };
        if self.has_snapshots(&name) {
            self.uncertain.borrow_mut().remove(&name);
            return;
        }
        let result = pool.delete_volume(&name).await;
        self.trace(|| format!("delete {name}: {result:?}"));
        if result.is_ok() {
            self.volumes.borrow_mut().remove(&name);
        }
        // The volume is not open.
        self.tolerate("delete", result, NO_SPACE);
    }

    pub(super) async fn resize(&self, pool: &Pool) {
        let Some(name) = self.claim_idle_volume() else { return };
        let Ok(volume) = pool.open_volume(&name).await else { return };
        let old = self.plan.stretch.model_size(volume.size());
        let sector = u64::from(volume.sector());
        let busy = self.volumes.borrow().get(&name).is_none_or(|model| model.size() != old);
        drop(volume);
        if busy {
            return;
        }
        let size = self.random.between(1, self.plan.volume_bytes / sector) * sector;
        let size = self.size_at_limit(sector).unwrap_or(size);
        // Only idle volumes are resized, like in a deletion.
        let result = pool.resize_volume(&name, self.plan.stretch.engine_size(size), true).await;
        self.trace(|| format!("resize {name} from {old} to {size}: {result:?}"));
        if result.is_ok() {
            if let Some(model) = self.volumes.borrow_mut().get_mut(&name) {
                model.resize(size);
            }
            self.uncertain.borrow_mut().remove(&name);
        }
        self.tolerate("resize", result, NO_SPACE);
    }

    /// Returns the maximum or minimum size for the next volume, if the plan and the seed choose
    /// one.
    fn size_at_limit(&self, sector: u64) -> Option<u64> {
        let at_limits = self.plan.extras.as_ref().is_some_and(|extras| extras.sizes_at_limits);
        match if at_limits { self.extras_random.below(4) } else { 0 } {
            0 => None,
            1 => Some(sector),
            _ => Some(self.plan.volume_bytes),
        }
    }

    /// Returns an idle volume, and marks it so that no worker starts to use it.
    pub(super) fn claim_idle_volume(&self) -> Option<String> {
        let (volumes, mut uncertain) = (self.volumes.borrow(), self.uncertain.borrow_mut());
        let idle: Vec<&String> = volumes
            .iter()
            .filter(|(name, _)| !uncertain.contains(*name) && !self.uses.is_used(name))
            .map(|(name, _)| name)
            .collect();
        if idle.is_empty() {
            return None;
        }
        let name = (*self.random.choose(&idle)).clone();
        uncertain.insert(name.clone());
        Some(name)
    }

    /// Matches the models with the pool's volumes, after creations, deletions and resizings that
    /// the end of the last round interrupted.
    pub(super) async fn reconcile(&self, pool: &Pool) -> Result<(), String> {
        let to_model =
            |info: VolumeInfo| VolumeInfo { size: self.plan.stretch.model_size(info.size), ..info };
        let found = pool.volumes().await.map_err(|error| format!("list: {error:?}"))?;
        let found: Vec<VolumeInfo> = found.into_iter().filter(|info| !info.snapshot).map(to_model).collect();
        let uncertain = std::mem::take(&mut *self.uncertain.borrow_mut());
        let mut volumes = self.volumes.borrow_mut();
        for name in &uncertain {
            let info = found.iter().find(|info| info.name == *name);
            match info {
                Some(info) if !info.deleting => {
                    let model = volumes
                        .entry(name.clone())
                        .or_insert_with(|| VolumeModel::new(info.size, info.sector));
                    if model.size() != info.size {
                        match self.rolled_back.borrow_mut().remove(name) {
                            Some(other) => *model = other,
                            None => model.resize(info.size),
                        }
                    }
                }
                _ => {
                    volumes.remove(name);
                }
            }
        }
        for (name, model) in volumes.iter() {
            match found.iter().find(|info| info.name == *name) {
                Some(info) if info.size == model.size() && !info.deleting => {}
                other => {
                    return Err(format!("volume {name} of {} bytes was found as {other:?}", model.size()));
                }
            }
        }
        for info in &found {
            if !info.deleting && !volumes.contains_key(&info.name) {
                return Err(format!("volume {} should not exist", info.name));
            }
        }
        Ok(())
    }
}
