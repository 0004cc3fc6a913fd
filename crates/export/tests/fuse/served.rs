//! A served file, with its volume on a reactor thread of its own.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use export::MemoryVolume;
use export::fuse::{self, FuseOptions, FuseServer};
use futures_channel::oneshot;
use reactor::{Access, Clock, Handle, ParkDriver, Reactor, SystemClock};
use tempfile::TempDir;

/// Longer than any step takes, on any machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const SIZE: u64 = 8 << 20;

/// A served file. Fields are dropped in this order.
pub(crate) struct Served {
    pub(crate) server: Arc<FuseServer>,
    volume: Handle<MemoryVolume>,
    opens: Arc<AtomicU64>,
    _reactor: FuseThread,
    directory: TempDir,
}

struct FuseThread {
    stop: Option<oneshot::Sender<()>>,
    handle: Option<JoinHandle<()>>,
}

impl Drop for FuseThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.handle.take().unwrap().join().unwrap();
    }
}

type Handles = (Handle<MemoryVolume>, Handle<fuse::VolumeFile<MemoryVolume>>);

fn start_reactor(sector: u32) -> (FuseThread, Handles) {
    let (stop, stopped) = oneshot::channel::<()>();
    let (sender, receiver) = mpsc::channel();
    let handle = std::thread::spawn(move || {
        let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
        let reactor = Reactor::new(ParkDriver::new(clock.clone()), clock);
        let volume = MemoryVolume::new(SIZE, sector);
        let file = Handle::register(&reactor, Rc::new(fuse::VolumeFile::new(volume.clone())));
        sender.send((Handle::register(&reactor, Rc::new(volume)), file)).unwrap();
        let _ = reactor.run(stopped);
        reactor.shut_down();
    });
    let handles = receiver.recv().unwrap();
    (FuseThread { stop: Some(stop), handle: Some(handle) }, handles)
}

impl Served {
    /// Serves a file of 8 MiB in memory; `None` if the tests that mount are skipped.
    pub(crate) fn start(sector: u32, read_only: bool) -> Option<Self> {
        if !test_support::has_fuse() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let (reactor, (volume, file)) = start_reactor(sector);
        let opens = Arc::new(AtomicU64::new(0));
        let place = directory.path().join("pool/a volume");
        let access = Access::OWNER;
        let options =
            FuseOptions { place, access, name: "pool/a volume".into(), read_only, opens: opens.clone() };
        let server = Arc::new(FuseServer::start(file, options).unwrap());
        Some(Self { server, volume, opens, _reactor: reactor, directory })
    }

    pub(crate) fn place(&self) -> PathBuf {
        self.directory.path().join("pool/a volume")
    }

    pub(crate) fn open(&self) -> File {
        OpenOptions::new().read(true).write(true).open(self.place()).unwrap()
    }

    pub(crate) fn opens(&self) -> u64 {
        self.opens.load(Ordering::Relaxed)
    }

    /// Runs a function with the volume, on its reactor.
    pub(crate) fn volume<T: Send + 'static>(
        &self,
        work: impl FnOnce(&MemoryVolume) -> T + Send + 'static,
    ) -> T {
        let (sender, receiver) = mpsc::channel();
        let volume = self.volume.clone();
        let job = move || sender.send(work(&volume.local().unwrap())).unwrap();
        self.volume.remote().post(job).unwrap();
        receiver.recv_timeout(TIMEOUT).unwrap()
    }
}

/// Returns true if something is mounted at `place`.
pub(crate) fn is_mounted(place: &Path) -> bool {
    let escaped = place.to_str().unwrap().replace(' ', "\\040");
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == Some(&escaped))
}

/// Waits for a condition, which `condition` names.
#[track_caller]
pub(crate) fn until(condition: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !is_true() {
        assert!(Instant::now() < end, "not within {TIMEOUT:?}: {condition}");
        std::thread::yield_now();
    }
}
