//! Arguments of `gabion bench`.

use std::path::PathBuf;

use api::Size;
use clap::{Args, Subcommand};

/// Run benchmarks: reference workloads on block devices, and tests of the engine
///
/// `run` measures a suite (a workload described as data) on Gabion, raw drives, block devices,
/// files, NBD exports and vhost-user disks. It stores every result; an interrupted run can be
/// resumed, and runs can be compared and reported. The other benchmarks need no suite: `objects`
/// and `listing` use a pool of the daemon, and all others run in this process.
#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    /// List the suites, or show the jobs of one suite and their published results
    List {
        /// Name of a suite, or path of a suite file
        #[arg(value_name = "SUITE")]
        suite: Option<String>,
    },
    Plan(PlanArgs),
    Run(RunArgs),
    /// Resume an interrupted run; failed jobs are run again
    Resume {
        /// Id of the run, as 'gabion bench runs' shows it
        #[arg(value_name = "RUN")]
        id: String,
        /// Also write the report at the end
        #[arg(long)]
        report: bool,
        #[command(flatten)]
        results_dir: ResultsArgs,
    },
    /// List the stored runs
    Runs {
        #[command(flatten)]
        results_dir: ResultsArgs,
    },
    Compare(CompareArgs),
    Report(ReportArgs),
    /// Benchmark the storage engine: one core, healthy and degraded
    #[command(after_long_help = "\
Examples:
  gabion bench engine
  gabion bench engine --seconds 5 --only 'random read' --json > engine.json
  gabion bench engine --drives memory
  gabion bench engine --drives /dev/nvme0n1,/dev/nvme1n1,/dev/nvme2n1,/dev/nvme3n1,/dev/nvme4n1    # erases them

Without --drives it needs 11 GiB of memory: five drives of 2 GiB and the block map.")]
    Engine(EngineArgs),
    /// Benchmark checksums, parity and reconstruction on one core
    Codec(BenchArgs),
    Churn(ChurnArgs),
    Snapshots(SnapshotsArgs),
    Rebuild(RebuildArgs),
    Fairness(FairnessArgs),
    Objects(ObjectsArgs),
    Listing(ListingArgs),
    Map(MapArgs),
    Recovery(RecoveryArgs),
    /// Benchmark vhost-user disks: those of a pool in this process, or the back end of a socket
    #[command(after_long_help = "\
Examples:
  gabion bench vhost
  gabion bench vhost --core 0 --pool-cores 1 --cpu-time
  gabion bench vhost --socket /run/gabion/vhost/fast/vm02.sock --only read
  gabion bench vhost --socket one.sock --against other.sock --overwrite --rounds 5 --json
  gabion bench vhost --block 64K --depth 8 --queues 4 --read-percent 50 --sequential
  gabion bench vhost --pool-cores 0,1 --on-reactors --disks 2 --shards 1 --block 4K    # scaling with cores

Needs 11 GiB of memory unless --socket is given: five drives of 2 GiB and the block map.")]
    Vhost(VhostArgs),
}

/// Arguments of `gabion bench engine`.
#[derive(Args, Debug)]
pub(crate) struct EngineArgs {
    #[command(flatten)]
    pub(crate) common: BenchArgs,
    #[command(flatten)]
    pub(crate) drives: PoolDrivesArgs,
}

/// The drives of a benchmark pool.
#[derive(Args, Debug)]
pub(crate) struct PoolDrivesArgs {
    /// Drives: 'zram' (new compressed RAM disks of the kernel, filled with random bytes; needs
    /// root), 'memory' (memory of this process, without the kernel), or five devices or files
    /// separated by commas, whose contents are lost [default: zram if possible, else memory]
    #[arg(long, value_name = "DRIVES", value_parser = drives, verbatim_doc_comment)]
    pub(crate) drives: Option<bench::Drives>,
}

