//! Sessions: discovery, several units, changes of units, reinstatement and the end.

use std::time::Duration;

use export::iscsi::IscsiLimits;
use export::{ExportConfig, ExportErrorKind, ExportName, Frontend, NetworkConfig, StopMode};
use reactor::Backend;

use crate::initiator::{Data, HOST, NO_TAG, OTHER, PLAIN, Session, Wire, block_16, u64_of, wires};
use crate::support::block_on;
use crate::target::{SIZE, TARGET, Target, TargetOptions, config, on_each_backend};

const UNITS_CHANGED: (u8, u8, u8) = (6, 0x3f, 0x0e);

#[test]
fn discovery_lists_the_targets_of_an_initiator() {
    let options = TargetOptions { hosts: vec![HOST], ..TargetOptions::default() };
    for backend in [Backend::Uring, Backend::Threads] {
        let target = Target::start(backend, &options);
        let expected = vec![
            ("TargetName".to_owned(), TARGET.to_owned()),
            ("TargetAddress".to_owned(), format!("{},1", target.address)),
        ];
        let mut session = Session::log_in(target.address, PLAIN, None, None).unwrap();
        assert_eq!(session.text(&[("SendTargets", "All")]), expected);
        assert_eq!(session.text(&[("SendTargets", TARGET)]), expected);
        assert_eq!(session.text(&[("SendTargets", "iqn.2014-08.org.example:other")]), []);
        assert_eq!(session.text(&[("X-key", "1")]), [("X-key".to_owned(), "NotUnderstood".to_owned())]);
        session.log_out();
        let mut normal = Session::new(target.address, PLAIN);
        assert_eq!(normal.text(&[("SendTargets", "")]), expected);
        assert_eq!(normal.text(&[("SendTargets", "All")]), [("SendTargets".into(), "Reject".into())]);
        let other = Wire { initiator: OTHER, ..PLAIN };
        let mut other = Session::log_in(target.address, other, None, None).unwrap();
        assert_eq!(other.text(&[("SendTargets", "All")]), []);
        // A discovery session executes no command.
        other.submit(0, &[0; 6], Data::None);
        assert_eq!(other.read_to_end(), 0);
    }
}

#[test]
fn a_long_list_of_targets_comes_in_parts() {
    let target = Target::start(Backend::Auto, &TargetOptions::default());
    let running: Vec<_> = (0..100)
        .map(|number| {
            let mut config = config(target.address, 0, &TargetOptions::default());
            config.network.target = Some(format!("iqn.2014-08.org.example:disk-{number:03}"));
            let name = ExportName::new(format!("fast/disk{number}"));
            block_on(target.frontend.start(&name, &config, target.source.clone())).unwrap()
        })
        .collect();
    for segment in [512, 8192, 256 << 10] {
        let wire = Wire { segment, ..PLAIN };
        let mut session = Session::log_in(target.address, wire, None, None).unwrap();
        let list = session.text(&[("SendTargets", "All")]);
        assert_eq!(list.len(), 2 * 101, "{segment}");
        assert_eq!(list[200].1, "iqn.2014-08.org.example:disk-099");
    }
    drop(running);
}

#[test]
fn units_have_data_of_their_own() {
    on_each_backend(|target| {
        let (_first, _last) =
            (target.add(1, &TargetOptions::default()), target.add(255, &TargetOptions::default()));
        let mut session = Session::new(target.address, PLAIN);
        let luns = [0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0];
        let list = session.run(0, &luns, Data::In(64)).good();
        let numbers: Vec<u64> = list[8..].chunks(8).map(|unit| u64_of(unit, 0) >> 48).collect();
        assert_eq!(numbers, [0, 1, 255]);
        for unit in [0, 1, 255] {
            session.run(unit, &block_16(0x8a, 0, 1), Data::Out(&[unit as u8 ^ 0x55; 512])).good();
        }
        for unit in [0, 1, 255] {
            let data = session.run(unit, &block_16(0x88, 0, 1), Data::In(512)).good();
            assert_eq!(data, [unit as u8 ^ 0x55; 512]);
        }
        let names: Vec<Vec<u8>> = [0, 1, 255]
            .map(|unit| session.run(unit, &[0x12, 1, 0x80, 0, 255, 0], Data::In(255)).good())
            .into();
        assert!(names[0] != names[1] && names[1] != names[2], "each unit has its own serial number");
    });
}

