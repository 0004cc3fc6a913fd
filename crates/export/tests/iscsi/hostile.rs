//! Initiators that violate the protocol, stall, or never read.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use export::iscsi::IscsiLimits;
use proptest::prelude::*;
use reactor::Backend;

use crate::initiator::{Bhs, Data, HOST, NO_TAG, OTHER, PLAIN, Session, Wire, block_16, crc32c};
use crate::target::{TARGET, Target, TargetOptions, on_each_backend};

/// An initiator that behaves well, before and after.
struct Bystander(Session);

impl Bystander {
    fn new(target: &Target) -> Self {
        let mut bystander = Self(Session::new(target.address, Wire { initiator: OTHER, ..PLAIN }));
        bystander.look();
        bystander
    }

    fn look(&mut self) {
        self.0.write(4096, &[0xbb; 4096]).good();
        assert_eq!(self.0.read(4096, 8).good(), [0xbb; 4096]);
    }

    /// As [`Self::look`], after another initiator may have reset the unit or cleared its commands:
    /// each session gets one unit attention for that.
    fn look_after_management(&mut self) {
        let first = self.0.read(4096, 8);
        if first.status != 0 {
            let (key, code, _) = first.failed();
            assert!(key == 6 && (code == 0x29 || code == 0x2f), "{key} {code}");
        }
        self.look();
    }
}

/// Runs an initiator on each backend, and checks that the target closes its connection, and that
/// the volume is unchanged.
fn closed(act: impl Fn(&Target) -> Session) {
    on_each_backend(|target| {
        let mut bystander = Bystander::new(target);
        let mut session = act(target);
        session.read_to_end();
        bystander.look();
        assert_eq!(bystander.0.read(0, 64).good(), [0; 32 << 10]);
    });
}

#[test]
fn other_protocols_are_refused() {
    closed(|target| {
        let mut session = Session::open(target.address, PLAIN);
        session.stream.write_all(&[b"GET / HTTP/1.1\r\n".as_slice(), &[b'x'; 100]].concat()).unwrap();
        session
    });
    closed(|target| {
        let session = Session::open(target.address, PLAIN);
        session.stream.shutdown(std::net::Shutdown::Write).unwrap();
        session
    });
}

#[test]
fn messages_before_the_end_of_the_login_are_refused() {
    for opcode in [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x10, 0x3f] {
        closed(|target| {
            let mut session = Session::open(target.address, PLAIN);
            session.send(Bhs::new(opcode, 0x80), &[]);
            session
        });
        closed(|target| {
            let mut session = Session::open(target.address, PLAIN);
            session.login_step(0x04, &[("InitiatorName", HOST), ("TargetName", TARGET)]).unwrap();
            session.send(Bhs::new(opcode, 0x80), &[]);
            session
        });
    }
    // Too much text, and a login after the login.
    closed(|target| {
        let mut session = Session::open(target.address, PLAIN);
        session.send(session.login_header(0x44), &[b'x'; 8192]);
        session.receive();
        session.send(session.login_header(0x44), &[b'x'; 8200]);
        session
    });
    closed(|target| {
        let mut session = Session::new(target.address, PLAIN);
        session.send(session.login_header(0x87), b"InitiatorName=x\0");
        session
    });
}

#[test]
fn data_that_is_not_permitted_ends_the_connection() {
    let large = vec![1; (256 << 10) + 4];
    closed(|target| {
        let mut session = Session::new(target.address, PLAIN);
        let pdu = session.encode(Bhs::new(0x00, 0x80).word(20, NO_TAG), &large);
        session.stream.write_all(&pdu[..1000]).unwrap();
        session
    });
    // Data with a command although that was not negotiated, beyond the first burst, or announced
    // although it must be requested.
    for (wire, length, flags) in [
        (Wire { immediate_data: false, ..PLAIN }, 512, 0xa1),
        (Wire { first_burst: 512, ..PLAIN }, 1024, 0xa1),
        (PLAIN, 512, 0x21),
    ] {
        closed(|target| {
            let mut session = Session::new(target.address, wire);
            let (_, mut header) = session.command_header(0, &block_16(0x8a, 0, 8), Data::Out(&[1; 4096]));
            header.0[1] = flags;
            session.send(header, &vec![1; length]);
            session
        });
    }
}

