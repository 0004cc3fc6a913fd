//! Data of writes: with the command, without a request, and on request; and commands in flight.

use export::iscsi::IscsiLimits;
use reactor::Backend;
use test_support::pattern;

use crate::initiator::{Data, NO_TAG, PLAIN, Session, Wire, block_16, wires};
use crate::target::{Target, TargetOptions, on_each_backend};

#[test]
fn many_writes_in_flight_complete() {
    on_each_backend(|target| {
        for wire in wires() {
            let mut session = Session::new(target.address, wire);
            let data = pattern(1, 64 << 10);
            let tags: Vec<u32> = (0..100)
                .map(|number| session.submit(0, &block_16(0x8a, number * 128, 128), Data::Out(&data)))
                .collect();
            let mut left = tags;
            while !left.is_empty() {
                let done = session.complete();
                left.retain(|tag| *tag != done.tag);
                done.good();
            }
            assert_eq!(session.read(99 * 128, 128).good(), data);
        }
    });
}

/// Writes that together exceed the memory for requested data wait for each other.
#[test]
fn writes_wait_for_memory() {
    let limits = IscsiLimits { window_bytes: 2 << 20, payload_bytes: 2 << 20, ..IscsiLimits::default() };
    let options = TargetOptions { limits, ..TargetOptions::default() };
    for backend in [Backend::Uring, Backend::Threads] {
        let target = Target::start(backend, &options);
        let mut session = Session::new(target.address, PLAIN);
        let data = pattern(2, 1 << 20);
        for number in 0..32 {
            session.submit(0, &block_16(0x8a, number * 2048, 2048), Data::Out(&data));
        }
        for _ in 0..32 {
            session.complete().good();
        }
        assert_eq!(session.read(31 * 2048, 2048).good(), data);
    }
}

#[test]
fn the_window_of_commands_opens_as_commands_complete() {
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        target.with(|volume| volume.faults().hold_writes());
        session.ping(&[]);
        let size = session.window.1.wrapping_sub(session.window.0).wrapping_add(1);
        assert_eq!(size, 128);
        for number in 0..size {
            session.submit(0, &block_16(0x8a, number.into(), 1), Data::Out(&[number as u8; 512]));
        }
        // A command beyond the window is ignored; an immediate one is executed.
        let (beyond, header) = session.command_header(0, &[0; 6], Data::None);
        session.send(header, &[]);
        session.command = session.command.wrapping_sub(1);
        session.ping(&[]);
        assert_eq!(session.window.1, session.window.0.wrapping_sub(1), "the window is closed");
        target.with(|volume| volume.faults().release_writes());
        for _ in 0..size {
            let done = session.complete();
            assert_ne!(done.tag, beyond);
            done.good();
        }
        session.ping(&[]);
        assert_eq!(session.window.1.wrapping_sub(session.window.0).wrapping_add(1), size);
        assert_eq!(session.read(127, 1).good(), [127; 512]);
    });
}

#[test]
fn data_out_of_order_fails_its_command() {
    on_each_backend(|target| {
        let wire = Wire { immediate_data: false, ..PLAIN };
        let mut session = Session::new(target.address, wire);
        let data = pattern(4, 32 << 10);
        let send = |session: &mut Session, number: u32, offset: usize, length: usize, last: bool| {
            let tag = session.submit(0, &block_16(0x8a, 0, 64), Data::Out(&data));
            let request = session.receive();
            assert_eq!((request.opcode(), request.word(16), request.word(44)), (0x31, tag, 32 << 10));
            let header = crate::initiator::Bhs::new(0x05, if last { 0x80 } else { 0 })
                .word(16, tag)
                .word(20, request.word(20))
                .word(28, session.status)
                .word(36, number)
                .word(40, offset as u32);
            session.send(header, &vec![9; length]);
            session.complete()
        };
        for (number, offset, length, last) in [
            (1, 0, 512, false),
            (0, 512, 512, false),
            (0, 0, 512, true),
            (0, 0, 32 << 10, false),
            (0, 0, (32 << 10) + 4, true),
            (0, 1 << 20, 512, true),
            (0, u32::MAX as usize, 512, true),
        ] {
            let done = send(&mut session, number, offset, length, last);
            assert_eq!(done.failed(), (0xb, 0x4b, 0), "{number} {offset} {length} {last}");
            assert_eq!(session.read(0, 64).good(), vec![0; 32 << 10]);
        }
        // The data of a command that has ended is ignored.
        session.send_data(77, 0, 0, &[1; 512]);
        session.send_data(77, NO_TAG, 0, &[1; 512]);
        session.send_data(77, 0x1234_5678, 0, &[1; 512]);
        session.write(0, &data).good();
        assert_eq!(session.read(0, 64).good(), data);
    });
}

#[test]
fn first_bursts_may_be_shorter_than_permitted() {
    on_each_backend(|target| {
        let wire = Wire { initial_r2t: false, ..PLAIN };
        let mut session = Session::new(target.address, wire);
        let data = pattern(6, 128 << 10);
        // The last message of the burst ends it early: the rest is requested.
        let (tag, mut header) = session.command_header(0, &block_16(0x8a, 0, 256), Data::Out(&data));
        header.0[1] &= 0x7f;
        session.send(header, &data[..1000]);
        session.send_data(tag, NO_TAG, 1000, &data[1000..5000]);
        let request = session.receive();
        assert_eq!((request.opcode(), request.word(16)), (0x31, tag));
        assert_eq!((request.word(40), request.word(44)), (5000, (128 << 10) - 5000));
        session.send_data(tag, request.word(20), 5000, &data[5000..]);
        let response = session.receive();
        assert_eq!((response.opcode(), response.word(16), response.header[3]), (0x21, tag, 0));
        assert_eq!(session.read(0, 256).good(), data);
    });
}
