//! Limits, weights and room that is kept for volumes, in the lives of the swarm: what was answered holds after any power cut.

use engine::{ErrorKind, Pool, VolumeInfo, VolumeService};
use format::DriveState;

use super::Life;
use super::errors::NO_SPACE;

/// What a volume is set to: what was last answered, and what has been asked for since.
#[derive(Default)]
pub(super) struct Settings {
    service: Setting<VolumeService>,
    thick: Setting<bool>,
}

#[derive(Default)]
struct Setting<T> {
    known: T,
    asked: Vec<T>,
}

impl<T: Copy + PartialEq> Setting<T> {
    /// Somebody asks; false if somebody else has and was not answered: nobody knows who came last then.
    fn ask(&mut self, value: T) -> bool {
        self.asked.push(value);
        self.asked.len() == 1
    }

    /// Whoever asked, and was alone then, is answered.
    fn answered(&mut self, value: T, result: &engine::Result<()>) {
        if self.asked.len() > 1 {
            return;
        }
        match result {
            Ok(()) => *self = Self { known: value, asked: Vec::new() },
            Err(error) if error.kind() == ErrorKind::NoSpace => self.asked.clear(),
            Err(_) => {}
        }
    }

    /// Takes what is there, if it may be.
    fn adopt(&mut self, found: T) -> bool {
        let may_be = self.known == found || self.asked.contains(&found);
        *self = Self { known: found, asked: Vec::new() };
        may_be
    }
}

impl Life {
    /// Gives a volume other limits and another weight, while others work on it.
    pub(super) async fn limit(&self, pool: &Pool) {
        let Some(name) = self.some_volume() else { return };
        let _user = self.users.begin(&name);
        let rate = |most: &[u64]| *self.random.choose(most);
        let service = VolumeService {
            weight: *self.random.choose(&[0, 1, 50, 100, 1000]),
            burst_ms: *self.random.choose(&[0, 100, 5_000]),
            operations: rate(&[0, 0, 200, 20_000]),
            bytes: rate(&[0, 0, 4 << 20, 400 << 20]),
        };
        self.set_service(pool, &name, service).await;
    }

    pub(super) async fn set_service(&self, pool: &Pool, name: &str, service: VolumeService) {
        let is_alone = self.settings.borrow_mut().entry(name.to_owned()).or_default().service.ask(service);
        let result = pool.set_volume_service(name, service).await;
        self.say(|| format!("{name} is limited to {service:?}: {result:?}"));
        if is_alone && let Some(settings) = self.settings.borrow_mut().get_mut(name) {
            settings.service.answered(service, &result);
        }
        self.tolerate("limit", result, NO_SPACE);
    }

    /// Has room kept for all of a volume, or none any more.
    pub(super) async fn keep_room(&self, pool: &Pool) {
        let Some(name) = self.some_volume() else { return };
        let _user = self.users.begin(&name);
        let thick = self.random.once_in(2);
        let is_alone = self.settings.borrow_mut().entry(name.clone()).or_default().thick.ask(thick);
        let result = pool.set_volume_thick(&name, thick).await;
        self.say(|| format!("{name} is thick: {thick}: {result:?}"));
        if is_alone && let Some(settings) = self.settings.borrow_mut().get_mut(&name) {
            settings.thick.answered(thick, &result);
        }
        self.tolerate("keep room", result, NO_SPACE);
    }

    /// True if room is certainly kept for all of a volume.
    pub(super) fn is_thick(&self, name: &str) -> bool {
        let settings = self.settings.borrow();
        settings.get(name).is_some_and(|settings| settings.thick.known && settings.thick.asked.is_empty())
    }

    /// A write to a thick volume found no space: that must not be, unless drives were lost, a file system under one is full, or room is not kept for
    /// it any more.
    pub(super) async fn must_have_room(&self, pool: &Pool, name: &str) {
        let Ok(status) = pool.status().await else { return };
        let all_there = status.drives.iter().all(|drive| drive.state == DriveState::Online);
        let space = status.space;
        let is_kept = space.live_blocks + space.reservation_blocks <= space.capacity_blocks;
        if all_there && is_kept && self.is_thick(name) && !self.host_was_full.get() {
            self.fail(format!("room is kept for all of {name}, and a write found none: {space:?}"));
        }
    }

    /// Compares what every volume is set to with what it may be.
    pub(super) async fn look_at_settings(&self, pool: &Pool) -> Result<(), String> {
        let found = pool.volumes().await.map_err(|error| format!("list: {error:?}"))?;
        let is_ready = |info: &&VolumeInfo| !info.snapshot && !info.deleting;
        let mut settings = self.settings.borrow_mut();
        settings.retain(|name, _| found.iter().filter(is_ready).any(|info| info.name == *name));
        for info in found.iter().filter(is_ready) {
            let known = settings.entry(info.name.clone()).or_default();
            if !known.service.adopt(info.service) {
                return Err(format!(
                    "{} is limited to {:?}, which nobody asked for",
                    info.name, info.service
                ));
            }
            if !known.thick.adopt(info.thick) {
                return Err(format!("{} is thick: {}, which nobody asked for", info.name, info.thick));
            }
        }
        Ok(())
    }
}
