//! The last phase of a run: two halves of the drives are used separately, and the engine must
//! refuse to combine them.

use std::rc::Rc;

use engine::ErrorKind;
use format::DriveState;

use super::SwarmRun;
use crate::disk::Faults;
use crate::run::BootEnd;

impl SwarmRun {
    /// Opens each half of the drives as often as the plan sets, then both together. Does nothing if
    /// the scheme does not tolerate the loss of the other half.
    pub(super) fn use_halves_separately(self: &Rc<Self>) -> Result<(), String> {
        let Some(extras) = &self.plan.extras else { return Ok(()) };
        // Data that a drive lost or garbled would be missing together with the other half.
        let keeps_all = Faults { stall: 0, fail_write: 0, ..self.plan.faults } == Faults::default();
        let Some(openings) = extras.halves.filter(|_| keeps_all) else { return Ok(()) };
        let members = self.machine.members();
        let is_settled = |state| matches!(state, DriveState::Online | DriveState::Removed);
        let online = (0..members.len())
            .filter(|index| members.get(*index).is_some_and(|member| member.state == DriveState::Online));
        let online: Vec<usize> = online.collect();
        let (first, second) = online.split_at(online.len() / 2);
        let is_borne = second.len() <= self.plan.parity() && first.len() as u64 >= self.data_columns();
        if !is_borne || !members.iter().all(|member| is_settled(member.state)) {
            return Ok(());
        }
        self.count(|stats| stats.used_apart += 1);
        for disk in &self.machine.disks {
            disk.set_faults(Faults::default());
            disk.plug_in();
        }
        let [of_first, of_second] = openings;
        (0..of_first).try_for_each(|_| self.open_half(first))?;
        if extras.remembers {
            self.set_present_drives(second);
            self.expect_refused(ErrorKind::Stale, "open of the half that was not used last")?;
        }
        self.machine.accept_stale.set(true);
        (0..of_second).try_for_each(|_| self.open_half(second))?;
        self.set_present_drives(&online);
        self.expect_refused(
            ErrorKind::NotAPool,
            &format!("open of halves that were opened {openings:?} times"),
        )?;
        // Each half is unchanged.
        [first, second].into_iter().try_for_each(|half| self.open_half(half))
    }

    fn expect_refused(&self, kind: ErrorKind, step: &str) -> Result<(), String> {
        match self.machine.boot(async || self.machine.open().await.map(|_| ())) {
            BootEnd::Completed(Err(error)) if error.kind() == kind => Ok(()),
            BootEnd::Completed(result) => Err(format!("{step}: {result:?}")),
            BootEnd::PowerCut => Err("unexpected power cut".into()),
        }
    }

    /// Opens the pool with half of its drives, then closes it or leaves it open.
    fn open_half(&self, half: &[usize]) -> Result<(), String> {
        self.set_present_drives(half);
        let opened = self.machine.boot(async || {
            self.change_tuning();
            let (pool, _) = self.machine.open().await?;
            if self.extras_random.once_in(2) { pool.close().await } else { Ok(()) }
        });
        match self.extras_random.once_in(2) {
            true => self.machine.kill_process(),
            false => self.machine.cut_power(),
        }
        match opened {
            BootEnd::Completed(result) => {
                result.map_err(|error| format!("open with drives {half:?} only: {error:?}"))
            }
            BootEnd::PowerCut => Err("unexpected power cut".into()),
        }
    }

    /// Restricts the machine to these drives.
    fn set_present_drives(&self, drives: &[usize]) {
        let mut absent = self.machine.absent.borrow_mut();
        absent.iter_mut().enumerate().for_each(|(index, absent)| *absent = !drives.contains(&index));
    }
}
