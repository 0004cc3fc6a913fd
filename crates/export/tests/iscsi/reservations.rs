//! Reservations: of the RESERVE command, and persistent ones, also over a restart.

use std::sync::Arc;

use reactor::Backend;

use crate::initiator::{CONFLICT, Data, Done, OTHER, PLAIN, Session, Wire, block_16, u32_of, u64_of};
use crate::store::Store;
use crate::target::{Target, TargetOptions, on_each_backend};

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_ANY: u8 = 6;
const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE: u8 = 3;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;
const EXCLUSIVE_ALL: u8 = 8;

/// A PERSISTENT RESERVE OUT command.
#[derive(Clone, Copy, Default)]
struct Change {
    action: u8,
    kind: u8,
    key: u64,
    new: u64,
    persists: bool,
}

fn change(session: &mut Session, change: Change) -> Done {
    let block = [0x5f, change.action, change.kind, 0, 0, 0, 0, 0, 24, 0];
    let mut list = [change.key.to_be_bytes(), change.new.to_be_bytes()].concat();
    list.extend([0, 0, 0, 0, u8::from(change.persists), 0, 0, 0]);
    session.run(0, &block, Data::Out(&list))
}

fn register(session: &mut Session, key: u64, persists: bool) {
    change(session, Change { action: REGISTER_ANY, new: key, persists, ..Change::default() }).good();
}

fn reserve(session: &mut Session, key: u64, kind: u8) -> Done {
    change(session, Change { action: RESERVE, key, kind, ..Change::default() })
}

fn report(session: &mut Session, action: u8) -> Vec<u8> {
    session.run(0, &[0x5e, action, 0, 0, 0, 0, 0, 1, 0, 0], Data::In(256)).good()
}

fn keys(session: &mut Session) -> Vec<u64> {
    let data = report(session, 0);
    assert_eq!(u32_of(&data, 4) as usize, data.len() - 8);
    data[8..].chunks(8).map(|key| u64_of(key, 0)).collect()
}

/// The key and the type of the reservation.
fn held(session: &mut Session) -> Option<(u64, u8)> {
    let data = report(session, 1);
    (data.len() > 8).then(|| (u64_of(&data, 8), data[21]))
}

fn pair(target: &Target) -> (Session, Session) {
    let other = Wire { initiator: OTHER, ..PLAIN };
    (Session::new(target.address, PLAIN), Session::new(target.address, other))
}

/// Tries a read and a write. Returns which of them reservations admit.
fn access(session: &mut Session) -> (bool, bool) {
    let may = |done: Done| match done.status {
        0 => true,
        CONFLICT => false,
        _ => panic!("{done:?}"),
    };
    (may(session.read(0, 1)), may(session.write(0, &[1; 512])))
}

#[test]
fn types_restrict_other_initiators() {
    on_each_backend(|target| {
        let (mut first, mut other) = pair(target);
        for (kind, stranger, registrant) in [
            (WRITE_EXCLUSIVE, (true, false), (true, false)),
            (EXCLUSIVE, (false, false), (false, false)),
            (WRITE_EXCLUSIVE_REGISTRANTS, (true, false), (true, true)),
            (6, (false, false), (true, true)),
            (7, (true, false), (true, true)),
            (EXCLUSIVE_ALL, (false, false), (true, true)),
        ] {
            register(&mut first, 1, false);
            assert_eq!(reserve(&mut first, 2, kind).status, CONFLICT, "a wrong key");
            reserve(&mut first, 1, kind).good();
            reserve(&mut first, 1, kind).good();
            assert_eq!(access(&mut first), (true, true));
            assert_eq!(access(&mut other), stranger, "type {kind}");
            // Commands that transfer no data are restricted as well, and some never are.
            let flush = other.run(0, &block_16(0x91, 0, 0), Data::None).status;
            assert_eq!(flush == CONFLICT, !stranger.1);
            other.run(0, &[0; 6], Data::None).good();
            register(&mut other, 2, false);
            assert_eq!(access(&mut other), registrant, "type {kind}");
            assert_eq!(keys(&mut other), [1, 2]);
            assert_eq!(held(&mut other), Some((if kind > 6 { 0 } else { 1 }, kind)));
            let action = Change { action: CLEAR, key: 1, ..Change::default() };
            change(&mut first, action).good();
            assert_eq!(other.read(0, 1).failed(), (6, 0x2a, 3));
            assert_eq!((held(&mut other), keys(&mut other)), (None, vec![]));
            assert_eq!(access(&mut other), (true, true));
        }
    });
}

