//! Timing of candidates against each other: interleaved in one process, many rounds, medians of
//! per-round ratios.
//!
//! Owns the clock and the statistics. Interference by the machine (frequency, load of a neighbour)
//! affects all candidates within the same few milliseconds. Must not know the computations.

use std::ffi::{c_int, c_long};
use std::time::Duration;

/// A name, and a function that returns a result to compare with the other variants before it is
/// timed.
pub type Variant<'a, I, O> = (&'static str, &'a dyn Fn(I) -> O);

/// One variant of the work: `run` performs iteration number `iteration`.
pub struct Candidate<'a> {
    pub name: &'static str,
    pub run: Box<dyn FnMut(usize) + 'a>,
}

impl<'a> Candidate<'a> {
    pub fn new(name: &'static str, run: impl FnMut(usize) + 'a) -> Self {
        Self { name, run: Box::new(run) }
    }
}

/// Duration of a measurement.
#[derive(Clone, Copy)]
pub struct Sampling {
    pub rounds: usize,
    /// Time of one candidate in one round.
    pub slot: Duration,
}

/// The measurement of one candidate.
pub struct Measurement {
    pub name: &'static str,
    /// Median over the rounds, in nanoseconds per iteration.
    pub nanoseconds: f64,
    /// Median over the rounds of this candidate's time / the first one's time in the same round:
    /// above 1, the first is faster.
    pub ratio: f64,
}

/// Runs all candidates in turn, for some rounds; each round starts with a different one. The first
/// is the reference.
pub fn compare(sampling: Sampling, candidates: &mut [Candidate<'_>]) -> Vec<Measurement> {
    let iterations: Vec<usize> = candidates.iter_mut().map(|c| calibrate(sampling.slot, c)).collect();
    let mut times = vec![Vec::with_capacity(sampling.rounds); candidates.len()];
    let mut next = vec![0usize; candidates.len()];
    for round in 0..sampling.rounds {
        for offset in 0..candidates.len() {
            let index = (round + offset) % candidates.len();
            times[index].push(run(&mut candidates[index], &mut next[index], iterations[index]));
        }
    }
    let reference = times[0].clone();
    let measurement = |(candidate, times): (&Candidate<'_>, &Vec<f64>)| Measurement {
        name: candidate.name,
        nanoseconds: median(times.clone()),
        ratio: median(times.iter().zip(&reference).map(|(t, r)| t / r).collect()),
    };
    candidates.iter().zip(&times).map(measurement).collect()
}

/// Returns the number of iterations that fill a slot; also warms up.
fn calibrate(slot: Duration, candidate: &mut Candidate<'_>) -> usize {
    let mut iterations = 1;
    loop {
        let elapsed = run(candidate, &mut 0, iterations) * iterations as f64;
        if elapsed * 4.0 >= slot.as_nanos() as f64 {
            return ((iterations as f64 * slot.as_nanos() as f64 / elapsed) as usize).max(1);
        }
        iterations *= 2;
    }
}

/// Returns the nanoseconds per iteration. `next` increases across calls, so that a large working
/// set is traversed and not restarted.
fn run(candidate: &mut Candidate<'_>, next: &mut usize, iterations: usize) -> f64 {
    let start = processor_time();
    for iteration in *next..*next + iterations {
        (candidate.run)(iteration);
    }
    *next += iterations;
    (processor_time() - start).as_nanos() as f64 / iterations as f64
}

/// Returns the CPU time of this thread, which excludes other processes on a busy machine.
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
    // SAFETY: the call writes the structure, which is that of 64-bit Linux.
    assert_eq!(unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.seconds as u64, time.nanoseconds as u32)
}

/// Returns the median of a list that is not empty.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
