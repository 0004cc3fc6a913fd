//! Snapshots, clones and rolling back in the lives of the swarm, and what they must hold.
//!
//! A snapshot is read whole as soon as it is taken. It must hold every write that was acknowledged before it was begun, and with a write
//! everything that was acknowledged before that one began. What it holds then, it holds for ever, whatever power cuts come.

use engine::{ErrorKind, Pool};

use super::Life;
use super::errors::NO_SPACE;
use super::opening::read_all;
use crate::model::VolumeModel;
use crate::stretch::Stretched;

/// Snapshots of a run at most.
const SNAPSHOTS_MAX: usize = 8;

/// What a crash left undecided.
pub(super) enum Undecided {
    /// A snapshot was being taken: it holds what its volume held at some moment since, and all that was durable before.
    Taken(VolumeModel),
    /// A volume was being made from a snapshot.
    Cloned(VolumeModel),
    /// A volume was being rolled back to this.
    RolledBack(VolumeModel),
    /// A snapshot was being deleted.
    Deleted,
}

impl Life {
    /// Takes a snapshot of a volume, on which others may work.
    pub(super) async fn snapshot(&self, pool: &Pool) {
        if self.snapshots.borrow().len() >= SNAPSHOTS_MAX {
            return;
        }
        let Some(volume) = self.some_volume() else { return };
        let _user = self.users.begin(&volume);
        let name = format!("{volume}@s{}", self.names.get());
        self.names.set(self.names.get() + 1);
        let start = self.tick();
        let Some(before) = self.volumes.borrow().get(&volume).cloned() else { return };
        self.undecided.borrow_mut().insert(name.clone(), Undecided::Taken(before));
        let result = pool.snapshot_volume(&name, 0).await;
        self.say(|| format!("snapshot {name} at {start}: {result:?}"));
        // What its volume saw until now; some of that may be in it.
        let until_now = self.volumes.borrow().get(&volume).cloned();
        if let (Ok(()), Some(mut model)) = (&result, until_now) {
            match self.read_snapshot(pool, &name).await {
                Ok(Some(bytes)) => {
                    if let Err(message) = model.adopt_snapshot(&bytes, start) {
                        return self.fail(format!("snapshot {name}: {message}"));
                    }
                    self.snapshots.borrow_mut().insert(name.clone(), model);
                    self.undecided.borrow_mut().remove(&name);
                }
                Ok(None) => {}
                Err(message) => self.fail(message),
            }
        }
        self.tolerate("snapshot", result, NO_SPACE);
    }

