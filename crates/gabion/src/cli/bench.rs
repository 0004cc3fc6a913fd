//! The words of `gabion bench`.

use std::path::PathBuf;

use api::Size;
use clap::{Args, Subcommand};

/// Measure: reference workloads on any block device, disks over vhost-user, or the engine and the codec alone
///
/// `run` takes a suite, a workload as data, to Gabion, to raw drives and to whatever else shows a device, a file, an NBD
/// export or a disk over vhost-user; what it measures is kept and can be gone on with, compared and reported. `engine` and `codec` are quick, and
/// need nothing but memory.
#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    /// List the suites, or explain one: its jobs, and what was published for them
    List {
        /// A suite, or a file with one
        #[arg(value_name = "SUITE")]
        suite: Option<String>,
    },
    Plan(PlanArgs),
    Run(RunArgs),
    /// Go on with a run that was interrupted, and try again what failed
    Resume {
        /// The run
        #[arg(value_name = "RUN")]
        id: String,
        /// Write the report, too, when all is measured
        #[arg(long)]
        report: bool,
        #[command(flatten)]
        place: ResultsArgs,
    },
    /// List the runs that are kept
    Runs {
        #[command(flatten)]
        place: ResultsArgs,
    },
    Compare(CompareArgs),
    Report(ReportArgs),
    /// The storage engine on one core and memory drives: random and sequential, healthy and with a drive lost
    #[command(after_long_help = "\
Examples:
  gabion bench engine
  gabion bench engine --seconds 5 --only 'random read' --json > engine.json

It takes 11 GiB of memory: five drives of 2 GiB, and the volume's map.")]
    Engine(BenchArgs),
    /// Checksums, parity and reconstruction on one core
    Codec(BenchArgs),
    Churn(ChurnArgs),
    Snapshots(SnapshotsArgs),
    Rebuild(RebuildArgs),
    Fairness(FairnessArgs),
    Map(MapArgs),
    Recovery(RecoveryArgs),
    /// Disks over vhost-user: a pool on memory drives, or whatever serves a socket, alone or beside another one
    #[command(after_long_help = "\
Examples:
  gabion bench vhost
  gabion bench vhost --core 0 --pool-cores 1 --proportion
  gabion bench vhost --socket /run/gabion/vhost/fast/vm02.sock --only read
  gabion bench vhost --socket one.sock --against other.sock --overwrite --rounds 5 --json
  gabion bench vhost --block 64K --depth 8 --queues 4 --read-percent 50 --sequential
  gabion bench vhost --pool-cores 0,1 --beside --disks 2 --shards 1 --block 4K    # how it scales with cores

Without --socket it takes 11 GiB of memory: five drives of 2 GiB, and the volume's map.")]
    Vhost(VhostArgs),
}

