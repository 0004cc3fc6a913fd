//! Arguments of the benchmarks of the engine, and of disks over vhost-user and NVMe/TCP.

use std::path::PathBuf;

use api::{Error, ErrorKind, Size};
use clap::Args;

use super::seconds;

/// Arguments of `gabion bench engine` and `gabion bench codec`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Duration of each job, in seconds
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Run only the jobs with this text in their name
    #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
    pub(crate) only: String,
}

/// Arguments of `gabion bench engine`.
#[derive(Args, Debug)]
pub(crate) struct EngineArgs {
    #[command(flatten)]
    pub(crate) common: BenchArgs,
    #[command(flatten)]
    pub(crate) drives: PoolDrivesArgs,
    /// Allow the loss of the contents of the devices or files of --drives
    #[arg(long)]
    pub(crate) overwrite: bool,
}

/// The drives of a benchmark pool.
#[derive(Args, Debug)]
pub(crate) struct PoolDrivesArgs {
    /// Drives: 'zram' (new compressed RAM disks of the kernel, filled with random bytes; needs
    /// root), 'memory' (memory of this process, without the kernel), or with --overwrite five
    /// devices or files separated by commas, whose contents are lost [default: zram if possible,
    /// else memory]
    #[arg(long, value_name = "DRIVES", value_parser = drives, verbatim_doc_comment)]
    pub(crate) drives: Option<bench::Drives>,
}

impl PoolDrivesArgs {
    /// Returns the drives.
    ///
    /// # Errors
    /// If `overwrite` does not permit the loss of their contents.
    pub(crate) fn chosen(&self, overwrite: bool) -> anyhow::Result<bench::Drives> {
        let drives = self.drives.clone().unwrap_or_else(bench::Drives::fastest);
        if let bench::Drives::Paths(paths) = &drives
            && !overwrite
        {
            let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            let message = format!("the benchmark would erase {}", names.join(", "));
            return Err(Error::new(ErrorKind::Invalid, message).hint("--overwrite permits it").into());
        }
        Ok(drives)
    }
}

fn drives(text: &str) -> Result<bench::Drives, String> {
    match text {
        "zram" => Ok(bench::Drives::Zram),
        "memory" => Ok(bench::Drives::Memory),
        list => {
            let paths: Vec<PathBuf> = list.split(',').map(PathBuf::from).collect();
            match paths.len() {
                5 => Ok(bench::Drives::Paths(paths)),
                count => Err(format!("{count} drives are given, the 4+1 pool of the benchmark needs 5")),
            }
        }
    }
}

/// Arguments that the benchmarks of disks share.
#[derive(Args, Debug)]
pub(crate) struct DiskBenchArgs {
    /// Duration of each job in each round, in seconds, after a warm-up of one second
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Number of rounds; medians over the rounds are shown
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Run only the jobs with this text in their name
    #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
    pub(crate) only: String,
    /// Allow writes to disks outside of this process, and to the devices or files of --drives,
    /// which destroys their data. Without it, such disks are only read and nothing is verified
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Size of the part of the disk that is used
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub(crate) size: Size,
    #[command(flatten)]
    pub(crate) drives: PoolDrivesArgs,
    /// Size of each drive of the pool, unless devices are given
    #[arg(long, default_value = "2G", value_name = "SIZE")]
    pub(crate) drive_size: Size,
    /// Core that the load generator is pinned to [default: not pinned]
    #[arg(long, value_name = "CORE")]
    pub(crate) core: Option<usize>,
    /// Cores of the pool, one reactor per core, as in 0,1 [default: one reactor
    /// that is not pinned]
    #[arg(long, value_name = "CORES", value_delimiter = ',')]
    pub(crate) pool_cores: Vec<usize>,
    /// I/O backend of the pool: auto, io_uring or threads (for valgrind)
    #[arg(long, default_value_t, value_name = "KIND")]
    pub(crate) io: bench::vhost::Backend,
    /// Fail a drive of the pool after the jobs, and repeat those that only read
    #[arg(long)]
    pub(crate) degraded: bool,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

/// Arguments of `gabion bench vhost`.
#[derive(Args, Debug)]
pub(crate) struct VhostArgs {
    /// vhost-user socket of the back end [default: a 4+1 pool in this process]
    #[arg(long, value_name = "PATH",
        conflicts_with_all = ["drives", "drive_size", "pool_cores", "io", "degraded", "disks", "shards", "on_reactors"])]
    pub(crate) socket: Option<PathBuf>,
    /// vhost-user socket of a second back end; rounds alternate between the two
    #[arg(long, value_name = "PATH", conflicts_with_all = ["degraded", "on_reactors"])]
    pub(crate) against: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) disk: DiskBenchArgs,
    /// Number of disks of the pool, each with the queues of the job
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) disks: u32,
    /// Number of shards per disk of the pool, which has one shard per reactor [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) shards: Option<u16>,
    /// Generate the load on the pool's own reactors, next to the queue that it drives, to measure
    /// scaling with cores
    #[arg(long)]
    pub(crate) on_reactors: bool,
    /// Use an indirect descriptor table for every request, as Linux does
    #[arg(long)]
    pub(crate) indirect: bool,
    /// Also measure the back end's CPU time at fractions of its peak load and when idle
    #[arg(long, conflicts_with = "requests")]
    pub(crate) cpu_time: bool,
}

