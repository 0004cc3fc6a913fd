//! Memory drives: deferred completion, order, bounds.

use super::*;
use crate::{Buffer, Clock, ParkDriver, SystemClock};

fn run(work: impl Future<Output = ()>) {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    Reactor::new(ParkDriver::new(clock.clone()), clock).run(work);
}

#[test]
fn an_operation_completes_in_a_later_turn_in_the_order_of_submission() {
    run(async {
        let memory = Memory::new(8 * 4096).unwrap();
        let drive = memory.open();
        let (first, second) = (Buffer::copy_of(&[1; 8192]), Buffer::copy_of(&[2; 4096]));
        let into = Buffer::new(8192);
        let writes = [drive.write(4096, &[first.span()]), drive.write(8192, &[second.span()])];
        let read = drive.read(4096, &[into.span()]);
        let mut stored = [9; 1];
        assert!(memory.copy_to(4096, &mut stored) && stored == [0], "nothing is written at submission");
        assert!(read.is_pending() && writes.iter().all(Io::is_pending));
        assert_eq!(read.await, Ok(8192));
        assert_eq!((into.as_slice()[0], into.as_slice()[4096]), (1, 2), "the read follows both writes");
        for write in writes {
            assert!(write.is_done());
            write.await.unwrap();
        }
    });
}

#[test]
fn the_drive_scatters_and_gathers_spans() {
    run(async {
        let drive = Memory::new(4 * 4096).unwrap().open();
        let (one, two) = (Buffer::copy_of(&[7; 4096]), Buffer::copy_of(&[8; 8192]));
        assert_eq!(drive.write(4096, &[one.span(), two.span()]).await, Ok(12288));
        let (head, rest) = (Buffer::new(8192), Buffer::new(4096));
        assert_eq!(drive.read(4096, &[head.span(), rest.span()]).await, Ok(12288));
        assert_eq!((head.as_slice()[0], head.as_slice()[4096], rest.as_slice()[0]), (7, 8, 8));
    });
}

#[test]
fn accesses_beyond_the_end_fail() {
    run(async {
        let drive = Memory::new(2 * 4096).unwrap().open();
        let buffer = Buffer::new(8192);
        let kind = |result: IoResult| result.map_err(|error| error.kind());
        assert_eq!(kind(drive.read(4096, &[buffer.span()]).await), Err(IoErrorKind::OutOfRange));
        assert_eq!(kind(drive.write(u64::MAX, &[buffer.span()]).await), Err(IoErrorKind::OutOfRange));
        assert_eq!(kind(drive.discard(0, 3 * 4096).await), Err(IoErrorKind::OutOfRange));
        assert_eq!(kind(drive.flush().await), Ok(0));
    });
}
