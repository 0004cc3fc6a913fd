//! The six columns of KIOXIA's document on object storage.

use serde::Serialize;

use crate::run::Measured;
use crate::suite::{Figure, Job};

/// The columns, as means of runs; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ObjectColumns {
    /// GET in MB/s.
    pub get_mb_s: f64,
    /// PUT in MB/s.
    pub put_mb_s: f64,
    /// Processors of the machine in use, in percent.
    pub cpu_percent: Option<f64>,
    /// Mean latency of reads and writes of the drives in milliseconds.
    pub drive_ms: Option<[f64; 2]>,
    /// Mean share of the time with I/O in flight at a drive, in percent.
    pub drive_percent: Option<f64>,
    /// Processor seconds of the measured system per GB of bodies.
    pub cpu_s_per_gb: Option<f64>,
}

/// Returns the columns of the measurements of one case on one target; `None` if there are none.
pub fn object_columns<'a>(runs: impl IntoIterator<Item = &'a Measured>) -> Option<ObjectColumns> {
    let runs: Vec<&Measured> = runs.into_iter().filter(|one| one.all.is_some()).collect();
    let rate = |pick: fn(&crate::ReadWrite) -> Option<&crate::Direction>| {
        let rates = runs.iter().filter_map(|one| one.all.as_ref());
        mean(rates.map(|all| pick(all).map_or(0.0, |side| side.bytes_per_s / 1e6)))
    };
    let get_mb_s = rate(|all| all.read.as_ref())?;
    let put_mb_s = rate(|all| all.write.as_ref())?;
    let seen = || runs.iter().map(|one| &one.observation).filter(|seen| seen.cpus > 0);
    let drives: Vec<[f64; 3]> = seen().filter_map(crate::observe::Observation::drive_means).collect();
    let drive = |index: usize| mean(drives.iter().filter_map(|all| all.get(index).copied()));
    let system = runs.iter().filter_map(|one| {
        let (all, cpus) = (one.all.as_ref()?, one.observation.cpu.get(&one.target)?);
        (all.bytes_per_s() > 0.0).then(|| cpus / (all.bytes_per_s() / 1e9))
    });
    Some(ObjectColumns {
        get_mb_s,
        put_mb_s,
        cpu_percent: mean(seen().map(|seen| seen.cpu_busy / f64::from(seen.cpus) * 100.0)),
        drive_ms: drive(0).zip(drive(1)).map(|(read, write)| [read, write]),
        drive_percent: drive(2),
        cpu_s_per_gb: mean(system),
    })
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

impl ObjectColumns {
    /// Returns the published columns of a job.
    pub fn published(figure: &Figure, job: &Job) -> Self {
        let mut rates = figure.value.iter().map(|value| {
            let unit = figure.unit(job);
            unit.back(*value, job.block_bytes, true) / 1e6
        });
        let mut rate = |reads: bool| {
            let has = if reads { job.read_percent > 0 } else { job.writes() };
            if has { rates.next().unwrap_or(0.0) } else { 0.0 }
        };
        Self {
            get_mb_s: rate(true),
            put_mb_s: rate(false),
            cpu_percent: figure.cpu_percent,
            drive_ms: figure.drive_ms,
            drive_percent: figure.drive_percent,
            cpu_s_per_gb: None,
        }
    }

    /// Returns the columns as text: GET and PUT in MB/s, CPU in percent, read and write latency of
    /// the drives in ms, utilisation of the drives in percent, CPU seconds per GB.
    pub fn cells(&self) -> [String; 7] {
        let shown = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
        let [read, write] = self.drive_ms.map_or([None, None], |[read, write]| [Some(read), Some(write)]);
        [
            format!("{:.2}", self.get_mb_s),
            format!("{:.2}", self.put_mb_s),
            shown(self.cpu_percent),
            shown(read),
            shown(write),
            shown(self.drive_percent),
            shown(self.cpu_s_per_gb),
        ]
    }

    /// The titles of the cells.
    pub const TITLES: [&str; 7] =
        ["GET MB/s", "PUT MB/s", "CPU %", "read ms", "write ms", "drive %", "CPU s/GB"];
}
