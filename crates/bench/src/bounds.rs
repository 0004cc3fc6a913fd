//! Upper bounds on a pool's performance, computed from the limits of its drives as in the reference
//! documents.

use serde::{Deserialize, Serialize};

use crate::human;
use crate::lab::DriveLimits;
use crate::suite::Job;

/// The layout of a pool: `drives` drives in groups of k+m.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Total number of drives.
    pub drives: u32,
    /// Data columns.
    pub data: u32,
    /// Parity columns, or further copies.
    pub parity: u32,
    /// Number of pools, each on its part of the drives.
    pub pools: u32,
}

/// An upper bound on a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Name of the bound.
    pub name: String,
    /// Operations per second.
    pub iops: f64,
    /// The saturated resource.
    pub saturates: String,
    /// The computation of the bound.
    pub formula: String,
}

/// The error of parsing a scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid scheme '{0}': expected k+m, for example 4+1")]
pub struct SchemeError(String);

impl Layout {
    /// Returns the layout of `drives` drives in `pools` pools of `scheme`.
    ///
    /// # Errors
    /// If the scheme is invalid.
    pub fn parse(scheme: &str, drives: u32, pools: u32) -> Result<Self, SchemeError> {
        let wrong = || SchemeError(scheme.into());
        let (data, parity) = scheme.split_once('+').ok_or_else(wrong)?;
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let (data, parity) = (number(data)?, number(parity)?);
        if data == 0 || drives == 0 || pools == 0 {
            Err(wrong())
        } else {
            Ok(Self { drives, data, parity, pools })
        }
    }

    fn width(self) -> f64 {
        f64::from(self.data + self.parity)
    }

    /// Returns the share of written bytes that is user data.
    fn share(self) -> f64 {
        f64::from(self.data) / self.width()
    }
}

/// The operations per second of one drive at a given block size.
#[derive(Clone, Copy, Debug)]
struct PerDrive {
    reads: f64,
    random_writes: f64,
    sequential_writes: f64,
    read_by: &'static str,
    write_by: &'static str,
}

#[allow(clippy::cast_precision_loss)]
impl PerDrive {
    fn new(limits: &DriveLimits, bytes: u64) -> Self {
        let by_bytes = |bps: u64| bps as f64 / bytes as f64;
        let (read_iops, read_bytes) = (limits.read_iops as f64, by_bytes(limits.read_bps));
        let (write_iops, write_bytes) = (limits.write_iops as f64, by_bytes(limits.write_bps));
        let by = |iops: f64, bytes: f64, of: [&'static str; 2]| {
            let [operations, rate] = of;
            if iops < bytes { operations } else { rate }
        };
        Self {
            reads: read_iops.min(read_bytes),
            random_writes: write_iops.min(write_bytes),
            // Sequential writes are merged into full stripes: only the bandwidth counts.
            sequential_writes: write_bytes,
            read_by: by(
                read_iops,
                read_bytes,
                ["the drives' reads per second", "the drives' read bandwidth"],
            ),
            write_by: by(
                write_iops,
                write_bytes,
                ["the drives' writes per second", "the drives' write bandwidth"],
            ),
        }
    }
}

/// Returns the bounds of a job on a layout. Efficiency is measured against the first one. `network`
/// is the bandwidth between load and system in bytes per second, if it is limited.
pub fn bounds(job: &Job, limits: &DriveLimits, layout: Layout, network: Option<f64>) -> Vec<Bound> {
    let drive = PerDrive::new(limits, job.block_bytes);
    let mut bounds = match job.read_percent {
        100 => reads(job, &drive, layout),
        0 => writes(job, limits, &drive, layout),
        percent => mixed(job, limits, &drive, layout, f64::from(percent) / 100.0),
    };
    if let Some(bps) = network {
        #[allow(clippy::cast_precision_loss)]
        let iops = bps / job.block_bytes as f64;
        bounds.push(Bound {
            name: "network".into(),
            iops,
            saturates: "the network".into(),
            formula: format!("{:.2} GB/s / {}", bps / 1e9, human::size(job.block_bytes)),
        });
    }
    bounds
}

