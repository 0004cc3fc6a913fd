//! SMART reports and kernel counters of the drives of open pools.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{OpenPool, Pools};
use crate::drive_health::{self, Smartctl};
use api::types::{DriveState, Pool, PoolDrive, Problem};

/// Interval of the search for drives whose SMART report is due.
const INTERVAL: Duration = Duration::from_secs(2);

impl Pools {
    /// Reads the SMART reports of the drives of open pools periodically, without end.
    pub(crate) async fn watch_smart(self: Arc<Self>) {
        let smartctl = Smartctl::default();
        loop {
            for drive in self.smart.due(&self.block_devices(), Instant::now()) {
                let report = smartctl.read(&drive).await;
                self.smart.store(drive, report, Instant::now());
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Returns the paths of the block devices of open pools.
    fn block_devices(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for open in self.open_names().iter().filter_map(|name| self.get(name).ok()) {
            let drives = open.open_drives();
            let devices = drives.iter().filter(|drive| drive.device().is_some());
            paths.extend(devices.map(|drive| drive.path().to_owned()));
        }
        paths
    }

    /// Adds the health of the drives to the status of an open pool, and a problem for each drive
    /// that predicts its failure. Does not wait for a drive.
    pub(super) fn add_drive_health(&self, open: &OpenPool, shown: &mut Pool) {
        let drives = open.open_drives().clone();
        for drive in &mut shown.drives {
            let path = Path::new(&drive.path);
            let Some(device) = drives.iter().find(|open| open.path() == path).and_then(|open| open.device())
            else {
                continue;
            };
            drive.io = drive_health::requests(device);
            drive.smart = self.smart.get(path);
        }
        shown.problems.extend(shown.drives.iter().filter_map(predicted_failure));
    }
}

/// Returns the problem of a drive in use that predicts its failure.
fn predicted_failure(drive: &PoolDrive) -> Option<Problem> {
    let PoolDrive { pool, path, .. } = drive;
    let index = drive.index?;
    let failing = drive.state == DriveState::Online && drive.smart.as_ref()?.passed == Some(false);
    failing.then(|| Problem {
        message: format!("drive {index} ({path}) predicts its failure by SMART"),
        action: format!(
            "replace it: 'gabion drive replace {pool} {index} --with NEW_DRIVE'; 'smartctl -a {path}' shows the cause"
        ),
    })
}
