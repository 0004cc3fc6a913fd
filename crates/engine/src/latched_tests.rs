//! A failed flush fails the flushes of all users of a drive.

use std::sync::atomic::AtomicU64;

use reactor::{Clock, ParkDriver, SystemClock};

use super::*;

/// A drive with a cache that fails its second flush only: the cached data is lost by then.
#[derive(Clone, Default)]
struct FailsOnce(Arc<AtomicU64>);

impl Drive for FailsOnce {
    fn properties(&self) -> DriveProperties {
        DriveProperties {
            size: 1 << 20,
            logical_sector: 512,
            physical_sector: 4096,
            volatile_cache: true,
            discard: false,
            sparse: false,
            rotational: false,
        }
    }

    fn read(&self, _offset: u64, _into: &[Span]) -> Io {
        Io::ready(Ok(0))
    }

    fn write(&self, _offset: u64, _from: &[Span]) -> Io {
        Io::ready(Ok(0))
    }

    fn flush(&self) -> Io {
        let second = self.0.fetch_add(1, Ordering::Relaxed) == 1;
        Io::ready(if second { Err(IoError::new(IoErrorKind::NoSpace)) } else { Ok(0) })
    }

    fn discard(&self, _offset: u64, _length: u64) -> Io {
        Io::ready(Ok(0))
    }

    fn reserve(&self, _offset: u64, _length: u64) -> Io {
        Io::ready(Ok(0))
    }
}

impl DriveSource for FailsOnce {
    fn open(&self) -> Rc<dyn Drive> {
        Rc::new(self.clone())
    }

    fn path(&self) -> String {
        "/dev/fails-once".into()
    }
}

#[test]
fn no_flush_of_any_user_succeeds_after_a_failed_one() {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let reactor = Reactor::new(ParkDriver::new(clock.clone()), clock);
    reactor.run(async {
        let source = latched(Arc::new(FailsOnce::default()));
        let (log, control) = (source.open(), source.open());
        assert!(control.flush().await.is_ok());
        assert_eq!(log.flush().await.unwrap_err().kind(), IoErrorKind::NoSpace);
        assert_eq!(control.flush().await.unwrap_err().kind(), IoErrorKind::Medium);
        assert_eq!(log.flush().await.unwrap_err().kind(), IoErrorKind::Medium);
        assert!(source.open().flush().await.is_err(), "opened later");
        // A drive that rejoins has a new latch.
        assert!(latched(Arc::new(FailsOnce::default())).open().flush().await.is_ok());
    });
    reactor.shut_down();
}
