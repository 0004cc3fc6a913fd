//! Snapshots, clones and rollbacks in a swarm run, and the checks of their content.
//!
//! A snapshot is read completely as soon as it is taken. It must contain every write acknowledged
//! before the snapshot began. With a write, it must also contain everything acknowledged before
//! that write began. The content found then must never change, regardless of power cuts.

use engine::{ErrorKind, Pool};

use super::SwarmRun;
use super::errors::NO_SPACE;
use super::opening::read_all;
use crate::model::{VolumeModel, newest_write};
use crate::sparse_layout::SparseVolume;

/// Maximum number of snapshots in a run.
pub(super) const SNAPSHOTS_MAX: usize = 8;

/// An operation on snapshots that a crash left undecided.
pub(super) enum PendingOp {
    /// A snapshot was being taken. It holds the volume's content at some later time, with
    /// everything that was durable before.
    Take(VolumeModel),
    /// A snapshot was being cloned to a volume.
    Clone(VolumeModel),
    /// A volume was being rolled back to this content.
    RollBack(VolumeModel),
    /// A snapshot was being deleted.
    Delete,
}

impl SwarmRun {
    /// Takes a snapshot of a volume, while others may use the volume.
    pub(super) async fn snapshot(&self, pool: &Pool) {
        if self.snapshots.borrow().len() >= SNAPSHOTS_MAX {
            return;
        }
        let Some(volume) = self.random_volume() else { return };
        let _use = self.uses.begin(&volume);
        let name = format!("{volume}@s{}", self.names.get());
        self.names.set(self.names.get() + 1);
        let start = self.tick();
        let Some(before) = self.volumes.borrow().get(&volume).cloned() else { return };
        self.pending_ops.borrow_mut().insert(name.clone(), PendingOp::Take(before));
        let result = pool.snapshot_volume(&name, 0).await;
        self.trace(|| format!("snapshot {name} at {start}: {result:?}"));
        // The volume's history until now. The snapshot may contain part of it.
        let until_now = self.volumes.borrow().get(&volume).cloned();
        if let (Ok(()), Some(mut model)) = (&result, until_now) {
            match self.read_snapshot(pool, &name).await {
                Ok(Some(bytes)) => {
                    if let Err(message) =
                        model.adopt_snapshot(&bytes, start.max(newest_write(&bytes, model.sector)))
                    {
                        return self.fail(format!("snapshot {name}: {message}"));
                    }
                    self.snapshots.borrow_mut().insert(name.clone(), model);
                    self.pending_ops.borrow_mut().remove(&name);
                }
                Ok(None) => {}
                Err(message) => self.fail(message),
            }
        }
        self.tolerate("snapshot", result, NO_SPACE);
    }