#[test]
fn changes_of_units_are_reported() {
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        session.read(0, 1).good();
        let added = target.add(3, &TargetOptions::default());
        assert_eq!(session.read(0, 1).failed(), UNITS_CHANGED);
        session.read(0, 1).good();
        session.run(3, &block_16(0x8a, 0, 1), Data::Out(&[1; 512])).good();
        // A resize.
        target.with(|volume| volume.resize(2 * SIZE));
        block_on(target.running.resize());
        assert_eq!(session.read(0, 1).failed(), (6, 0x2a, 9));
        let capacity = [&[0x9e, 0x10][..], &[0; 11], &[32, 0, 0]].concat();
        assert_eq!(u64_of(&session.run(0, &capacity, Data::In(32)).good(), 0), 2 * SIZE / 512 - 1);
        session.write(2 * SIZE / 512 - 1, &[1; 512]).good();
        // REQUEST SENSE takes an attention.
        block_on(target.running.resize());
        let sense = session.run(0, &[3, 0, 0, 0, 252, 0], Data::In(252)).good();
        assert_eq!((sense[2], sense[12], sense[13]), (6, 0x2a, 9));
        session.read(0, 1).good();
        // A removal.
        block_on(added.stop(StopMode::Orderly)).unwrap();
        assert_eq!(session.read(0, 1).failed(), UNITS_CHANGED);
        assert_eq!(session.run(3, &[0; 6], Data::None).failed(), (5, 0x25, 0));
        session.read(0, 1).good();
    });
}

#[test]
fn the_end_of_the_last_unit_ends_the_session_with_an_event() {
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        session.write(0, &[1; 512]).good();
        assert_eq!(target.running.status().connections, 1);
        block_on(target.running.stop(StopMode::Orderly)).unwrap();
        let event = session.receive();
        assert_eq!((event.opcode(), event.header[36], event.word(16)), (0x32, 2, NO_TAG));
        assert_eq!(session.read_to_end(), 0);
        assert_eq!(target.running.status().connections, 0);
    });
}

#[test]
fn a_shutdown_completes_commands_in_flight() {
    for backend in [Backend::Uring, Backend::Threads] {
        let mut target = Target::start(backend, &TargetOptions::default());
        let mut session = Session::new(target.address, PLAIN);
        target.with(|volume| volume.faults().hold_writes());
        let tag = session.submit(0, &block_16(0x8a, 0, 8), Data::Out(&[7; 4096]));
        target.until(|volume| volume.faults().held_writes() == 1);
        let source = target.source.clone();
        let release = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            block_on(source.with(|volume| volume.faults().release_writes())).unwrap();
        });
        target.restart(&TargetOptions::default());
        release.join().unwrap();
        let first = session.receive();
        let second = session.receive();
        let mut opcodes = [first.opcode(), second.opcode()];
        opcodes.sort_unstable();
        assert_eq!(opcodes, [0x21, 0x32]);
        let response = if first.opcode() == 0x21 { first } else { second };
        assert_eq!((response.word(16), response.header[3]), (tag, 0));
        assert_eq!(session.read_to_end(), 0);
        assert_eq!(Session::new(target.address, PLAIN).read(0, 8).good(), [7; 4096]);
    }
}

#[test]
fn a_session_that_is_opened_again_replaces_the_earlier_one() {
    on_each_backend(|target| {
        let mut first = Session::new(target.address, PLAIN);
        first.write(0, &[1; 512]).good();
        let mut other = Session::new(target.address, Wire { id: [0x80, 0, 0, 2, 0, 0], ..PLAIN });
        let mut second = Session::new(target.address, PLAIN);
        assert_eq!(first.receive().opcode(), 0x32);
        assert_eq!(first.read_to_end(), 0);
        assert_eq!(second.read(0, 1).good(), [1; 512]);
        assert_eq!(other.read(0, 1).good(), [1; 512]);
        assert_eq!(target.running.status().connections, 2);
    });
}

