//! Losses and damage beyond the scheme's tolerance. The engine may return errors then, but never
//! wrong data.
//!
//! Lost drives return as they were, with their flushed data, and so does the pool. Damage is
//! permanent and ends the run. A pool that was closed cleanly is then read once more: reads return
//! the last written data or an error.

use std::rc::Rc;

use engine::{ErrorKind, Pool};
use reactor::Buffer;

use super::SwarmRun;
use super::plan::Op;
use crate::disk::Faults;
use crate::model::VolumeModel;
use crate::run::BootEnd;
use crate::sparse_layout::SparseVolume;

/// The faults of the drives beyond the scheme's tolerance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ExcessFaults {
    #[default]
    None,
    /// More drives are lost than the scheme tolerates. They return as they were.
    Lost,
    /// More drives are damaged than the scheme tolerates, permanently.
    Damaged,
}

/// The first page after the superblocks of a drive.
const FIRST_DATA_PAGE: u64 = 1024;

impl ExcessFaults {
    /// Returns the errors that any operation may return in this state.
    pub(super) fn allowed_errors(self) -> &'static [ErrorKind] {
        match self {
            Self::None => &[],
            Self::Lost => &[ErrorKind::PoolFailed, ErrorKind::Io, ErrorKind::Corrupt],
            Self::Damaged => &[ErrorKind::PoolFailed, ErrorKind::Io, ErrorKind::Corrupt],
        }
    }

    /// Returns true if a run continues with operations of this kind. The lasting effects of the
    /// other kinds cannot be checked after damage.
    pub(super) fn allows(self, op: Op) -> bool {
        let continues = matches!(
            op,
            Op::Write
                | Op::Read
                | Op::Flush
                | Op::Zero
                | Op::Discard
                | Op::Extents
                | Op::Checkpoint
                | Op::Scrub
                | Op::Idle
        );
        self == Self::None || continues
    }
}

impl SwarmRun {
    /// Returns the pool's drives in use in random order, or `None` if the status is not available.
    async fn used_drives(&self, pool: &Pool) -> Option<Vec<usize>> {
        let status = pool.status().await.ok()?;
        let in_use = status.drives.iter().filter(|drive| drive.state.is_in_use());
        let mut drives: Vec<usize> = in_use.map(|drive| usize::from(drive.index)).collect();
        for at in (1..drives.len()).rev() {
            drives.swap(at, usize::try_from(self.extras_random.below(at as u64 + 1)).unwrap_or(0));
        }
        Some(drives)
    }

    /// Kills one drive more than the scheme tolerates.
    pub(super) async fn lose_too_many(&self, pool: &Pool) {
        let Some(drives) = self.used_drives(pool).await else { return };
        self.count(|stats| stats.excess_losses += 1);
        self.excess.set(ExcessFaults::Lost);
        for drive in drives.into_iter().take(self.plan.parity() + 1) {
            self.trace(|| format!("drive {drive} dies, beyond the scheme's tolerance"));
            self.machine.disks.get(drive).into_iter().for_each(|disk| disk.set_dead(true));
            self.sleep_up_to(1_000).await;
        }
    }

    /// Plugs all drives in again and turns off their faults: the first of them must catch up on
    /// missed writes.
    pub(super) fn return_all_drives(&self) {
        self.excess.set(ExcessFaults::None);
        self.drives_kept_writes.set(false);
        self.victims.borrow_mut().clear();
        self.machine.disks.iter().filter(|disk| disk.is_dead()).for_each(|disk| disk.plug_in());
        let members = self.machine.members().len();
        self.machine.absent.borrow_mut().iter_mut().take(members).for_each(|absent| *absent = false);
    }

