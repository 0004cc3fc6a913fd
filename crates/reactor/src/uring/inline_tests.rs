//! Tests of transfers that the reactor's thread executes.

use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use super::*;
use crate::operation::{Direction, Transfer};
use crate::target::LockedFile;
use crate::testing::{bytes, pattern, span_of};
use crate::uring::Uring;
use crate::{Buffer, Clock, Driver, Io, Platform, Span, SystemClock};

fn transfer(platform: &Platform, target: &Target, direction: Direction, offset: u64, span: &Span) -> Io {
    let transfer = Transfer::new(direction, offset, std::slice::from_ref(span), 1);
    platform.submit(target.clone(), Operation::Transfer(transfer))
}

#[test]
fn short_transfers_end_in_the_next_poll_and_long_ones_in_the_ring() {
    let directory = tempfile::tempdir().unwrap();
    let file = rustix::fs::open(
        directory.path().join("drive"),
        OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o600),
    );
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let platform = Platform::on_ring(Uring::open(8, clock).unwrap());
    let bound = platform.bind(Arc::new(LockedFile::new(file.unwrap())), true);
    let target = Target::File(Rc::new(bound));

    let data = pattern(1, 8192);
    let into = Buffer::new(8192).span();
    let mut write = transfer(&platform, &target, Direction::Out, 4096, &span_of(&data));
    let mut read = transfer(&platform, &target, Direction::In, 4096, &into);
    assert!(write.is_pending() && read.is_pending(), "nothing is executed at the submission");
    assert!(platform.poll());
    assert_eq!((write.try_take(), read.try_take()), (Some(Ok(8192)), Some(Ok(8192))));
    assert_eq!(bytes(&into), data);

    // A read past the end fails, and does not disturb others.
    let mut failed = transfer(&platform, &target, Direction::In, 1 << 20, &into);
    let mut write = transfer(&platform, &target, Direction::Out, 0, &span_of(&data));
    // A reactor that is about to sleep executes them instead.
    platform.sleep(None);
    assert!(failed.try_take().unwrap().is_err());
    assert_eq!(write.try_take(), Some(Ok(8192)));

    let long = pattern(2, INLINE_BYTES + 4096);
    let mut write = transfer(&platform, &target, Direction::Out, 0, &span_of(&long));
    while write.is_pending() {
        platform.sleep(None);
    }
    assert_eq!(write.try_take(), Some(Ok(long.len())));
    assert!(!platform.poll(), "nothing is left");
}

#[test]
fn operations_that_were_not_executed_end_as_closed() {
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(directory.path().join("drive")).unwrap();
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let platform = Platform::on_ring(Uring::open(8, clock).unwrap());
    let target = Target::File(Rc::new(platform.bind(Arc::new(LockedFile::new(file.into())), true)));
    let mut write = transfer(&platform, &target, Direction::Out, 0, &span_of(&pattern(1, 4096)));
    drop((target, platform));
    assert_eq!(write.try_take().unwrap().unwrap_err().kind(), crate::IoErrorKind::Closed);
    assert_eq!(std::fs::metadata(directory.path().join("drive")).unwrap().len(), 0);
}