/// Arguments of `gabion bench nvme`.
#[derive(Args, Debug)]
pub(crate) struct NvmeArgs {
    /// Address and subsystem of the target; its namespace 1 is used [default: a 4+1 pool in this
    /// process]
    #[arg(long, value_name = "ADDRESS:PORT/NQN",
        conflicts_with_all = ["drives", "drive_size", "pool_cores", "io", "degraded"])]
    pub(crate) connect: Option<bench::nvme::NvmeAddress>,
    /// Address and subsystem of a second target; rounds alternate between the two
    #[arg(long, value_name = "ADDRESS:PORT/NQN", conflicts_with = "degraded")]
    pub(crate) against: Option<bench::nvme::NvmeAddress>,
    #[command(flatten)]
    pub(crate) disk: DiskBenchArgs,
}

/// A user-defined job, which replaces the built-in jobs.
#[derive(Args, Debug)]
#[group(multiple = true, conflicts_with = "only")]
pub(crate) struct JobArgs {
    /// Request size in bytes; replaces the built-in jobs by one job of this size
    #[arg(long, value_name = "SIZE")]
    pub(crate) block: Option<Size>,
    /// Requests in flight per queue
    #[arg(long, default_value_t = 64, value_name = "N", requires = "block")]
    pub(crate) depth: u32,
    /// Number of queues
    #[arg(long, default_value_t = 1, value_name = "N", requires = "block")]
    pub(crate) queues: u32,
    /// Share of reads, in percent
    #[arg(long, default_value_t = 100, value_name = "PERCENT", requires = "block",
        value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) read_percent: u8,
    /// Sequential offsets [default: random]
    #[arg(long, requires = "block")]
    pub(crate) sequential: bool,
    /// Number of requests per queue and round, instead of --seconds
    #[arg(long, value_name = "N", requires = "block", conflicts_with = "seconds",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: Option<u64>,
}

/// Measure steady-state random overwrite: write amplification and latency
///
/// Runs on one reactor core and memory drives. A volume that fills the given share of the pool's
/// capacity is overwritten several times in 4 KiB blocks; each line of the output covers a quarter
/// of the volume's size. For comparison, the same load runs on the new pool, and the write
/// amplification of an ideal greedy cleaner at this fill under a uniform load is shown.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench churn
  gabion bench churn --fill 90 --distribution zipf --json > churn.json
  gabion bench churn --drive-size 256M --overwrites 3      # quick

Needs memory for the drives (five with the default scheme) and the block map.")]
pub(crate) struct ChurnArgs {
    /// Size of the volume, in percent of the pool's capacity
    #[arg(long, default_value_t = 80, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub(crate) fill: u8,
    /// Distribution of the overwrites: uniform, or Zipf with exponent 0.99
    #[arg(long, default_value = "uniform", value_name = "DISTRIBUTION")]
    pub(crate) distribution: DistributionArg,
    /// Number of overwrites of the whole volume; the last one is reported
    #[arg(long, default_value_t = 6, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) overwrites: u32,
    /// Size of each memory drive
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub(crate) drive_size: Size,
    /// Protection scheme: data and parity columns, as in 4+1
    #[arg(long, default_value = "4+1", value_name = "K+M")]
    pub(crate) scheme: bench::churn::Scheme,
    /// Writes in flight
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) depth: u32,
    /// Seed of the random offsets
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
}

/// Distribution of the overwrites.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(crate) enum DistributionArg {
    /// Uniform over all blocks
    Uniform,
    /// Zipf's law with exponent 0.99
    Zipf,
}

/// Measure snapshots: creation and deletion rates, write pauses, reads through chains
///
/// Runs on one reactor core and memory drives; each part uses a new pool. The pause is the longest
/// time without a completed write, with 16 writes in flight, while a snapshot is taken; the same
/// time without a snapshot is shown for comparison. Reads through chains of 1, 10 and 100 snapshots
/// alternate with reads of a volume without snapshots.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench snapshots
  gabion bench snapshots --snapshots 1000 --changes 256 --json > snapshots.json

Needs 5 GiB of memory.")]
pub(crate) struct SnapshotsArgs {
    /// Number of snapshots to create and delete, and to take of the busy volume
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) snapshots: u32,
    /// Number of 4 KiB blocks overwritten between two snapshots
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(crate) changes: u32,
    /// Duration of each read job in each round, in seconds
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Number of rounds of the read jobs; medians over the rounds are shown
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
}

