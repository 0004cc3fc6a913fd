//! Memory drives, and a reactor to run the engine on.

use std::rc::Rc;
use std::sync::Arc;

use engine::{DriveSource, OpenOptions, OpenReport, Pool, Tuning};
use reactor::{Clock, Drive, Memory, ParkDriver, Reactor, SystemClock};

use crate::image::Image;

/// Runs `work` on a new reactor and then drops all remaining tasks, as in a crash.
pub(crate) fn run<T>(work: impl AsyncFnOnce() -> T) -> T {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let reactor = Reactor::new(ParkDriver::new(clock.clone()), clock);
    let result = reactor.run(work());
    reactor.shut_down();
    result
}

struct FrozenSource {
    memory: Arc<Memory>,
    number: usize,
}

impl DriveSource for FrozenSource {
    fn open(&self) -> Rc<dyn Drive> {
        self.memory.open()
    }

    fn path(&self) -> String {
        format!("drive{}", self.number)
    }
}

/// The drives of a pool.
pub(crate) struct Machine {
    drives: Vec<(Arc<Memory>, usize)>,
}

impl Machine {
    /// Creates empty drives.
    pub(crate) fn new(drives: usize, bytes: usize) -> Self {
        Self { drives: (0..drives).map(|_| (Memory::new(bytes).unwrap(), bytes)).collect() }
    }

    /// Creates drives with these contents.
    pub(crate) fn with(images: &[Image]) -> Self {
        let machine = Self::new(images.len(), images[0].bytes.len());
        for (at, image) in images.iter().enumerate() {
            machine.write(at, 0, &image.bytes);
        }
        machine
    }

    pub(crate) fn sources(&self) -> Vec<Arc<dyn DriveSource>> {
        let source = |(number, (memory, _)): (usize, &(Arc<Memory>, usize))| {
            Arc::new(FrozenSource { memory: memory.clone(), number }) as Arc<dyn DriveSource>
        };
        self.drives.iter().enumerate().map(source).collect()
    }

    /// Opens the pool on the drives. Must be called within [`run`].
    pub(crate) async fn open(&self, nonce: u64) -> engine::Result<(Pool, OpenReport)> {
        let options = OpenOptions {
            tuning: Tuning::default(),
            reactors: Vec::new(),
            nonce,
            now: Arc::new(|| 1_700_000_000),
            state_store: None,
            accept_stale: false,
        };
        engine::open(&self.sources(), &options).await
    }

    /// Returns the contents of the drives.
    pub(crate) fn images(&self) -> Vec<Image> {
        let image = |(memory, bytes): &(Arc<Memory>, usize)| {
            let mut image = vec![0; *bytes];
            assert!(memory.copy_to(0, &mut image));
            Image { bytes: image }
        };
        self.drives.iter().map(image).collect()
    }

    /// Overwrites bytes of a drive, bypassing the engine.
    pub(crate) fn write(&self, drive: usize, offset: u64, bytes: &[u8]) {
        assert!(self.drives[drive].0.copy_from(offset, bytes));
    }
}