impl PoolDrivesArgs {
    /// Returns the drives.
    pub(crate) fn chosen(&self) -> bench::Drives {
        self.drives.clone().unwrap_or_else(bench::Drives::fastest)
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

/// Arguments of `gabion bench vhost`.
#[derive(Args, Debug)]
pub(crate) struct VhostArgs {
    /// Duration of each job in each round, in seconds, after a warm-up of one second
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Number of rounds; medians over the rounds are shown
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Run only the jobs with this text in their name
    #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
    pub(crate) only: String,
    /// vhost-user socket of the back end [default: a 4+1 pool in this process]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// vhost-user socket of a second back end; rounds alternate between the two
    #[arg(long, value_name = "PATH")]
    pub(crate) against: Option<PathBuf>,
    /// Allow writes to the disks of the sockets, which destroys their data. Without it, the disks
    /// are only read and nothing is verified
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Size of the part of the disk that is used
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub(crate) size: Size,
    #[command(flatten)]
    pub(crate) drives: PoolDrivesArgs,
    /// Size of each drive of the pool, unless devices are given
    #[arg(long, default_value = "2G", value_name = "SIZE", conflicts_with = "socket")]
    pub(crate) drive_size: Size,
    /// Core that the load generator is pinned to [default: not pinned]
    #[arg(long, value_name = "CORE")]
    pub(crate) core: Option<usize>,
    /// Cores of the pool, one reactor per core, as in 0,1 [default: one reactor
    /// that is not pinned]
    #[arg(long, value_name = "CORES", value_delimiter = ',', conflicts_with = "socket")]
    pub(crate) pool_cores: Vec<usize>,
    /// Number of disks of the pool, each with the queues of the job
    #[arg(long, default_value_t = 1, value_name = "N", conflicts_with = "socket",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) disks: u32,
    /// Number of shards per disk of the pool, which has one shard per reactor [default: all]
    #[arg(long, value_name = "N", conflicts_with = "socket")]
    pub(crate) shards: Option<u16>,
    /// Generate the load on the pool's own reactors, next to the queue that it drives, to measure
    /// scaling with cores
    #[arg(long, conflicts_with_all = ["socket", "against"])]
    pub(crate) on_reactors: bool,
    /// I/O backend of the pool: auto, io_uring or threads (for valgrind)
    #[arg(long, default_value_t, value_name = "KIND", conflicts_with = "socket")]
    pub(crate) io: bench::vhost::Backend,
    /// Use an indirect descriptor table for every request, as Linux does
    #[arg(long)]
    pub(crate) indirect: bool,
    /// Also measure the back end's CPU time at fractions of its peak load and when idle
    #[arg(long)]
    pub(crate) cpu_time: bool,
    #[command(flatten)]
    pub(crate) job: JobArgs,
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
    #[arg(long, value_name = "N", requires = "block", conflicts_with_all = ["seconds", "cpu_time"],
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

/// Measure S3 on a pool: the five mixes of KIOXIA's document on object storage, or one of them
///
/// Clients put, read, examine and delete objects of a temporary bucket through the S3 service of
/// the pool ('gabion s3 start'). Every read is compared with the written bytes. Runs of the mixes
/// alternate. 'restore' has only GETs and 'backup' only PUTs, also for sizes other than that of
/// the document.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench objects fast
  gabion bench objects fast --mix backup --size 4K --clients 64 --objects 20000
  gabion bench objects fast --lab lab --objects 400 --repeats 3 --json > objects.json")]
pub(crate) struct ObjectsArgs {
    /// Name of the pool
    pub(crate) pool: String,
    /// Mixes, separated by commas: ai (90 % GET, 10 % PUT), web (70/30), cloud (40 % GET, 10 %
    /// STAT, 40 % PUT, 10 % DELETE), restore (GET), backup (PUT) [default: all five]
    #[arg(long, value_name = "MIXES", value_delimiter = ',', value_parser = mix, hide_possible_values = true)]
    pub(crate) mix: Vec<bench::objects::Mix>,
    /// Bytes of each object
    #[arg(long, default_value = "10M", value_name = "SIZE")]
    pub(crate) size: Size,
    /// Number of objects, at least one per client
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) objects: u64,
    /// Number of clients, each with one request at a time
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub(crate) clients: u32,
    /// Number of threads of the load
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
    /// Time before each measurement, in seconds
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) warm_up: f64,
    /// Duration of each measurement, in seconds
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Number of measurements of each mix; means are shown
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeats: u32,
    /// Lab that the drives of the pool belong to: observe them, and compute the upper bounds
    #[arg(long, value_name = "NAME")]
    pub(crate) lab: Option<String>,
}

/// Measure listings of a large bucket: single pages, and all keys
///
/// Puts objects of one byte into a temporary bucket of the pool's S3 service ('gabion s3 start'),
/// lists single pages 50 times, then all keys page after page, and deletes the objects. Every page
/// is compared with the keys.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench listing fast
  gabion bench listing fast --keys 10000000 --json > listing.json")]
pub(crate) struct ListingArgs {
    /// Name of the pool
    pub(crate) pool: String,
    /// Number of keys
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) keys: u64,
    /// Number of clients that put the objects
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub(crate) clients: u32,
}

fn mix(name: &str) -> Result<bench::objects::Mix, String> {
    let names = bench::objects::MIXES.map(|mix| mix.name).join(", ");
    bench::objects::Mix::find(name).ok_or_else(|| format!("unknown mix: use {names}"))
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

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err("not a duration: give seconds above 0 and up to 3600".into()),
    }
}

