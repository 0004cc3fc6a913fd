//! The encoding: known answers, and decoders that never panic.
#![allow(clippy::big_endian_bytes, reason = "the protocol's numbers are big-endian")]

use proptest::prelude::*;

use super::option::OPTION_HEADER_LEN;
use super::request::REQUEST_LEN;
use super::*;

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn info_data(export: &str, requests: &[u16]) -> Vec<u8> {
    let mut data = string(export);
    data.extend((requests.len() as u16).to_be_bytes());
    data.extend(requests.iter().flat_map(|request| request.to_be_bytes()));
    data
}

fn context_data(export: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(export);
    data.extend((queries.len() as u32).to_be_bytes());
    data.extend(queries.iter().flat_map(|query| string(query)));
    data
}

fn request(magic: u32, flags: u16, kind: u16, cookie: u64, offset: u64, length: u32) -> [u8; REQUEST_LEN] {
    let mut bytes = magic.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.try_into().unwrap()
}

const TERMS: ExportLimits = ExportLimits {
    size: 1 << 30,
    sector: 512,
    read_only: false,
    payload_max: 32 << 20,
    structured: true,
    allocation: true,
};

fn check(
    flags: u16,
    kind: u16,
    offset: u64,
    length: u32,
    limits: &ExportLimits,
) -> Result<CheckedCommand, ErrorNumber> {
    let header = RequestHeader::decode(&request(0x2560_9513, flags, kind, 7, offset, length)).unwrap();
    assert_eq!(header.cookie(), Cookie(7));
    header.check(limits).map_err(|refusal| refusal.error)
}

#[test]
fn the_greeting_is_that_of_the_specification() {
    assert_eq!(greeting(), b"NBDMAGICIHAVEOPT\x00\x03");
    assert_eq!(ClientFlags::decode([0, 0, 0, 3]), Ok(ClientFlags { no_zeroes: true }));
    assert_eq!(ClientFlags::decode([0, 0, 0, 1]), Ok(ClientFlags { no_zeroes: false }));
    assert_eq!(ClientFlags::decode([0, 0, 0, 0]), Ok(ClientFlags { no_zeroes: false }));
    assert_eq!(ClientFlags::decode([0, 0, 0, 7]), Err(7));
    assert_eq!(ClientFlags::decode([0x80, 0, 0, 3]), Err(0x8000_0003));
}

#[test]
fn options_are_decoded() {
    let decode = |code, data: &'static [u8]| ClientOption::decode(code, data).unwrap();
    assert_eq!(decode(1, b"disk"), ClientOption::ExportName("disk"));
    assert_eq!(decode(1, b""), ClientOption::ExportName(""));
    assert_eq!(decode(2, b"whatever"), ClientOption::Abort);
    assert_eq!(decode(3, b""), ClientOption::List);
    assert_eq!(decode(5, b""), ClientOption::StartTls);
    assert_eq!(decode(8, b""), ClientOption::StructuredReply);
    let request = |name, description| InfoRequest { export: "disk", name, description };
    let plain = info_data("disk", &[]);
    assert_eq!(ClientOption::decode(6, &plain), Ok(ClientOption::Info(request(false, false))));
    let all = info_data("disk", &[3, 2, 77, 1, 0]);
    assert_eq!(ClientOption::decode(7, &all), Ok(ClientOption::Go(request(true, true))));
}

#[test]
fn contexts_are_listed_by_namespace_and_selected_by_name() {
    let asked = |queries: &[&str]| {
        let data = context_data("disk", queries);
        let Ok(ClientOption::SetContexts(query)) = ClientOption::decode(10, &data) else {
            panic!("not understood")
        };
        assert_eq!(ClientOption::decode(9, &data), Ok(ClientOption::ListContexts(query)));
        (query.export.to_owned(), query.lists_allocation(), query.selects_allocation())
    };
    let disk = || "disk".to_owned();
    assert_eq!(asked(&[]), (disk(), true, false));
    assert_eq!(asked(&["base:"]), (disk(), true, false));
    assert_eq!(asked(&["x-other:", "base:allocation"]), (disk(), true, true));
    assert_eq!(asked(&["base:allocatio", "base", ""]), (disk(), false, false));
}