    /// Damages part of the content of more drives than the scheme tolerates. All drives also stall,
    /// so that transfers to them stay in flight.
    pub(super) async fn damage_too_much(&self, pool: &Pool) {
        let Some(drives) = self.used_drives(pool).await else { return };
        self.count(|stats| stats.excess_damage += 1);
        self.excess.set(ExcessFaults::Damaged);
        let least = self.plan.parity() + 1;
        let count = least + usize::try_from(self.extras_random.below(3)).unwrap_or(0);
        let one_in = *self.extras_random.choose(&[2, 8, 40]);
        self.trace(|| format!("1 page in {one_in} of drives {:?} is damaged", drives.iter().take(count)));
        for (at, drive) in drives.into_iter().enumerate() {
            let Some(disk) = self.machine.disks.get(drive) else { continue };
            let is_victim = self.victims.borrow().contains(&drive);
            let faults = if is_victim { self.plan.faults } else { Faults::default() };
            disk.set_faults(Faults { stall: *self.extras_random.choose(&[0, 5, 50]), ..faults });
            let pages = disk.pages().into_iter().filter(|page| at < count && *page >= FIRST_DATA_PAGE);
            for page in pages.filter(|_| self.extras_random.once_in(one_in)) {
                match self.extras_random.once_in(2) {
                    true => disk.mark_unreadable(page),
                    false => {
                        _ = disk
                            .flip_bit(page, usize::try_from(self.extras_random.below(32_768)).unwrap_or(0))
                    }
                }
            }
        }
    }

    /// Reads the damaged pool as far as possible.
    pub(super) fn after_damage(self: &Rc<Self>) -> Result<(), String> {
        let run = self.clone();
        let ended = self.machine.boot(async move || {
            run.change_tuning();
            let pool = match run.machine.open().await {
                Ok((pool, _)) => pool,
                Err(error) if is_refusal(error.kind(), run.has_full_host()) => {
                    run.trace(|| format!("the damaged pool is not opened: {error:?}"));
                    return Ok(());
                }
                Err(error) => return Err(format!("open of a damaged pool: {error:?}")),
            };
            run.read_damaged(&pool).await?;
            let closed = pool.close().await;
            run.trace(|| format!("the damaged pool is closed: {closed:?}"));
            run.failed()
        });
        self.machine.kill_process();
        match ended {
            BootEnd::Completed(result) => result?,
            BootEnd::PowerCut => return Err("unexpected power cut".into()),
        }
        let report = self.machine.check();
        self.trace(|| format!("check of a damaged pool: {report:?}"));
        Ok(())
    }

    /// Compares every block that the damaged pool returns.
    async fn read_damaged(&self, pool: &Pool) -> Result<(), String> {
        let found = pool.volumes().await.map_err(|error| format!("list: {error:?}"))?;
        let unsure = |name: &str| {
            self.uncertain.borrow().contains(name) || self.pending_ops.borrow().contains_key(name)
        };
        let (volumes, snapshots) = (self.volumes.borrow().clone(), self.snapshots.borrow().clone());
        for (name, model) in volumes.iter().chain(&snapshots).filter(|(name, _)| !unsure(name)) {
            let exists = found.iter().any(|info| info.name == *name && !info.deleting);
            match exists {
                true => self.compare_damaged(pool, name, model).await?,
                false if self.closed.get() => return Err(format!("{name} is missing in a damaged pool")),
                false => {}
            }
        }
        Ok(())
    }

    async fn compare_damaged(&self, pool: &Pool, name: &str, model: &VolumeModel) -> Result<(), String> {
        let volume = pool.open_volume(name).await.map_err(|error| format!("open {name}: {error:?}"))?;
        let volume = SparseVolume::new(volume.attach(), self.plan.stretch);
        let mut offset = 0;
        while offset < volume.size().min(model.size()) {
            let length = (volume.size() - offset).min(64 << 10);
            let buffer = Buffer::new(usize::try_from(length).unwrap_or(0));
            let read = volume.read(offset, &buffer.span()).await;
            let first = offset / u64::from(model.sector);
            match read {
                Ok(()) if self.closed.get() => model.check_read(first, buffer.as_slice(), u64::MAX, u64::MAX),
                Ok(()) => model.check_origin(first, buffer.as_slice()),
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) => {
                    self.count(|stats| stats.unreadable += 1);
                    Ok(())
                }
                Err(error) => Err(format!("{error:?}")),
            }
            .map_err(|message| format!("{name} in a damaged pool: {message}"))?;
            self.buffers.watch(format!("read of {name} at {offset}"), buffer)?;
            offset += length;
        }
        self.buffers.check()
    }
}

/// Returns true if an opening may refuse, with this error, drives that are damaged beyond the
/// scheme's tolerance.
fn is_refusal(kind: ErrorKind, full_host: bool) -> bool {
    matches!(kind, ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::NotAPool)
        || kind == ErrorKind::NoSpace && full_host
}
