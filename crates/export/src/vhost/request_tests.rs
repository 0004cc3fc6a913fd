//! Checks that every request is refused or within the volume.

use std::os::fd::AsFd;

use proptest::prelude::*;

use super::super::memory::RegionLayout;
use super::super::testing::{GUEST, Guest, USER, header};
use super::*;

const LEN: u64 = 512 * 4096;
const LIMITS: DeviceLimits = DeviceLimits { size: 1 << 20, sector: 512, read_only: false };
const STATUS: u64 = GUEST + 8000;
const DATA: u64 = GUEST + 16 * 4096;

struct RequestFixture {
    guest: Guest,
    memory: GuestMemory,
}

fn setup() -> RequestFixture {
    let guest = Guest::new(LEN);
    let layout = RegionLayout { guest: GUEST, user: USER, len: LEN, offset: 0 };
    let memory = GuestMemory::empty().with(layout, guest.file.as_fd()).unwrap();
    RequestFixture { guest, memory }
}

impl RequestFixture {
    fn segments(&self, parts: &[(u64, u32)]) -> GuestSegments {
        let mut segments = GuestSegments::new();
        parts.iter().for_each(|(address, len)| assert!(self.memory.locate(*address, *len, &mut segments)));
        segments
    }

    fn parse(
        &self,
        readable: &[(u64, u32)],
        writable: &[(u64, u32)],
        limits: &DeviceLimits,
    ) -> Option<BlkRequest> {
        let mut chain = Chain { readable: self.segments(readable), writable: self.segments(writable) };
        BlkRequest::parse(&mut chain, &self.memory, limits)
    }

    fn listed(&self, segments: &GuestSegments) -> Vec<(u64, u32)> {
        segments.iter().map(|segment| (self.memory.guest_address(segment), segment.len)).collect()
    }