#[test]
fn invalid_options_are_refused_with_a_message() {
    let error = |code, data: &[u8]| ClientOption::decode(code, data).unwrap_err().error;
    assert_eq!(error(4, b""), OptionError::Unsupported);
    assert_eq!(error(11, b""), OptionError::Unsupported);
    assert_eq!(error(u32::MAX, b""), OptionError::Unsupported);
    assert_eq!(error(3, b"x"), OptionError::Invalid);
    assert_eq!(error(8, b"x"), OptionError::Invalid);
    assert_eq!(error(1, b"a\0b"), OptionError::Invalid);
    assert_eq!(error(1, b"\xff"), OptionError::Invalid);
    assert_eq!(error(1, &[b'x'; 4097]), OptionError::TooBig);
    assert!(ClientOption::decode(1, &[b'x'; 4096]).is_ok());
    assert_eq!(error(7, &string(&"x".repeat(4097))), OptionError::TooBig);
    assert_eq!(error(7, &[0xff; 4]), OptionError::TooBig);
    assert_eq!(error(7, b""), OptionError::Invalid);
    assert_eq!(error(7, &string("disk")), OptionError::Invalid);
    let mut more_promised = info_data("disk", &[1, 2]);
    more_promised.truncate(more_promised.len() - 1);
    assert_eq!(error(6, &more_promised), OptionError::Invalid);
    let mut trailing = info_data("disk", &[]);
    trailing.push(0);
    assert_eq!(error(6, &trailing), OptionError::Invalid);
    let mut absurd = string("disk");
    absurd.extend([0xff; 4]);
    assert_eq!(error(10, &absurd), OptionError::Invalid);
}

