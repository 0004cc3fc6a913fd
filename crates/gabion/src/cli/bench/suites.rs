//! Arguments of suites, their runs and reports.

use std::path::PathBuf;

use api::Size;
use clap::Args;

use super::seconds;

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
                           by=nbd, by=vhost, by=fuse or by=cephfs (files on the file system instead),
                           pool=POOL (of the data), size=4G (of a volume or file), on=hosts (from the
                           storage hosts, if they are namespaces of this machine), network=GBITS (speed
                           of the links in Gbit/s, if it is not detected), dir=DIR (directory of the
                           clusters)
  rados:NAME[,OPTION,...]  objects in a pool of a Ceph cluster, by 'rados bench'. Options: pool=POOL
                           (default: that of volumes), size=4G (of the objects to read), network=GBITS,
                           dir=DIR
  kubernetes:class=NAME[,OPTION,...]
                           volumes of a storage class of a Kubernetes cluster, each with a pod that runs
                           fio; by 'kubectl'. Options: size=33G (of a volume), mode=filesystem or
                           mode=block, image=IMAGE (with fio), namespace=NAME, context=NAME,
                           kubectl=/PATH
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

Data on drives and targets is overwritten only with --overwrite; lab drives, and targets of type
cluster and rados, which create what they use, need no flag.

Examples:
  gabion bench run raid-vm --make-lab 1/400 --target gabion:by=vhost --target peers:by=vhost --report
  gabion lab up --fraction 1/400
  gabion bench run raid-vm --lab lab --target gabion --quick
  gabion bench run vm-scale --make-lab 1/4 --target gabion --vms --instances 1,2,4 --quick
  gabion bench run sweep --target old=/dev/vg/old --target new=/dev/vg/new --overwrite --scale 0.01 --repeats 3
  gabion bench run object-five --make-lab 1/100 --target gabion --target peers --scale 0.1 --report
  gabion bench run sweep --target cluster:prod --target ec=cluster:prod,pool=ec22 --scale 0.01
  gabion bench run rados --target rados:prod,pool=test --seconds 60
  gabion bench run io-blender --target kubernetes:class=gabion --profile kbench
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
