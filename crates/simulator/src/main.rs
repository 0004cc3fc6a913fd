//! Runs the simulator. `sweep` cuts every operation at every point, `swarm` runs many seeds, `seed`
//! runs one seed.

use std::time::Instant;

use clap::{Parser, Subcommand, ValueEnum};
use simulator::swarm::{OperationSet, Stats, run_seed};
use simulator::sweep::{
    ALL_OPERATIONS, DamageCounts, SweepCounts, SweepOp, SweepOptions, sweep, sweep_crash_damage,
    sweep_damage, sweep_failures, sweep_forks, sweep_full_hosts,
};

/// The name of the damaged-page sweep in the list of operations.
const DAMAGE: &str = "Damage";
/// The name of the damaged-page sweep after a crash.
const CRASH_DAMAGE: &str = "CrashDamage";
/// The name of the sweep over split pools with separately used halves.
const FORK: &str = "Fork";

/// Simulated drives, power cuts and faults against the storage engine.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Cut the power at every drive operation of every engine operation. Also fail each of their
    /// writes and flushes, and fill up the host file system.
    Sweep {
        /// Number of attempts for each cut and each failure, with different outcomes
        #[arg(long, default_value_t = 3)]
        outcomes: u64,
        /// Run only this operation, named as in the sweep's output
        #[arg(long)]
        only: Option<String>,
        /// Use only pools of this scheme, as k+m
        #[arg(long)]
        scheme: Option<String>,
        /// Inject only this
        #[arg(long, value_enum)]
        injection: Option<Injection>,
        /// Start with the Nth cut, failure or full host of each operation. With --only, --scheme
        /// and --injection, this repeats a failed sweep
        #[arg(long, default_value_t = 1)]
        from: u64,
    },
    /// Run many seeds; stop at the first failure and print its seed
    Swarm {
        /// First seed
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// Number of seeds
        #[arg(long, default_value_t = 1000)]
        seeds: u64,
        /// Continue after a failure
        #[arg(long)]
        keep_going: bool,
        /// Set of operations: earlier regression seeds need the earlier sets
        #[arg(long, value_enum, default_value_t = Operations::All)]
        operations: Operations,
    },
    /// Run one seed and print its events; RUST_LOG=engine=debug adds the engine's log
    Seed {
        /// Seed to run
        seed: u64,
        /// Print only the result
        #[arg(long)]
        quiet: bool,
        /// Set of operations: earlier regression seeds need the earlier sets
        #[arg(long, value_enum, default_value_t = Operations::All)]
        operations: Operations,
    },
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Sweep { outcomes, only, scheme, injection, from } => {
            init_engine_log();
            Sweep { outcomes, only, scheme, injection, from }.run()
        }
        Command::Swarm { first, seeds, keep_going, operations } => {
            run_swarm(first, seeds, keep_going, operations.into())
        }
        Command::Seed { seed, quiet, operations } => {
            if !quiet {
                init_engine_log();
            }
            let stats = run_seed(seed, operations.into(), !quiet)
                .map_err(|message| anyhow::anyhow!("seed {seed}: {message}"))?;
            println!("seed {seed}: {stats:?}");
            Ok(())
        }
    }
}

/// The sets of operations, by their names on the command line.
#[derive(Clone, Copy, ValueEnum)]
enum Operations {
    /// Reads, writes, volumes, snapshots, drives, power cuts
    Basic,
    /// Also damage and losses beyond the redundancy, hung drives, full hosts, split pools
    Extended,
    /// Also compare-and-write and copies
    Offloads,
    /// Also snapshots of several volumes at one point in time
    All,
}

impl From<Operations> for OperationSet {
    fn from(operations: Operations) -> Self {
        match operations {
            Operations::Basic => Self::Basic,
            Operations::Extended => Self::Extended,
            Operations::Offloads => Self::Offloads,
            Operations::All => Self::All,
        }
    }
}

fn init_engine_log() {
    let filter = tracing_subscriber::EnvFilter::new(std::env::var("RUST_LOG").unwrap_or("off".into()));
    tracing_subscriber::fmt().with_env_filter(filter).without_time().init();
}

/// The events that a sweep of an operation injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Injection {
    /// Power cuts
    Cuts,
    /// Power cuts of drives without a volatile cache
    WriteThroughCuts,
    /// Failures of writes and flushes
    Failures,
    /// Refused reservations of space
    FullHosts,
}

const SCHEMES: [(&str, usize); 4] = [("4+1", 5), ("1+1", 2), ("2+2", 5), ("3+0", 3)];

