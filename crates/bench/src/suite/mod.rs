//! Suites: workloads as data, with published figures. docs/benchmark.md explains each key.

mod check;
mod object_job;
mod scale;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use object_job::{ObjectGenerator, ObjectJob};
pub use scale::{Case, ScaledSuite, Scaling};

/// A workload of a reference document or of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// Name on the command line.
    pub name: String,
    /// Title.
    pub title: String,
    /// The document, and the hardware of its figures.
    pub source: String,
    /// A short description.
    #[serde(default)]
    pub about: String,
    /// Numbers of concurrent instances; several numbers are run one after the other.
    #[serde(default = "one_instance")]
    pub instances: Vec<u32>,
    /// Bytes per instance; the whole target if absent.
    #[serde(default)]
    pub instance_bytes: Option<u64>,
    /// The order in which the instances run the jobs.
    #[serde(default)]
    pub order: Order,
    /// In staggered order: seconds between the starts of instances.
    #[serde(default)]
    pub stagger_s: f64,
    /// Protection scheme in the document, as k+m.
    #[serde(default)]
    pub scheme: Option<String>,
    /// Number of pools (or groups) in the document.
    #[serde(default = "one")]
    pub pools: u32,
    /// Number of drives in the document, for the part that a single machine represents.
    #[serde(default)]
    pub drives: Option<u32>,
    /// The drives of the document, as a drive model of the lab.
    #[serde(default)]
    pub drive_model: Option<String>,
    /// Processors of each virtual machine in the document, if each instance is one.
    #[serde(default)]
    pub machine_cpus: Option<u32>,
    /// Ramp-up before each measurement, in seconds.
    #[serde(default = "default_ramp")]
    pub ramp_s: f64,
    /// Measured seconds per job.
    #[serde(default = "default_run")]
    pub run_s: f64,
    /// Number of measurements of each job, of which the document reports the mean.
    #[serde(default = "one")]
    pub repeats: u32,
    /// Alternative sets of jobs; the first is the default.
    #[serde(default)]
    pub profiles: Vec<Profile>,
    /// The jobs, in order.
    pub jobs: Vec<Job>,
    /// Published figures.
    #[serde(default)]
    pub published: Vec<Published>,
    /// Further published facts.
    #[serde(default)]
    pub facts: Vec<PublishedFact>,
}

/// The kind of requests of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Reads and writes of volumes, files and devices.
    Blocks,
    /// S3 requests.
    Objects,
}

/// The order in which the instances run the jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// All instances run the same job at the same time.
    #[default]
    Together,
    /// Each instance runs all jobs independently, with staggered starts.
    Staggered,
}

/// A set of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name on the command line.
    pub name: String,
    /// Description.
    pub title: String,
}

/// A job of a suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Name in tables.
    pub name: String,
    /// Bytes per operation.
    pub block_bytes: u64,
    /// Share of reads in percent.
    pub read_percent: u8,
    /// True for random offsets, false for sequential ones.
    pub random: bool,
    /// Queue depth per thread.
    pub depth: u32,
    /// Queue depths to try one after the other, instead of `depth`.
    #[serde(default)]
    pub depths: Vec<u32>,
    /// Threads per instance.
    pub threads: u32,
    /// True to run with a failed drive.
    #[serde(default)]
    pub degraded: bool,
    /// The profile that the job belongs to, if the suite has profiles.
    #[serde(default)]
    pub profile: Option<String>,
    /// The I/O engine for files and devices.
    #[serde(default)]
    pub engine: Engine,
    /// Use polled completions if the device supports them.
    #[serde(default)]
    pub polled: bool,
    /// Register buffers with the kernel.
    #[serde(default)]
    pub fixed_buffers: bool,
    /// Register files with the kernel.
    #[serde(default)]
    pub registered_files: bool,
    /// Generate random offsets with a linear feedback shift register.
    #[serde(default)]
    pub lfsr: bool,
    /// Distance between the starting offsets of sequential threads, in percent of the size.
    #[serde(default)]
    pub offset_increment_percent: Option<u8>,
    /// Write new contents with each write.
    #[serde(default)]
    pub refill: bool,
    /// Increase the queue depth as long as this latency is kept.
    #[serde(default)]
    pub latency: Option<LatencyTarget>,
    /// Preparation of the volumes.
    #[serde(default)]
    pub prepare: Option<Prepare>,
    /// S3 requests instead of reads and writes of blocks.
    #[serde(default)]
    pub objects: Option<ObjectJob>,
}