/// Directory of the results.
#[derive(Args, Debug, Clone)]
pub(crate) struct ResultsArgs {
    /// Directory of the stored runs [default: /var/lib/gabion/bench for root,
    /// $XDG_DATA_HOME/gabion/bench for other users]
    #[arg(long, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
}

/// Extent of a run.
#[derive(Args, Debug, Clone)]
pub(crate) struct ScaleArgs {
    /// Factor for the durations and sizes of the suite, above 0 and up to 1
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", value_parser = factor)]
    pub(crate) scale: f64,
    /// Finish in less than two minutes: short jobs, fewer cases, at most one thread per CPU
    #[arg(long)]
    pub(crate) quick: bool,
    /// Duration of each job, in seconds [default: that of the suite]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Number of parallel instances; several numbers, as in 1,2,4, are measured one after another
    /// [default: that of the suite]
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) instances: Vec<u32>,
    /// Maximum number of threads per instance
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// Profile of the suite: a named set of jobs [default: its first]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Run only the jobs with this text in their name
    #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
    pub(crate) only: String,
}

/// Drives of a run.
#[derive(Args, Debug, Clone)]
pub(crate) struct DrivesArgs {
    /// Use the drives of this lab, with its limits
    #[arg(long, value_name = "LAB", conflicts_with = "drives")]
    pub(crate) lab: Option<String>,
    /// Drives for the targets that need some, or below the targets that exist
    #[arg(long, num_args = 1.., value_name = "DRIVE")]
    pub(crate) drives: Vec<PathBuf>,
}

/// Run a suite on one or more targets
///
/// Measures the raw drives first and then the targets, alternating between them. Volumes are filled
/// before they are read, and write jobs are repeated until they reach a steady state. Stores every
/// result with fio's output, the activity of each process and drive, and any interference by other
/// programs.
#[derive(Args, Debug, Clone)]
#[command(after_long_help = "\
Targets, as NAME=TARGET or TARGET:
  gabion[:OPTION,...]      Gabion on the drives, with its own daemon, pools, volumes and exports, or for
                           suites of objects with an S3 service.
                           Options: scheme=4+1, pools=2, fill=50 (fill of the pools in percent),
                           reactors=N, by=nbd, by=vhost, by=fuse or by=vm (export protocol; by=vm
                           runs fio in one virtual machine per volume, with the options cpus=N,
                           memory=MIB and kernel=DIR)
  cluster:NAME[,OPTION,...]
                           volumes on a Ceph cluster that runs, by a daemon of its own. Options:
                           by=nbd, by=vhost or by=fuse, size=4G (of a volume), dir=DIR (directory of
                           the clusters)
  /dev/..., /a/file        an existing device or file
  nbd+unix:///..., nbd://  an NBD export; several URIs are joined with commas
  vhost:/a/socket          a vhost-user-blk disk, with a built-in load generator instead of fio
  btrfs[:OPTION,...]       files on btrfs raid5 or raid6 on the drives; fill=50, pools=2
  md[:OPTION,...]          Linux md RAID 5 or 6, of this kernel or else in a virtual machine; fill=50,
                           pools=2, chunk=64, guest=auto, always or never, kernel=DIR
  qemu-storage-daemon[:by=nbd or vhost], nbdkit
                           each drive exported separately by that program, without protection
  s3:http://HOST:PORT      an existing S3 service, for suites of objects; its keys are in the variables
                           AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, its region in AWS_REGION
  minio[:parity=2]         MinIO on one XFS file system per drive, for suites of objects
  versitygw                versitygw on btrfs raid0 over the drives, without protection
  peers[:OPTION,...]       all installed peers for the suite's kind of requests: btrfs, md,
                           qemu-storage-daemon and nbdkit for blocks, which './run peers' installs;
                           minio and versitygw for objects

Data on drives and targets is overwritten only with --overwrite; lab drives need no flag.

Examples:
  gabion bench run raid-vm --make-lab 1/400 --target gabion:by=vhost --target peers:by=vhost --report
  gabion lab up --fraction 1/400
  gabion bench run raid-vm --lab lab --target gabion --quick
  gabion bench run vm-scale --make-lab 1/4 --target gabion --vms --instances 1,2,4 --quick
  gabion bench run sweep --target old=/dev/vg/old --target new=/dev/vg/new --overwrite --scale 0.01 --repeats 3
  gabion bench run object-five --make-lab 1/100 --target gabion --target peers --scale 0.1 --report
  gabion bench compare sweep-20260102-030405:old sweep-20260102-030405:new")]