/// The sweep, or a part of it.
struct Sweep {
    outcomes: u64,
    only: Option<String>,
    scheme: Option<String>,
    injection: Option<Injection>,
    from: u64,
}

impl Sweep {
    fn run(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        let is_wanted = |name: &str| self.only.as_deref().is_none_or(|only| only == name);
        let has_damage = self.injection.is_none();
        let (mut sum, mut damage, mut forks) = (SweepCounts::default(), DamageCounts::default(), 0);
        let schemes =
            SCHEMES.iter().filter(|(scheme, _)| self.scheme.as_deref().is_none_or(|only| only == *scheme));
        for (scheme, drives) in schemes {
            let options = SweepOptions {
                outcomes: self.outcomes,
                first: self.from,
                ..SweepOptions::new(scheme, *drives)
            };
            for operation in ALL_OPERATIONS {
                if is_wanted(&format!("{operation:?}")) && operation.fits(scheme) {
                    sum.add(&self.sweep_operation(operation, &options)?);
                }
            }
            if has_damage && is_wanted(DAMAGE) {
                let counts = sweep_damage(&options).map_err(anyhow::Error::msg)?;
                println!("{options} {DAMAGE}: {counts:?}");
                damage.add(&counts);
            }
            if has_damage && is_wanted(CRASH_DAMAGE) {
                let counts = sweep_crash_damage(&options).map_err(anyhow::Error::msg)?;
                println!("{options} {CRASH_DAMAGE}: {counts:?}");
                damage.add(&counts);
            }
            if has_damage && is_wanted(FORK) {
                let pairs = sweep_forks(&options).map_err(anyhow::Error::msg)?;
                println!("{options} {FORK}: {pairs} pairs of halves used separately");
                forks += pairs;
            }
        }
        let SweepCounts { cuts, failures, full_hosts } = sum;
        anyhow::ensure!(
            cuts + failures + full_hosts + damage.pages + forks > 0,
            "nothing to sweep: the operations are {ALL_OPERATIONS:?}, {DAMAGE}, {CRASH_DAMAGE} and {FORK}, the schemes \
             and numbers of drives {SCHEMES:?}"
        );
        let (pages, seconds) = (damage.pages, start.elapsed().as_secs_f64());
        println!(
            "sweep: {cuts} power cuts, {failures} failures of writes and flushes, {full_hosts} full hosts, {pages} \
             damaged pages, {forks} forks in {seconds:.1} s, nothing lost"
        );
        Ok(())
    }

    /// Runs all wanted sweeps of one operation on one scheme.
    fn sweep_operation(&self, operation: SweepOp, options: &SweepOptions<'_>) -> anyhow::Result<SweepCounts> {
        let write_through = SweepOptions { write_through: true, outcomes: 1, ..*options };
        let mut sum = SweepCounts::default();
        for injection in Injection::value_variants() {
            if self.injection.is_some_and(|only| only != *injection) {
                continue;
            }
            let counts = match injection {
                Injection::Cuts => sweep(operation, options),
                Injection::WriteThroughCuts => sweep(operation, &write_through),
                Injection::Failures => sweep_failures(operation, options),
                Injection::FullHosts => sweep_full_hosts(operation, options),
            };
            sum.add(&counts.map_err(anyhow::Error::msg)?);
        }
        let SweepCounts { cuts, failures, full_hosts } = sum;
        println!("{options} {operation:?}: {cuts} cuts, {failures} failures, {full_hosts} full hosts");
        Ok(sum)
    }
}

fn run_swarm(first: u64, seeds: u64, keep_going: bool, operations: OperationSet) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut sum = Stats::default();
    let mut failed = 0;
    for seed in first..first + seeds {
        match std::panic::catch_unwind(|| run_seed(seed, operations, false)) {
            Ok(Ok(stats)) => sum.add(&stats),
            Ok(Err(message)) => {
                failed += 1;
                println!("seed {seed} FAILED: {message}");
            }
            Err(_) => {
                failed += 1;
                println!("seed {seed} PANICKED");
            }
        }
        if failed > 0 && !keep_going {
            break;
        }
        if (seed + 1 - first).is_multiple_of(100) {
            println!("{} seeds, {:.0} s", seed + 1 - first, start.elapsed().as_secs_f64());
        }
    }
    println!(
        "swarm: {seeds} seeds from {first}, {failed} failed, {:.1} s, {sum:?}",
        start.elapsed().as_secs_f64()
    );
    anyhow::ensure!(failed == 0, "{failed} seeds failed");
    Ok(())
}
