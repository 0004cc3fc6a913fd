//! The simulator as a test: some hundred short seeds, and the crash sweep over every operation.

use crate::swarm::run_seed;
use crate::sweep::{ALL, Swept, sweep};

/// Seeds that failed once, kept so that they never do again.
const REGRESSIONS: [u64; 22] = [
    16, 52, 154, 188, 212, 228, 235, 237, 244, 245, 283, 384, 486, 735, 1232, 2437, 2531, 4704, 5187, 7743,
    7867, 8835,
];

fn run(seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        if let Err(message) = run_seed(seed, false) {
            panic!("seed {seed}: {message}\nreplay it with: cargo run --release -p simulator -- seed {seed}");
        }
    }
}

#[test]
fn seeds_that_failed_once_pass() {
    run(REGRESSIONS.into_iter());
}

#[test]
fn a_few_hundred_seeds_pass() {
    run(20_000..20_300);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(run_seed(77, false), run_seed(77, false));
}

#[test]
fn every_operation_survives_a_cut_at_every_point() {
    for (scheme, drives) in [("4+1", 5), ("1+1", 2)] {
        for operation in ALL {
            // Cleaning takes many drive operations, each on a pool that has to be filled first.
            let step = if operation == Swept::Clean { 29 } else { 1 };
            if let Err(message) = sweep(operation, scheme, drives, 1, step) {
                panic!("{message}");
            }
        }
    }
}
