//! Pools on memory drives, on a reactor of this thread.

use std::rc::Rc;
use std::sync::Arc;

use engine::{CreateOptions, DriveSource, OpenOptions, Pool, Tuning};
use reactor::{Clock, Drive, Memory, ParkDriver, Reactor, Remote, SystemClock};

/// Zone size for drives of gigabytes, in bytes.
pub(crate) const ZONE: u64 = 16 << 20;

struct MemorySource {
    memory: Arc<Memory>,
    number: usize,
}

impl DriveSource for MemorySource {
    fn open(&self) -> Rc<dyn Drive> {
        self.memory.open()
    }

    fn path(&self) -> String {
        format!("memory {}", self.number)
    }
}

/// Returns the scheme of the reference tables.
pub(crate) fn scheme() -> format::Scheme {
    match format::Scheme::new(4, 1) {
        Ok(scheme) => scheme,
        Err(error) => panic!("4+1 is a scheme: {error}"),
    }
}

/// Creates memory drives of `bytes` bytes each, with every page allocated.
pub(crate) fn drives(count: usize, bytes: usize) -> Result<Vec<Arc<dyn DriveSource>>, reactor::IoError> {
    let drive = |number| {
        let memory = Memory::new(bytes)?;
        memory.populate()?;
        Ok(Arc::new(MemorySource { memory, number }) as Arc<dyn DriveSource>)
    };
    (0..count).map(drive).collect()
}

/// Returns a reactor that never performs I/O.
pub(crate) fn reactor() -> Reactor {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    Reactor::new(ParkDriver::new(clock.clone()), clock)
}

/// Creates and opens a pool of one shard.
pub(crate) async fn pool(drives: &[Arc<dyn DriveSource>], scheme: format::Scheme) -> engine::Result<Pool> {
    pool_on(drives, scheme, Some(ZONE), Vec::new()).await
}

/// Creates and opens a pool with a shard on each of these reactors, or on this one if there are
/// none.
pub(crate) async fn pool_on(
    drives: &[Arc<dyn DriveSource>],
    scheme: format::Scheme,
    zone_bytes: Option<u64>,
    reactors: Vec<Remote>,
) -> engine::Result<Pool> {
    pool_tuned(drives, scheme, zone_bytes, reactors, Tuning::default()).await
}

/// Like [`pool_on`], with tuning parameters.
pub(crate) async fn pool_tuned(
    drives: &[Arc<dyn DriveSource>],
    scheme: format::Scheme,
    zone_bytes: Option<u64>,
    reactors: Vec<Remote>,
    tuning: Tuning,
) -> engine::Result<Pool> {
    let options = CreateOptions {
        name: "bench".into(),
        scheme,
        shards: u16::try_from(reactors.len()).unwrap_or(u16::MAX).max(1),
        zone_bytes,
        now: 0,
        entropy: [0x5A; 32],
    };
    engine::create(drives, &options).await?;
    let options = OpenOptions {
        tuning,
        reactors,
        nonce: 1,
        now: Arc::new(|| 0),
        state_store: None,
        accept_stale: false,
    };
    Ok(engine::open(drives, &options).await?.0)
}
