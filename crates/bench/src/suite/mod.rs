//! Suites: workloads as data, with the figures that were published for them. docs/benchmark.md explains each key.
//!
//! Must not know: how a job is run, what on.

mod check;
mod scale;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use scale::{Case, Scaled, Scaling};

/// A workload of a reference document, or of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// Its name on the command line.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// The document, and the hardware of its figures.
    pub source: String,
    /// What it asks, in a few sentences.
    #[serde(default)]
    pub about: String,
    /// How many instances work side by side; several counts are run one after the other.
    #[serde(default = "one_instance")]
    pub instances: Vec<u32>,
    /// Bytes that each instance works on; all that there is without it.
    #[serde(default)]
    pub instance_bytes: Option<u64>,
    /// How the instances go through the jobs.
    #[serde(default)]
    pub order: Order,
    /// In staggered order: seconds between the beginnings of instances.
    #[serde(default)]
    pub stagger_s: f64,
    /// Protection in the document, as k+m.
    #[serde(default)]
    pub scheme: Option<String>,
    /// Pools (or groups) side by side in the document.
    #[serde(default = "one")]
    pub pools: u32,
    /// Drives in the document, as far as a single machine stands for it.
    #[serde(default)]
    pub drives: Option<u32>,
    /// The drives of the document, as a model of the lab.
    #[serde(default)]
    pub drive_model: Option<String>,
    /// Processors of each machine in the document, where each instance is one.
    #[serde(default)]
    pub machine_cpus: Option<u32>,
    /// Seconds of load before the measurement.
    #[serde(default = "default_ramp")]
    pub ramp_s: f64,
    /// Seconds that a job is measured.
    #[serde(default = "default_run")]
    pub run_s: f64,
    /// Sets of jobs of which one is chosen; the first unless told.
    #[serde(default)]
    pub profiles: Vec<Profile>,
    /// Its jobs, in their order.
    pub jobs: Vec<Job>,
    /// What others have measured with it.
    #[serde(default)]
    pub published: Vec<Published>,
    /// What the document says besides.
    #[serde(default)]
    pub facts: Vec<Fact>,
}

/// How the instances go through the jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// All do the same job at the same time.
    #[default]
    Together,
    /// Each goes through the whole list by itself, and they begin one after the other.
    Staggered,
}

/// A set of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name on the command line.
    pub name: String,
    /// What it is.
    pub title: String,
}

/// One job of a suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// What it is called in tables.
    pub name: String,
    /// Bytes of one operation.
    pub block_bytes: u64,
    /// Reads among its operations, in percent.
    pub read_percent: u8,
    /// Anywhere, or one after the other.
    pub random: bool,
    /// Operations that each thread keeps under way.
    pub depth: u32,
    /// Depths to try one after the other, in place of that.
    #[serde(default)]
    pub depths: Vec<u32>,
    /// Threads of an instance.
    pub threads: u32,
    /// It is run with one drive lost.
    #[serde(default)]
    pub degraded: bool,
    /// The profile that it belongs to, if the suite has any.
    #[serde(default)]
    pub profile: Option<String>,
    /// How operations are handed to the system, where the target is a file or a device.
    #[serde(default)]
    pub engine: Engine,
    /// Completions are polled for, where the device can do that.
    #[serde(default)]
    pub polled: bool,
    /// Buffers are registered with the kernel.
    #[serde(default)]
    pub fixed_buffers: bool,
    /// Files are registered with the kernel.
    #[serde(default)]
    pub registered_files: bool,
    /// Random places come from a linear feedback shift register.
    #[serde(default)]
    pub lfsr: bool,
    /// Sequential threads begin this far apart, in percent of the size.
    #[serde(default)]
    pub offset_increment_percent: Option<u8>,
    /// Each write has new contents.
    #[serde(default)]
    pub refill: bool,
    /// The load is made deeper as long as this latency is kept.
    #[serde(default)]
    pub latency: Option<LatencyTarget>,
    /// What is done to the volumes before.
    #[serde(default)]
    pub prepare: Option<Prepare>,
}

impl Job {
    /// Random reads with nothing special about them: other loads are made from it.
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
        }
    }
}

/// How operations are handed to the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// By io_uring.
    #[default]
    IoUring,
    /// By Linux's older asynchronous I/O.
    Libaio,
}

/// A latency that is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyTarget {
    /// The latency, in milliseconds.
    pub target_ms: f64,
    /// Seconds after which the depth is changed.
    pub window_s: f64,
    /// Operations of a window that must keep it, in percent.
    pub percentile: f64,
}

/// What is done to the volumes before a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prepare {
    /// They are written from end to end.
    Sequential,
}

/// What somebody has published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Of what.
    pub system: String,
    /// With how many instances, where that matters.
    #[serde(default)]
    pub instances: Option<u32>,
    /// The figures.
    pub figures: Vec<Figure>,
}