impl Job {
    /// Returns a plain random-read job, from which other loads are derived.
    pub fn random_read(name: &str, block_bytes: u64, depth: u32, threads: u32) -> Self {
        Self {
            name: name.into(),
            block_bytes,
            read_percent: 100,
            random: true,
            depth,
            depths: Vec::new(),
            threads,
            degraded: false,
            profile: None,
            engine: Engine::default(),
            polled: false,
            fixed_buffers: false,
            registered_files: false,
            lfsr: false,
            offset_increment_percent: None,
            refill: false,
            latency: None,
            prepare: None,
            objects: None,
        }
    }
}

/// The I/O engine of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// io_uring.
    #[default]
    IoUring,
    /// Linux native asynchronous I/O (libaio).
    Libaio,
}

/// A latency target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyTarget {
    /// The latency in milliseconds.
    pub target_ms: f64,
    /// Interval between changes of the queue depth, in seconds.
    pub window_s: f64,
    /// Share of operations per interval that must meet the target, in percent.
    pub percentile: f64,
}

/// The preparation of the volumes before a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prepare {
    /// Write them sequentially from end to end.
    Sequential,
}

/// Published figures of a system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The system.
    pub system: String,
    /// Number of instances, if relevant.
    #[serde(default)]
    pub instances: Option<u32>,
    /// Number of drives, if the figures are those of more drives than the suite has.
    #[serde(default)]
    pub drives: Option<u32>,
    /// The figures.
    pub figures: Vec<Figure>,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The job.
    pub job: String,
    /// Reads before writes. Without a unit, in thousands of operations per second below 64 KiB and
    /// in GB/s from there on.
    pub value: Vec<f64>,
    /// The unit.
    #[serde(default)]
    pub unit: Option<Unit>,
    /// Mean latency in microseconds.
    #[serde(default)]
    pub mean_us: Vec<f64>,
    /// 99.95th percentile of the latency, in microseconds.
    #[serde(default)]
    pub p9995_us: Vec<f64>,
    /// Efficiency as printed in the document, in percent.
    #[serde(default)]
    pub efficiency: Option<f64>,
    /// Processors in use in percent.
    #[serde(default)]
    pub cpu_percent: Option<f64>,
    /// Mean latency of the drives in milliseconds: reads, writes.
    #[serde(default)]
    pub drive_ms: Option<[f64; 2]>,
    /// Mean share of the time with I/O in flight at a drive, in percent.
    #[serde(default)]
    pub drive_percent: Option<f64>,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Operations per second.
    #[serde(rename = "IOPS")]
    Iops,
    /// Thousands of operations per second.
    #[serde(rename = "K IOPS")]
    KiloIops,
    /// MiB per second.
    #[serde(rename = "MiB/s")]
    MibPerS,
    /// MB per second.
    #[serde(rename = "MB/s")]
    MbPerS,
    /// GB per second.
    #[serde(rename = "GB/s")]
    GbPerS,
}

/// A published fact outside the tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFact {
    /// The subject.
    pub what: String,
    /// The value.
    pub value: f64,
    /// The unit.
    pub unit: String,
}

/// An invalid suite.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// The text is not valid TOML, or not a suite.
    #[error("cannot parse the suite: {0}")]
    Parse(#[from] toml::de::Error),
    /// The suite is inconsistent.
    #[error("suite '{suite}': {message}")]
    Invalid {
        /// The suite.
        suite: String,
        /// The problem.
        message: String,
    },
}

fn one() -> u32 {
    1
}

fn one_instance() -> Vec<u32> {
    vec![1]
}

fn default_ramp() -> f64 {
    5.0
}

