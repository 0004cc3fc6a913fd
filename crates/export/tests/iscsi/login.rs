//! Logins: names, CHAP, the stages, and their refusals.

use std::time::Duration;

use export::iscsi::{ChapAccount, IscsiLimits};
use reactor::Backend;

use crate::initiator::{Bhs, Chap, Data, HOST, OTHER, PLAIN, Session, Wire, u16_of};
use crate::target::{TARGET, Target, TargetOptions, on_each_backend};

const GOOD: Chap = Chap { user: "ada", secret: "a secret of CHAP", target: None };

fn account(target: Option<(&str, &str)>) -> Option<ChapAccount> {
    let own = |(user, secret): (&str, &str)| (user.to_owned(), secret.to_owned());
    Some(ChapAccount { user: "ada".into(), secret: "a secret of CHAP".into(), target: target.map(own) })
}

fn log_in(target: &Target, chap: Option<Chap>) -> Result<Session, u16> {
    Session::log_in(target.address, PLAIN, Some(TARGET), chap)
}

#[test]
fn chap_admits_those_who_know_the_secret() {
    let options = TargetOptions { account: account(None), ..TargetOptions::default() };
    for backend in [Backend::Uring, Backend::Threads] {
        let target = Target::start(backend, &options);
        log_in(&target, Some(GOOD)).unwrap().write(0, &[1; 512]).good();
        for bad in [
            None,
            Some(Chap { secret: "another secret", ..GOOD }),
            Some(Chap { user: "bob", ..GOOD }),
            // The target has no credentials of its own.
            Some(Chap { target: Some(("t", "u")), ..GOOD }),
        ] {
            assert_eq!(log_in(&target, bad).err(), Some(0x0201), "{bad:?}");
        }
        assert_eq!(log_in(&target, Some(GOOD)).unwrap().read(0, 1).good(), [1; 512]);
        // A login that skips the security stage, or lists no method that the target accepts.
        let names = [("InitiatorName", HOST), ("TargetName", TARGET)];
        for flags in [0x87, 0x83] {
            let mut session = Session::open(target.address, PLAIN);
            let answer = session.login_step(flags, &names);
            // Without authentication, the stage does not end.
            assert!(answer == Err(0x0201) || answer == Ok(0x00), "{answer:?}");
        }
        let mut session = Session::open(target.address, PLAIN);
        assert_eq!(
            session.login_step(0x81, &[&names[..], &[("AuthMethod", "None,KRB5")]].concat()),
            Err(0x0201)
        );
        assert_eq!(session.read_to_end(), 0);
    }
}

#[test]
fn the_target_authenticates_itself_too() {
    let mutual = Some(("disk", "the secret of the target"));
    let options = TargetOptions { account: account(mutual), ..TargetOptions::default() };
    let target = Target::start(Backend::Auto, &options);
    for chap in [GOOD, Chap { target: mutual, ..GOOD }] {
        log_in(&target, Some(chap)).unwrap().write(0, &[1; 512]).good();
    }
    // The target does not answer its own challenge.
    let mut session = Session::open(target.address, PLAIN);
    let names = [("InitiatorName", HOST), ("TargetName", TARGET), ("AuthMethod", "CHAP")];
    session.login_step(0x81, &names).unwrap();
    session.login_step(0x00, &[("CHAP_A", "5")]).unwrap();
    let challenge = session.answers["CHAP_C"].clone();
    let reflected = [("CHAP_N", "ada"), ("CHAP_R", "0x00"), ("CHAP_I", "1"), ("CHAP_C", &challenge)];
    assert_eq!(session.login_step(0x81, &reflected), Err(0x0201));
}

#[test]
fn invalid_logins_are_refused_with_a_status() {
    on_each_backend(|target| {
        let refuse = |header: fn(Bhs) -> Bhs, flags: u8, text: &[u8]| {
            let mut session = Session::open(target.address, PLAIN);
            let header = header(session.login_header(flags));
            session.send(header, text);
            let answer = session.receive();
            assert_eq!((answer.opcode(), answer.header[1] & 0x80), (0x23, 0));
            assert_eq!(session.read_to_end(), 0);
            u16_of(&answer.header, 36)
        };
        let names = format!("InitiatorName={HOST}\0TargetName={TARGET}\0");
        let same = |header: Bhs| header;
        for (text, status) in [
            ("TargetName=iqn.2014-08.org.example:disk\0".to_owned(), 0x0207),
            (format!("InitiatorName={HOST}\0"), 0x0207),
            ("InitiatorName=somebody\0TargetName=x\0".to_owned(), 0x0207),
            (format!("InitiatorName={HOST}\0TargetName=iqn.2014-08.org.example:other\0"), 0x0203),
            (format!("{names}SessionType=Other\0"), 0x0209),
            ("InitiatorName\0".to_owned(), 0x0200),
            ("=x\0".to_owned(), 0x0200),
        ] {
            assert_eq!(refuse(same, 0x87, text.as_bytes()), status, "{text:?}");
        }
        assert_eq!(refuse(same, 0x87, b"InitiatorName=\xff\xfe\0"), 0x0200);
        // A version, a session that does not exist, stages that do not exist.
        assert_eq!(refuse(|header| header.put(3, &[1]), 0x87, names.as_bytes()), 0x0205);
        assert_eq!(refuse(|header| header.put(14, &[9, 9]), 0x87, names.as_bytes()), 0x020a);
        for flags in [0x8b, 0x84, 0x86, 0x8f, 0x85] {
            assert_eq!(refuse(same, flags, names.as_bytes()), 0x020b, "{flags:#x}");
        }
        Session::new(target.address, PLAIN).write(0, &[1; 512]).good();
    });
}

