//! Snapshots of several volumes that are taken together, and the checks of their content.
//!
//! The snapshots are one point in time: one that contains a write contains everything that was
//! acknowledged, on any of the volumes, before that write began. After a crash all of them exist or
//! none.

use engine::Pool;

use super::SwarmRun;
use super::errors::NO_SPACE;
use super::snapshots::{PendingOp, SNAPSHOTS_MAX};
use crate::model::newest_write;

/// Maximum number of volumes in a group.
const GROUP_MAX: u64 = 3;

impl SwarmRun {
    /// Returns true if snapshots of several volumes come next.
    pub(super) fn next_is_snapshot_group(&self) -> bool {
        self.plan.group_once_in > 0 && self.group_random.once_in(self.plan.group_once_in)
    }

    /// Takes snapshots of some volumes together, while others may use the volumes.
    pub(super) async fn snapshot_group(&self, pool: &Pool) {
        let volumes = self.random_volumes();
        if volumes.is_empty() || self.snapshots.borrow().len() + volumes.len() > SNAPSHOTS_MAX {
            return;
        }
        let _uses: Vec<_> = volumes.iter().map(|volume| self.uses.begin(volume)).collect();
        let number = self.names.get();
        self.names.set(number + 1);
        let names: Vec<String> = volumes.iter().map(|volume| format!("{volume}@s{number}")).collect();
        let start = self.tick();
        for (volume, name) in volumes.iter().zip(&names) {
            let Some(before) = self.volumes.borrow().get(volume).cloned() else { return };
            self.pending_ops.borrow_mut().insert(name.clone(), PendingOp::Take(before));
        }
        self.pending_groups.borrow_mut().push(names.clone());
        let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
        let result = pool.snapshot_volumes(&wanted, 0).await;
        self.trace(|| format!("snapshots {names:?} at {start}: {result:?}"));
        if result.is_ok() {
            self.count(|stats| stats.groups += 1);
            if let Err(message) = self.check_group(pool, &names, start).await {
                return self.fail(message);
            }
        }
        self.tolerate("snapshots", result, NO_SPACE);
    }

    /// Returns up to [`GROUP_MAX`] volumes, each once.
    fn random_volumes(&self) -> Vec<String> {
        let (volumes, uncertain) = (self.volumes.borrow(), self.uncertain.borrow());
        let mut names: Vec<String> =
            volumes.keys().filter(|name| !uncertain.contains(*name)).cloned().collect();
        let wanted = usize::try_from(self.group_random.between(1, GROUP_MAX)).unwrap_or(1);
        while names.len() > wanted {
            let at = usize::try_from(self.group_random.below(names.len() as u64)).unwrap_or(0);
            names.remove(at);
        }
        names
    }

    /// Reads the acknowledged snapshots of a group and makes their content the expected one, if it
    /// is one point in time.
    async fn check_group(&self, pool: &Pool, names: &[String], start: u64) -> Result<(), String> {
        // The histories until now. The snapshots may contain a part of them.
        let mut models = Vec::new();
        for name in names {
            let volume = name.split_once('@').map_or("", |(volume, _)| volume);
            let Some(model) = self.volumes.borrow().get(volume).cloned() else { return Ok(()) };
            models.push(model);
        }
        let mut contents = Vec::new();
        for name in names {
            let Some(bytes) = self.read_snapshot(pool, name).await? else { return Ok(()) };
            contents.push(bytes);
        }
        let newest =
            contents.iter().zip(&models).map(|(bytes, model)| newest_write(bytes, model.sector)).max();
        let complete_to = start.max(newest.unwrap_or(0));
        for ((name, mut model), bytes) in names.iter().zip(models).zip(&contents) {
            let adopted = model.adopt_snapshot(bytes, complete_to);
            adopted.map_err(|message| format!("snapshot {name}, one of {names:?}: {message}"))?;
            self.snapshots.borrow_mut().insert(name.clone(), model);
            self.pending_ops.borrow_mut().remove(name);
        }
        self.pending_groups.borrow_mut().retain(|group| group != names);
        Ok(())
    }

    /// Checks that of each group of snapshots that a crash left undecided all exist or none.
    pub(super) fn check_groups(&self, exists: impl Fn(&str) -> bool) -> Result<(), String> {
        for group in self.pending_groups.borrow().iter() {
            let found = group.iter().filter(|name| exists(name)).count();
            if found != 0 && found != group.len() {
                return Err(format!("{found} of the snapshots {group:?} exist"));
            }
        }
        Ok(())
    }
}