/// Returns the tightest bound that applies to every system.
pub fn tightest(bounds: &[Bound]) -> Option<&Bound> {
    let first = bounds.first()?;
    let network = bounds.iter().find(|bound| bound.name == "network");
    Some(network.filter(|network| network.iops < first.iops).unwrap_or(first))
}

fn reads(job: &Job, drive: &PerDrive, layout: Layout) -> Vec<Bound> {
    let drives = f64::from(layout.drives);
    if !job.degraded {
        return vec![Bound {
            name: "drives' reads".into(),
            iops: drives * drive.reads,
            saturates: drive.read_by.into(),
            formula: format!("{} drives x {}", layout.drives, count(drive.reads)),
        }];
    }
    // One drive of each pool has failed.
    let left = drives - f64::from(layout.pools);
    let sum = Bound {
        name: "remaining drives' reads".into(),
        iops: left * drive.reads,
        saturates: drive.read_by.into(),
        formula: format!("{left} drives x {}", count(drive.reads)),
    };
    // A read of a lost block reads from k other drives. A long read needs most of those columns
    // anyway.
    let each = drives / f64::from(layout.pools);
    let (lost, data) = (1.0 / each, f64::from(layout.data));
    let reads_each = if job.random { (1.0 - lost) + lost * data } else { 1.0 };
    let rebuilt = Bound {
        name: "remaining drives with reconstruction".into(),
        iops: left * drive.reads / reads_each,
        saturates: drive.read_by.into(),
        formula: format!("{left} drives x {} / {reads_each:.2} reads per operation", count(drive.reads)),
    };
    vec![rebuilt, sum]
}

fn writes(job: &Job, limits: &DriveLimits, drive: &PerDrive, layout: Layout) -> Vec<Bound> {
    let lost = if job.degraded { f64::from(layout.pools) } else { 0.0 };
    let drives = f64::from(layout.drives) - lost;
    let full = Bound {
        name: "full stripes".into(),
        iops: drives * drive.sequential_writes * layout.share(),
        saturates: "the drives' write bandwidth".into(),
        formula: format!(
            "{drives} drives x {:.1} MB/s x {}/{} / {}",
            megabytes(limits.write_bps),
            layout.data,
            layout.data + layout.parity,
            human::size(job.block_bytes)
        ),
    };
    let sum = Bound {
        name: "drives' writes".into(),
        iops: drives * drive.random_writes,
        saturates: drive.write_by.into(),
        formula: format!("{drives} drives x {}", count(drive.random_writes)),
    };
    if layout.data == 1 && layout.parity == 0 {
        // Independent drives: sequential writes are not merged.
        return vec![sum];
    }
    if !job.random {
        return vec![full];
    }
    // A write in place reads and writes its block and every parity block; copies are only written.
    let touched = f64::from(1 + layout.parity);
    let copies = layout.data == 1;
    let by_writes = drives * drive.random_writes / touched;
    let by_reads = if copies { f64::INFINITY } else { drives * drive.reads / touched };
    let in_place = Bound {
        name: "in place".into(),
        iops: by_writes.min(by_reads),
        saturates: if by_writes <= by_reads { drive.write_by } else { drive.read_by }.into(),
        formula: format!("{drives} drives x {} / {touched} writes per operation", count(drive.random_writes)),
    };
    vec![in_place, sum, full]
}

/// Bounds of mixed reads and writes on the same drives, which share the time of a drive.
fn mixed(job: &Job, limits: &DriveLimits, drive: &PerDrive, layout: Layout, share: f64) -> Vec<Bound> {
    let reads = reads(job, drive, layout);
    let writes = writes(job, limits, drive, layout);
    let Some(read) = reads.first() else { return Vec::new() };
    let join = |write: &Bound| Bound {
        name: format!("mixed reads and writes, {}", write.name),
        // Throttled drives have separate budgets for reads and writes; writes in place also need
        // reads.
        iops: (read.iops / (share + reads_of_writes(job, layout, write, share)))
            .min(write.iops / (1.0 - share)),
        saturates: if read.iops / share < write.iops / (1.0 - share) {
            &read.saturates
        } else {
            &write.saturates
        }
        .clone(),
        formula: format!("{} with {}", read.formula, write.formula),
    };
    writes.iter().map(join).collect()
}