#[test]
fn only_allowed_initiators_log_in_and_see_their_units() {
    let options = TargetOptions { hosts: vec![HOST], ..TargetOptions::default() };
    let target = Target::start(Backend::Auto, &options);
    let other = Wire { initiator: OTHER, ..PLAIN };
    assert_eq!(Session::log_in(target.address, other, Some(TARGET), None).err(), Some(0x0202));
    let _second = target.add(1, &TargetOptions { hosts: vec![OTHER], ..TargetOptions::default() });
    let (mut first, mut second) = (Session::new(target.address, PLAIN), Session::new(target.address, other));
    let luns = [0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0];
    assert_eq!(first.run(0, &luns, Data::In(64)).good()[8..], [0; 8]);
    assert_eq!(second.run(0, &luns, Data::In(64)).good()[8..], [0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(second.run(0, &[0; 6], Data::None).failed(), (5, 0x25, 0));
    second.run(1, &[0; 6], Data::None).good();
}

#[test]
fn an_unauthenticated_session_sees_no_unit_with_credentials() {
    let target = Target::start(Backend::Auto, &TargetOptions::default());
    let _second = target.add(1, &TargetOptions { account: account(None), ..TargetOptions::default() });
    let mut open = log_in(&target, None).unwrap();
    assert_eq!(open.run(1, &[0; 6], Data::None).failed(), (5, 0x25, 0));
    let mut all = log_in(&target, Some(GOOD)).unwrap();
    all.run(0, &[0; 6], Data::None).good();
    all.run(1, &[0; 6], Data::None).good();
}

#[test]
fn a_second_connection_of_a_session_is_refused() {
    on_each_backend(|target| {
        let mut first = Session::new(target.address, PLAIN);
        let mut second = Session::open(target.address, PLAIN);
        second.handle = first.handle;
        let names = [("InitiatorName", HOST), ("TargetName", TARGET)];
        assert_eq!(second.login_step(0x87, &names), Err(0x0206));
        first.write(0, &[1; 512]).good();
    });
}

#[test]
fn text_of_a_login_may_come_in_parts() {
    on_each_backend(|target| {
        let mut session = Session::open(target.address, PLAIN);
        let text = format!("InitiatorName={HOST}\0TargetName={TARGET}\0X-unknown=1\0");
        for part in text.as_bytes().chunks(20) {
            let is_last = text.as_bytes().ends_with(part);
            session.send(session.login_header(if is_last { 0x87 } else { 0x44 }), part);
            let answer = session.receive();
            assert_eq!((answer.opcode(), u16_of(&answer.header, 36)), (0x23, 0));
            if is_last {
                assert_eq!(answer.header[1], 0x87);
                let pairs = crate::initiator::pairs_of(&answer.data);
                assert!(pairs.contains(&("X-unknown".into(), "NotUnderstood".into())), "{pairs:?}");
            }
        }
        session.read(0, 1).good();
    });
}

#[test]
fn logins_that_do_not_end_are_closed() {
    let limits = IscsiLimits { login: Duration::from_millis(50), ..IscsiLimits::default() };
    let options = TargetOptions { limits, ..TargetOptions::default() };
    for backend in [Backend::Uring, Backend::Threads] {
        let target = Target::start(backend, &options);
        assert_eq!(Session::open(target.address, PLAIN).read_to_end(), 0);
        let mut session = Session::open(target.address, PLAIN);
        session.login_step(0x04, &[("InitiatorName", HOST), ("TargetName", TARGET)]).unwrap();
        assert_eq!(session.read_to_end(), 0);
    }
    // A login without end, in time.
    on_each_backend(|target| {
        let mut session = Session::open(target.address, PLAIN);
        session.login_step(0x04, &[("InitiatorName", HOST), ("TargetName", TARGET)]).unwrap();
        for _ in 0..31 {
            session.login_step(0x04, &[("X-more", "1")]).unwrap();
        }
        session.send(session.login_header(0x04), b"X-more=1\0");
        assert_eq!(session.read_to_end(), 0);
    });
}