    /// All of a snapshot; `None` if it cannot be had where that may be: another worker deletes it, or the pool has lost more than it bears.
    async fn read_snapshot(&self, pool: &Pool, name: &str) -> Result<Option<Vec<u8>>, String> {
        let _user = self.users.begin(name);
        let read = async {
            let volume = pool.open_volume(name).await?;
            read_all(&Stretched::new(volume.attach(), self.plan.stretch)).await
        };
        match read.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if self.may_fail(&error) => Ok(None),
            Err(error) if error.kind() == ErrorKind::Closed && self.is_being_deleted(name) => Ok(None),
            Err(error) => Err(format!("read {name}: {error:?}")),
        }
    }

    /// True if a worker is deleting a snapshot, or has deleted it.
    fn is_being_deleted(&self, name: &str) -> bool {
        matches!(self.undecided.borrow().get(name), Some(Undecided::Deleted)) || !self.is_known(name)
    }

    fn is_known(&self, name: &str) -> bool {
        self.snapshots.borrow().contains_key(name) || self.undecided.borrow().contains_key(name)
    }

    /// Reads a snapshot and compares it.
    pub(super) async fn look_at_snapshot(&self, pool: &Pool) {
        let Some(name) = self.some_snapshot() else { return };
        let found = self.read_snapshot(pool, &name).await;
        if let Ok(Some(bytes)) = &found {
            self.look_at_contents(pool, &name, bytes).await;
        }
        let known = self.snapshots.borrow();
        // Another worker may have deleted it meanwhile.
        let Some(model) = known.get(&name).filter(|_| !self.undecided.borrow().contains_key(&name)) else {
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

    /// True if nobody has begun to delete a snapshot: what it holds goes elsewhere then.
    fn is_kept(&self, name: &str) -> bool {
        self.snapshots.borrow().contains_key(name) && !self.undecided.borrow().contains_key(name)
    }

    /// Asks what a snapshot holds, and where it differs from another one.
    async fn look_at_contents(&self, pool: &Pool, name: &str, bytes: &[u8]) {
        let holds: Vec<bool> = bytes.chunks(4096).map(|block| block.iter().any(|byte| *byte != 0)).collect();
        if let Ok(usage) = pool.volume_usage(name, 0, u64::MAX / 2).await {
            let least = holds.iter().filter(|holds| **holds).count() as u64 * 4096;
            // The last block may hold something behind the end.
            let most = least + if bytes.len().is_multiple_of(4096) { 0 } else { 4096 };
            let is_true = (least..=most).contains(&usage.shown) && usage.alone <= usage.shown;
            if !is_true && self.is_kept(name) {
                self.fail(format!("snapshot {name} shows {least} bytes of data, told is {usage:?}"));
            }
        }
        let Some(base) = self.some_snapshot().filter(|_| self.plan.stretch.is_none()) else { return };
        let (Ok(Some(before)), Ok(changes)) =
            (self.read_snapshot(pool, &base).await, pool.volume_changes(name, &base, 0, u64::MAX / 2).await)
        else {
            return;
        };
        let mut told: Vec<Option<bool>> = vec![None; holds.len()];
        for change in &changes {
            let first = (change.offset / 4096) as usize;
            let count = change.length.div_ceil(4096) as usize;
            told.iter_mut().skip(first).take(count).for_each(|told| *told = Some(change.data));
        }
        for (block, ((now, holds), told)) in bytes.chunks(4096).zip(&holds).zip(&told).enumerate() {
            let was = before.chunks(4096).nth(block).unwrap_or(&[]);
            let same = was.iter().zip(now).all(|(was, now)| was == now);
            let is_true = match told {
                // Behind the end of the other there is nothing.
                None => same && now.iter().skip(was.len()).all(|byte| *byte == 0),
                // The last block of one of them may hold something behind the end.
                Some(data) => data == holds || *data && (now.len() < 4096 || was.len() < 4096),
            };
            if !is_true && self.is_kept(name) && self.is_kept(&base) {
                return self.fail(format!(
                    "block {block} of {name} against {base}: told is {told:?}, it holds data: {holds}"
                ));
            }
        }
    }

    /// Makes a volume of a snapshot.
    pub(super) async fn clone_snapshot(&self, pool: &Pool) {
        if self.volumes.borrow().len() >= 4 {
            return;
        }
        let Some(snapshot) = self.some_snapshot() else { return };
        let Some(model) = self.snapshots.borrow().get(&snapshot).cloned() else { return };
        let name = format!("v{}", self.names.get());
        self.names.set(self.names.get() + 1);
        self.undecided.borrow_mut().insert(name.clone(), Undecided::Cloned(model.clone()));
        let result = pool.clone_volume(&snapshot, &name, 0).await;
        self.say(|| format!("clone {snapshot} as {name}: {result:?}"));
        if result.is_ok() {
            self.undecided.borrow_mut().remove(&name);
            self.insert_volume(name, model);
        } else if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            // Deleted by another worker.
            self.undecided.borrow_mut().remove(&name);
            return;
        }
        self.tolerate("clone", result, self.while_deleted(&snapshot));
    }

    /// Rolls a volume that nobody works on back to one of its snapshots.
    pub(super) async fn roll_back(&self, pool: &Pool) {
        let Some(snapshot) = self.some_snapshot() else { return };
        let Some((name, _)) = snapshot.split_once('@') else { return };
        let Some(model) = self.snapshots.borrow().get(&snapshot).cloned() else { return };
        {
            let mut uncertain = self.uncertain.borrow_mut();
            let known = self.volumes.borrow().contains_key(name);
            if !known || uncertain.contains(name) || self.users.has(name) {
                return;
            }
            // Nobody begins to work on it.
            uncertain.insert(name.to_owned());
        }
        self.undecided.borrow_mut().insert(name.to_owned(), Undecided::RolledBack(model.clone()));
        let result = pool.roll_back_volume(&snapshot, 0).await;
        self.say(|| format!("roll back to {snapshot}: {result:?}"));
        let gone = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        if result.is_ok() {
            self.insert_volume(name.to_owned(), model);
        }
        if result.is_ok() || gone {
            self.undecided.borrow_mut().remove(name);
            self.uncertain.borrow_mut().remove(name);
        }
        if !gone {
            self.tolerate("roll back", result, self.while_deleted(&snapshot));
        }
    }

    /// What using a snapshot may return that another worker may be deleting.
    fn while_deleted(&self, snapshot: &str) -> &'static [ErrorKind] {
        if self.is_kept(snapshot) { NO_SPACE } else { &[ErrorKind::NoSpace, ErrorKind::Busy] }
    }

    /// Deletes a snapshot, which is refused while somebody reads it.
    pub(super) async fn delete_snapshot(&self, pool: &Pool) {
        let Some(name) = self.some_snapshot() else { return };
        self.undecided.borrow_mut().insert(name.clone(), Undecided::Deleted);
        let used = self.users.mark(&name);
        let result = pool.delete_volume(&name).await;
        self.say(|| format!("delete {name}: {result:?}"));
        match &result {
            Ok(()) => {
                self.snapshots.borrow_mut().remove(&name);
                self.undecided.borrow_mut().remove(&name);
            }
            // Somebody reads it.
            Err(error) if error.kind() == ErrorKind::Busy && self.users.since(&name, used) => {
                self.undecided.borrow_mut().remove(&name);
                return;
            }
            Err(_) => {}
        }
        self.tolerate("delete", result, NO_SPACE);
    }

    pub(super) fn some_volume(&self) -> Option<String> {
        let (volumes, uncertain) = (self.volumes.borrow(), self.uncertain.borrow());
        let names: Vec<&String> = volumes.keys().filter(|name| !uncertain.contains(*name)).collect();
        (!names.is_empty()).then(|| (*self.random.choose(&names)).clone())
    }

    fn some_snapshot(&self) -> Option<String> {
        let (snapshots, undecided) = (self.snapshots.borrow(), self.undecided.borrow());
        let names: Vec<&String> = snapshots.keys().filter(|name| !undecided.contains_key(*name)).collect();
        (!names.is_empty()).then(|| (*self.random.choose(&names)).clone())
    }

    /// True if a volume has snapshots: it cannot be deleted then.
    pub(super) fn has_snapshots(&self, volume: &str) -> bool {
        let of = |name: &String| name.split_once('@').is_some_and(|(of, _)| of == volume);
        self.snapshots.borrow().keys().any(of) || self.undecided.borrow().keys().any(of)
    }

    /// What a snapshot holds whose taking was cut off: what its volume held at some moment since, and all that was durable before.
    fn taken(&self, name: &str, before: &VolumeModel, bytes: &[u8]) -> Result<VolumeModel, String> {
        let volume = name.split_once('@').map_or("", |(volume, _)| volume);
        let now = self.volumes.borrow().get(volume).cloned();
        let now = now.filter(|now| now.size() == before.size());
        let mut model = now.unwrap_or_else(|| before.clone());
        model.durable_as(before);
        model.adopt_after_crash(bytes)?;
        Ok(model)
    }

    /// Decides, by what is there, what a crash had left undecided; compares every snapshot with what it must hold.
    pub(super) async fn reconcile_snapshots(&self, pool: &Pool) -> Result<(), String> {
        let found = pool.volumes().await.map_err(|error| format!("list: {error:?}"))?;
        let is_there = |name: &str| found.iter().any(|info| info.name == name && !info.deleting);
        let undecided: Vec<String> = self.undecided.borrow().keys().cloned().collect();
        for name in undecided {
            // Read first: another power cut may come, and nothing is decided then.
            let is_snapshot = name.contains('@') && is_there(&name);
            let bytes = if is_snapshot { self.read_snapshot(pool, &name).await? } else { None };
            let Some(what) = self.undecided.borrow_mut().remove(&name) else { continue };
            match what {
                Undecided::Taken(before) if is_there(&name) => {
                    let Some(bytes) = bytes else { continue };
                    let model = self.taken(&name, &before, &bytes);
                    let model = model.map_err(|error| format!("snapshot {name}: {error}"))?;
                    self.snapshots.borrow_mut().insert(name, model);
                }
                Undecided::Cloned(model) if is_there(&name) => {
                    self.insert_volume(name, model);
                }
                Undecided::Deleted if !is_there(&name) => {
                    self.snapshots.borrow_mut().remove(&name);
                }
                Undecided::RolledBack(model) => {
                    self.rolled_back.borrow_mut().insert(name, model);
                }
                _ => {}
            }
        }
        for info in found.iter().filter(|info| info.snapshot && !info.deleting) {
            if !self.snapshots.borrow().contains_key(&info.name) {
                return Err(format!("snapshot {} should not exist", info.name));
            }
        }
        let names: Vec<String> = self.snapshots.borrow().keys().cloned().collect();
        for name in names {
            if !is_there(&name) {
                return Err(format!("snapshot {name} is gone"));
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
