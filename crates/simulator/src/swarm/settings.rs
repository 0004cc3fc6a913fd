//! QoS limits, weights and space reservations of volumes in a swarm run. Acknowledged settings must
//! survive any power cut.

use engine::{ErrorKind, Pool, QosLimits, VolumeInfo};
use format::DriveState;

use super::SwarmRun;
use super::errors::NO_SPACE;
use super::excess_faults::ExcessFaults;

/// The settings of a volume: the last acknowledged values, and the values requested since.
#[derive(Default)]
pub(super) struct VolumeSettings {
    service: TrackedSetting<QosLimits>,
    thick: TrackedSetting<bool>,
}

#[derive(Default)]
struct TrackedSetting<T> {
    confirmed: T,
    requested: Vec<T>,
}

impl<T: Copy + PartialEq> TrackedSetting<T> {
    /// Records a request. Returns false if another request is still unanswered; the order of the
    /// two is unknown then.
    fn request(&mut self, value: T) -> bool {
        self.requested.push(value);
        self.requested.len() == 1
    }

    /// Records the reply to a request, unless it overlapped another one.
    fn complete(&mut self, value: T, result: &engine::Result<()>) {
        if self.requested.len() > 1 {
            return;
        }
        match result {
            Ok(()) => *self = Self { confirmed: value, requested: Vec::new() },
            Err(error) if error.kind() == ErrorKind::NoSpace => self.requested.clear(),
            Err(_) => {}
        }
    }

    /// Makes the value found in the pool the acknowledged one. Returns false if it is not allowed.
    fn adopt(&mut self, found: T) -> bool {
        let allowed = self.confirmed == found || self.requested.contains(&found);
        *self = Self { confirmed: found, requested: Vec::new() };
        allowed
    }
}

impl SwarmRun {
    /// Sets random QoS limits and a random weight, while others use the volume.
    pub(super) async fn set_random_qos(&self, pool: &Pool) {
        let Some(name) = self.random_volume() else { return };
        let _use = self.uses.begin(&name);
        let rate = |most: &[u64]| *self.random.choose(most);
        let service = QosLimits {
            weight: *self.random.choose(&[0, 1, 50, 100, 1000]),
            burst_ms: *self.random.choose(&[0, 100, 5_000]),
            operations: rate(&[0, 0, 200, 20_000]),
            bytes: rate(&[0, 0, 4 << 20, 400 << 20]),
        };
        self.set_service(pool, &name, service).await;
    }

    pub(super) async fn set_service(&self, pool: &Pool, name: &str, service: QosLimits) {
        let only_request =
            self.settings.borrow_mut().entry(name.to_owned()).or_default().service.request(service);
        let result = pool.set_qos_limits(name, service).await;
        self.trace(|| format!("{name}: set QoS limits to {service:?}: {result:?}"));
        if only_request && let Some(settings) = self.settings.borrow_mut().get_mut(name) {
            settings.service.complete(service, &result);
        }
        self.tolerate("limit", result, NO_SPACE);
    }

    /// Reserves the full size of a volume, or ends the reservation.
    pub(super) async fn set_thick(&self, pool: &Pool) {
        let Some(name) = self.random_volume() else { return };
        let _use = self.uses.begin(&name);
        let thick = self.random.once_in(2);
        let only_request = self.settings.borrow_mut().entry(name.clone()).or_default().thick.request(thick);
        let result = pool.set_volume_thick(&name, thick).await;
        self.trace(|| format!("{name}: set thick to {thick}: {result:?}"));
        if only_request && let Some(settings) = self.settings.borrow_mut().get_mut(&name) {
            settings.thick.complete(thick, &result);
        }
        self.tolerate("keep room", result, NO_SPACE);
    }

    /// Returns true if the full size of the volume is certainly reserved.
    pub(super) fn is_thick(&self, name: &str) -> bool {
        let settings = self.settings.borrow();
        settings
            .get(name)
            .is_some_and(|settings| settings.thick.confirmed && settings.thick.requested.is_empty())
    }

    /// Reports a write to a thick volume that found no space. This is an error unless drives were
    /// lost or damaged beyond the redundancy (unreadable blocks and nodes cannot be moved), a file
    /// system under a drive is full, or the reservation cannot be met any more.
    pub(super) async fn check_thick_reservation(&self, pool: &Pool, name: &str) {
        let Ok(status) = pool.status().await else { return };
        let all_there = status.drives.iter().all(|drive| drive.state == DriveState::Online);
        let space = status.space;
        let is_kept = space.live_blocks + space.reservation_blocks <= space.capacity_blocks;
        let can_clean = self.excess.get() == ExcessFaults::None;
        if all_there && can_clean && is_kept && self.is_thick(name) && !self.host_was_full.get() {
            self.fail(format!("the full size of {name} is reserved, but a write found no space: {space:?}"));
        }
    }

    /// Compares the settings of every volume with the allowed values.
    pub(super) async fn verify_settings(&self, pool: &Pool) -> Result<(), String> {
        let found = pool.volumes().await.map_err(|error| format!("list: {error:?}"))?;
        let is_ready = |info: &&VolumeInfo| !info.snapshot && !info.deleting;
        let mut settings = self.settings.borrow_mut();
        settings.retain(|name, _| found.iter().filter(is_ready).any(|info| info.name == *name));
        for info in found.iter().filter(is_ready) {
            let tracked = settings.entry(info.name.clone()).or_default();
            if !tracked.service.adopt(info.qos) {
                return Err(format!(
                    "{} has QoS limits {:?}, which were never requested",
                    info.name, info.qos
                ));
            }
            if !tracked.thick.adopt(info.thick) {
                return Err(format!("{}: thick is {}, which was never requested", info.name, info.thick));
            }
        }
        Ok(())
    }
}
