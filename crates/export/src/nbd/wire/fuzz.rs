//! Fuzz target: the decoders of bytes from clients.
//!
//! A command that passes the check can be executed as it is; decoding uses memory in proportion to
//! its input.
#![allow(clippy::big_endian_bytes, reason = "the protocol's numbers are big-endian")]

use ::fuzz::within;

use super::greeting::CLIENT_FLAGS_LEN;
use super::option::OPTION_HEADER_LEN;
use super::request::REQUEST_LEN;
use super::types::STRING_MAX;
use super::*;

::fuzz::target!(nbd_wire, |bytes| match bytes {
    [0, rest @ ..] => check_option(rest),
    [1, rest @ ..] => check_front(rest),
    [_, rest @ ..] => check_request(rest),
    [] => {}
});

fn check_option(bytes: &[u8]) {
    let Some((code, data)) = bytes.split_first() else { return };
    let option = within(64, || ClientOption::decode(u32::from(*code), data));
    match option {
        Ok(ClientOption::ExportName(name)) => assert_eq!(name.as_bytes(), data),
        Ok(ClientOption::Go(request) | ClientOption::Info(request)) => {
            check_name(request.export, data);
        }
        Ok(ClientOption::ListContexts(query) | ClientOption::SetContexts(query)) => {
            check_name(query.export, data);
            assert!(query.lists_allocation() || !query.selects_allocation());
        }
        Ok(_) | Err(_) => {}
    }
    if let Ok(ClientOption::ExportName(name) | ClientOption::Go(InfoRequest { export: name, .. })) = option {
        assert!(name.len() <= STRING_MAX && !name.contains('\0'));
    }
}

/// A name follows its length at the front of the data.
fn check_name(name: &str, data: &[u8]) {
    assert_eq!(data[..4], (name.len() as u32).to_be_bytes());
    assert_eq!(&data[4..4 + name.len()], name.as_bytes());
}

fn check_front(bytes: &[u8]) {
    if let Some(flags) = bytes.first_chunk::<CLIENT_FLAGS_LEN>() {
        let decoded = ClientFlags::decode(*flags);
        assert_eq!(decoded.is_ok(), u32::from_be_bytes(*flags) <= 3);
    }
    if let Some(header) = bytes.first_chunk::<OPTION_HEADER_LEN>()
        && let Ok(option) = OptionHeader::decode(header)
    {
        let stored =
            [b"IHAVEOPT".as_slice(), &option.code.to_be_bytes(), &option.length.to_be_bytes()].concat();
        assert_eq!(stored, header);
    }
}

/// Checks a request with these bytes after the magic number, against limits that the first byte
/// selects.
fn check_request(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let Some(tail) = rest.first_chunk::<{ REQUEST_LEN - 4 }>() else { return };
    let header: [u8; REQUEST_LEN] =
        [0x2560_9513u32.to_be_bytes().as_slice(), tail].concat().try_into().unwrap();
    let sector = 512 << (choice & 3);
    let limits = ExportLimits {
        size: [0, 64 << 20, 1 << 50, u64::MAX / 65_536 * 65_536][usize::from(choice >> 2 & 3)],
        sector,
        read_only: choice & 16 != 0,
        payload_max: 32 << 20,
        structured: choice & 32 != 0,
        allocation: choice & 64 != 0,
    };
    let request = RequestHeader::decode(&header).unwrap();
    assert_eq!(request.cookie().0.to_be_bytes(), header[8..16]);
    let Ok(command) = within(64, || request.check(&limits)) else { return };
    let (range, changes, moves) = match command {
        CheckedCommand::Flush | CheckedCommand::Disconnect => return,
        CheckedCommand::Read { range, .. } => (range, false, true),
        CheckedCommand::Write { range, .. } => (range, true, true),
        CheckedCommand::Trim { range, .. } | CheckedCommand::WriteZeroes { range, .. } => {
            (range, true, false)
        }
        CheckedCommand::BlockStatus { range, .. } => (range, false, false),
    };
    assert!(range.length > 0 && range.offset.checked_add(range.length.into()).unwrap() <= limits.size);
    assert!(range.offset.is_multiple_of(sector.into()) && range.length.is_multiple_of(sector));
    assert!(!(changes && limits.read_only) && (!moves || range.length <= limits.payload_max));
    let is_write = matches!(command, CheckedCommand::Write { .. });
    assert_eq!(request.payload(), if is_write { range.length } else { 0 });
    check_pieces(range, 1 << 20);
}

/// Pieces cover a range once, and end at multiples of the size.
fn check_pieces(range: ByteRange, size: u32) {
    let mut next = range.offset;
    for piece in range.pieces(size) {
        assert!(piece.offset == next && piece.length <= size);
        next += u64::from(piece.length);
        assert!(next.is_multiple_of(size.into()) || next == range.offset + u64::from(range.length));
    }
    assert_eq!(next, range.offset + u64::from(range.length));
}