    /// Reads an entire snapshot. Returns `None` if the read may fail: another worker deletes the
    /// snapshot, or the losses exceed the scheme's tolerance.
    pub(super) async fn read_snapshot(&self, pool: &Pool, name: &str) -> Result<Option<Vec<u8>>, String> {
        let _use = self.uses.begin(name);
        let read = async {
            let volume = pool.open_volume(name).await?;
            read_all(&SparseVolume::new(volume.attach(), self.plan.stretch)).await
        };
        match read.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if self.may_fail(&error) => Ok(None),
            Err(error) if error.kind() == ErrorKind::Closed && self.is_being_deleted(name) => Ok(None),
            Err(error) => Err(format!("read {name}: {error:?}")),
        }
    }

    /// Returns true if a worker is deleting the snapshot or has deleted it.
    pub(super) fn is_being_deleted(&self, name: &str) -> bool {
        matches!(self.pending_ops.borrow().get(name), Some(PendingOp::Delete)) || !self.is_known(name)
    }

    fn is_known(&self, name: &str) -> bool {
        self.snapshots.borrow().contains_key(name) || self.pending_ops.borrow().contains_key(name)
    }

    /// Reads a random snapshot and compares it with its expected content.
    pub(super) async fn read_random_snapshot(&self, pool: &Pool) {
        let Some(name) = self.random_snapshot() else { return };
        let found = self.read_snapshot(pool, &name).await;
        if let Ok(Some(bytes)) = &found {
            self.check_usage_and_changes(pool, &name, bytes).await;
        }
        let known = self.snapshots.borrow();
        // Another worker may have deleted it.
        let Some(model) = known.get(&name).filter(|_| !self.pending_ops.borrow().contains_key(&name)) else {
            return;
        };
        match found {
            Ok(Some(bytes)) => {
                if let Err(message) = model.check_read(0, &bytes, u64::MAX, u64::MAX) {
                    self.fail(format!("snapshot {name}: {message}"));
                }
            }
            Ok(None) => {}
            Err(message) => self.fail(message),
        }
    }

    /// Returns true if no deletion of the snapshot has begun. A deletion moves its blocks
    /// elsewhere.
    fn is_kept(&self, name: &str) -> bool {
        self.snapshots.borrow().contains_key(name) && !self.pending_ops.borrow().contains_key(name)
    }

    /// Compares the reported usage of a snapshot, and its changes since another snapshot, with the
    /// content.
    async fn check_usage_and_changes(&self, pool: &Pool, name: &str, bytes: &[u8]) {
        let holds: Vec<bool> = bytes.chunks(4096).map(|block| block.iter().any(|byte| *byte != 0)).collect();
        if let Ok(usage) = pool.volume_usage(name, 0, u64::MAX / 2).await {
            let least = holds.iter().filter(|holds| **holds).count() as u64 * 4096;
            // The last block may hold data after the end of the volume.
            let most = least + if bytes.len().is_multiple_of(4096) { 0 } else { 4096 };
            let is_true = (least..=most).contains(&usage.referenced) && usage.exclusive <= usage.referenced;
            if !is_true && self.is_kept(name) {
                self.fail(format!("snapshot {name} holds {least} bytes of data, but reports {usage:?}"));
            }
        }
        let Some(base) = self.random_snapshot().filter(|_| self.plan.stretch.is_identity()) else { return };
        let (Ok(Some(before)), Ok(changes)) =
            (self.read_snapshot(pool, &base).await, pool.volume_changes(name, &base, 0, u64::MAX / 2).await)
        else {
            return;
        };
        let mut reported: Vec<Option<bool>> = vec![None; holds.len()];
        for change in &changes {
            let first = (change.offset / 4096) as usize;
            let count = change.length.div_ceil(4096) as usize;
            reported.iter_mut().skip(first).take(count).for_each(|reported| *reported = Some(change.data));
        }
        for (block, ((now, holds), reported)) in bytes.chunks(4096).zip(&holds).zip(&reported).enumerate() {
            let was = before.chunks(4096).nth(block).unwrap_or(&[]);
            let same = was.iter().zip(now).all(|(was, now)| was == now);
            let is_true = match reported {
                // There is no data after the end of the other snapshot.
                None => same && now.iter().skip(was.len()).all(|byte| *byte == 0),
                // The last block of either snapshot may hold data after its end.
                Some(data) => data == holds || *data && (now.len() < 4096 || was.len() < 4096),
            };
            if !is_true && self.is_kept(name) && self.is_kept(&base) {
                return self.fail(format!(
                    "block {block} of {name} since {base}: reported change {reported:?}, block has data: {holds}"
                ));
            }
        }
    }

    /// Clones a random snapshot to a new volume.
    pub(super) async fn clone_snapshot(&self, pool: &Pool) {
        if self.volumes.borrow().len() >= 4 {
            return;
        }
        let Some(snapshot) = self.random_snapshot() else { return };
        let Some(model) = self.snapshots.borrow().get(&snapshot).cloned() else { return };
        let name = format!("v{}", self.names.get());
        self.names.set(self.names.get() + 1);
        self.pending_ops.borrow_mut().insert(name.clone(), PendingOp::Clone(model.clone()));
        let result = pool.clone_volume(&snapshot, &name, 0).await;
        self.trace(|| format!("clone {snapshot} as {name}: {result:?}"));
        if result.is_ok() {
            self.pending_ops.borrow_mut().remove(&name);
            self.insert_volume(name, model);
        } else if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            // Deleted by another worker.
            self.pending_ops.borrow_mut().remove(&name);
            return;
        }
        self.tolerate("clone", result, self.while_deleted(&snapshot));
    }

    /// Rolls an idle volume back to one of its snapshots.
    pub(super) async fn roll_back(&self, pool: &Pool) {
        let Some(snapshot) = self.random_snapshot() else { return };
        let Some((name, _)) = snapshot.split_once('@') else { return };
        let Some(model) = self.snapshots.borrow().get(&snapshot).cloned() else { return };
        {
            let mut uncertain = self.uncertain.borrow_mut();
            let known = self.volumes.borrow().contains_key(name);
            if !known || uncertain.contains(name) || self.uses.is_used(name) {
                return;
            }
            // Keeps other workers from using the volume.
            uncertain.insert(name.to_owned());
        }
        self.pending_ops.borrow_mut().insert(name.to_owned(), PendingOp::RollBack(model.clone()));
        let result = pool.roll_back_volume(&snapshot, 0).await;
        self.trace(|| format!("roll back to {snapshot}: {result:?}"));
        let gone = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        if result.is_ok() {
            self.insert_volume(name.to_owned(), model);
        }
        if result.is_ok() || gone {
            self.pending_ops.borrow_mut().remove(name);
            self.uncertain.borrow_mut().remove(name);
        }
        if !gone {
            self.tolerate("roll back", result, self.while_deleted(&snapshot));
        }
    }

    /// Returns the allowed errors of an operation on a snapshot that another worker may be
    /// deleting.
    fn while_deleted(&self, snapshot: &str) -> &'static [ErrorKind] {
        if self.is_kept(snapshot) { NO_SPACE } else { &[ErrorKind::NoSpace, ErrorKind::Busy] }
    }

    /// Deletes a snapshot. The engine refuses this while the snapshot is being read.
    pub(super) async fn delete_snapshot(&self, pool: &Pool) {
        let Some(name) = self.random_snapshot() else { return };
        self.pending_ops.borrow_mut().insert(name.clone(), PendingOp::Delete);
        let used = self.uses.mark(&name);
        let result = pool.delete_volume(&name).await;
        self.trace(|| format!("delete {name}: {result:?}"));
        match &result {
            Ok(()) => {
                self.snapshots.borrow_mut().remove(&name);
                self.pending_ops.borrow_mut().remove(&name);
            }
            // Another worker reads it.
            Err(error) if error.kind() == ErrorKind::Busy && self.uses.used_since(&name, used) => {
                self.pending_ops.borrow_mut().remove(&name);
                return;
            }
            Err(_) => {}
        }
        self.tolerate("delete", result, NO_SPACE);
    }

    pub(super) fn random_volume(&self) -> Option<String> {
        let (volumes, uncertain) = (self.volumes.borrow(), self.uncertain.borrow());
        let names: Vec<&String> = volumes.keys().filter(|name| !uncertain.contains(*name)).collect();
        (!names.is_empty()).then(|| (*self.random.choose(&names)).clone())
    }

    pub(super) fn random_snapshot(&self) -> Option<String> {
        let (snapshots, pending) = (self.snapshots.borrow(), self.pending_ops.borrow());
        let names: Vec<&String> = snapshots.keys().filter(|name| !pending.contains_key(*name)).collect();
        (!names.is_empty()).then(|| (*self.random.choose(&names)).clone())
    }

    /// Returns true if a volume has snapshots. It cannot be deleted then.
    pub(super) fn has_snapshots(&self, volume: &str) -> bool {
        let of = |name: &String| name.split_once('@').is_some_and(|(of, _)| of == volume);
        self.snapshots.borrow().keys().any(of) || self.pending_ops.borrow().keys().any(of)
    }

    /// Returns the model of a snapshot with an unacknowledged creation: the volume's content at
    /// some time since, with everything that was durable before.
    fn interrupted_snapshot(
        &self,
        name: &str,
        before: &VolumeModel,
        bytes: &[u8],
    ) -> Result<VolumeModel, String> {
        let volume = name.split_once('@').map_or("", |(volume, _)| volume);
        let now = self.volumes.borrow().get(volume).cloned();
        let now = now.filter(|now| now.size() == before.size());
        let mut model = now.unwrap_or_else(|| before.clone());
        model.copy_durable_point(before);
        model.adopt_after_crash(bytes)?;
        Ok(model)
    }

    /// Decides the operations that a crash left undecided, from the volumes found, and compares
    /// every snapshot with its expected content.
    pub(super) async fn reconcile_snapshots(&self, pool: &Pool) -> Result<(), String> {
        let found = pool.volumes().await.map_err(|error| format!("list: {error:?}"))?;
        let exists = |name: &str| found.iter().any(|info| info.name == name && !info.deleting);
        self.check_groups(exists)?;
        let pending: Vec<String> = self.pending_ops.borrow().keys().cloned().collect();
        for name in pending {
            // The snapshot is read first: if another power cut comes, the operation stays
            // undecided.
            let is_snapshot = name.contains('@') && exists(&name);
            let bytes = if is_snapshot { self.read_snapshot(pool, &name).await? } else { None };
            let Some(operation) = self.pending_ops.borrow_mut().remove(&name) else { continue };
            match operation {
                PendingOp::Take(before) if exists(&name) => {
                    let Some(bytes) = bytes else { continue };
                    let model = self.interrupted_snapshot(&name, &before, &bytes);
                    let model = model.map_err(|error| format!("snapshot {name}: {error}"))?;
                    self.snapshots.borrow_mut().insert(name, model);
                }
                PendingOp::Clone(model) if exists(&name) => {
                    self.insert_volume(name, model);
                }
                PendingOp::Delete if !exists(&name) => {
                    self.snapshots.borrow_mut().remove(&name);
                }
                PendingOp::RollBack(model) => {
                    self.rolled_back.borrow_mut().insert(name, model);
                }
                _ => {}
            }
        }
        self.pending_groups.borrow_mut().clear();
        for info in found.iter().filter(|info| info.snapshot && !info.deleting) {
            if !self.snapshots.borrow().contains_key(&info.name) {
                return Err(format!("snapshot {} should not exist", info.name));
            }
        }
        let names: Vec<String> = self.snapshots.borrow().keys().cloned().collect();
        for name in names {
            if !exists(&name) {
                return Err(format!("snapshot {name} is missing"));
            }
            let Some(bytes) = self.read_snapshot(pool, &name).await? else { continue };
            if let Some(model) = self.snapshots.borrow().get(&name) {
                let same = model.check_read(0, &bytes, u64::MAX, u64::MAX);
                same.map_err(|message| format!("snapshot {name}: {message}"))?;
            }
        }
        Ok(())
    }
}