/// Measure the rebuild of a failed drive: its speed, and its effect on client latency
///
/// Measures the bound first: the same reads and writes on the same drives, without computation.
/// Then fails one drive and rebuilds it without client I/O. If enough drives are left, fails
/// another drive and rebuilds it under random reads. Runs on one reactor core and verifies every
/// block at the end.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench rebuild
  gabion bench rebuild --directory /mnt/nvme --drive-size 4G
  gabion bench rebuild --drives /dev/loop1,/dev/loop2,/dev/loop3,/dev/loop4,/dev/loop5,/dev/loop6,/dev/loop7 --overwrite --json

Without --directory or --drives, needs memory for the drives: --count times --drive-size.")]
pub(crate) struct RebuildArgs {
    /// Protection scheme: data and parity columns, as in 4+1
    #[arg(long, default_value = "4+1", value_name = "K+M")]
    pub(crate) scheme: bench::churn::Scheme,
    /// Number of memory or file drives: more than the columns of the scheme; two more are needed
    /// for the part with client I/O
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=64))]
    pub(crate) count: u16,
    /// Size of each memory or file drive
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub(crate) drive_size: Size,
    /// Use files in this directory as drives instead of memory; they are deleted at the end
    #[arg(long, value_name = "DIR", conflicts_with = "drives")]
    pub(crate) directory: Option<PathBuf>,
    /// Use these devices or files as drives, separated by commas
    #[arg(long, value_name = "PATHS", value_delimiter = ',', requires = "overwrite")]
    pub(crate) drives: Vec<PathBuf>,
    /// Allow the data on --drives to be destroyed
    #[arg(long, requires = "drives")]
    pub(crate) overwrite: bool,
    /// Number of measurements of the bound; the best is reported
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
}

/// Measure a noisy neighbour: latency of one volume, alone and next to a busy volume
///
/// Two volumes of one pool are used from one reactor core. Parts alternate, and medians over the
/// rounds are shown. The benchmark measures how the pool shares its drives; with drives as fast as
/// memory it measures the processor's queue instead.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench fairness --directory /mnt/nvme
  gabion bench fairness --depth 64 --directory /mnt/nvme --volume 4G --drive-size 4G
  gabion bench fairness --drives /dev/loop1,/dev/loop2,/dev/loop3,/dev/loop4,/dev/loop5 --overwrite --json")]
pub(crate) struct FairnessArgs {
    /// Protection scheme: data and parity columns, as in 4+1
    #[arg(long, default_value = "4+1", value_name = "K+M")]
    pub(crate) scheme: bench::churn::Scheme,
    /// Operations in flight of the busy volume
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) depth: u32,
    /// Target mean latency under contention, in percent of the uncontended latency, as
    /// '--latency-target' of 'gabion serve'; 0 disables throttling
    #[arg(long, default_value_t = 200, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) latency_target: u32,
    /// Duration of each part in each round, in seconds
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Number of rounds; medians over the rounds are shown
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Size of each of the two volumes
    #[arg(long, default_value = "512M", value_name = "SIZE")]
    pub(crate) volume: Size,
    /// Size of each memory or file drive
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub(crate) drive_size: Size,
    /// Use files in this directory as drives, one per column of the scheme; they are deleted at the
    /// end
    #[arg(long, value_name = "DIR", required_unless_present = "drives", conflicts_with = "drives")]
    pub(crate) directory: Option<PathBuf>,
    /// Use these devices or files as drives, separated by commas
    #[arg(long, value_name = "PATHS", value_delimiter = ',', requires = "overwrite")]
    pub(crate) drives: Vec<PathBuf>,
    /// Allow the data on --drives to be destroyed
    #[arg(long, requires = "drives")]
    pub(crate) overwrite: bool,
}

/// Measure a block map larger than its memory: throughput, map writes, write pauses
///
/// Runs on one reactor core and memory drives, with 32 random 4 KiB writes in flight. The pause is
/// the longest time without a completed write. The CPU time of the thread within the pause is shown
/// next to it; the rest of the pause is due to other load of the host.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench map
  gabion bench map --volume 4T --map-memory 256M --json > map.json

Needs memory for the drives, five of --drive-size, and for the map.")]
pub(crate) struct MapArgs {
    /// Size of the volume
    #[arg(long, default_value = "1T", value_name = "SIZE")]
    pub(crate) volume: Size,
    /// Memory for the block map
    #[arg(long, default_value = "64M", value_name = "SIZE")]
    pub(crate) map_memory: Size,
    /// Size of each memory drive
    #[arg(long, default_value = "2G", value_name = "SIZE")]
    pub(crate) drive_size: Size,
    /// Number of 4 KiB blocks to write
    #[arg(long, default_value_t = 600_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) writes: u64,
}

/// Measure recovery: the time to replay the log after a crash
///
/// Runs on one reactor core with a pool of five files and one shard. Random blocks of a large
/// volume are written without a checkpoint; the pool is then dropped without a close, opened again,
/// and every block is verified.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench recovery
  gabion bench recovery --directory /mnt/nvme --log 4G --json

The files need 1.5 times --log and are deleted at the end.")]
pub(crate) struct RecoveryArgs {
    /// Directory for the files; its file system and device are part of the measurement
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Amount of data written before the crash
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub(crate) log: Size,
}
