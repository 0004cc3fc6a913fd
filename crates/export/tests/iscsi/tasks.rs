//! Task management.

use std::io::Write;

use crate::initiator::{Bhs, Data, PLAIN, Session, Wire, block_16, unit_field};
use crate::target::{Target, TargetOptions, on_each_backend};

const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const UNIT_RESET: u8 = 5;
const WARM_RESET: u8 = 6;
const COLD_RESET: u8 = 7;
const COMPLETE: u8 = 0;
const NO_TASK: u8 = 1;
const NO_UNIT: u8 = 2;
const UNSUPPORTED: u8 = 5;

fn second(target: &Target) -> Session {
    Session::new(target.address, Wire { id: [0x80, 0, 0, 2, 0, 0], ..PLAIN })
}

/// Submits a write whose data the target requests, and does not send it.
fn stuck_write(session: &mut Session, unit: u16) -> u32 {
    let tag = session.submit(unit, &block_16(0x8a, 0, 1024), Data::Out(&[1; 512 << 10]));
    assert_eq!(session.receive().word(16), tag);
    tag
}

#[test]
fn a_write_that_waits_for_data_is_aborted() {
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        let tag = stuck_write(&mut session, 0);
        assert_eq!(session.manage(ABORT_TASK, 0, tag), COMPLETE);
        assert_eq!(session.manage(ABORT_TASK, 0, tag), NO_TASK);
        session.forget(tag);
        // Its data is ignored, and its tag is free.
        session.send_data(tag, 0, 64 << 10, &[1; 4096]);
        session.next_tag = tag - 1;
        session.write(0, &[2; 512]).good();
        assert_eq!(session.read(0, 8).good()[512..], [0; 7 * 512]);
        // Memory of aborted writes is free again.
        for _ in 0..200 {
            let tag = stuck_write(&mut session, 0);
            assert_eq!(session.manage(ABORT_TASK, 0, tag), COMPLETE);
            session.forget(tag);
        }
        session.write(0, &[3; 512 << 10]).good();
    });
}

#[test]
fn the_abort_of_a_write_in_execution_waits_for_it() {
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        target.with(|volume| volume.faults().hold_writes());
        let tag = session.submit(0, &block_16(0x8a, 0, 8), Data::Out(&[1; 4096]));
        target.until(|volume| volume.faults().held_writes() == 1);
        let abort = session.submit_management(ABORT_TASK, 0, tag);
        // Other messages are answered meanwhile, the abort is not.
        session.ping(b"ping");
        target.with(|volume| volume.faults().release_writes());
        let answer = session.receive();
        assert_eq!((answer.opcode(), answer.word(16), answer.header[2]), (0x22, abort, COMPLETE));
        session.forget(tag);
        // The aborted write has no response.
        session.read(0, 8).good();
    });
}

#[test]
fn sets_of_tasks_are_aborted_by_unit() {
    on_each_backend(|target| {
        let _added = target.add(1, &TargetOptions::default());
        let mut session = Session::new(target.address, PLAIN);
        let (zero, one) = (stuck_write(&mut session, 0), stuck_write(&mut session, 1));
        assert_eq!(session.manage(ABORT_TASK_SET, 0, 0), COMPLETE);
        assert_eq!(session.manage(ABORT_TASK, 0, zero), NO_TASK);
        assert_eq!(session.manage(ABORT_TASK, 1, one), COMPLETE);
        // A unit has two forms of address.
        let flat = stuck_write(&mut session, 0x4001);
        assert_eq!(session.manage(ABORT_TASK_SET, 1, 0), COMPLETE);
        assert_eq!(session.manage(ABORT_TASK, 1, flat), NO_TASK);
        for function in [ABORT_TASK_SET, CLEAR_TASK_SET, UNIT_RESET] {
            assert_eq!(session.manage(function, 9, 0), NO_UNIT);
        }
        assert_eq!(session.manage(3, 0, 0), UNSUPPORTED);
        assert_eq!(session.manage(99, 0, 0), UNSUPPORTED);
    });
}

#[test]
fn resets_affect_all_sessions() {
    on_each_backend(|target| {
        let mut sessions = [Session::new(target.address, PLAIN), second(target)];
        for session in &mut sessions {
            session.read(0, 1).good();
        }
        let [first, other] = &mut sessions;
        for (function, attention, own) in [
            (CLEAR_TASK_SET, (6, 0x2f, 0), false),
            (UNIT_RESET, (6, 0x29, 3), true),
            (WARM_RESET, (6, 0x29, 3), true),
        ] {
            let tag = stuck_write(other, 0);
            assert_eq!(first.manage(function, 0, 0), COMPLETE);
            assert_eq!(other.manage(ABORT_TASK, 0, tag), NO_TASK);
            other.forget(tag);
            assert_eq!(other.read(0, 1).failed(), attention, "{function}");
            other.read(0, 1).good();
            let done = first.read(0, 1);
            if own {
                assert_eq!(done.failed(), attention, "{function}");
            } else {
                done.good();
            }
        }
        // A cold reset closes the sessions.
        assert_eq!(first.manage(COLD_RESET, 0, 0), COMPLETE);
        for session in &mut sessions {
            session.read_to_end();
        }
        Session::new(target.address, PLAIN).read(0, 1).good();
    });
}

/// A reset also waits for the writes of a session whose connection is lost.
#[test]
fn a_reset_waits_for_writes_of_lost_sessions() {
    on_each_backend(|target| {
        let (mut first, mut other) = (Session::new(target.address, PLAIN), second(target));
        first.read(0, 1).good();
        target.with(|volume| volume.faults().hold_writes());
        other.submit(0, &block_16(0x8a, 0, 1), Data::Out(&[1; 512]));
        target.until(|volume| volume.faults().held_writes() == 1);
        // The connection ends within a message.
        other.stream.write_all(&[1, 0x80]).unwrap();
        drop(other);
        while target.running.status().connections > 1 {
            std::thread::yield_now();
        }
        let reset = first.submit_management(UNIT_RESET, 0, 0);
        first.ping(b"the reset is not complete");
        target.with(|volume| volume.faults().release_writes());
        let answer = first.receive();
        assert_eq!((answer.opcode(), answer.word(16), answer.header[2]), (0x22, reset, COMPLETE));
        assert_eq!(first.read(0, 1).failed(), (6, 0x29, 3));
        assert_eq!(first.read(0, 1).good(), [1; 512]);
    });
}

#[test]
fn immediate_commands_are_executed_ahead() {
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        let tag = session.tag();
        let header = Bhs::new(0x41, 0x81)
            .put(8, &unit_field(0))
            .word(16, tag)
            .word(24, session.command)
            .word(28, session.status);
        session.send(header, &[]);
        let response = session.receive();
        assert_eq!((response.opcode(), response.word(16), response.header[3]), (0x21, tag, 0));
        session.read(0, 1).good();
    });
}