fn default_run() -> f64 {
    30.0
}

/// The built-in suites.
const BUILT_IN: [&str; 8] = [
    include_str!("../../suites/raid-vm.toml"),
    include_str!("../../suites/io-blender.toml"),
    include_str!("../../suites/sweep.toml"),
    include_str!("../../suites/simulations.toml"),
    include_str!("../../suites/vm-scale.toml"),
    include_str!("../../suites/rados.toml"),
    include_str!("../../suites/object-five.toml"),
    include_str!("../../suites/kv-cache.toml"),
];

impl Suite {
    /// Parses a suite.
    ///
    /// # Errors
    /// If the suite is invalid.
    pub fn parse(text: &str) -> Result<Self, SuiteError> {
        let suite: Self = toml::from_str(text)?;
        check::check(&suite)?;
        Ok(suite)
    }

    /// Returns the built-in suites.
    pub fn built_in() -> Vec<Self> {
        let parse = |text: &&str| match Self::parse(text) {
            Ok(suite) => suite,
            Err(error) => panic!("built-in suite: {error}"),
        };
        BUILT_IN.iter().map(parse).collect()
    }

    /// Finds a built-in suite by name.
    pub fn find(name: &str) -> Option<Self> {
        Self::built_in().into_iter().find(|suite| suite.name == name)
    }

    /// Returns the workload of the RAID document.
    pub fn raid_vm() -> Self {
        match Self::parse(BUILT_IN[0]) {
            Ok(suite) => suite,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the kind of requests, which is the same for all jobs.
    pub fn workload(&self) -> Workload {
        let objects = self.jobs.first().is_some_and(|job| job.objects.is_some());
        if objects { Workload::Objects } else { Workload::Blocks }
    }

    /// Returns the figures published for this number of instances.
    pub fn published_for(&self, instances: u32) -> impl Iterator<Item = &Published> {
        self.published.iter().filter(move |published| published.instances.is_none_or(|of| of == instances))
    }
}

impl Published {
    /// Returns the figure of a job.
    pub fn figure(&self, job: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.job == job)
    }
}

impl Figure {
    /// Returns the unit, which depends on the job if none is given.
    pub fn unit(&self, job: &Job) -> Unit {
        let usual = if job.is_bandwidth() { Unit::GbPerS } else { Unit::KiloIops };
        self.unit.unwrap_or(usual)
    }
}

impl Unit {
    /// Converts a rate to this unit.
    pub fn of(self, iops: f64, bytes_per_s: f64) -> f64 {
        match self {
            Self::Iops => iops,
            Self::KiloIops => iops / 1e3,
            Self::MibPerS => bytes_per_s / f64::from(1 << 20),
            Self::MbPerS => bytes_per_s / 1e6,
            Self::GbPerS => bytes_per_s / 1e9,
        }
    }

    /// Converts a value in this unit to bytes or operations per second.
    #[allow(clippy::cast_precision_loss)]
    pub fn back(self, value: f64, block_bytes: u64, bandwidth: bool) -> f64 {
        let block = block_bytes as f64;
        let bytes = match self {
            Self::Iops => value * block,
            Self::KiloIops => value * 1e3 * block,
            Self::MibPerS => value * f64::from(1 << 20),
            Self::MbPerS => value * 1e6,
            Self::GbPerS => value * 1e9,
        };
        if bandwidth { bytes } else { bytes / block }
    }

    /// Returns the symbol.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::KiloIops => "K IOPS",
            Self::MibPerS => "MiB/s",
            Self::MbPerS => "MB/s",
            Self::GbPerS => "GB/s",
        }
    }
}

impl Job {
    /// True if the figures of the job are bytes per second, not operations.
    pub fn is_bandwidth(&self) -> bool {
        self.block_bytes >= 64 << 10
    }

    /// True if the job both reads and writes.
    pub fn is_mixed(&self) -> bool {
        (1..100).contains(&self.read_percent)
    }

    /// True if the job writes.
    pub fn writes(&self) -> bool {
        self.read_percent < 100
    }
}