#[test]
fn option_replies_are_those_of_the_specification() {
    let facts = ExportFacts {
        size: 0x0102_0304_0506_0708,
        sector: 512,
        preferred: 4096,
        payload_max: 32 << 20,
        read_only: false,
        structured: true,
    };
    let mut replies = OptionReplies::to(7);
    replies.facts(&facts);
    let header = |kind: u8, length: u8| {
        [b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0", &[kind, 0, 0, 0, length][..]].concat()
    };
    let mut expected = header(3, 12);
    expected.extend(b"\0\0\x01\x02\x03\x04\x05\x06\x07\x08\x09\xed");
    expected.extend(header(3, 14));
    expected.extend(b"\0\x03\0\0\x02\0\0\0\x10\0\x02\0\0\0");
    expected.extend(header(1, 0));
    assert_eq!(replies.acknowledge(), expected);

    let simple = ExportFacts { read_only: true, structured: false, ..facts };
    assert_eq!(export_name_reply(&simple, true), b"\x01\x02\x03\x04\x05\x06\x07\x08\x01\x0f");
    assert_eq!(export_name_reply(&simple, false).len(), 10 + 124);

    let refused = OptionReplies::to(7).refuse(OptionError::Unknown, "no such export");
    assert_eq!(refused[8..20], [0, 0, 0, 7, 0x80, 0, 0, 6, 0, 0, 0, 14]);
    assert_eq!(&refused[20..], b"no such export");

    let mut replies = OptionReplies::to(3);
    replies.export("disk", "mine");
    assert_eq!(&replies.acknowledge()[8..][..24], b"\0\0\0\x03\0\0\0\x02\0\0\0\x0c\0\0\0\x04diskmine");
    let mut replies = OptionReplies::to(10);
    replies.allocation_context(1);
    assert_eq!(&replies.acknowledge()[8..][..31], b"\0\0\0\x0a\0\0\0\x04\0\0\0\x13\0\0\0\x01base:allocation");
}

#[test]
fn long_messages_are_clipped_between_characters() {
    let long = "x".repeat(4095) + "ä" + "y";
    let refused = OptionReplies::to(7).refuse(OptionError::Policy, &long);
    assert_eq!(refused.len(), 20 + 4095);
    let (head, message) = Head::error(Cookie(1), ErrorNumber::Io, &long);
    assert_eq!((head.as_bytes().len(), message.len()), (26, 4095));
}

#[test]
fn replies_are_those_of_the_specification() {
    let cookie = Cookie(0x0102_0304_0506_0708);
    let range = ByteRange { offset: 0x1000, length: 0x200 };
    let bytes = |head: Head| head.as_bytes().to_vec();
    assert_eq!(
        bytes(Head::simple(cookie, None)),
        b"\x67\x44\x66\x98\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08"
    );
    let failed = Head::simple(cookie, Some(ErrorNumber::Shutdown));
    assert_eq!(bytes(failed), b"\x67\x44\x66\x98\0\0\0\x6c\x01\x02\x03\x04\x05\x06\x07\x08");
    let structured = |flags: u8, kind: [u8; 2], rest: &[u8]| {
        [b"\x66\x8e\x33\xef\0", &[flags][..], &kind, b"\x01\x02\x03\x04\x05\x06\x07\x08", rest].concat()
    };
    assert_eq!(bytes(Head::none(cookie)), structured(1, [0, 0], &[0; 4]));
    let data = structured(0, [0, 1], b"\0\0\x02\x08\0\0\0\0\0\0\x10\0");
    assert_eq!(bytes(Head::data(cookie, range, false)), data);
    let hole = structured(1, [0, 2], b"\0\0\0\x0c\0\0\0\0\0\0\x10\0\0\0\x02\0");
    assert_eq!(bytes(Head::hole(cookie, range, true)), hole);
    let status = structured(1, [0, 5], b"\0\0\0\x14\0\0\0\x01");
    assert_eq!(bytes(Head::block_status(cookie, 1, 2)), status);
    let (error, message) = Head::error(cookie, ErrorNumber::NoSpace, "full");
    assert_eq!(bytes(error), structured(1, [0x80, 1], b"\0\0\0\x0a\0\0\0\x1c\0\x04"));
    assert_eq!(message, b"full");
    let list = [StatusDescriptor { length: 512, data: true }, StatusDescriptor { length: 1024, data: false }];
    assert_eq!(descriptors(&list), b"\0\0\x02\0\0\0\0\0\0\0\x04\0\0\0\0\x03");
}

#[test]
fn commands_are_decoded() {
    let range = ByteRange { offset: 1024, length: 512 };
    let ok = |flags, kind| check(flags, kind, 1024, 512, &TERMS);
    assert_eq!(ok(0, 0), Ok(CheckedCommand::Read { range, whole: false }));
    assert_eq!(ok(5, 0), Ok(CheckedCommand::Read { range, whole: true }));
    assert_eq!(ok(0, 1), Ok(CheckedCommand::Write { range, durable: false }));
    assert_eq!(ok(1, 1), Ok(CheckedCommand::Write { range, durable: true }));
    assert_eq!(ok(1, 4), Ok(CheckedCommand::Trim { range, durable: true }));
    assert_eq!(ok(0b10011, 6), Ok(CheckedCommand::WriteZeroes { range, durable: true }));
    assert_eq!(ok(0b10010, 6), Ok(CheckedCommand::WriteZeroes { range, durable: false }));
    assert_eq!(ok(0, 7), Ok(CheckedCommand::BlockStatus { range, one: false }));
    assert_eq!(ok(8, 7), Ok(CheckedCommand::BlockStatus { range, one: true }));
    assert_eq!(check(1, 3, 0, 0, &TERMS), Ok(CheckedCommand::Flush));
    assert_eq!(check(0xffff, 2, 1, 1, &TERMS), Ok(CheckedCommand::Disconnect));
}

#[test]
fn invalid_requests_are_refused_with_the_right_number() {
    let error = |flags, kind, offset, length, limits: &ExportLimits| {
        check(flags, kind, offset, length, limits).unwrap_err()
    };
    let size = TERMS.size;
    // Beyond the end, also where the end is beyond all numbers.
    assert_eq!(error(0, 0, size - 512, 1024, &TERMS), ErrorNumber::Invalid);
    assert_eq!(error(0, 0, u64::MAX - 511, 1024, &TERMS), ErrorNumber::Invalid);
    assert_eq!(error(0, 1, size, 512, &TERMS), ErrorNumber::NoSpace);
    assert_eq!(error(0, 6, size, 512, &TERMS), ErrorNumber::NoSpace);
    assert_eq!(error(0, 4, size, 512, &TERMS), ErrorNumber::Invalid);
    assert_eq!(error(0, 7, size, 512, &TERMS), ErrorNumber::Invalid);
    // Not whole sectors, or none.
    assert_eq!(error(0, 0, 1, 512, &TERMS), ErrorNumber::Invalid);
    assert_eq!(error(0, 1, 0, 511, &TERMS), ErrorNumber::Invalid);
    assert_eq!(error(0, 0, 0, 0, &TERMS), ErrorNumber::Invalid);
    let large_sectors = ExportLimits { sector: 4096, ..TERMS };
    assert_eq!(error(0, 0, 512, 4096, &large_sectors), ErrorNumber::Invalid);
    // Too much.
    let more = TERMS.payload_max + 512;
    assert_eq!(error(0, 0, 0, more, &TERMS), ErrorNumber::Invalid);
    assert_eq!(error(4, 0, 0, more, &TERMS), ErrorNumber::Overflow);
    assert_eq!(error(0, 1, 0, more, &TERMS), ErrorNumber::Invalid);
    assert!(check(0, 6, 0, more, &TERMS).is_ok() && check(0, 4, 0, more, &TERMS).is_ok());
    // Not allowed.
    let read_only = ExportLimits { read_only: true, ..TERMS };
    for kind in [1, 4, 6] {
        assert_eq!(error(0, kind, 0, 512, &read_only), ErrorNumber::NotPermitted);
    }
    assert!(check(0, 0, 0, 512, &read_only).is_ok() && check(0, 3, 0, 0, &read_only).is_ok());
    // Not agreed on.
    assert_eq!(error(4, 0, 0, 512, &ExportLimits { structured: false, ..TERMS }), ErrorNumber::Invalid);
    assert_eq!(error(0, 7, 0, 512, &ExportLimits { allocation: false, ..TERMS }), ErrorNumber::Invalid);
    // Not known.
    for kind in [5, 8, u16::MAX] {
        assert_eq!(error(0, kind, 0, 512, &TERMS), ErrorNumber::Invalid);
    }
    for (flags, kind) in [(2, 0), (8, 0), (4, 1), (2, 4), (4, 6), (4, 7), (32, 7), (0x8000, 1)] {
        assert_eq!(error(flags, kind, 0, 512, &TERMS), ErrorNumber::Invalid, "{flags:#x} with {kind}");
    }
    assert_eq!(error(0, 3, 0, 512, &TERMS), ErrorNumber::Invalid);
}

#[test]
fn wrong_magic_numbers_are_reported() {
    let header = request(0x2560_9512, 0, 0, 0, 0, 0);
    assert_eq!(RequestHeader::decode(&header), Err(BadMagic(0x2560_9512)));
    assert_eq!(OptionHeader::decode(b"GET / HTTP/1.1\r\n"), Err(BadMagic(0x4745_5420_2f20_4854)));
    let header = OptionHeader::decode(b"IHAVEOPT\0\0\0\x07\0\0\0\x10").unwrap();
    assert_eq!(header, OptionHeader { code: 7, length: 16 });
}

fn limits() -> impl Strategy<Value = ExportLimits> {
    let sizes = prop_oneof![0..10u64, 0..1u64 << 40, Just(u64::MAX >> 16)];
    (sizes, 9..=16u32, any::<[bool; 3]>(), 0..1u32 << 26).prop_map(|(size, sector, flags, payload_max)| {
        let [read_only, structured, allocation] = flags;
        ExportLimits {
            size: size << sector,
            sector: 1 << sector,
            read_only,
            payload_max,
            structured,
            allocation,
        }
    })
}

proptest! {
    #[test]
    fn any_bytes_are_an_option_or_none(code in prop_oneof![0..13u32, any::<u32>()], data in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(bad) = ClientOption::decode(code, &data) {
            prop_assert!(!bad.message.is_empty());
        }
    }

    #[test]
    fn damaged_options_are_an_option_or_none(
        code in 6..=10u32,
        export in "[a-z]{0,20}",
        (at, byte) in (0..60usize, any::<u8>()),
        cut in 0..60usize,
    ) {
        let data = if code < 8 { info_data(&export, &[1, 2, 3]) } else { context_data(&export, &["base:", "base:allocation"]) };
        let mut damaged = data.clone();
        let at = at % data.len();
        damaged[at] = byte;
        let _ = ClientOption::decode(code, &damaged);
        if code != 8 && cut < data.len() {
            prop_assert!(ClientOption::decode(code, &data[..cut]).is_err());
        }
    }

    #[test]
    fn any_header_is_an_option_or_none(bytes in any::<[u8; OPTION_HEADER_LEN]>()) {
        prop_assert_eq!(OptionHeader::decode(&bytes).is_ok(), bytes.starts_with(b"IHAVEOPT"));
    }

    #[test]
    fn a_command_is_within_its_limits(
        (flags, kind) in (prop_oneof![0..64u16, any::<u16>()], prop_oneof![0..10u16, any::<u16>()]),
        (offset, length) in (prop_oneof![0..1u64 << 42, any::<u64>()], any::<u32>()),
        // Most are aligned, so that most get past the first checks.
        coarse in 0..17u32,
        limits in limits(),
    ) {
        let (offset, length) = (offset >> coarse << coarse, length >> coarse << coarse);
        let bytes = request(0x2560_9513, flags, kind, 1, offset, length);
        let header = RequestHeader::decode(&bytes).unwrap();
        prop_assert_eq!(header.payload(), if kind == 1 { length } else { 0 });
        let Ok(command) = header.check(&limits) else { return Ok(()) };
        let (range, changes, moves) = match command {
            CheckedCommand::Read { range, .. } => (range, false, true),
            CheckedCommand::Write { range, .. } => (range, true, true),
            CheckedCommand::Trim { range, .. } | CheckedCommand::WriteZeroes { range, .. } => (range, true, false),
            CheckedCommand::BlockStatus { range, .. } => (range, false, false),
            CheckedCommand::Flush | CheckedCommand::Disconnect => return Ok(()),
        };
        prop_assert_eq!(range, ByteRange { offset, length });
        prop_assert!(length > 0 && offset + u64::from(length) <= limits.size);
        prop_assert!(offset % u64::from(limits.sector) == 0 && length % limits.sector == 0);
        prop_assert!(!changes || !limits.read_only);
        prop_assert!(!moves || length <= limits.payload_max);
    }

    #[test]
    fn pieces_are_the_range(offset in 0..1u64 << 40, length in 1..u32::MAX, size in (20..30u32).prop_map(|bits| 1 << bits)) {
        let range = ByteRange { offset, length };
        let mut next = offset;
        for piece in range.pieces(size) {
            prop_assert_eq!(piece.offset, next);
            prop_assert!(piece.length > 0);
            prop_assert_eq!(piece.offset / u64::from(size), (piece.offset + u64::from(piece.length) - 1) / u64::from(size));
            next += u64::from(piece.length);
        }
        prop_assert_eq!(next, offset + u64::from(length));
    }
}