/// What `bench vhost` understands.
#[derive(Args, Debug)]
pub(crate) struct VhostArgs {
    /// How long each job runs in each round, in seconds, after a second of warming up
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// How often each job is run; medians count
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Only the jobs of the table whose name contains this
    #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
    pub(crate) only: String,
    /// The socket of the back end to measure; a pool of 4+1 memory drives in this process without it
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// The socket of another back end, measured in turns with the first
    #[arg(long, value_name = "PATH")]
    pub(crate) against: Option<PathBuf>,
    /// Overwrite what the disks behind the sockets hold: without it they are only read, and nothing is verified
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// How much of the disk to use
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub(crate) size: Size,
    /// Size of each memory drive
    #[arg(long, default_value = "2G", value_name = "SIZE", conflicts_with = "socket")]
    pub(crate) drive_size: Size,
    /// The core that the load stays on
    #[arg(long, value_name = "CORE")]
    pub(crate) core: Option<usize>,
    /// The cores of the pool on memory drives, one reactor on each
    #[arg(long, value_name = "CORES", value_delimiter = ',', conflicts_with = "socket")]
    pub(crate) pool_cores: Vec<usize>,
    /// How many disks the pool on memory drives serves, each with the job's queues
    #[arg(long, default_value_t = 1, value_name = "N", conflicts_with = "socket",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) disks: u32,
    /// How many of that pool's shards, of which it has one for each of its cores, each disk is on; all if not said
    #[arg(long, value_name = "N", conflicts_with = "socket")]
    pub(crate) shards: Option<u16>,
    /// Let the pool on memory drives carry the load itself, each queue's beside the queue: how it scales with cores
    #[arg(long, conflicts_with_all = ["socket", "against"])]
    pub(crate) beside: bool,
    /// How the reactors of that pool sleep and do I/O: auto, io_uring or threads (which valgrind needs)
    #[arg(long, default_value_t, value_name = "KIND", conflicts_with = "socket")]
    pub(crate) io: bench::vhost::Backend,
    /// Indirect descriptors for every request, as Linux uses them
    #[arg(long)]
    pub(crate) indirect: bool,
    /// Processor time of the back end at parts of its peak and asleep, too
    #[arg(long)]
    pub(crate) proportion: bool,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

/// A job of one's own, instead of the table's.
#[derive(Args, Debug)]
#[group(multiple = true, conflicts_with = "only")]
pub(crate) struct JobArgs {
    /// Bytes of a request, instead of the table's jobs
    #[arg(long, value_name = "SIZE")]
    pub(crate) block: Option<Size>,
    /// Requests under way on each queue
    #[arg(long, default_value_t = 64, value_name = "N", requires = "block")]
    pub(crate) depth: u32,
    /// Queues
    #[arg(long, default_value_t = 1, value_name = "N", requires = "block")]
    pub(crate) queues: u32,
    /// Reads among the requests, in percent
    #[arg(long, default_value_t = 100, value_name = "PERCENT", requires = "block",
        value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) read_percent: u8,
    /// One after the other, not anywhere
    #[arg(long, requires = "block")]
    pub(crate) sequential: bool,
    /// Requests on each queue in each round, all of which count, instead of '--seconds'
    #[arg(long, value_name = "N", requires = "block", conflicts_with_all = ["seconds", "proportion"],
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: Option<u64>,
}

/// A pool that is overwritten at random until cleaning costs what it always will: write amplification, and latency over time
///
/// One reactor core, memory drives, as in 'bench engine'. A volume has the share that is asked for of what the pool takes, and is written
/// over in blocks of 4 KiB, several times; a line is a quarter of its size. Beside it stand the same load on the pool while it
/// is new, and what an ideal greedy cleaner would write at this fill under a uniform load.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench churn
  gabion bench churn --fill 90 --distribution zipf --json > churn.json
  gabion bench churn --drive-size 256M --overwrites 3      # quick

It takes the memory of its drives, five with the default scheme, and that of the volume's map.")]
pub(crate) struct ChurnArgs {
    /// How much of what the pool takes the volume has, in percent
    #[arg(long, default_value_t = 80, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub(crate) fill: u8,
    /// Which blocks are overwritten: all alike, or by Zipf's law with exponent 0.99
    #[arg(long, default_value = "uniform", value_name = "HOW")]
    pub(crate) distribution: DistributionArg,
    /// How often the volume's size is written over; the last time counts
    #[arg(long, default_value_t = 6, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) overwrites: u32,
    /// Size of each memory drive
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub(crate) drive_size: Size,
    /// Protection, as k+m
    #[arg(long, default_value = "4+1", value_name = "K+M")]
    pub(crate) scheme: bench::churn::Scheme,
    /// Writes under way
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) depth: u32,
    /// What the draw of blocks begins with
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
}

/// Which blocks are overwritten.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(crate) enum DistributionArg {
    /// All alike
    Uniform,
    /// By Zipf's law
    Zipf,
}

/// What snapshots cost: taking and deleting them, the pause of a busy volume's writes, reads through 1, 10 and 100 of them
///
/// One reactor core, memory drives, as in 'bench engine'. Every part has a fresh pool. The pause is the longest time in which none of
/// 16 writes under way ended, beside that in stretches of the same length without a snapshot; reads through snapshots
/// are measured in turns with reads of a volume that has none.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench snapshots
  gabion bench snapshots --snapshots 1000 --changes 256 --json > snapshots.json

It takes 5 GiB of memory at a time.")]
pub(crate) struct SnapshotsArgs {
    /// Snapshots that are taken and deleted, and taken of the busy volume
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) snapshots: u32,
    /// Blocks that are overwritten between one snapshot and the next
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(crate) changes: u32,
    /// How long each job of reads runs in each round, in seconds
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// How often each job of reads is run, in turns; medians count
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
}