#[test]
fn releases_and_preemptions_are_reported() {
    on_each_backend(|target| {
        let (mut first, mut other) = pair(target);
        register(&mut first, 1, false);
        register(&mut other, 2, false);
        reserve(&mut first, 1, WRITE_EXCLUSIVE_REGISTRANTS).good();
        let release = Change { action: RELEASE, key: 1, kind: EXCLUSIVE, ..Change::default() };
        assert_eq!(change(&mut first, release).failed(), (5, 0x26, 4));
        change(&mut first, Change { kind: WRITE_EXCLUSIVE_REGISTRANTS, ..release }).good();
        assert_eq!(other.read(0, 1).failed(), (6, 0x2a, 4));
        // The other initiator takes over.
        reserve(&mut first, 1, EXCLUSIVE).good();
        let preempt = Change { action: PREEMPT, key: 2, new: 1, kind: EXCLUSIVE, ..Change::default() };
        assert_eq!(change(&mut other, Change { new: 9, ..preempt }).status, CONFLICT);
        change(&mut other, preempt).good();
        assert_eq!(first.run(0, &[0; 6], Data::None).failed(), (6, 0x2a, 5));
        assert_eq!((held(&mut first), keys(&mut first)), (Some((2, EXCLUSIVE)), vec![2]));
        assert_eq!(access(&mut first), (false, false));
        // The end of a registration is that of its reservation.
        let end = Change { action: REGISTER, key: 2, new: 0, ..Change::default() };
        change(&mut other, end).good();
        assert_eq!(access(&mut first), (true, true));
        // Generation, full status, capabilities.
        assert!(u32_of(&report(&mut first, 0), 0) >= 4);
        register(&mut first, 7, false);
        reserve(&mut first, 7, EXCLUSIVE).good();
        let status = report(&mut other, 3);
        assert_eq!((u64_of(&status, 8), status[20] & 1, status[21]), (7, 1, EXCLUSIVE));
        assert!(String::from_utf8_lossy(&status).contains("iqn.1993-08.org.debian:01:1111,i,0x800000010000"));
        assert_eq!(report(&mut other, 2)[..2], [0, 8]);
    });
}

#[test]
fn a_preemption_aborts_the_tasks_of_the_preempted() {
    on_each_backend(|target| {
        for all in [false, true] {
            let (mut first, mut other) = pair(target);
            register(&mut first, 1, false);
            register(&mut other, 2, false);
            let kind = if all { EXCLUSIVE_ALL } else { WRITE_EXCLUSIVE_REGISTRANTS };
            reserve(&mut other, 2, kind).good();
            let tag = other.submit(0, &block_16(0x8a, 0, 1024), Data::Out(&[1; 512 << 10]));
            assert_eq!(other.receive().word(16), tag);
            // Key 0 means all other registrants, if all of them hold the reservation.
            let new = if all { 0 } else { 2 };
            let preempt = Change { action: PREEMPT_AND_ABORT, key: 1, new, kind, ..Change::default() };
            change(&mut first, preempt).good();
            assert_eq!(other.manage(1, 0, tag), 1, "the task is gone");
            other.forget(tag);
            assert_eq!(held(&mut first), Some((if all { 0 } else { 1 }, kind)));
            change(&mut first, Change { action: CLEAR, key: 1, ..Change::default() }).good();
        }
    });
}

