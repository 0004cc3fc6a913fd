//! Checks that accesses stay within a mapping, and that a mapping lives as long as its users.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use super::super::testing::Guest;
use super::*;

fn map(guest: &Guest, offset: u64, len: u64) -> io::Result<SharedMapping> {
    SharedMapping::new(guest.file.as_fd(), offset, len)
}

fn mapping_ref(guest: &Guest, offset: u64, len: u64) -> MappingRef {
    MappingRef::new(vec![Arc::new(map(guest, offset, len).unwrap())])
}

#[test]
fn a_range_beyond_the_file_is_refused() {
    let guest = Guest::new(8192);
    assert!(map(&guest, 0, 8192).is_ok());
    for (offset, len) in [(0, 8193), (4096, 8192), (8192, 1), (u64::MAX, 2), (0, u64::MAX), (0, 0)] {
        assert!(map(&guest, offset, len).is_err(), "{len} bytes at {offset}");
    }
}

#[test]
fn an_unaligned_offset_is_mapped_exactly() {
    let guest = Guest::new(3 * 4096);
    guest.file.write_all_at(b"abcdef", 5000).unwrap();
    let mapping = map(&guest, 5000, 4096).unwrap();
    let mut bytes = [0; 6];
    assert!(mapping.copy_out(0, &mut bytes));
    assert_eq!(&bytes, b"abcdef");
    assert!(mapping.set_byte(4095, 7));
    let mut last = [0; 2];
    guest.file.read_exact_at(&mut last, 5000 + 4095).unwrap();
    assert_eq!(last, [7, 0]);
}

/// Two huge pages of 2 MiB, reserved by root if none are free, until this is dropped.
struct HugePages {
    /// The earlier number of reserved pages, if it was changed.
    before: Option<String>,
}

impl HugePages {
    const RESERVED: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

    fn reserve() -> Option<Self> {
        let number = |path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let are_free = || number(Self::FREE).is_some_and(|free| free >= 2);
        let mut before = None;
        if !are_free()
            && let Some(reserved) = number(Self::RESERVED)
        {
            before = std::fs::write(Self::RESERVED, (reserved + 2).to_string())
                .ok()
                .map(|()| reserved.to_string());
        }
        let reserved = Self { before };
        let found = if are_free() {
            Ok(())
        } else {
            Err("two huge pages of 2 MiB are neither free nor can they be reserved".into())
        };
        test_support::has("huge-pages", found).then_some(reserved)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = std::fs::write(Self::RESERVED, before);
        }
    }
}

#[test]
fn huge_pages_are_mapped_whole() {
    use rustix::fs::MemfdFlags;
    const HUGE: u64 = 2 << 20;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let Some(_reserved) = HugePages::reserve() else { return };
    let file = rustix::fs::memfd_create("guest", flags).map(std::fs::File::from).unwrap();
    rustix::fs::ftruncate(&file, 2 * HUGE).unwrap();
    // More than any machine has: the mapping must fail, not a later access.
    let many = rustix::fs::memfd_create("guest", flags).map(std::fs::File::from).unwrap();
    rustix::fs::ftruncate(&many, 1 << 50).unwrap();
    assert!(SharedMapping::new(many.as_fd(), 0, 1 << 46).is_err());
    // A front end would share the second huge page from its middle on.
    let mapping = SharedMapping::new(file.as_fd(), HUGE + 4096, HUGE - 4096).unwrap();
    let last = (HUGE - 4096 - 1) as usize;
    assert!(mapping.set_byte(0, 5) && mapping.set_byte(last, 6) && !mapping.set_byte(last + 1, 7));
    let (mut first, mut end) = ([0; 2], [0; 1]);
    assert!(mapping.copy_out(0, &mut first) && mapping.copy_out(last, &mut end));
    assert_eq!((first, end), ([5, 0], [6]));
}

#[test]
fn no_access_leaves_the_mapping() {
    let guest = Guest::new(2 * 4096);
    let mapping = map(&guest, 0, 4096).unwrap();
    assert!(!mapping.copy_out(4095, &mut [0; 2]));
    assert!(!mapping.copy_out(usize::MAX, &mut [0; 2]));
    assert!(!mapping.set_byte(4096, 1));
    assert!(!mapping.set_bits(4096, 1));
    let mapping_ref = mapping_ref(&guest, 0, 4096);
    assert!(mapping_ref.span(0, 4000, 97).is_none());
    assert!(mapping_ref.span(1, 0, 1).is_none());
    assert!(mapping_ref.span(0, 4000, 96).is_some());
    assert!(mapping_ref.window(0, 4092, 8, 4).is_none());
    assert!(mapping_ref.window(0, 2, 8, 4).is_none(), "unaligned window");
}

/// Truncates a guest's memory to `len` bytes, as a front end can at any time.
fn shrink(guest: &Guest, len: u64) {
    guest.file.set_len(len).unwrap();
}