/// One published figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The job that it is of.
    pub job: String,
    /// Reads before writes. Thousands of operations a second below 64 KiB and GB/s from there on, without a unit.
    pub value: Vec<f64>,
    /// The unit.
    #[serde(default)]
    pub unit: Option<Unit>,
    /// Mean latency in microseconds.
    #[serde(default)]
    pub mean_us: Vec<f64>,
    /// Latency that 99.95 % of operations keep, in microseconds.
    #[serde(default)]
    pub p9995_us: Vec<f64>,
    /// Efficiency as the document gives it, in percent.
    #[serde(default)]
    pub efficiency: Option<f64>,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Operations a second.
    #[serde(rename = "IOPS")]
    Iops,
    /// Thousands of operations a second.
    #[serde(rename = "K IOPS")]
    KiloIops,
    /// Millions of 2^10 x 2^10 bytes a second.
    #[serde(rename = "MiB/s")]
    MibPerS,
    /// Thousands of millions of bytes a second.
    #[serde(rename = "GB/s")]
    GbPerS,
}

/// Something that a document says beside its tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// What.
    pub what: String,
    /// How much.
    pub value: f64,
    /// Of what unit.
    pub unit: String,
}

/// What is wrong with a suite.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// It is no TOML, or not of the form of a suite.
    #[error("the suite cannot be read: {0}")]
    Parse(#[from] toml::de::Error),
    /// It says something that makes no sense.
    #[error("suite '{suite}': {message}")]
    Invalid {
        /// The suite.
        suite: String,
        /// What.
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

/// The suites that are part of the program.
const BUILT_IN: [&str; 5] = [
    include_str!("../../suites/raid-vm.toml"),
    include_str!("../../suites/io-blender.toml"),
    include_str!("../../suites/sweep.toml"),
    include_str!("../../suites/simulations.toml"),
    include_str!("../../suites/vm-scale.toml"),
];

impl Suite {
    /// Reads a suite.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, SuiteError> {
        let suite: Self = toml::from_str(text)?;
        check::check(&suite)?;
        Ok(suite)
    }

    /// The suites that are part of the program.
    pub fn built_in() -> Vec<Self> {
        let parse = |text: &&str| match Self::parse(text) {
            Ok(suite) => suite,
            Err(error) => panic!("a suite that is part of this program: {error}"),
        };
        BUILT_IN.iter().map(parse).collect()
    }

    /// The one of that name.
    pub fn find(name: &str) -> Option<Self> {
        Self::built_in().into_iter().find(|suite| suite.name == name)
    }

    /// The workload of the RAID document.
    pub fn raid_vm() -> Self {
        match Self::parse(BUILT_IN[0]) {
            Ok(suite) => suite,
            Err(error) => panic!("{error}"),
        }
    }

    /// What was published for that many instances.
    pub fn published_for(&self, instances: u32) -> impl Iterator<Item = &Published> {
        self.published.iter().filter(move |published| published.instances.is_none_or(|of| of == instances))
    }
}

impl Published {
    /// The figure for a job.
    pub fn figure(&self, job: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.job == job)
    }
}

impl Figure {
    /// The unit, which depends on the job where none is given.
    pub fn unit(&self, job: &Job) -> Unit {
        let usual = if job.is_bandwidth() { Unit::GbPerS } else { Unit::KiloIops };
        self.unit.unwrap_or(usual)
    }
}

impl Unit {
    /// A rate in this unit.
    pub fn of(self, iops: f64, bytes_per_s: f64) -> f64 {
        match self {
            Self::Iops => iops,
            Self::KiloIops => iops / 1e3,
            Self::MibPerS => bytes_per_s / f64::from(1 << 20),
            Self::GbPerS => bytes_per_s / 1e9,
        }
    }

    /// Bytes a second, or else operations a second, of operations of so many bytes, from a value in this unit.
    #[allow(clippy::cast_precision_loss)]
    pub fn back(self, value: f64, block_bytes: u64, bandwidth: bool) -> f64 {
        let block = block_bytes as f64;
        let bytes = match self {
            Self::Iops => value * block,
            Self::KiloIops => value * 1e3 * block,
            Self::MibPerS => value * f64::from(1 << 20),
            Self::GbPerS => value * 1e9,
        };
        if bandwidth { bytes } else { bytes / block }
    }

    /// Its symbol.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::KiloIops => "K IOPS",
            Self::MibPerS => "MiB/s",
            Self::GbPerS => "GB/s",
        }
    }
}

impl Job {
    /// True if its figures are bytes a second, not operations.
    pub fn is_bandwidth(&self) -> bool {
        self.block_bytes >= 64 << 10
    }

    /// True if it does both.
    pub fn is_mixed(&self) -> bool {
        (1..100).contains(&self.read_percent)
    }

    /// True if it writes.
    pub fn writes(&self) -> bool {
        self.read_percent < 100
    }
}
