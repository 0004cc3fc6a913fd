//! How long an opening takes after a crash, with files as drives: everything that was written since the last checkpoint is read and replayed.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use engine::{DriveSource, OpenOptions, Tuning};
use format::limits::BLOCK_BYTES;
use reactor::{Backend, Clock, Drive, DriveHandle, DriveOptions, FileDrive, Platform, Reactor, SystemClock};
use serde::Serialize;

use super::load;
use crate::engine_bench::BenchError;
use crate::memory_pool;

/// Writes kept under way.
const DEPTH: u32 = 64;
/// Bytes of the volume for each byte of log: not so many that checkpoints come sooner, because much of the map has changed.
const SPREAD: u64 = 4;
/// Bytes of a zone: as drives of a terabyte have, of which few enough are opened that no checkpoint comes for that.
const ZONE: u64 = 64 << 20;
/// Zones of a drive. Most of the file is never written.
const ZONES: u64 = 128;

/// What is measured.
#[derive(Clone, Debug)]
pub struct RecoveryOptions {
    /// Where the files go that stand for five drives; they are deleted at the end.
    pub directory: PathBuf,
    /// Bytes that are written in blocks before the crash, with no checkpoint between.
    pub log_bytes: u64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Recovery {
    /// Bytes of blocks that were written since the last checkpoint.
    pub log_bytes: u64,
    /// Records that were replayed.
    pub records: u64,
    /// Seconds until the pool was open again.
    pub seconds: f64,
    /// Blocks that did not hold what was written.
    pub wrong: u64,
}

thread_local! {
    /// Of the reactor of this thread.
    static PLATFORM: RefCell<Option<Rc<Platform>>> = const { RefCell::new(None) };
}

struct Source {
    handle: DriveHandle,
}

impl DriveSource for Source {
    fn open(&self) -> Rc<dyn Drive> {
        match PLATFORM.with_borrow(Clone::clone) {
            Some(platform) => self.handle.open_on(&platform),
            None => panic!("drives are opened on the reactor's thread"),
        }
    }

    fn path(&self) -> String {
        self.handle.path().to_string_lossy().into_owned()
    }
}

/// Measures.
///
/// # Errors
/// When the files cannot be made, or an operation fails.
pub fn measure_recovery(options: &RecoveryOptions, tell: impl FnMut(f64)) -> Result<Recovery, BenchError> {
    let place = tempfile::tempdir_in(&options.directory)?;
    let scheme = memory_pool::scheme();
    let bytes = options.log_bytes / u64::from(scheme.data()) * 2 + ZONES * ZONE;
    for index in 0..scheme.width() {
        std::fs::File::create_new(file(place.path(), index))?.set_len(bytes)?;
    }
    let tuning = Tuning { checkpoint_bytes: u64::MAX, ..Tuning::default() };
    on_a_reactor(async |reactor| {
        let drives = open(place.path(), scheme)?;
        let pool = memory_pool::pool_tuned(&drives, scheme, Some(ZONE), Vec::new(), tuning).await?;
        pool.create_volume("crashing", options.log_bytes * SPREAD, 4096, 0).await?;
        let volume = Rc::new(pool.open_volume("crashing").await?.attach());
        pool.checkpoint().await?;
        load::write(&volume, options.log_bytes / BLOCK_BYTES, DEPTH, tell).await?;
        volume.flush().await?;
        // The crash: nothing is closed.
        reactor.shut_down();
        Ok(())
    })?;
    on_a_reactor(async |_| {
        let drives = open(place.path(), scheme)?;
        let start = Instant::now();
        let opening = OpenOptions { tuning, reactors: Vec::new(), nonce: 2, now: || 0 };
        let (pool, report) = engine::open(&drives, &opening).await?;
        let seconds = start.elapsed().as_secs_f64();
        let volume = pool.open_volume("crashing").await?.attach();
        let (_, wrong) = load::read_again(&volume, options.log_bytes / BLOCK_BYTES).await?;
        pool.close().await?;
        Ok(Recovery { log_bytes: options.log_bytes, records: report.replayed as u64, seconds, wrong })
    })
}

/// A reactor as a daemon has it, which ends with this.
fn on_a_reactor<T>(work: impl AsyncFnOnce(Reactor) -> Result<T, BenchError>) -> Result<T, BenchError> {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let platform = Platform::new(Backend::Auto, clock.clone()).map_err(BenchError::Platform)?;
    PLATFORM.set(Some(platform.clone()));
    let reactor = Reactor::new(platform, clock);
    let result = reactor.run(work(reactor.clone()));
    reactor.shut_down();
    PLATFORM.set(None);
    result
}

fn file(directory: &Path, index: u8) -> PathBuf {
    directory.join(format!("drive-{index}"))
}

fn open(directory: &Path, scheme: format::Scheme) -> Result<Vec<Arc<dyn DriveSource>>, BenchError> {
    let one = |index| {
        let handle = FileDrive::open(file(directory, index), DriveOptions::default())?;
        Ok(Arc::new(Source { handle }) as Arc<dyn DriveSource>)
    };
    (0..scheme.width()).map(one).collect()
}