/// How fast what a lost drive held is written to the others, beside what the drives allow, and what users notice meanwhile
///
/// The bound is measured on the same drives: the same reads and writes, with nothing computed. One drive is lost and rebuilt while nobody uses the
/// pool; then another one while users read blocks at random, if there are drives enough. One reactor core. Every block is read and looked at afterwards.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench rebuild
  gabion bench rebuild --directory /mnt/nvme --drive-size 4G
  gabion bench rebuild --drives /dev/loop1,/dev/loop2,/dev/loop3,/dev/loop4,/dev/loop5,/dev/loop6,/dev/loop7 --overwrite --json

Without --directory or --drives it takes the memory of its drives, seven of --drive-size.")]
pub(crate) struct RebuildArgs {
    /// Protection, as k+m
    #[arg(long, default_value = "4+1", value_name = "K+M")]
    pub(crate) scheme: bench::churn::Scheme,
    /// How many drives, if they are made: more than the scheme has columns, two more for the part with users
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=64))]
    pub(crate) count: u16,
    /// Size of each drive, if they are made
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub(crate) drive_size: Size,
    /// Files in this directory as drives, which are deleted at the end, instead of memory
    #[arg(long, value_name = "DIR", conflicts_with = "drives")]
    pub(crate) directory: Option<PathBuf>,
    /// Devices or files as drives
    #[arg(long, value_name = "PATHS", value_delimiter = ',', requires = "overwrite")]
    pub(crate) drives: Vec<PathBuf>,
    /// Destroy what is on them
    #[arg(long, requires = "drives")]
    pub(crate) overwrite: bool,
    /// How often the bound is measured; the best counts
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
}

/// What a busy volume leaves another one: how long single reads and writes take beside many of another volume, and alone
///
/// Two volumes of one pool, used from one reactor core; parts run in turns, medians of the rounds are shown. What is measured is how the pool shares
/// its drives: on drives as fast as memory, the processor is what is short, and the figures are those of its queue.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench fairness --directory /mnt/nvme
  gabion bench fairness --depth 64 --directory /mnt/nvme --volume 4G --drive-size 4G
  gabion bench fairness --drives /dev/loop1,/dev/loop2,/dev/loop3,/dev/loop4,/dev/loop5 --overwrite --json")]
pub(crate) struct FairnessArgs {
    /// Protection, as k+m
    #[arg(long, default_value = "4+1", value_name = "K+M")]
    pub(crate) scheme: bench::churn::Scheme,
    /// Operations that the busy volume has under way
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) depth: u32,
    /// How long operations may take beside others, in percent of what they take by themselves, as in 'gabion serve'; 0: however long
    #[arg(long, default_value_t = 200, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) slowdown: u32,
    /// How long each part runs in each round, in seconds
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// How often each part is run, in turns; medians count
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Size of each of the two volumes
    #[arg(long, default_value = "512M", value_name = "SIZE")]
    pub(crate) volume: Size,
    /// Size of each drive, if they are made
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub(crate) drive_size: Size,
    /// Files in this directory as drives, as many as the scheme has columns, which are deleted at the end
    #[arg(long, value_name = "DIR", required_unless_present = "drives", conflicts_with = "drives")]
    pub(crate) directory: Option<PathBuf>,
    /// Devices or files as drives
    #[arg(long, value_name = "PATHS", value_delimiter = ',', requires = "overwrite")]
    pub(crate) drives: Vec<PathBuf>,
    /// Destroy what is on them
    #[arg(long, requires = "drives")]
    pub(crate) overwrite: bool,
}

/// A large volume that is written anywhere, with little memory for the map of its blocks: what it costs, and how long writes pause
///
/// One reactor core, memory drives, as in 'bench engine'; 32 writes of 4 KiB under way. The pause is the longest time in which none of them
/// ended, and beside it what of that the thread itself computed: the rest is the machine's other load.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench map
  gabion bench map --volume 4T --map-memory 256M --json > map.json

It takes the memory of its drives, five of --drive-size, and that of the map.")]
pub(crate) struct MapArgs {
    /// Size of the volume
    #[arg(long, default_value = "1T", value_name = "SIZE")]
    pub(crate) volume: Size,
    /// Memory for the map
    #[arg(long, default_value = "64M", value_name = "SIZE")]
    pub(crate) map_memory: Size,
    /// Size of each memory drive
    #[arg(long, default_value = "2G", value_name = "SIZE")]
    pub(crate) drive_size: Size,
    /// Blocks that are written
    #[arg(long, default_value_t = 600_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) writes: u64,
}

