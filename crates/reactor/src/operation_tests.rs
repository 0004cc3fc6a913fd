//! Tests of the interpretation of system results.

use super::*;

fn transfer(direction: Direction, len: usize, unit: usize) -> Operation {
    Operation::Transfer(Transfer::new(direction, 1 << 20, &[Buffer::new(len).span()], unit))
}

fn position(operation: &Operation) -> u64 {
    match operation {
        Operation::Transfer(transfer) => transfer.position(),
        _ => panic!("not a transfer"),
    }
}

fn done(step: Step) -> IoResult {
    match step {
        Step::Done(result) => result,
        Step::Again => panic!("the operation has not ended"),
    }
}

#[test]
fn a_short_transfer_continues_at_the_last_whole_unit() {
    let mut read = transfer(Direction::In, 8192, 512);
    assert!(matches!(read.advance(Ok(1000)), Step::Again));
    assert_eq!(position(&read), (1 << 20) + 512);
    assert!(matches!(read.advance(Ok(4096)), Step::Again));
    assert_eq!(position(&read), (1 << 20) + 4608);
    assert_eq!(done(read.advance(Ok(3584))), Ok(8192));
}

#[test]
fn a_transfer_without_progress_fails() {
    for (direction, kind) in [(Direction::In, IoErrorKind::OutOfRange), (Direction::Out, IoErrorKind::Other)]
    {
        for count in [0, 511] {
            let failed = done(transfer(direction, 4096, 512).advance(Ok(count)));
            assert_eq!(failed.map_err(IoError::kind), Err(kind));
        }
    }
}

#[test]
fn an_interrupted_operation_is_retried() {
    for errno in [Errno::INTR, Errno::AGAIN] {
        assert!(matches!(transfer(Direction::Out, 4096, 512).advance(Err(errno)), Step::Again));
        assert!(matches!(Operation::Sync.advance(Err(errno)), Step::Again));
    }
    let failed = done(transfer(Direction::Out, 4096, 512).advance(Err(Errno::NOSPC)));
    assert_eq!(failed.map_err(IoError::kind), Err(IoErrorKind::NoSpace));
    let failed = done(Operation::Sync.advance(Err(Errno::IO)));
    assert_eq!(failed.map_err(IoError::kind), Err(IoErrorKind::Medium));
}

#[test]
fn inaccessible_memory_is_bounced_once() {
    let (one, other) = (Buffer::zeroed(1024), Buffer::zeroed(3072));
    let spans = [one.span(), other.span()];
    let mut read = Operation::Transfer(Transfer::new(Direction::In, 1 << 20, &spans, 512));
    assert!(matches!(read.advance(Ok(512)), Step::Again));
    assert!(matches!(read.advance(Err(Errno::FAULT)), Step::Again));
    assert_eq!(position(&read), 1 << 20, "the whole transfer is repeated");
    let Operation::Transfer(transfer) = &read else { panic!("not a transfer") };
    let [around] = transfer.cursor.spans() else { panic!("in one piece") };
    assert!(spans.iter().all(|span| span.as_ptr() != around.as_ptr()) && around.len() == 4096);
    around.copy_from(0, &[7; 4096]);
    assert_eq!(done(read.advance(Ok(4096))), Ok(4096));
    drop(read);
    drop(spans);
    assert!(one.as_slice().iter().chain(other.as_slice()).all(|byte| *byte == 7));

    let mut write = Operation::Transfer(Transfer::new(Direction::Out, 0, &[one.span(), other.span()], 512));
    assert!(matches!(write.advance(Err(Errno::FAULT)), Step::Again));
    let Operation::Transfer(transfer) = &write else { panic!("not a transfer") };
    let [around] = transfer.cursor.spans() else { panic!("in one piece") };
    assert!(around.peek(|bytes| bytes.iter().all(|byte| *byte == 7)));
    let failed = done(write.advance(Err(Errno::FAULT)));
    assert_eq!(
        failed.map_err(IoError::errno),
        Err(Errno::FAULT.raw_os_error()),
        "our own memory cannot be missing"
    );
}

fn allocate(action: Allocation) -> Operation {
    Operation::Allocate(Allocate { action, offset: 0, length: 4096 })
}

#[test]
fn an_unsupported_discard_punches_a_hole() {
    let mut discard = allocate(Allocation::Discard);
    assert!(matches!(discard.advance(Err(Errno::OPNOTSUPP)), Step::Again));
    assert!(matches!(&discard, Operation::Allocate(allocate) if allocate.action == Allocation::Punch));
    let failed = done(discard.advance(Err(Errno::OPNOTSUPP)));
    assert_eq!(failed.map_err(IoError::kind), Err(IoErrorKind::Unsupported));
}

#[test]
fn an_unsupported_reservation_succeeds() {
    assert_eq!(done(allocate(Allocation::Reserve).advance(Err(Errno::OPNOTSUPP))), Ok(0));
    let failed = done(allocate(Allocation::Reserve).advance(Err(Errno::NOSPC)));
    assert_eq!(failed.map_err(IoError::kind), Err(IoErrorKind::NoSpace));
}

#[test]
fn bounced_bytes_reach_their_spans() {
    let buffer = Buffer::copy_of(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let spans = [buffer.span().slice(1..3), buffer.span().slice(4..7)];
    let write = Transfer::bounced(Direction::Out, 0, &spans, 1);
    let mut sent = [0; 5];
    write.cursor.spans().first().unwrap().copy_to(0, &mut sent);
    assert_eq!(sent, [2, 3, 5, 6, 7]);

    let mut read = Transfer::bounced(Direction::In, 0, &spans, 1);
    read.cursor.spans().first().unwrap().copy_from(0, &[11, 12, 13, 14, 15]);
    assert!(matches!(read.moved(2), Step::Again));
    assert_eq!(done(read.moved(3)), Ok(5));
    drop(spans);
    assert_eq!(buffer.as_slice(), [1, 11, 12, 4, 13, 14, 15, 8]);
}

fn socket_transfer(whole: bool) -> Operation {
    let cursor = SpanCursor::new(&[Buffer::new(100).span()]);
    Operation::SocketTransfer(SocketTransfer { direction: Direction::In, cursor, whole })
}

#[test]
fn whole_socket_transfers_need_every_byte() {
    let mut whole = socket_transfer(true);
    assert!(matches!(whole.advance(Ok(40)), Step::Again));
    assert_eq!(done(whole.advance(Ok(60))), Ok(100));
    let mut cut = socket_transfer(true);
    assert!(matches!(cut.advance(Ok(40)), Step::Again));
    assert_eq!(done(cut.advance(Ok(0))).map_err(IoError::kind), Err(IoErrorKind::Closed));
    assert_eq!(done(socket_transfer(false).advance(Ok(40))), Ok(40));
    assert_eq!(done(socket_transfer(false).advance(Ok(0))), Ok(0));
}
