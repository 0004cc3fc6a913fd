//! Execution of a load: preparation, warm-up, measurement.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, TryStreamExt};
use s3_client::{Result, S3Client, S3Error};

use super::ObjectOperation;
use super::client::{LoadClient, OperationLatencies};
use super::content::Contents;
use super::counters::ObjectCounters;
use super::plan::ObjectLoad;
use super::result::ObjectResult;
use crate::load::Second;
use crate::observe::{Observer, Watch};

const PREPARE: u8 = 0;
const WARM_UP: u8 = 1;
const MEASURE: u8 = 2;
const STOP: u8 = 3;
const POLL: Duration = Duration::from_millis(5);
const SECOND: Duration = Duration::from_secs(1);

/// The state that all threads of a load share.
#[derive(Default)]
struct ObjectLoadState {
    phase: AtomicU8,
    prepared: AtomicUsize,
    /// Threads that have ended, by an error if the phase is not `STOP`.
    ended: AtomicUsize,
    /// Measured GETs, and PUTs.
    done: [AtomicU64; 2],
}

/// Runs a load. Each S3 client is used by a thread of its own. Returns `None` if `stop` was set.
///
/// # Errors
/// The first error of a request.
pub fn run(
    load: &ObjectLoad,
    clients: &[S3Client],
    watch: &Watch,
    stop: &AtomicBool,
) -> Result<Option<ObjectResult>> {
    let begin = || Observer::start(watch.clone());
    let end = |observer: Observer, elapsed: Duration| observer.finish(elapsed.as_secs_f64(), None);
    let (counters, observation) = execute(load, clients, stop, begin, end)?;
    let is_complete = !stop.load(Ordering::Relaxed);
    Ok(is_complete.then(|| ObjectResult::new(load, &counters, observation)))
}

/// Executes a load. Calls `begin` when the measurement starts, and `end` with its result and the
/// measured time when it ends. Returns early if `stop` is set.
///
/// # Errors
/// The first error of a request.
pub(super) fn execute<T, U>(
    load: &ObjectLoad,
    clients: &[S3Client],
    stop: &AtomicBool,
    begin: impl FnOnce() -> T,
    end: impl FnOnce(T, Duration) -> U,
) -> Result<(ObjectCounters, U)> {
    let state = ObjectLoadState::default();
    let contents = Contents::new();
    let threads = clients.len();
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..)
            .zip(clients)
            .map(|(thread, client)| {
                let own = (0..load.clients).filter(|number| *number as usize % threads == thread);
                let own: Vec<LoadClient<'_>> =
                    own.map(|number| load_client(load, &contents, number)).collect();
                let state = &state;
                scope.spawn(move || run_thread(client, own, state))
            })
            .collect();
        let goes_on = || state.ended.load(Ordering::Acquire) == 0 && !stop.load(Ordering::Relaxed);
        while state.prepared.load(Ordering::Acquire) < load.clients as usize && goes_on() {
            std::thread::sleep(POLL);
        }
        state.phase.store(WARM_UP, Ordering::Release);
        pass(load.warm_up, goes_on, || {});
        let begun = begin();
        state.phase.store(MEASURE, Ordering::Release);
        let started = Instant::now();
        let mut timeline = Timeline::new(started);
        pass(load.run, goes_on, || timeline.sample(&state.done));
        state.phase.store(STOP, Ordering::Release);
        let ended = Instant::now();
        let elapsed = ended - started;
        let finished = end(begun, elapsed);
        let mut measured: [OperationLatencies; 4] = std::array::from_fn(|_| OperationLatencies::new());
        let mut wrong = 0;
        for handle in handles {
            let ended = handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            for client in ended? {
                measured.iter_mut().zip(&client.measured).for_each(|(all, own)| all.add(own));
                wrong += client.wrong;
            }
        }
        Ok((ObjectCounters { measured, wrong, elapsed, ended, seconds: timeline.seconds }, finished))
    })
}

/// Waits for a time, or until `goes_on` returns false. Calls `sample` in short intervals.
fn pass(time: Duration, goes_on: impl Fn() -> bool, mut sample: impl FnMut()) {
    let end = Instant::now() + time;
    while Instant::now() < end && goes_on() {
        std::thread::sleep(POLL);
        sample();
    }
}

/// Operations of each second.
struct Timeline {
    started: Instant,
    last: Instant,
    before: [u64; 2],
    seconds: Vec<Second>,
}

impl Timeline {
    fn new(started: Instant) -> Self {
        Self { started, last: started, before: [0; 2], seconds: Vec::new() }
    }

    /// Adds a second if it has passed.
    #[allow(clippy::cast_precision_loss)]
    fn sample(&mut self, done: &[AtomicU64; 2]) {
        let now = Instant::now();
        let length = now - self.last;
        if length < SECOND {
            return;
        }
        let counts = done.each_ref().map(|count| count.load(Ordering::Relaxed));
        let mut rates = counts.iter().zip(self.before).map(|(now, before)| (now - before) as f64);
        let mut rate = || rates.next().unwrap_or(0.0) / length.as_secs_f64();
        let second = Second { at: (now - self.started).as_secs_f64(), read: rate(), write: rate() };
        self.seconds.push(second);
        (self.last, self.before) = (now, counts);
    }
}

/// Returns a client with its part of the objects.
fn load_client<'a>(load: &'a ObjectLoad, contents: &Contents, number: u32) -> LoadClient<'a> {
    let each = (load.objects / u64::from(load.clients.max(1))).max(1);
    let first = u64::from(number) * each;
    LoadClient::new(load, contents.clone(), first..first + each)
}

/// Runs clients on one thread until the end of the load.
fn run_thread<'a>(
    client: &S3Client,
    own: Vec<LoadClient<'a>>,
    state: &ObjectLoadState,
) -> Result<Vec<LoadClient<'a>>> {
    let ended = run_clients(client, own, state);
    state.ended.fetch_add(1, Ordering::AcqRel);
    ended
}

fn run_clients<'a>(
    client: &S3Client,
    own: Vec<LoadClient<'a>>,
    state: &ObjectLoadState,
) -> Result<Vec<LoadClient<'a>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| S3Error::Invalid(format!("no async runtime: {error}")))?;
    runtime.block_on(async {
        let running: FuturesUnordered<_> = own.into_iter().map(|own| drive(client, own, state)).collect();
        // The first error ends the others.
        running.try_collect().await
    })
}

/// Runs one client until the end of the load.
async fn drive<'a>(
    client: &S3Client,
    mut own: LoadClient<'a>,
    state: &ObjectLoadState,
) -> Result<LoadClient<'a>> {
    own.prepare(client, || state.phase.load(Ordering::Acquire) == PREPARE).await?;
    state.prepared.fetch_add(1, Ordering::AcqRel);
    while state.phase.load(Ordering::Acquire) == PREPARE {
        tokio::time::sleep(POLL).await;
    }
    while state.phase.load(Ordering::Acquire) != STOP {
        let (operation, elapsed, bytes) = own.step(client).await?;
        if state.phase.load(Ordering::Acquire) == MEASURE {
            own.record(operation, elapsed, bytes);
            let [gets, puts] = &state.done;
            match operation {
                ObjectOperation::Get => gets.fetch_add(1, Ordering::Relaxed),
                ObjectOperation::Put => puts.fetch_add(1, Ordering::Relaxed),
                ObjectOperation::Stat | ObjectOperation::Delete => 0,
            };
        }
    }
    Ok(own)
}
