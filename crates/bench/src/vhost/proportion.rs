//! Processor time of a back end at shares of its peak load, and the latency of waking up.

use serde::Serialize;

use super::back_end::{BackEnd, PEAK_DEPTH};
use super::{VhostError, VhostOptions};
use crate::disk_bench::{MeasuredDisk, Round, RunLength, Window};
use crate::suite::Job;

/// Processor time at a share of the peak load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// Description of the load.
    pub load: String,
    /// Name of the back end.
    pub system: String,
    /// The result.
    pub round: Round,
    /// Processors per 100,000 operations per second.
    pub cores_per_100k: Option<f64>,
}

/// Shares of the peak load, in percent.
const PARTS: [u32; 4] = [100, 50, 10, 1];

fn job(depth: u32) -> Job {
    Job::random_read("random read at a share of the peak", 4096, depth, 1)
}

/// Measures all loads on each system.
pub(super) fn measure(systems: &mut [BackEnd], options: &VhostOptions) -> Result<Vec<Share>, VhostError> {
    let mut shares = Vec::new();
    let length = RunLength::Time { warm_up: options.disk.warm_up, length: options.disk.length };
    for system in systems {
        let mut peak = 0.0;
        for part in PARTS {
            let rate = (part < 100).then(|| peak * f64::from(part) / 100.0);
            let round = system.measure_at(&job(PEAK_DEPTH), rate, length)?;
            if part == 100 {
                peak = round.iops;
            }
            shares.push(share(format!("{part} % of the peak"), system, round));
        }
        let round = system.measure(&job(1), length)?;
        shares.push(share("queue depth 1".into(), system, round));
        let round = system.measure_at(&job(1), Some(1000.0), length)?;
        shares.push(share("one per millisecond".into(), system, round));
        let window = Window::begin(length);
        let idle = Round { cores: system.cores_within(&window), ..Round::default() };
        shares.push(share("none".into(), system, idle));
    }
    Ok(shares)
}

fn share(load: String, system: &BackEnd, round: Round) -> Share {
    let cores_per_100k = round.cores.filter(|_| round.iops > 0.0).map(|cores| cores / round.iops * 1e5);
    Share { load, system: system.name.clone(), round, cores_per_100k }
}