#[test]
fn invalid_changes_are_refused() {
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        register(&mut session, 1, false);
        let bad = Change { action: REGISTER, key: 3, new: 4, ..Change::default() };
        assert_eq!(change(&mut session, bad).status, CONFLICT);
        for (action, kind) in [(RESERVE, 0), (RESERVE, 2), (RESERVE, 0x11), (RELEASE, 9), (7, 1), (31, 1)] {
            let done = change(&mut session, Change { action, kind, key: 1, ..Change::default() });
            assert_eq!(done.failed(), (5, 0x24, 0), "{action} {kind}");
        }
        let short = session.run(0, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 16, 0], Data::Out(&[0; 16]));
        assert_eq!(short.failed(), (5, 0x1a, 0));
        let absent = session.run(0, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], Data::None);
        assert_eq!(absent.failed(), (5, 0x24, 0));
        assert_eq!(session.run(0, &[0x5e, 9, 0, 0, 0, 0, 0, 1, 0, 0], Data::In(256)).failed(), (5, 0x24, 0));
        assert_eq!(keys(&mut session), [1]);
    });
}

#[test]
fn persistent_reservations_survive_a_restart() {
    for backend in [Backend::Uring, Backend::Threads] {
        let store = Arc::new(Store::default());
        let options = TargetOptions { store: Some(store.clone()), ..TargetOptions::default() };
        let mut target = Target::start(backend, &options);
        let (mut first, _other) = pair(&target);
        register(&mut first, 0xabc, true);
        reserve(&mut first, 0xabc, EXCLUSIVE).good();
        target.restart(&options);
        let (mut first, mut other) = pair(&target);
        assert_eq!((access(&mut first), access(&mut other)), ((true, true), (false, false)));
        assert_eq!((held(&mut other), keys(&mut other)), (Some((0xabc, EXCLUSIVE)), vec![0xabc]));
        assert_eq!(report(&mut other, 2)[3] & 1, 1);
        // A change that cannot be stored does not take place.
        store.fail(true);
        let clear = Change { action: CLEAR, key: 0xabc, ..Change::default() };
        assert_eq!(change(&mut first, clear).failed(), (4, 0x44, 0));
        assert_eq!(access(&mut other), (false, false));
        store.fail(false);
        // Without persistence, the reservation ends with the process.
        register(&mut first, 0xabc, false);
        target.restart(&options);
        let (_first, mut other) = pair(&target);
        assert_eq!((access(&mut other), keys(&mut other)), ((true, true), vec![]));
    }
}

#[test]
fn a_unit_is_reserved_and_released() {
    on_each_backend(|target| {
        let (mut first, mut other) = pair(target);
        let (reserve, release) = ([0x16, 0, 0, 0, 0, 0], [0x17, 0, 0, 0, 0, 0]);
        first.run(0, &reserve, Data::None).good();
        first.run(0, &reserve, Data::None).good();
        assert_eq!(other.run(0, &reserve, Data::None).status, CONFLICT);
        assert_eq!(other.run(0, &[0; 6], Data::None).status, CONFLICT);
        assert_eq!((access(&mut first), access(&mut other)), ((true, true), (false, false)));
        // Only the holder releases it; a reset does so too, and the end of the session.
        other.run(0, &release, Data::None).good();
        assert_eq!(access(&mut other), (false, false));
        first.run(0, &release, Data::None).good();
        assert_eq!(access(&mut other), (true, true));
        first.run(0, &reserve, Data::None).good();
        assert_eq!(other.manage(5, 0, 0), 0);
        assert_eq!(other.read(0, 1).failed(), (6, 0x29, 3));
        assert_eq!(access(&mut other), (true, true));
        assert_eq!(first.read(0, 1).failed(), (6, 0x29, 3));
        first.run(0, &reserve, Data::None).good();
        first.log_out();
        assert_eq!(access(&mut other), (true, true));
        // Persistent reservations and this command exclude each other.
        register(&mut other, 1, false);
        assert_eq!(Session::new(target.address, PLAIN).run(0, &reserve, Data::None).status, CONFLICT);
    });
}