#[test]
fn wrong_numbers_and_tags_are_refused() {
    // A command is missing.
    closed(|target| {
        let mut session = Session::new(target.address, PLAIN);
        session.command = session.command.wrapping_add(1);
        session.submit(0, &block_16(0x8a, 0, 1), Data::Out(&[1; 512]));
        session
    });
    // A tag that is in use.
    closed(|target| {
        let mut session = Session::new(target.address, PLAIN);
        let tag = session.submit(0, &block_16(0x8a, 0, 1024), Data::Out(&[1; 512 << 10]));
        session.next_tag = tag - 1;
        session.submit(0, &block_16(0x88, 0, 1), Data::In(512));
        session
    });
    // Commands outside of the window are ignored: before, and far after.
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        let right = session.command;
        for wrong in [right.wrapping_sub(1), right.wrapping_add(128), right ^ 1 << 31] {
            session.command = wrong;
            let (_, header) = session.command_header(0, &block_16(0x8a, 0, 1), Data::Out(&[1; 512]));
            session.send(header, &[1; 512]);
        }
        session.command = right;
        assert_eq!(session.read(0, 1).good(), [0; 512]);
        // A wrong acknowledgement of statuses, and a status that was never sent.
        session.status = session.status.wrapping_sub(0);
        let (tag, header) = session.command_header(0, &[0; 6], Data::None);
        session.send(header.word(28, 0x5555_5555), &[]);
        let response = session.receive();
        assert_eq!((response.word(16), response.header[3]), (tag, 0));
    });
}

#[test]
fn unknown_messages_are_rejected() {
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        for (opcode, reason) in [(0x10, 5), (0x07, 5), (0x1c, 5), (0x3f, 5), (0x20, 5)] {
            let header = Bhs::new(opcode, 0x80).word(16, 99).word(20, NO_TAG);
            session.send(header, b"some data");
            let reject = session.receive();
            assert_eq!((reject.opcode(), reject.header[2], reject.word(16)), (0x3f, reason, NO_TAG));
            let sent = header.put(5, &[0, 0, 9]);
            assert_eq!(reject.data, sent.0);
        }
        // Text that is no text, or that continues.
        for (flags, data) in [(0x80, &b"no pair\0"[..]), (0x40, b"SendTargets=All\0")] {
            let number = session.number();
            let header = Bhs::new(0x04, flags).word(16, 5).word(20, NO_TAG).word(24, number);
            session.send(header, data);
            let reject = session.receive();
            assert_eq!((reject.opcode(), reject.header[2]), (0x3f, 9));
        }
        // A logout of another connection, or for recovery, changes nothing.
        for (flags, connection, response) in [(0x81, 9, 1), (0x82, 0, 2)] {
            let header =
                Bhs::new(0x46, flags).word(16, 5).put(20, &[0, connection]).word(24, session.command);
            session.send(header, &[]);
            let answer = session.receive();
            assert_eq!((answer.opcode(), answer.header[2]), (0x26, response));
        }
        // A command that reads and writes, and one with an additional header.
        let (_, mut header) = session.command_header(0, &block_16(0x88, 0, 1), Data::In(512));
        header.0[1] |= 0x20;
        session.send(header, &[]);
        let response = session.receive();
        assert_eq!((response.opcode(), response.header[3]), (0x21, 2));
        let (_, mut header) = session.command_header(0, &block_16(0x8f, 0, 1), Data::None);
        header.0[4] = 2;
        let pdu = [&header.0[..], &[0, 5, 1, 0, 0, 0, 0, 0]].concat();
        session.stream.write_all(&pdu).unwrap();
        assert_eq!(session.receive().header[3], 0);
        session.read(0, 1).good();
    });
}

#[test]
fn wrong_digests_are_found() {
    let wire = Wire { header_digest: true, data_digest: true, ..PLAIN };
    closed(|target| {
        let mut session = Session::new(target.address, wire);
        let (_, header) = session.command_header(0, &block_16(0x8a, 0, 1), Data::Out(&[1; 512]));
        let mut pdu = session.encode(header, &[1; 512]);
        pdu[20] ^= 1;
        session.stream.write_all(&pdu).unwrap();
        session
    });
    closed(|target| {
        let mut session = Session::new(target.address, wire);
        let (_, header) = session.command_header(0, &block_16(0x8a, 0, 1), Data::Out(&[1; 512]));
        let mut pdu = session.encode(header, &[1; 512]);
        let digest = crc32c(&pdu[..48]);
        assert_eq!(pdu[48..52], digest.to_le_bytes());
        pdu[100] ^= 1;
        session.stream.write_all(&pdu).unwrap();
        session
    });
    // Data that is requested.
    closed(|target| {
        let mut session = Session::new(target.address, Wire { immediate_data: false, ..wire });
        let tag = session.submit(0, &block_16(0x8a, 0, 1), Data::Out(&[1; 512]));
        let request = session.receive();
        let header = Bhs::new(0x05, 0x80).word(16, tag).word(20, request.word(20));
        let mut pdu = session.encode(header, &[1; 512]);
        *pdu.last_mut().unwrap() ^= 1;
        session.stream.write_all(&pdu).unwrap();
        session
    });
}

