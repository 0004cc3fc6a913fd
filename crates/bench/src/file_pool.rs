//! Pools on files and devices, on a reactor of this thread with the platform's I/O.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use engine::DriveSource;
use reactor::{Backend, Clock, Drive, DriveHandle, DriveOptions, FileDrive, Platform, Reactor, SystemClock};

use crate::bench_error::BenchError;
use crate::local_platform;

struct FileSource {
    handle: DriveHandle,
}

impl DriveSource for FileSource {
    fn open(&self) -> Rc<dyn Drive> {
        self.handle.open_on(&local_platform::current())
    }

    fn path(&self) -> String {
        self.handle.path().to_string_lossy().into_owned()
    }
}

/// Opens drives. They stay locked until every drive opened from them is dropped.
pub(crate) fn open(paths: &[impl AsRef<Path>]) -> Result<Vec<Arc<dyn DriveSource>>, BenchError> {
    let one = |path: &dyn AsRef<Path>| {
        let handle = FileDrive::open(path.as_ref(), DriveOptions::default())?;
        Ok(Arc::new(FileSource { handle }) as Arc<dyn DriveSource>)
    };
    paths.iter().map(|path| one(path)).collect()
}

/// Runs `work` on a new reactor with real I/O. The reactor ends with the call: a pool that is still
/// open is left as after a crash.
pub(crate) fn on_a_reactor<T>(
    work: impl AsyncFnOnce(Reactor) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let platform = Platform::new(Backend::Auto, clock.clone()).map_err(BenchError::Platform)?;
    local_platform::set(Some(platform.clone()));
    let reactor = Reactor::new(platform, clock);
    let result = reactor.run(work(reactor.clone()));
    reactor.shut_down();
    local_platform::set(None);
    result
}

/// Creates sparse files of this size.
pub(crate) fn make(
    directory: &Path,
    count: usize,
    bytes: u64,
) -> Result<Vec<std::path::PathBuf>, BenchError> {
    let one = |index| {
        let path = directory.join(format!("drive-{index}"));
        std::fs::File::create_new(&path)?.set_len(bytes)?;
        Ok(path)
    };
    (0..count).map(one).collect()
}