    /// Parses a read of `len` bytes.
    fn read(&self, sector: u64, len: u32, limits: &DeviceLimits) -> Result<(u64, u64), BlkStatus> {
        self.guest.write(GUEST, &header(0, sector));
        let request = self.parse(&[(GUEST, 16)], &[(DATA, len), (STATUS, 1)], limits).unwrap();
        match request.operation? {
            BlkOperation::Read { offset, len, .. } => Ok((offset, len)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn header_and_status_may_be_split_anywhere() {
    let setup = setup();
    setup.guest.write(GUEST, &header(1, 2));
    for cut in 0..=16 {
        // The header in two parts, the second of which continues with the data. Only the status is
        // writable.
        let readable = [(GUEST, cut), (GUEST + u64::from(cut), 16 - cut), (DATA, 512)];
        let request = setup.parse(&readable, &[(STATUS, 1)], &LIMITS).unwrap();
        let Ok(BlkOperation::Write { offset, from, len }) = request.operation else { panic!() };
        assert_eq!((offset, len), (1024, 512));
        assert_eq!(setup.listed(&from), [(DATA, 512)]);
    }
    // Header and data in one descriptor.
    let request = setup.parse(&[(GUEST, 16 + 1024)], &[(STATUS, 1)], &LIMITS).unwrap();
    let Ok(BlkOperation::Write { from, .. }) = request.operation else { panic!() };
    assert_eq!(setup.listed(&from), [(GUEST + 16, 1024)]);
    // Data and status in one descriptor.
    setup.guest.write(GUEST, &header(0, 2));
    let request = setup.parse(&[(GUEST, 16)], &[(DATA, 4097)], &LIMITS).unwrap();
    let Ok(BlkOperation::Read { into, len, .. }) = request.operation else { panic!() };
    assert_eq!((setup.listed(&into), len), (vec![(DATA, 4096)], 4096));
    assert_eq!(setup.memory.guest_address(&request.status), DATA + 4096);
}

#[test]
fn reads_are_whole_sectors_within_the_volume() {
    let setup = setup();
    let last = LIMITS.size / 512 - 1;
    assert_eq!(setup.read(last, 512, &LIMITS), Ok((last * 512, 512)));
    assert_eq!(setup.read(0, 1 << 20, &LIMITS), Ok((0, 1 << 20)));
    for (sector, len) in [
        (last, 1024),
        (last + 1, 512),
        (u64::MAX, 512),
        (u64::MAX / 512, 512),
        (1 << 55, 512),
        (0, 511),
        (0, 513),
        (0, 0),
    ] {
        assert_eq!(setup.read(sector, len, &LIMITS), Err(BlkStatus::IoError), "{len} bytes at {sector}");
    }
    let large = DeviceLimits { sector: 4096, ..LIMITS };
    assert_eq!(setup.read(8, 4096, &large), Ok((4096, 4096)));
    assert_eq!(setup.read(7, 4096, &large), Err(BlkStatus::IoError));
    assert_eq!(setup.read(8, 512, &large), Err(BlkStatus::IoError));
}

#[test]
fn short_requests_are_refused() {
    let setup = setup();
    setup.guest.write(GUEST, &header(4, 0));
    assert!(setup.parse(&[(GUEST, 16)], &[], &LIMITS).is_none(), "a request without space for a status");
    let request = setup.parse(&[(GUEST, 15)], &[(STATUS, 1)], &LIMITS).unwrap();
    assert_eq!(request.operation, Err(BlkStatus::IoError));
    let request = setup.parse(&[], &[(STATUS, 1)], &LIMITS).unwrap();
    assert_eq!(request.operation, Err(BlkStatus::IoError));
    let request = setup.parse(&[(GUEST, 16)], &[(STATUS, 1)], &LIMITS).unwrap();
    assert_eq!(request.operation, Ok(BlkOperation::Flush));
}

#[test]
fn other_kinds_are_parsed_or_unsupported() {
    let setup = setup();
    setup.guest.write(GUEST, &header(8, 0));
    let request = setup.parse(&[(GUEST, 16)], &[(DATA, 20), (STATUS, 1)], &LIMITS).unwrap();
    assert!(matches!(request.operation, Ok(BlkOperation::Id { len: 20, .. })));
    let request = setup.parse(&[(GUEST, 16)], &[(STATUS, 1)], &LIMITS).unwrap();
    assert_eq!(request.operation, Err(BlkStatus::IoError), "no space for the serial number");
    for kind in [2, 3, 5, 7, 9, 10, 12, 14, 255, u32::MAX] {
        setup.guest.write(GUEST, &header(kind, 0));
        let request = setup.parse(&[(GUEST, 16)], &[(STATUS, 1)], &LIMITS).unwrap();
        assert_eq!(request.operation, Err(BlkStatus::Unsupported), "kind {kind}");
    }
}

/// Parses a discard or write-zeroes request of these ranges.
fn ranged(
    setup: &RequestFixture,
    kind: u32,
    ranges: &[(u64, u32, u32)],
    limits: &DeviceLimits,
) -> Result<BlkOperation, BlkStatus> {
    setup.guest.write(GUEST, &header(kind, 0));
    let bytes: Vec<u8> = ranges
        .iter()
        .flat_map(|(sector, sectors, flags)| {
            [sector.to_le_bytes().to_vec(), sectors.to_le_bytes().to_vec(), flags.to_le_bytes().to_vec()]
                .concat()
        })
        .collect();
    setup.guest.write(DATA, &bytes);
    setup.parse(&[(GUEST, 16), (DATA, bytes.len() as u32)], &[(STATUS, 1)], limits).unwrap().operation
}

#[test]
fn each_range_is_checked() {
    let setup = setup();
    let range = |offset, len| BlkRange { offset, len };
    assert_eq!(
        ranged(&setup, 11, &[(0, 8, 0), (16, 8, 0)], &LIMITS),
        Ok(BlkOperation::Discard(vec![range(0, 4096), range(8192, 4096)]))
    );
    assert_eq!(
        ranged(&setup, 13, &[(8, 1, 1)], &LIMITS),
        Ok(BlkOperation::WriteZeroes(vec![range(4096, 512)]))
    );
    assert_eq!(ranged(&setup, 11, &[(8, 1, 1)], &LIMITS), Err(BlkStatus::Unsupported));
    assert_eq!(ranged(&setup, 13, &[(8, 1, 2)], &LIMITS), Err(BlkStatus::Unsupported));
    for bad in [
        &[(0, 0, 0)][..],
        &[(0, 8, 0), (2048, 1, 0)],
        &[(u64::MAX, 1, 0)],
        &[(0, u32::MAX, 0)],
        &[(0, RANGE_SECTORS_MAX + 1, 0)],
        &[],
        &[(0, 1, 0); RANGES_MAX as usize + 1],
    ] {
        assert_eq!(ranged(&setup, 11, bad, &LIMITS), Err(BlkStatus::IoError), "{bad:?}");
    }
    let large = DeviceLimits { sector: 4096, ..LIMITS };
    assert_eq!(ranged(&setup, 13, &[(8, 1, 0)], &large), Err(BlkStatus::IoError));
}

#[test]
fn a_read_only_volume_refuses_changes() {
    let setup = setup();
    let limits = DeviceLimits { read_only: true, ..LIMITS };
    assert_eq!(ranged(&setup, 11, &[(0, 8, 0)], &limits), Err(BlkStatus::IoError));
    assert_eq!(ranged(&setup, 13, &[(0, 8, 0)], &limits), Err(BlkStatus::IoError));
    setup.guest.write(GUEST, &header(1, 0));
    let request = setup.parse(&[(GUEST, 16), (DATA, 512)], &[(STATUS, 1)], &limits).unwrap();
    assert_eq!(request.operation, Err(BlkStatus::IoError));
    assert_eq!(setup.read(0, 512, &limits), Ok((0, 512)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn any_request_is_refused_or_within_the_volume(
        kind in prop_oneof![Just(0u32), Just(1), Just(4), Just(8), Just(11), Just(13), any::<u32>()],
        sector in prop_oneof![4 => 0..2100u64, 1 => any::<u64>()],
        content in prop::collection::vec(any::<u8>(), 64),
        readable in prop::collection::vec((0..4096u64, 0..2000u32), 0..6),
        writable in prop::collection::vec((0..4096u64, 0..2000u32), 0..6),
        whole in any::<bool>(),
    ) {
        let setup = setup();
        setup.guest.write(DATA, &content);
        setup.guest.write(GUEST, &header(kind, sector));
        let unit = if whole { 512 } else { 1 };
        let place = |list: &[(u64, u32)]| -> Vec<(u64, u32)> {
            list.iter().map(|(at, len)| (DATA + at, len / unit * unit)).collect()
        };
        let mut readable = place(&readable);
        readable.insert(0, (GUEST, 16));
        let mut writable = place(&writable);
        writable.push((STATUS, 1));
        let given: u64 = writable.iter().map(|(_, len)| u64::from(*len)).sum();
        let request = setup.parse(&readable, &writable, &LIMITS).unwrap();
        prop_assert_eq!(setup.memory.guest_address(&request.status), STATUS);
        match request.operation {
            Ok(BlkOperation::Read { offset, into, len }) => {
                prop_assert_eq!(kind, 0);
                prop_assert_eq!(offset, sector * 512);
                prop_assert_eq!(total(&into), len);
                prop_assert_eq!(len, given - 1);
                prop_assert!(len > 0 && len % 512 == 0 && offset + len <= LIMITS.size);
            }
            Ok(BlkOperation::Write { offset, from, len }) => {
                prop_assert_eq!(kind, 1);
                prop_assert_eq!(total(&from), len);
                prop_assert!(len > 0 && len % 512 == 0 && offset + len <= LIMITS.size);
            }
            Ok(BlkOperation::Discard(ranges) | BlkOperation::WriteZeroes(ranges)) => {
                prop_assert!(!ranges.is_empty());
                for BlkRange { offset, len } in ranges {
                    prop_assert!(len > 0 && len % 512 == 0 && offset % 512 == 0 && offset + len <= LIMITS.size);
                }
            }
            Ok(BlkOperation::Flush) => prop_assert_eq!(kind, 4),
            Ok(BlkOperation::Id { .. }) => prop_assert_eq!(kind, 8),
            Err(BlkStatus::Ok) => prop_assert!(false, "refused with the status of success"),
            Err(_) => {}
        }
    }
}