/// Limits for tests of initiators that do not read.
fn short_limits() -> TargetOptions {
    let limits =
        IscsiLimits { stalled: Duration::from_millis(300), payload_bytes: 4 << 20, ..IscsiLimits::default() };
    TargetOptions { limits, ..TargetOptions::default() }
}

/// Runs the body of a test in a process of its own, where no other test uses memory. `name` is the
/// path of the test in this program.
fn in_own_process(name: &str, body: impl FnOnce()) {
    const MARK: &str = "GABION_TEST_IN_OWN_PROCESS";
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", name]).env(MARK, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// The memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Sends messages until the target closes the connection, without reading. Returns the number of
/// bytes sent.
fn flood(session: &mut Session, mut message: impl FnMut(&mut Session) -> Vec<u8>) -> usize {
    let mut sent = 0;
    loop {
        let batch: Vec<u8> = (0..64).flat_map(|_| message(session)).collect();
        match session.stream.write(&batch) {
            Ok(written) => sent += written,
            Err(_) => return sent,
        }
    }
}

#[test]
fn floods_without_a_reader_use_bounded_memory() {
    in_own_process("hostile::floods_without_a_reader_use_bounded_memory", || {
        for backend in [Backend::Uring, Backend::Threads] {
            let target = Target::start(backend, &short_limits());
            let mut bystander = Bystander::new(&target);
            let floods: [fn(&mut Session) -> Vec<u8>; 6] = [
                // Pings with data, rejected messages, text, logouts of another connection, task
                // management, and reads.
                |session| session.encode(Bhs::new(0x40, 0x80).word(16, 1).word(20, NO_TAG), &[0; 4096]),
                |session| session.encode(Bhs::new(0x50, 0x80).word(16, 1), &[]),
                |session| {
                    let header = Bhs::new(0x44, 0x80).word(16, 1).word(20, NO_TAG);
                    session.encode(header, b"SendTargets=\0")
                },
                |session| session.encode(Bhs::new(0x46, 0x81).word(16, 1).put(20, &[0, 9]), &[]),
                |session| session.encode(Bhs::new(0x42, 0x81).word(16, 1).word(20, 9), &[]),
                |session| {
                    let (_, header) = session.command_header(0, &block_16(0x88, 0, 2048), Data::In(1 << 20));
                    session.encode(header, &[])
                },
            ];
            for (number, message) in floods.into_iter().enumerate() {
                let mut session = Session::new(target.address, PLAIN);
                let before = resident();
                flood(&mut session, message);
                let grown = resident().saturating_sub(before);
                assert!(grown < 64 << 20, "flood {number}: {grown} bytes");
                bystander.look();
            }
        }
    });
}

/// An initiator may send data for tags that the target never assigned, without end.
#[test]
fn a_flood_of_data_without_a_command_is_discarded() {
    in_own_process("hostile::a_flood_of_data_without_a_command_is_discarded", || {
        on_each_backend(|target| {
            let mut bystander = Bystander::new(target);
            let mut session = Session::new(target.address, PLAIN);
            let before = resident();
            for number in 0..2000 {
                session.send_data(number, if number % 2 == 0 { NO_TAG } else { number }, 0, &[1; 32 << 10]);
            }
            session.ping(b"still served");
            assert!(resident().saturating_sub(before) < 64 << 20);
            assert_eq!(session.read(0, 64).good(), [0; 32 << 10]);
            bystander.look();
        });
    });
}

#[test]
fn initiators_that_stall_are_disconnected() {
    for backend in [Backend::Uring, Backend::Threads] {
        let target = Target::start(backend, &short_limits());
        let mut bystander = Bystander::new(&target);
        // Within a header, within data, before the data that was requested, and before the data
        // that was announced.
        let mut session = Session::new(target.address, PLAIN);
        session.stream.write_all(&[1, 0x80, 0]).unwrap();
        assert_eq!(session.read_to_end(), 0);
        let mut session = Session::new(target.address, PLAIN);
        let (_, header) = session.command_header(0, &block_16(0x8a, 0, 8), Data::Out(&[1; 4096]));
        let pdu = session.encode(header, &[1; 4096]);
        session.stream.write_all(&pdu[..1000]).unwrap();
        assert_eq!(session.read_to_end(), 0);
        let mut session = Session::new(target.address, PLAIN);
        session.submit(0, &block_16(0x8a, 0, 1024), Data::Out(&[1; 512 << 10]));
        assert_eq!(session.receive().opcode(), 0x31);
        assert_eq!(session.read_to_end(), 0);
        let mut session = Session::new(target.address, Wire { initial_r2t: false, ..PLAIN });
        let (_, mut header) = session.command_header(0, &block_16(0x8a, 0, 64), Data::Out(&[1; 32 << 10]));
        header.0[1] &= 0x7f;
        session.send(header, &[1; 512]);
        assert_eq!(session.read_to_end(), 0);
        bystander.look();
        assert_eq!(bystander.0.read(0, 64).good(), [0; 32 << 10]);
    }
}

#[test]
fn a_thousand_connections_are_served() {
    let target = Target::start(Backend::Auto, &TargetOptions::default());
    let mut bystander = Bystander::new(&target);
    let before = resident();
    let half_open: Vec<Session> = (0..1000)
        .map(|number| {
            let mut session = Session::open(target.address, PLAIN);
            match number % 3 {
                0 => {}
                1 => session.stream.write_all(&[0x43, 0x87, 0, 0]).unwrap(),
                _ => {
                    let names = [("InitiatorName", HOST), ("TargetName", TARGET)];
                    session.login_step(0x04, &names).unwrap();
                }
            }
            session
        })
        .collect();
    bystander.look();
    drop(half_open);
    // Sessions that are complete, each of its own port.
    let mut sessions: Vec<Session> = (0..1000u16)
        .map(|number| {
            let [high, low] = number.to_be_bytes();
            Session::new(target.address, Wire { id: [0x80, 0, 0, 3, high, low], ..PLAIN })
        })
        .collect();
    for session in &mut sessions {
        session.read(0, 8).good();
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes for 1,000 sessions");
    assert_eq!(target.running.status().connections, 1001);
    bystander.look();
    // More sessions than a target has.
    let refused = (1000..1100u16).find_map(|number| {
        let [high, low] = number.to_be_bytes();
        let wire = Wire { id: [0x80, 0, 0, 3, high, low], ..PLAIN };
        match Session::log_in(target.address, wire, Some(TARGET), None) {
            Ok(session) => {
                sessions.push(session);
                None
            }
            Err(status) => Some(status),
        }
    });
    assert_eq!(refused, Some(0x0302));
    bystander.look();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Random bytes, or a message of random fields, after each step of the protocol: the target
    /// survives, and serves others.
    #[test]
    fn garbage_ends_its_connection_at_most(
        bytes in prop::collection::vec(any::<u8>(), 1..400), step in 0..3u8, opcode in 0..8u8, raw: bool,
        fields in prop::collection::vec((0..48usize, any::<u8>()), 0..8),
    ) {
        thread_local! {
            static TARGET_OF_ALL: Target = Target::start(Backend::Auto, &TargetOptions::default());
        }
        TARGET_OF_ALL.with(|target| {
            let mut bystander = Bystander::new(target);
            let wire = Wire { header_digest: true, ..PLAIN };
            let mut session = match step {
                0 => Session::open(target.address, PLAIN),
                1 => {
                    let mut session = Session::open(target.address, PLAIN);
                    session.login_step(0x04, &[("InitiatorName", HOST), ("TargetName", TARGET)]).unwrap();
                    session
                }
                _ => Session::new(target.address, wire),
            };
            if raw {
                let _ = session.stream.write_all(&bytes);
            } else {
                let mut header = Bhs::new(opcode | 0x40, 0xa1).word(16, 9).word(24, session.command);
                header = header.put(32, &block_16([0x8f, 0x88, 0x5e][usize::from(bytes[0] % 3)], 0, 1));
                for (at, value) in &fields {
                    header.0[*at] = *value;
                }
                // A cold reset of the target ends all sessions, as another test shows.
                if header.0[0] & 0x3f == 2 && header.0[1] & 0x7f == 7 {
                    header.0[1] -= 1;
                }
                let pdu = session.encode(header, &bytes);
                let _ = session.stream.write_all(&pdu);
            }
            let _ = session.stream.shutdown(std::net::Shutdown::Write);
            session.read_to_end();
            if step == 2 && !raw {
                bystander.look_after_management();
            } else {
                bystander.look();
            }
        });
    }
}