#[test]
fn removed_memory_reads_as_zeros_and_counts_as_lost() {
    let (guest, other) = (Guest::new(8 * 4096), Guest::new(8 * 4096));
    guest.file.write_all_at(&[5; 8 * 4096], 0).unwrap();
    other.file.write_all_at(&[6; 8 * 4096], 0).unwrap();
    let (mapping, beside) = (map(&guest, 0, 8 * 4096).unwrap(), map(&other, 0, 8 * 4096).unwrap());
    assert!(!mapping.is_lost());
    shrink(&guest, 4 * 4096);
    let mut bytes = [9; 3];
    assert!(mapping.copy_out(4 * 4096 - 3, &mut bytes));
    assert!(bytes == [5; 3] && !mapping.is_lost(), "remaining pages must be readable");
    // Reads, writes and atomic changes, each on a separate page; the first one crosses the
    // boundary.
    assert!(mapping.copy_out(4 * 4096 - 1, &mut bytes));
    assert_eq!(bytes, [5, 0, 0]);
    assert!(mapping.is_lost());
    assert!(mapping.set_byte(5 * 4096 + 1, 1) && mapping.set_bits(6 * 4096 + 1, 1));
    assert!(mapping.copy_out(5 * 4096, &mut bytes));
    assert_eq!(bytes, [0, 1, 0]);
    // The front end may extend the file again. The replaced pages stay separate from it.
    shrink(&guest, 8 * 4096);
    guest.file.write_all_at(&[8; 4096], 5 * 4096).unwrap();
    assert!(mapping.copy_out(5 * 4096, &mut bytes));
    assert_eq!(bytes, [0, 1, 0]);
    assert!(beside.copy_out(5 * 4096, &mut bytes));
    assert!(bytes == [6; 3] && !beside.is_lost(), "another mapping was lost");
    drop(mapping);
    // The next mapping is not affected by the earlier one.
    let next = map(&guest, 0, 4096).unwrap();
    assert!(!next.is_lost() && !beside.is_lost());
}

#[test]
fn concurrent_threads_survive_removed_memory() {
    const PAGES: usize = 512;
    let guests: Vec<Guest> = (0..3).map(|_| Guest::new(PAGES as u64 * 4096)).collect();
    let holds: Vec<MappingRef> =
        guests.iter().map(|guest| mapping_ref(guest, 0, PAGES as u64 * 4096)).collect();
    std::thread::scope(|scope| {
        for mapping_ref in holds.iter().chain(&holds) {
            scope.spawn(move || {
                for page in 0..PAGES {
                    mapping_ref.get(0).unwrap().set_byte(page * 4096, 1);
                    let span = mapping_ref.span(0, page * 4096, 4096).unwrap();
                    span.copy_from(0, &[2; 4096]);
                    // Other mappings come and go at the same time.
                    drop(map(&Guest::new(4096), 0, 4096).unwrap());
                }
            });
        }
        for guest in &guests[..2] {
            shrink(guest, 4096);
        }
    });
    assert!(holds[0].is_lost() && holds[1].is_lost() && !holds[2].is_lost());
}

#[test]
fn network_and_fuse_files_are_refused() {
    for (kind, elsewhere) in [
        (0x0102_1994, false),    // tmpfs
        (0x9584_58F6u32, false), // hugetlbfs
        (0xEF53, false),
        (0x6573_5546, true),
        (0x6969, true),
        (0xFF53_4D42, true),
    ] {
        // In the width of this machine's type, signed or not.
        assert_eq!(is_served_elsewhere(kind as rustix::fs::FsWord), elsewhere, "{kind:x}");
    }
}

#[test]
fn a_span_keeps_its_mapping() {
    let guest = Guest::new(4096);
    let mapping_ref = mapping_ref(&guest, 0, 4096);
    let span = mapping_ref.independent().span(0, 100, 3).unwrap();
    let window = mapping_ref.window(0, 0, 8, 8).unwrap();
    drop(mapping_ref);
    span.copy_from(0, b"xyz");
    assert_eq!(guest.read(super::super::testing::GUEST + 100, 3), b"xyz");
    window.store_16(2, 0x1234);
    window.store_8(4, 9);
    assert_eq!(window.load_16(2), 0x1234);
    assert_eq!(window.load_8(4), 9);
    assert_eq!(window.read(0), [0u8, 0, 0x34, 0x12, 9, 0, 0, 0]);
}

#[test]
fn set_bits_keeps_other_bits() {
    let guest = Guest::new(4096);
    let mapping = map(&guest, 0, 4096).unwrap();
    assert!(mapping.set_bits(7, 0x81));
    assert!(mapping.set_bits(7, 0x03));
    let mut byte = [0];
    assert!(mapping.copy_out(7, &mut byte));
    assert_eq!(byte, [0x83]);
}

#[test]
#[should_panic(expected = "of a window of 8")]
fn a_window_checks_its_bounds() {
    let guest = Guest::new(4096);
    mapping_ref(&guest, 0, 4096).window(0, 0, 8, 8).unwrap().load_16(7);
}