/// A write of a lost session must not take place after writes of the session that replaces it.
#[test]
fn a_new_session_begins_after_the_writes_of_the_earlier_one() {
    for is_lost in [false, true] {
        on_each_backend(|target| {
            let mut first = Session::new(target.address, PLAIN);
            target.with(|volume| volume.faults().hold_writes());
            first.submit(0, &block_16(0x8a, 0, 1), Data::Out(&[1; 512]));
            target.until(|volume| volume.faults().held_writes() == 1);
            if is_lost {
                first.stream.shutdown(std::net::Shutdown::Both).unwrap();
            }
            let address = target.address;
            let (sender, receiver) = std::sync::mpsc::channel();
            let login = std::thread::spawn(move || {
                let mut second = Session::new(address, PLAIN);
                sender.send(()).unwrap();
                second.write(0, &[2; 512]).good();
                second.read(0, 1).good()
            });
            // The login does not end before the write.
            assert!(receiver.recv_timeout(Duration::from_millis(200)).is_err(), "a login too early");
            target.with(|volume| volume.faults().release_writes());
            assert_eq!(login.join().unwrap(), [2; 512]);
        });
    }
}

#[test]
fn pings_are_answered() {
    on_each_backend(|target| {
        for wire in wires() {
            let mut session = Session::new(target.address, wire);
            for length in [0, 1, 3, 4, 500] {
                session.ping(&vec![0x5a; length]);
            }
            session.read(0, 1).good();
        }
    });
}

#[test]
fn silent_initiators_are_asked_and_disconnected() {
    let limits = IscsiLimits { silent: Duration::from_millis(100), ..IscsiLimits::default() };
    let options = TargetOptions { limits, ..TargetOptions::default() };
    for backend in [Backend::Uring, Backend::Threads] {
        let target = Target::start(backend, &options);
        let mut session = Session::new(target.address, PLAIN);
        for _ in 0..3 {
            let ping = session.receive();
            assert_eq!((ping.opcode(), ping.word(16)), (0x20, NO_TAG));
            assert_ne!(ping.word(20), NO_TAG);
            let answer = crate::initiator::Bhs::new(0x40, 0x80)
                .put(8, &ping.header[8..16])
                .word(16, NO_TAG)
                .word(20, ping.word(20))
                .word(24, session.command)
                .word(28, session.status);
            session.send(answer, &[]);
        }
        session.read(0, 1).good();
        // Without an answer.
        assert!(session.read_to_end() >= 48);
    }
}

#[test]
fn the_options_of_an_export_are_checked() {
    let target = Target::start(Backend::Auto, &TargetOptions::default());
    let name = ExportName::new("fast/vm02");
    let check = |network: NetworkConfig| {
        let config = ExportConfig { network, ..ExportConfig::default() };
        target.frontend.check(&name, &config).err().map(|error| error.kind())
    };
    let good = config(target.address, 1, &TargetOptions::default()).network;
    assert_eq!(check(good.clone()), None);
    for bad in [
        NetworkConfig { target: Some("disk".into()), ..good.clone() },
        NetworkConfig { unit: Some(256), ..good.clone() },
        NetworkConfig { hosts: vec!["host".into()], ..good.clone() },
        NetworkConfig { listen: Vec::new(), ..good.clone() },
    ] {
        assert_eq!(check(bad), Some(ExportErrorKind::Invalid));
    }
    // The unit of the running export.
    let taken = config(target.address, 0, &TargetOptions::default());
    let error = block_on(target.frontend.start(&name, &taken, target.source.clone())).err().unwrap();
    assert_eq!(error.kind(), ExportErrorKind::Exists);
    let complete = target.frontend.complete(ExportConfig::default(), &target.source);
    assert!(complete.network.target.unwrap().starts_with("iqn.2026-11.gabion:6d656d6f727980"));
    assert_eq!(complete.network.unit, Some(0));
}
