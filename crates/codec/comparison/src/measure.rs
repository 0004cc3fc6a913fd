//! Timing contestants against each other: interleaved in one process, many rounds, medians of per-round ratios.
//!
//! Owns the clock and the statistics. What the machine does to one contestant (frequency, a neighbour's load) it
//! does to the others within the same few milliseconds. Must not know what is computed.

use std::ffi::{c_int, c_long};
use std::time::Duration;

/// A name, and a function that gives something to compare with the others' before it is timed.
pub type Way<'a, I, O> = (&'static str, &'a dyn Fn(I) -> O);

/// One way to do the work: does turn number `turn`.
pub struct Contestant<'a> {
    pub name: &'static str,
    pub run: Box<dyn FnMut(usize) + 'a>,
}

impl<'a> Contestant<'a> {
    pub fn new(name: &'static str, run: impl FnMut(usize) + 'a) -> Self {
        Self { name, run: Box::new(run) }
    }
}

/// How long to measure.
#[derive(Clone, Copy)]
pub struct Effort {
    pub rounds: usize,
    /// Of one contestant in one round.
    pub slot: Duration,
}

/// What came out for one contestant.
pub struct Outcome {
    pub name: &'static str,
    /// Median over the rounds, nanoseconds a turn.
    pub nanoseconds: f64,
    /// Median over the rounds of this contestant's time / the first one's in the same round: above 1, the first is
    /// faster.
    pub ratio: f64,
}

/// Runs all contestants in turn, for some rounds, each round starting with another one. The first is the
/// reference.
pub fn compare(effort: Effort, contestants: &mut [Contestant<'_>]) -> Vec<Outcome> {
    let turns: Vec<usize> = contestants.iter_mut().map(|c| calibrate(effort.slot, c)).collect();
    let mut times = vec![Vec::with_capacity(effort.rounds); contestants.len()];
    let mut next = vec![0usize; contestants.len()];
    for round in 0..effort.rounds {
        for offset in 0..contestants.len() {
            let who = (round + offset) % contestants.len();
            times[who].push(run(&mut contestants[who], &mut next[who], turns[who]));
        }
    }
    let reference = times[0].clone();
    let outcome = |(contestant, times): (&Contestant<'_>, &Vec<f64>)| Outcome {
        name: contestant.name,
        nanoseconds: median(times.clone()),
        ratio: median(times.iter().zip(&reference).map(|(t, r)| t / r).collect()),
    };
    contestants.iter().zip(&times).map(outcome).collect()
}

/// How many turns fill a slot; warms up on the way.
fn calibrate(slot: Duration, contestant: &mut Contestant<'_>) -> usize {
    let mut turns = 1;
    loop {
        let took = run(contestant, &mut 0, turns) * turns as f64;
        if took * 4.0 >= slot.as_nanos() as f64 {
            return ((turns as f64 * slot.as_nanos() as f64 / took) as usize).max(1);
        }
        turns *= 2;
    }
}

/// Nanoseconds a turn. `next` counts on, so that a large working set is walked through and not started over.
fn run(contestant: &mut Contestant<'_>, next: &mut usize, turns: usize) -> f64 {
    let start = processor_time();
    for turn in *next..*next + turns {
        (contestant.run)(turn);
    }
    *next += turns;
    (processor_time() - start).as_nanos() as f64 / turns as f64
}

/// What this thread has computed for: on a busy machine the others' turns do not count.
fn processor_time() -> Duration {
    #[repr(C)]
    struct Timespec {
        seconds: i64,
        nanoseconds: c_long,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
    }
    const CLOCK_THREAD_CPUTIME_ID: c_int = 3;
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the call writes the structure, which is Linux' for 64-bit machines.
    assert_eq!(unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.seconds as u64, time.nanoseconds as u32)
}

/// The middle of a list that is not empty.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