/// How long an opening takes after a crash, with files as drives: all that was written since the last checkpoint is replayed
///
/// One reactor core, a pool of five files and one shard. Blocks are written anywhere in a large volume, with no checkpoint between; then nothing is
/// closed, and the pool is opened anew. Every block is read and looked at afterwards.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bench recovery
  gabion bench recovery --directory /mnt/nvme --log 4G --json

The files take one and a half times --log, and are deleted at the end.")]
pub(crate) struct RecoveryArgs {
    /// Where the files go: what is measured is the file system and the device there
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Bytes written before the crash
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub(crate) log: Size,
}

/// What the others understand.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// How long each job runs, in seconds
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Only the jobs whose name contains this
    #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
    pub(crate) only: String,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err("a number of seconds above 0, at most 3600".into()),
    }
}

/// Where runs are kept.
#[derive(Args, Debug, Clone)]
pub(crate) struct ResultsArgs {
    /// The folder of the runs [default: /var/lib/gabion/bench for root, $XDG_DATA_HOME/gabion/bench for others]
    #[arg(long, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
}

/// How much of a suite is run.
#[derive(Args, Debug, Clone)]
pub(crate) struct ScaleArgs {
    /// Durations and sizes of the suite, times this
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", value_parser = factor)]
    pub(crate) scale: f64,
    /// Under two minutes altogether: short jobs, fewer cases, no more threads than processors
    #[arg(long)]
    pub(crate) quick: bool,
    /// How long each job is measured, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// How many instances work side by side; several counts are run one after the other
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) instances: Vec<u32>,
    /// Threads of an instance, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// One of the suite's sets of jobs [default: its first]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Only the jobs whose name contains this
    #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
    pub(crate) only: String,
}

/// The drives below.
#[derive(Args, Debug, Clone)]
pub(crate) struct DrivesArgs {
    /// Use the drives of this lab, with its limits
    #[arg(long, value_name = "LAB", conflicts_with = "drives")]
    pub(crate) lab: Option<String>,
    /// The drives, as far as there are any below the targets
    #[arg(long, num_args = 1.., value_name = "DRIVE")]
    pub(crate) drives: Vec<PathBuf>,
}

/// Run a suite
///
/// The drives themselves are measured first, in the same run, then the targets, in turns. Volumes are written before they are
/// read; what writes is measured again until it has settled. Every result is kept with fio's own output, what each
/// process and each drive did meanwhile, and whether somebody else disturbed.
#[derive(Args, Debug, Clone)]
#[command(after_long_help = "\
Targets, as NAME=TARGET or TARGET:
  gabion[:OPTION,...]      Gabion itself, on the drives: a daemon of its own, pools, volumes, exports. Options:
                           scheme=4+1, pools=2, fill=50 (how full the volumes make the pools, in percent), reactors=N,
                           by=nbd, by=vhost, by=fuse or by=vm (how the volumes are served; by=vm starts a virtual machine for each, with
                           fio within: cpus=N, memory=MIB and kernel=DIR are of these)
  /dev/..., /a/file        a device or file that is there
  nbd+unix:///..., nbd://  an NBD export; several targets' places are joined with commas
  vhost:/a/socket          a disk that is served to machines (vhost-user-blk): no fio, but a load of our own
  btrfs[:OPTION,...]       files on btrfs with raid5 or raid6, on the drives; fill=50, pools=2
  md[:OPTION,...]          Linux md, RAID 5 or 6, in this kernel or else in a virtual machine; fill=50, pools=2, chunk=64,
                           guest=auto, always or never, kernel=DIR
  qemu-storage-daemon[:by=nbd or vhost], nbdkit
                           each drive by itself behind that program, without protection
  peers[:OPTION,...]       all of the last four that are there; './run peers' installs what they take

What a target holds is overwritten only with --overwrite. Drives of a lab may always be.