fn reads_of_writes(job: &Job, layout: Layout, write: &Bound, share: f64) -> f64 {
    let reads = write.name == "in place" && job.random && layout.data > 1;
    if reads { (1.0 - share) * f64::from(1 + layout.parity) } else { 0.0 }
}

/// Formats operations per second of one drive; small numbers with a decimal.
fn count(value: f64) -> String {
    if value < 1000.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

#[allow(clippy::cast_precision_loss)]
fn megabytes(bps: u64) -> f64 {
    bps as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::model;
    use crate::suite::Suite;

    fn of(job: &str) -> Vec<Bound> {
        let suite = Suite::raid_vm();
        let job = suite.jobs.iter().find(|candidate| candidate.name == job).unwrap();
        let limits = model("kioxia-cm7").unwrap().limits;
        bounds(job, &limits, Layout::parse("4+1", 10, 2).unwrap(), None)
    }

    fn close(value: f64, wanted: f64) {
        assert!((value / wanted - 1.0).abs() < 0.005, "{value} is not {wanted}");
    }

    #[test]
    fn bounds_match_the_reference_document() {
        close(of("4k random read")[0].iops, 27e6);
        let writes = of("4k random write");
        let names: Vec<&str> = writes.iter().map(|bound| bound.name.as_str()).collect();
        assert_eq!(names, ["in place", "drives' writes", "full stripes"]);
        close(writes[0].iops, 3.5e6);
        close(writes[1].iops, 7e6);
        close(writes[2].iops, 13.2e6);
        close(of("1M write")[0].iops * f64::from(1 << 20), 10.0 * 6.75e9 * 0.8);
        close(of("1M read")[0].iops * f64::from(1 << 20), 140e9);
        // 80 % of the reads of eight drives, as the document computes; a lost block costs four
        // reads.
        let degraded = of("4k random read, one drive lost");
        close(degraded[1].iops, 8.0 * 2.7e6);
        close(degraded[0].iops, 8.0 * 2.7e6 / 1.6);
        close(of("1M read, one drive lost")[0].iops * f64::from(1 << 20), 8.0 * 14e9);
        let mixed = of("4k random 70:30");
        // Three of ten operations are writes, with two reads and two writes each.
        close(mixed[0].iops, (3.5e6f64 / 0.3).min(27e6 / (0.7 + 0.3 * 2.0)));
    }

    #[test]
    fn small_sequential_writes_are_merged_by_pools_only() {
        let suite = Suite::find("io-blender").unwrap();
        let write = suite.jobs.iter().find(|job| job.name == "IOPS: sequential write").unwrap();
        let limits = DriveLimits { read_iops: 1, write_iops: 300, read_bps: 1 << 40, write_bps: 4096 * 1000 };
        let of = |layout| tightest(&bounds(write, &limits, layout, None)).unwrap().iops;
        close(of(Layout { drives: 10, data: 1, parity: 0, pools: 1 }), 3000.0);
        close(of(Layout::parse("4+1", 10, 2).unwrap()), 8000.0);
    }

    #[test]
    fn mirrored_writes_need_no_reads() {
        let suite = Suite::find("vm-scale").unwrap();
        let write = suite.jobs.iter().find(|job| job.name == "4k random write").unwrap();
        let limits = DriveLimits { read_iops: 1, write_iops: 300, read_bps: 1 << 40, write_bps: 1 << 40 };
        let layout = Layout::parse("1+2", 3, 1).unwrap();
        close(bounds(write, &limits, layout, None)[0].iops, 300.0);
        let network = bounds(write, &limits, layout, Some(4096.0 * 100.0));
        assert_eq!(tightest(&network).unwrap().name, "network");
        assert_eq!(tightest(&network).unwrap().iops, 100.0);
    }
}