pub(crate) struct RunArgs {
    /// Name of a suite, or path of a suite file
    #[arg(value_name = "SUITE")]
    pub(crate) suite: String,
    /// Target to measure; may be repeated [default: only the raw drives]
    #[arg(long = "target", value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
    #[command(flatten)]
    pub(crate) drives: DrivesArgs,
    #[command(flatten)]
    pub(crate) scale: ScaleArgs,
    /// Number of repeats of the whole suite [default: that of the suite; 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeats: Option<u32>,
    /// Generator of S3 requests: 'own' compares every byte, 'warp' is MinIO's program [default:
    /// warp if it is on the PATH]
    #[arg(long, value_name = "GENERATOR", value_parser = generator)]
    pub(crate) load: Option<bench::ObjectGenerator>,
    /// Allow the data on drives and targets to be destroyed
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Run fio in one virtual machine per instance for targets of type gabion, as by=vm does
    #[arg(long)]
    pub(crate) vms: bool,
    /// Create a lab for this run, with the suite's drive model at this fraction of its speed, and
    /// remove it at the end
    #[arg(long, value_name = "FRACTION", conflicts_with_all = ["lab", "drives"])]
    pub(crate) make_lab: Option<bench::lab::Fraction>,
    /// Size of each drive of that lab
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub(crate) lab_size: Size,
    /// Also write the report at the end
    #[arg(long)]
    pub(crate) report: bool,
    #[command(flatten)]
    pub(crate) results_dir: ResultsArgs,
}

fn generator(name: &str) -> Result<bench::ObjectGenerator, String> {
    match name {
        "own" => Ok(bench::ObjectGenerator::Own),
        "warp" => Ok(bench::ObjectGenerator::Warp),
        _ => Err("unknown generator: use own or warp".into()),
    }
}

/// Compute the upper bound of a suite on given drives, and its bottleneck
#[derive(Args, Debug, Clone)]
#[command(after_long_help = "\
Examples:
  gabion bench plan raid-vm                        # drives and pools of the suite's document
  gabion bench plan raid-vm --lab lab
  gabion bench plan vm-scale --model kioxia-cd8 --count 12 --scheme 2+2 --network 25")]
pub(crate) struct PlanArgs {
    /// Name of a suite, or path of a suite file
    #[arg(value_name = "SUITE")]
    pub(crate) suite: String,
    /// Use the drives of this lab
    #[arg(long, value_name = "LAB", conflicts_with_all = ["model", "fraction", "count"])]
    pub(crate) lab: Option<String>,
    /// Drive model, as 'gabion lab models' lists them [default: that of the suite]
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Speed of each drive as a fraction of the model's
    #[arg(long, default_value = "1", value_name = "FRACTION")]
    pub(crate) fraction: bench::lab::Fraction,
    /// Number of drives [default: that of the suite]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u32>,
    /// Protection scheme, as in 4+1 [default: that of the suite]
    #[arg(long, value_name = "K+M")]
    pub(crate) scheme: Option<String>,
    /// Number of pools [default: that of the suite]
    #[arg(long, value_name = "N")]
    pub(crate) pools: Option<u32>,
    /// Network bandwidth, in Gbit/s [default: unlimited]
    #[arg(long, value_name = "GBITS")]
    pub(crate) network: Option<f64>,
}

/// Compare two runs, or two targets of one run
///
/// Compares the medians over the repeats. A difference counts if the ranges of the two sides do
/// not overlap. Runs on different drives are refused.
#[derive(Args, Debug, Clone)]
pub(crate) struct CompareArgs {
    /// First run, or a target of it as RUN:TARGET
    #[arg(value_name = "RUN[:TARGET]")]
    pub(crate) left: String,
    /// Second run, or a target of it as RUN:TARGET
    #[arg(value_name = "RUN[:TARGET]")]
    pub(crate) right: String,
    /// Compare runs on different drives
    #[arg(long)]
    pub(crate) allow_different_drives: bool,
    #[command(flatten)]
    pub(crate) results_dir: ResultsArgs,
}

/// Write the report of a run: an HTML page with charts, Markdown, CSV and JSON
///
/// Shows each job's result as a share of the drives' limits, its bottleneck with evidence, and
/// published results. The page is a single self-contained file. With --json, prints the report
/// instead.
#[derive(Args, Debug, Clone)]
#[command(after_long_help = "\
Examples:
  gabion bench report raid-vm-20260102-030405
  gabion bench report raid-vm-20260102-030405 --out /tmp/report")]
pub(crate) struct ReportArgs {
    /// Id of the run, as 'gabion bench runs' shows it
    #[arg(value_name = "RUN")]
    pub(crate) id: String,
    /// Output directory [default: 'report' in the directory of the run]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) results_dir: ResultsArgs,
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor <= 1.0 => Ok(factor),
        _ => Err("not a factor: give a number above 0 and up to 1".into()),
    }
}
