//! Runs the simulator: `sweep` for every operation cut at every point, `swarm` for many seeds, `seed` for one.

use std::time::Instant;

use clap::{Parser, Subcommand};
use simulator::swarm::{Operations, Stats, run_seed};
use simulator::sweep::{
    ALL, DamageCounts, Swath, SweepOptions, Swept, sweep, sweep_damage, sweep_failures, sweep_forks,
    sweep_full_hosts,
};

/// What the sweep over damaged pages is called among the operations.
const DAMAGE: &str = "Damage";
/// What the sweep over halves of a pool that were used apart is called.
const FORK: &str = "Fork";

/// Simulated drives, power cuts and faults against the storage engine.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Cut the power at every drive operation of every engine operation; let every write and flush of them fail, and every host be full.
    Sweep {
        /// How often each cut and each failure is tried, with different outcomes.
        #[arg(long, default_value_t = 3)]
        outcomes: u64,
        /// Only the operation of this name, as the sweep prints it.
        #[arg(long)]
        only: Option<String>,
    },
    /// Run many seeds; stops at the first failure and says its seed.
    Swarm {
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// How many.
        #[arg(long, default_value_t = 1000)]
        seeds: u64,
        /// Go on after a failure.
        #[arg(long)]
        keep_going: bool,
        /// Only the operations of the seeds in the regression test.
        #[arg(long)]
        basic: bool,
    },
    /// Run one seed and say what happens; with RUST_LOG=engine=debug, what the engine says too.
    Seed {
        /// The seed.
        seed: u64,
        /// Say nothing but the result.
        #[arg(long)]
        quiet: bool,
        /// Only the operations of the seeds in the regression test.
        #[arg(long)]
        basic: bool,
    },
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Sweep { outcomes, only } => {
            say_what_the_engine_says();
            run_sweep(outcomes, only.as_deref())
        }
        Command::Swarm { first, seeds, keep_going, basic } => {
            run_swarm(first, seeds, keep_going, operations(basic))
        }
        Command::Seed { seed, quiet, basic } => {
            if !quiet {
                say_what_the_engine_says();
            }
            let stats = run_seed(seed, operations(basic), !quiet)
                .map_err(|message| anyhow::anyhow!("seed {seed}: {message}"))?;
            println!("seed {seed}: {stats:?}");
            Ok(())
        }
    }
}

fn operations(basic: bool) -> Operations {
    if basic { Operations::Basic } else { Operations::All }
}

fn say_what_the_engine_says() {
    let filter = tracing_subscriber::EnvFilter::new(std::env::var("RUST_LOG").unwrap_or("off".into()));
    tracing_subscriber::fmt().with_env_filter(filter).without_time().init();
}

fn run_sweep(outcomes: u64, only: Option<&str>) -> anyhow::Result<()> {
    let start = Instant::now();
    let is_wanted = |name: &str| only.is_none_or(|only| only == name);
    let (mut sum, mut damage, mut forks) = (Swath::default(), DamageCounts::default(), 0);
    for (scheme, drives) in [("4+1", 5), ("1+1", 2), ("2+2", 5), ("3+0", 3)] {
        let options = SweepOptions { outcomes, ..SweepOptions::new(scheme, drives) };
        for operation in ALL {
            if is_wanted(&format!("{operation:?}")) && operation.fits(scheme) {
                sum.add(&sweep_operation(operation, &options)?);
            }
        }
        if is_wanted(DAMAGE) {
            let counts = sweep_damage(&options).map_err(anyhow::Error::msg)?;
            println!("{options} {DAMAGE}: {counts:?}");
            damage.add(&counts);
        }
        if is_wanted(FORK) {
            let pairs = sweep_forks(&options).map_err(anyhow::Error::msg)?;
            println!("{options} {FORK}: {pairs} pairs of halves used apart");
            forks += pairs;
        }
    }
    anyhow::ensure!(
        sum.cuts + damage.pages + forks > 0,
        "there is no such operation; they are {ALL:?}, {DAMAGE} and {FORK}"
    );
    let Swath { cuts, failures, full_hosts } = sum;
    let (pages, seconds) = (damage.pages, start.elapsed().as_secs_f64());
    println!(
        "sweep: {cuts} power cuts, {failures} failures of writes and flushes, {full_hosts} full hosts, {pages} damaged \
         pages, {forks} forks in {seconds:.1} s, nothing lost"
    );
    Ok(())
}

/// Everything that is swept of an operation on a scheme.
fn sweep_operation(operation: Swept, options: &SweepOptions<'_>) -> anyhow::Result<Swath> {
    let write_through = SweepOptions { write_through: true, outcomes: 1, ..*options };
    let mut sum = Swath::default();
    for swath in [
        sweep(operation, options),
        sweep(operation, &write_through),
        sweep_failures(operation, options),
        sweep_full_hosts(operation, options),
    ] {
        sum.add(&swath.map_err(anyhow::Error::msg)?);
    }
    let Swath { cuts, failures, full_hosts } = sum;
    println!("{options} {operation:?}: {cuts} cuts, {failures} failures, {full_hosts} full hosts");
    Ok(sum)
}

fn run_swarm(first: u64, seeds: u64, keep_going: bool, operations: Operations) -> anyhow::Result<()> {
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
