//! Execution of a load: preparation, warm-up, measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, TryStreamExt};
use s3_client::{Result, S3Client, S3Error};

use super::client::{LoadClient, OperationLatencies};
use super::content::Contents;
use super::plan::ObjectLoad;
use super::result::ObjectResult;
use crate::observe::{Observer, Watch};

const PREPARE: u8 = 0;
const WARM_UP: u8 = 1;
const MEASURE: u8 = 2;
const STOP: u8 = 3;
const POLL: Duration = Duration::from_millis(5);

/// The state that all threads of a load share.
#[derive(Default)]
struct ObjectLoadState {
    phase: AtomicU8,
    prepared: AtomicUsize,
    /// Threads that have ended, by an error if the phase is not `STOP`.
    ended: AtomicUsize,
}

/// Runs a load. Each S3 client is used by a thread of its own.
///
/// # Errors
/// The first error of a request.
pub fn run(load: &ObjectLoad, clients: Vec<S3Client>, watch: &Watch) -> Result<ObjectResult> {
    let state = Arc::new(ObjectLoadState::default());
    let contents = Contents::new();
    let threads = clients.len();
    let handles: Vec<_> = (0..)
        .zip(clients)
        .map(|(thread, client)| {
            let own = (0..load.clients).filter(|number| *number as usize % threads == thread);
            let own: Vec<LoadClient> = own.map(|number| load_client(load, &contents, number)).collect();
            let state = state.clone();
            std::thread::spawn(move || run_thread(&client, own, &state))
        })
        .collect();
    let goes_on = |state: &ObjectLoadState| state.ended.load(Ordering::Acquire) == 0;
    while state.prepared.load(Ordering::Acquire) < load.clients as usize && goes_on(&state) {
        std::thread::sleep(POLL);
    }
    let pass = |time: Duration| {
        let end = Instant::now() + time;
        while Instant::now() < end && goes_on(&state) {
            std::thread::sleep(POLL);
        }
    };
    state.phase.store(WARM_UP, Ordering::Release);
    pass(load.warm_up);
    let observer = Observer::start(watch.clone());
    state.phase.store(MEASURE, Ordering::Release);
    let started = Instant::now();
    pass(load.run);
    state.phase.store(STOP, Ordering::Release);
    let elapsed = started.elapsed();
    let observation = observer.finish(elapsed.as_secs_f64(), None);
    let mut measured: [OperationLatencies; 4] = std::array::from_fn(|_| OperationLatencies::new());
    let mut wrong = 0;
    for handle in handles {
        let ended = handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        for client in ended? {
            measured.iter_mut().zip(&client.measured).for_each(|(all, own)| all.add(own));
            wrong += client.wrong;
        }
    }
    Ok(ObjectResult::new(load, elapsed, &measured, wrong, observation))
}

/// Returns a client with its part of the objects.
fn load_client(load: &ObjectLoad, contents: &Contents, number: u32) -> LoadClient {
    let each = (load.objects / u64::from(load.clients.max(1))).max(1);
    let first = u64::from(number) * each;
    LoadClient::new(&load.bucket, contents.clone(), load.mix, load.object_bytes, first..first + each)
}

/// Runs clients on one thread until the end of the load.
fn run_thread(client: &S3Client, own: Vec<LoadClient>, state: &ObjectLoadState) -> Result<Vec<LoadClient>> {
    let ended = run_clients(client, own, state);
    state.ended.fetch_add(1, Ordering::AcqRel);
    ended
}

fn run_clients(client: &S3Client, own: Vec<LoadClient>, state: &ObjectLoadState) -> Result<Vec<LoadClient>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| S3Error::Invalid(format!("no async runtime: {error}")))?;
    runtime.block_on(async {
        let running: FuturesUnordered<_> = own.into_iter().map(|own| drive(client, own, state)).collect();
        // The first error ends the others.
        running.try_collect().await
    })
}

/// Runs one client until the end of the load.
async fn drive(client: &S3Client, mut own: LoadClient, state: &ObjectLoadState) -> Result<LoadClient> {
    own.prepare(client).await?;
    state.prepared.fetch_add(1, Ordering::AcqRel);
    while state.phase.load(Ordering::Acquire) == PREPARE {
        tokio::time::sleep(POLL).await;
    }
    while state.phase.load(Ordering::Acquire) != STOP {
        let (operation, elapsed, bytes) = own.step(client).await?;
        if state.phase.load(Ordering::Acquire) == MEASURE {
            own.record(operation, elapsed, bytes);
        }
    }
    Ok(own)
}
