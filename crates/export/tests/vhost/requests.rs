//! Requests of a guest and their results, and the configuration of the device.

use std::time::Duration;

use reactor::Backend;
use test_support::pattern;

use super::back_end::{BackEnd, Options};
use super::front_end::*;

#[test]
fn written_data_is_read_back_on_each_backend() {
    for backend in [Backend::Uring, Backend::Threads] {
        let back_end = BackEnd::start(&Options { backend, ..Options::default() });
        let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
        let data = pattern(1, 8192);
        front.write(3, &data);
        assert_eq!(front.read(3, 8192), data);
        assert_eq!(front.read(3 + 16, 512), [0; 512]);
        let used = front.run_on(0, &Io::read(4, 512));
        assert_eq!((used.len, &used.data[..]), (513, &data[512..1024]), "data and status");
        assert_eq!(front.run_on(0, &Io::write(0, &data)).len, 1, "the status");
    }
}

#[test]
fn a_flush_reaches_the_volume_and_writes_without_the_flush_feature_are_durable() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
    front.write(0, &[1; 512]);
    assert_eq!(back_end.volume(|volume| volume.counters().flushes), 0);
    front.run(&Io::flush());
    assert_eq!(back_end.volume(|volume| volume.counters().flushes), 1);
    drop(front);
    let write_through = DeviceSetup { masked: LOG_ALL | F_FLUSH, ..DeviceSetup::default() };
    let mut front = FrontEnd::new(&back_end.path(), &write_through);
    front.write(0, &[1; 512]);
    assert_eq!(back_end.volume(|volume| volume.counters().flushes), 2);
}

#[test]
fn data_may_be_scattered_and_described_indirectly() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
    let data = pattern(2, 64 << 10);
    for segments in [&[4096; 16][..], &[1, 511, 1024, 64_000], &[65_535, 1], &[300; 200]] {
        let mut segments = segments.to_vec();
        let rest = (64 << 10) - segments.iter().sum::<u32>();
        segments.extend(Some(rest).filter(|rest| *rest > 0));
        front.run(&Io::write(0, &vec![0; 64 << 10]));
        front.run(&Io::write(0, &data).in_segments(&segments));
        assert_eq!(front.read(0, 64 << 10), data, "{segments:?}");
        assert_eq!(front.run(&Io::read(0, 64 << 10).in_segments(&segments)), data, "{segments:?}");
    }
}

#[test]
fn ranges_are_discarded_and_zeroed() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
    front.write(0, &[7; 16 << 10]);
    front.run(&Io::ranges(DISCARD, &[(0, 8, 0), (16, 8, 0)]));
    front.run(&Io::ranges(WRITE_ZEROES, &[(9, 1, 1), (10, 1, 0)]));
    let now = front.read(0, 16 << 10);
    let sevens: Vec<bool> = now.chunks(512).map(|sector| sector == [7; 512]).collect();
    let expected: Vec<bool> =
        (0..32).map(|sector| sector == 8 || (11..16).contains(&sector) || sector >= 24).collect();
    assert_eq!(sevens, expected);
    assert_eq!(now.iter().filter(|byte| ![0, 7].contains(*byte)).count(), 0);
    let counters = back_end.volume(|volume| volume.counters());
    assert_eq!((counters.discards, counters.zeroes), (2, 2));
    let refused = front.run_on(0, &Io::ranges(DISCARD, &[(0, 8, 2)]));
    assert_eq!(refused.status, UNSUPPORTED, "an unknown flag");
    let refused = front.run_on(0, &Io::ranges(WRITE_ZEROES, &[(0, 8, 0), (1 << 40, 8, 0)]));
    assert_eq!(refused.status, IO_ERROR, "the second range is beyond the end of the disk");
    assert_eq!(back_end.volume(|volume| volume.counters()).zeroes, 2, "neither range was zeroed");
}

#[test]
fn a_disk_reports_its_properties() {
    let back_end = BackEnd::start(&Options { size: 48 << 20, sector: 4096, queues: 3, ..Options::default() });
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
    let mut used = front.run_on(0, &Io { kind: GET_ID, ..Io::read(0, 20) });
    assert_eq!((used.len, used.data.as_slice()), (21, &b"0123456789abcdefghij"[..]));
    used = front.run_on(0, &Io { kind: GET_ID, ..Io::read(0, 5) });
    assert_eq!((used.len, used.data.as_slice()), (6, &b"01234"[..]));
    assert_eq!(front.run_on(0, &Io { kind: 77, ..Io::read(0, 512) }).status, UNSUPPORTED);
    assert_eq!(front.capacity(), 48 << 20);
    // Some front ends read fewer bytes than the device has, some more.
    assert_eq!(front.config(8), front.config(60)[..8]);
    let whole = front.config(256);
    assert_eq!(whole[..60], front.config(60));
    assert_eq!(whole[60..], [0; 196]);
    assert_eq!(u32::from_le_bytes(whole[20..24].try_into().unwrap()), 4096, "block size");
    assert_eq!(u16::from_le_bytes(whole[34..36].try_into().unwrap()), 3, "queues");
    assert_eq!(front.features & RO, 0);
    assert_eq!(front.run_on(0, &Io::read(1, 4096)).status, IO_ERROR, "not aligned to a block");
    assert_eq!(front.run_on(0, &Io::read(0, 512)).status, IO_ERROR, "not a whole block");
    assert_eq!(front.run_on(0, &Io::read(8, 4096)).status, OK);
}

#[test]
fn a_read_only_disk_refuses_changes() {
    let back_end = BackEnd::start(&Options { read_only: true, ..Options::default() });
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
    assert_eq!(front.features & RO, RO);
    for io in
        [Io::write(0, &[1; 512]), Io::ranges(DISCARD, &[(0, 8, 0)]), Io::ranges(WRITE_ZEROES, &[(0, 8, 0)])]
    {
        assert_eq!(front.run_on(0, &io).status, IO_ERROR, "{io:?}");
    }
    assert_eq!(front.read(0, 512), [0; 512]);
    let counters = back_end.volume(|volume| volume.counters());
    assert_eq!((counters.writes, counters.discards, counters.zeroes), (0, 0, 0));
}

#[test]
fn a_resize_is_reported_to_the_front_end() {
    let back_end = BackEnd::start(&Options { size: 1 << 20, ..Options::default() });
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    use vhost::vhost_user::VhostUserFrontend;
    front.frontend.set_backend_request_fd(&theirs).unwrap();
    drop(theirs);
    assert_eq!(front.run_on(0, &Io::read(2048, 512)).status, IO_ERROR);
    back_end.resize(2 << 20);
    let mut message = [0; 12];
    ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    std::io::Read::read_exact(&mut &ours, &mut message).unwrap();
    assert_eq!(message, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], "the configuration has changed");
    assert_eq!(front.capacity(), 2 << 20);
    front.write(4095, &[5; 512]);
    assert_eq!(front.read(4095, 512), [5; 512]);
}