Examples:
  gabion bench run raid-vm --make-lab 1/400 --target gabion:by=vhost --target peers:by=vhost --report
  gabion lab up --fraction 1/400
  gabion bench run raid-vm --lab lab --target gabion --quick
  gabion bench run vm-scale --make-lab 1/4 --target gabion --vms --instances 1,2,4 --quick
  gabion bench run sweep --target old=/dev/vg/old --target new=/dev/vg/new --overwrite --scale 0.01 --repeats 3
  gabion bench compare sweep-20260102-030405:old sweep-20260102-030405:new")]
pub(crate) struct RunArgs {
    /// The suite, or a file with one
    #[arg(value_name = "SUITE")]
    pub(crate) suite: String,
    /// What is measured; several take turns. Without any, the drives alone
    #[arg(long = "target", value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
    #[command(flatten)]
    pub(crate) drives: DrivesArgs,
    #[command(flatten)]
    pub(crate) scale: ScaleArgs,
    /// How often everything is measured
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeats: u32,
    /// Contents of drives and targets may be destroyed
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Start a virtual machine for each instance on Gabion, with fio within, as by=vm does
    #[arg(long)]
    pub(crate) vms: bool,
    /// Make a lab for this run alone, of the suite's drives at this share of their speed, and take it away afterwards
    #[arg(long, value_name = "FRACTION", conflicts_with_all = ["lab", "drives"])]
    pub(crate) make_lab: Option<bench::lab::Fraction>,
    /// Size of each drive of that lab
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub(crate) lab_size: Size,
    /// Write the report, too, when all is measured
    #[arg(long)]
    pub(crate) report: bool,
    #[command(flatten)]
    pub(crate) place: ResultsArgs,
}

/// Say what a suite can give at most on given drives, and what is saturated then
#[derive(Args, Debug, Clone)]
#[command(after_long_help = "\
Examples:
  gabion bench plan raid-vm                        # the document's own drives and groups
  gabion bench plan raid-vm --lab lab
  gabion bench plan vm-scale --model kioxia-cd8 --count 12 --scheme 2+2 --network 25")]
pub(crate) struct PlanArgs {
    /// The suite, or a file with one
    #[arg(value_name = "SUITE")]
    pub(crate) suite: String,
    /// The drives of this lab
    #[arg(long, value_name = "LAB", conflicts_with_all = ["model", "fraction", "count"])]
    pub(crate) lab: Option<String>,
    /// Drives of this model ('gabion lab models') [default: the document's]
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// How much of one each drive does
    #[arg(long, default_value = "1", value_name = "FRACTION")]
    pub(crate) fraction: bench::lab::Fraction,
    /// How many drives [default: the document's]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u32>,
    /// Protection, as k+m [default: the document's]
    #[arg(long, value_name = "K+M")]
    pub(crate) scheme: Option<String>,
    /// Pools side by side [default: the document's]
    #[arg(long, value_name = "N")]
    pub(crate) pools: Option<u32>,
    /// What the network carries, in Gbit/s
    #[arg(long, value_name = "GBITS")]
    pub(crate) network: Option<f64>,
}

/// Compare two runs, or two targets of one
///
/// The median of the repeats counts; a difference is one if the repeats of the two do not overlap. Refuses runs whose drives
/// were not the same.
#[derive(Args, Debug, Clone)]
pub(crate) struct CompareArgs {
    /// A run, or a target of it as RUN:TARGET
    #[arg(value_name = "RUN[:TARGET]")]
    pub(crate) left: String,
    /// What it is compared with
    #[arg(value_name = "RUN[:TARGET]")]
    pub(crate) right: String,
    /// Compare although the drives were not the same
    #[arg(long)]
    pub(crate) anyway: bool,
    #[command(flatten)]
    pub(crate) place: ResultsArgs,
}

/// Write a run's report: a page with charts, Markdown, CSV and JSON
///
/// How near each job came to what its drives allow, what held it back and how that is known, beside what was published. The
/// page is one file that needs nothing else, in light and dark, on paper and on a phone. --json prints the report instead.
#[derive(Args, Debug, Clone)]
#[command(after_long_help = "\
Examples:
  gabion bench report raid-vm-20260102-030405
  gabion bench report raid-vm-20260102-030405 --out /tmp/report")]
pub(crate) struct ReportArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub(crate) id: String,
    /// The folder that the files are written to [default: the run's own, 'report']
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: ResultsArgs,
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor <= 1.0 => Ok(factor),
        _ => Err("a number above 0, at most 1".into()),
    }
}
