//! Arguments of `gabion bench`.

mod engine;
mod objects;
mod suites;

use clap::Subcommand;

pub(crate) use engine::{
    BenchArgs, ChurnArgs, DiskBenchArgs, DistributionArg, EngineArgs, FairnessArgs, MapArgs, NvmeArgs,
    RebuildArgs, RecoveryArgs, SnapshotsArgs, VhostArgs,
};
pub(crate) use objects::{ListingArgs, ObjectsArgs};
pub(crate) use suites::{CompareArgs, DrivesArgs, PlanArgs, ReportArgs, ResultsArgs, RunArgs, ScaleArgs};

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
  gabion bench engine --drives /dev/nvme0n1,/dev/nvme1n1,/dev/nvme2n1,/dev/nvme3n1,/dev/nvme4n1 --overwrite

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
    /// Benchmark disks over NVMe/TCP: that of a pool in this process, or the target at an address
    #[command(after_long_help = "\
Examples:
  gabion bench nvme --core 0 --pool-cores 1 --drives memory
  gabion bench nvme --connect 10.0.0.1:4420/nqn.2014-08.org.example:vm01 --only read
  gabion bench nvme --connect 10.0.0.1:4420/NQN --against 10.0.0.2:4420/NQN --overwrite --rounds 5 --json
  gabion bench nvme --block 64K --depth 8 --queues 4 --read-percent 50 --sequential

The load generator is an initiator of its own, which polls its sockets; it uses no digests, no TLS and
no authentication. Needs 11 GiB of memory unless --connect is given: five drives of 2 GiB and the
block map.")]
    Nvme(NvmeArgs),
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err("not a duration: give seconds above 0 and up to 3600".into()),
    }
}
