//! Parses fio's output: its JSON, and its per-second log of operations.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::FioError;
use crate::histogram::Histogram;
use crate::load::{Output, Second};
use crate::result::{Direction, ReadWrite};

#[derive(Deserialize)]
struct Json {
    #[serde(rename = "fio version")]
    version: String,
    jobs: Vec<JsonJob>,
}

#[derive(Deserialize)]
struct JsonJob {
    jobname: String,
    #[serde(default)]
    error: i32,
    read: JsonSide,
    write: JsonSide,
}

#[derive(Deserialize)]
struct JsonSide {
    total_ios: u64,
    /// Milliseconds.
    runtime: u64,
    bw_bytes: f64,
    /// From the submission to the completion of an operation, both included.
    lat_ns: JsonLatency,
}

#[derive(Deserialize)]
struct JsonLatency {
    mean: f64,
    #[serde(default)]
    bins: BTreeMap<String, u64>,
}

/// Parses fio's JSON, which may follow warnings.
pub(crate) fn parse(job: &str, text: &str) -> Result<Output, FioError> {
    let json = text.find("\n{").map(|at| at + 1).filter(|_| !text.starts_with('{')).unwrap_or(0);
    let json = text.get(json..).unwrap_or_default();
    let json: Json =
        serde_json::from_str(json).map_err(|source| FioError::Output { job: job.into(), source })?;
    if let Some(failed) = json.jobs.iter().find(|job| job.error != 0) {
        let error = std::io::Error::from_raw_os_error(failed.error);
        let message = format!("instance {}: {error}", failed.jobname);
        return Err(FioError::Failed { job: job.into(), message });
    }
    let both = |job: &JsonJob| ReadWrite { read: job.read.direction(), write: job.write.direction() };
    Ok(Output { version: json.version, instances: json.jobs.iter().map(both).collect() })
}

impl JsonSide {
    fn direction(&self) -> Option<Direction> {
        let bins = self.lat_ns.bins.iter();
        let latencies: Histogram =
            bins.filter_map(|(nanos, count)| Some((nanos.parse().ok()?, *count))).collect();
        // fio's own operation count and rate exclude operations that were in flight when the
        // measurement began; its byte counts and latencies include them, as do the counters of the
        // drives.
        let ios = self.total_ios.max(latencies.count());
        if ios == 0 {
            return None;
        }
        #[allow(clippy::cast_precision_loss)]
        let iops = ios as f64 * 1000.0 / self.runtime.max(1) as f64;
        Some(Direction {
            iops,
            bytes_per_s: self.bw_bytes,
            ios,
            mean_us: self.lat_ns.mean / 1000.0,
            latencies,
        })
    }
}

/// Parses fio's log, whose lines contain milliseconds, operations per second, direction and further
/// fields. Sums the lines of all threads within each second.
pub(super) fn parse_log(text: &str) -> Vec<Second> {
    let mut seconds = BTreeMap::<u64, (Second, u32)>::new();
    for line in text.lines() {
        let mut fields = line.split(',').map(str::trim);
        let (Some(at), Some(value), Some(direction)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (Ok(at), Ok(value)) = (at.parse::<u64>(), value.parse::<f64>()) else { continue };
        // A line may be written a few milliseconds after its second.
        let (second, lines) = seconds.entry((at + 500) / 1000).or_default();
        *lines += 1;
        match direction {
            "0" => second.read += value,
            "1" => second.write += value,
            _ => {}
        }
    }
    #[allow(clippy::cast_precision_loss)]
    let mut list: Vec<(Second, u32)> = seconds
        .into_iter()
        .map(|(at, (second, lines))| (Second { at: at as f64, ..second }, lines))
        .collect();
    // Each instance writes its own lines, and not all of them write one for the last second.
    if let [.., (_, before), (_, last)] = list.as_slice()
        && last < before
    {
        list.pop();
    }
    list.into_iter().map(|(second, _)| second).collect()
}
