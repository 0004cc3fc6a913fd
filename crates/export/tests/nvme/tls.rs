//! TLS with pre-shared keys.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use export::nvme::{NvmeLimits, NvmeTlsKey};
use export::{ExportErrorKind, StopMode};
use reactor::Backend;
use test_support::pattern;

use crate::authentication::{ChapHost, HASHES, secrets};
use crate::initiator::{DISCOVERY, HOST, PLAIN, Queue, Sqe, Wire};
use crate::openssl_tunnel::openssl_tunnel;
use crate::secrets::printed;
use crate::target::{SUBSYSTEM, Target, any, block_on, config};
use crate::tls_identity::TlsIdentity;
use crate::tls_queue::{SharedTls, secured, secured_admin, secured_io};

const OTHER_HOST: &str = "nqn.2014-08.org.example:other";
const KEY: [u8; 32] = [0x31; 32];
const LONG_KEY: [u8; 48] = [0x32; 48];
const NEW_KEY: [u8; 32] = [0x33; 32];

/// A configured key in the interchange format.
fn configured(key: &[u8]) -> NvmeTlsKey {
    NvmeTlsKey(printed("NVMeTLSkey-1", if key.len() == 32 { "01" } else { "02" }, key))
}

fn start(backend: Backend, key: &[u8]) -> Target {
    Target::with_tls(backend, NvmeLimits::default(), configured(key))
}

fn identity(key: &[u8]) -> TlsIdentity {
    TlsIdentity::new(0, key, HOST, SUBSYSTEM)
}

/// Writes and reads data of several sizes, and compares it.
fn check_data(queue: &mut Queue) {
    for (seed, length) in [512, 4096, 16 << 10, 128 << 10, 1 << 20].into_iter().enumerate() {
        let (first, data) = (seed as u64 * 8192, pattern(seed as u64, length));
        assert_eq!(queue.write(first, &data), 0, "{length}");
        assert!(queue.read(first, (length / 512) as u32).unwrap() == data, "{length}");
    }
}

fn check_host(target: &Target, identity: &TlsIdentity, wire: Wire) {
    let admin = secured_admin(target.address, identity, wire);
    let mut queues = [admin.io(SUBSYSTEM, 1), admin.io(SUBSYSTEM, 2)];
    queues.iter_mut().for_each(check_data);
}

#[test]
fn data_is_transferred_within_tls() {
    for backend in [Backend::Uring, Backend::Threads] {
        for (key, suite) in [(&KEY[..], "TLS_AES_128_GCM_SHA256"), (&LONG_KEY, "TLS_AES_256_GCM_SHA384")] {
            let target = start(backend, key);
            for version in [0, 1] {
                let identity = TlsIdentity::new(version, key, HOST, SUBSYSTEM);
                check_host(&target, &identity, PLAIN);
                let (_queue, tls) = secured(target.address, &identity, PLAIN).unwrap();
                assert_eq!(tls.lock().suite(), suite);
            }
            let digests = Wire { header_digest: true, data_digest: true, part: 100_000, ..PLAIN };
            check_host(&target, &identity(key), digests);
            // The target has the data itself, and serves discovery without TLS.
            Queue::admin(target.address, DISCOVERY, PLAIN);
        }
    }
}

#[test]
fn commands_are_outstanding_while_keys_change() {
    let target = start(Backend::Uring, &KEY);
    let admin = secured_admin(target.address, &identity(&KEY), PLAIN);
    let (mut queue, tls) = secured_io(&admin, &identity(&KEY), 1);
    check_data(&mut queue);
    for _ in 0..3 {
        tls.lock().update_key();
        let read = Sqe::new(2, 1).blocks(8192, 8).put(32, &4096u32.to_le_bytes());
        for _ in 0..100 {
            queue.submit(read.clone(), &[], 0);
        }
        for _ in 0..100 {
            assert!(queue.complete(&[]).data == pattern(1, 4096));
        }
    }
}

#[test]
fn a_host_without_tls_is_refused() {
    for backend in [Backend::Uring, Backend::Threads] {
        let target = start(backend, &KEY);
        let mut queue = Queue::negotiated(target.address, PLAIN);
        let done = queue.connect(SUBSYSTEM, HOST, 0, 0xffff, 0);
        // The host is not allowed: a field of the data, the name of the host.
        assert_eq!((done.status, done.result), (0x184, 0x1_0200));
        assert_eq!(queue.read_to_end(), 0);
        // Also a further queue of a controller.
        let admin = secured_admin(target.address, &identity(&KEY), PLAIN);
        let mut queue = Queue::negotiated(target.address, PLAIN);
        assert_eq!(queue.connect(SUBSYSTEM, HOST, 1, admin.controller, 0).status, 0x184);
    }
}

#[test]
fn discovery_shows_that_tls_is_required() {
    let target = start(Backend::Uring, &KEY);
    let entries = |target: &Target| {
        let mut admin = Queue::admin(target.address, DISCOVERY, PLAIN);
        let log = admin.fetch(Sqe::new(2, 0).word(10, 767 << 16 | 0x70), 3072).unwrap();
        // The requirements and the type of security of discovery and of the subsystem.
        [1024, 2048].map(|at| (log[at + 3], log[at + 768]))
    };
    assert_eq!(entries(&target), [(4, 0), (5, 2)]);
    let target = Target::start(Backend::Uring, NvmeLimits::default(), &[]);
    assert_eq!(entries(&target), [(4, 0), (4, 0)]);
}

/// Fails to begin TLS, with this alert.
fn refused_with(address: SocketAddr, identity: &TlsIdentity, alert: u8) {
    let error = secured(address, identity, PLAIN).map(drop).unwrap_err();
    assert!(error.ends_with(&format!("(alert {alert})")), "{error}");
}

#[test]
fn hosts_without_the_key_are_refused() {
    const UNKNOWN: u8 = 115;
    const WRONG: u8 = 51;
    for backend in [Backend::Uring, Backend::Threads] {
        let target = start(backend, &KEY);
        let mut wrong = identity(&KEY);
        wrong.key[5] ^= 1;
        refused_with(target.address, &wrong, WRONG);
        for version in [0, 1] {
            // Of version 1, the identity itself depends on the key.
            let other = TlsIdentity::new(version, &[0x44; 32], HOST, SUBSYSTEM);
            refused_with(target.address, &other, if version == 0 { WRONG } else { UNKNOWN });
        }
        for unknown in [
            TlsIdentity::new(0, &LONG_KEY, HOST, SUBSYSTEM),
            TlsIdentity::new(0, &KEY, HOST, "nqn.2014-08.org.example:none"),
            TlsIdentity::new(0, &KEY, HOST, DISCOVERY),
            TlsIdentity { text: "a name".into(), ..identity(&KEY) },
        ] {
            refused_with(target.address, &unknown, UNKNOWN);
        }
        check_host(&target, &identity(&KEY), PLAIN);
        let plain = Target::start(backend, NvmeLimits::default(), &[]);
        refused_with(plain.address, &identity(&KEY), UNKNOWN);
        Queue::admin(plain.address, SUBSYSTEM, PLAIN);
    }
}

#[test]
fn a_key_is_valid_for_its_names_only() {
    let target = start(Backend::Uring, &KEY);
    let mut options = config(target.address, 1, &[]);
    options.network.target = Some("nqn.2014-08.org.example:second".into());
    options.network.tls_key = Some(configured(&KEY));
    let _second = target.add_with(2, &options).unwrap();
    let connect = |identity: &TlsIdentity, subsystem, host| {
        let (mut queue, _) = secured(target.address, identity, PLAIN).unwrap();
        let done = queue.connect(subsystem, host, 0, 0xffff, 0);
        (done.status, if done.status == 0 { 0 } else { done.result })
    };
    let own = identity(&KEY);
    assert_eq!(connect(&own, SUBSYSTEM, HOST), (0, 0));
    assert_eq!(connect(&own, SUBSYSTEM, OTHER_HOST), (0x184, 0x1_0200));
    assert_eq!(connect(&own, "nqn.2014-08.org.example:second", HOST), (0x184, 0x1_0200));
    assert_eq!(connect(&own, DISCOVERY, HOST), (0x184, 0x1_0200));
    let other = TlsIdentity::new(0, &KEY, OTHER_HOST, "nqn.2014-08.org.example:second");
    assert_eq!(connect(&other, "nqn.2014-08.org.example:second", OTHER_HOST), (0, 0));
}

#[test]
fn namespaces_of_a_host_have_one_key() {
    let target = Target::start(Backend::Uring, NvmeLimits::default(), &[HOST]);
    let with_key = |unit, hosts: &[&str], key: Option<&[u8]>| {
        let mut options = config(target.address, unit, hosts);
        options.network.tls_key = key.map(configured);
        options
    };
    let refused = target.add_with(2, &with_key(2, &[HOST], Some(&KEY))).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ExportErrorKind::Invalid);
    assert!(refused.to_string().contains("another TLS key"), "{refused}");
    // Other hosts may need a key, while this one needs none.
    let _other = target.add_with(2, &with_key(2, &[OTHER_HOST], Some(&KEY))).unwrap();
    refused_with(target.address, &identity(&KEY), 115);
    let other = TlsIdentity::new(0, &KEY, OTHER_HOST, SUBSYSTEM);
    let (mut queue, _) = secured(target.address, &other, PLAIN).unwrap();
    assert_eq!(queue.connect(SUBSYSTEM, OTHER_HOST, 0, 0xffff, 0).status, 0);
    Queue::admin(target.address, SUBSYSTEM, PLAIN);
    let bad = target.add_with(3, &with_key(3, &[], None)).map(drop).unwrap_err();
    assert_eq!(bad.kind(), ExportErrorKind::Invalid);
}

#[test]
fn a_session_of_a_replaced_key_connects_no_queue() {
    for backend in [Backend::Uring, Backend::Threads] {
        let target = start(backend, &KEY);
        let begin = || secured(target.address, &identity(&KEY), PLAIN).unwrap().0;
        let (mut first, mut second) = (begin(), begin());
        block_on(target.running.stop(StopMode::Forced)).unwrap();
        let mut options = config(target.address, 1, &[]);
        options.network.tls_key = Some(configured(&NEW_KEY));
        let running = target.add_with(1, &options).unwrap();
        let done = first.connect(SUBSYSTEM, HOST, 0, 0xffff, 0);
        assert_eq!((done.status, done.result), (0x184, 0x1_0200));
        // Nothing is left of the controller that was refused.
        assert_eq!(running.status().connections, 0);
        // The same for a queue of a controller whose host has the new key.
        let admin = secured_admin(target.address, &identity(&NEW_KEY), PLAIN);
        assert_eq!(second.connect(SUBSYSTEM, HOST, 1, admin.controller, 0).status, 0x184);
        check_data(&mut admin.io(SUBSYSTEM, 1));
        // An export without a key.
        let mut third = secured(target.address, &identity(&NEW_KEY), PLAIN).unwrap().0;
        block_on(running.stop(StopMode::Forced)).unwrap();
        let _running = target.add_with(1, &config(target.address, 1, &[])).unwrap();
        assert_eq!(third.connect(SUBSYSTEM, HOST, 0, 0xffff, 0).status, 0x184);
    }
}

#[test]
fn a_new_key_ends_controllers_without_it() {
    let target = Target::start(Backend::Uring, NvmeLimits::default(), &[]);
    let mut admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
    // For another host, so that the subsystem remains.
    let _kept = target.add(2, &[OTHER_HOST]);
    block_on(target.running.stop(StopMode::Orderly)).unwrap();
    let mut options = config(target.address, 3, &[HOST]);
    options.network.tls_key = Some(configured(&KEY));
    let _running = target.add_with(3, &options).unwrap();
    assert!(has_ended(&mut admin.stream));
    let mut admin = secured_admin(target.address, &identity(&KEY), PLAIN);
    admin.fetch(Sqe::new(6, 3).word(10, 0), 4096).unwrap();
}

#[test]
fn a_host_needs_the_secret_within_tls() {
    for backend in [Backend::Uring, Backend::Threads] {
        let mut options = config(any(), 1, &[]);
        options.network.tls_key = Some(configured(&KEY));
        options.network.dhchap = Some(secrets(false));
        let target = Target::with_options(backend, NvmeLimits::default(), &options, None);
        let connected = |id, controller| {
            let (mut queue, _) = secured(target.address, &identity(&KEY), PLAIN).unwrap();
            let done = queue.connect(SUBSYSTEM, HOST, id, controller, 0);
            assert_eq!((done.status, done.result >> 16), (0, 2), "an authentication is required");
            queue
        };
        let host = ChapHost::right(HASHES[0], false);
        let mut admin = connected(0, 0xffff);
        host.authenticate(&mut admin).unwrap();
        admin.enable();
        let mut queue = connected(1, admin.controller);
        assert_eq!(queue.run(Sqe::new(2, 1).blocks(0, 1)).status, 0x191, "a read too early");
        host.authenticate(&mut queue).unwrap();
        check_data(&mut queue);
        // The secret does not replace the key.
        let mut plain = Queue::negotiated(target.address, PLAIN);
        assert_eq!(plain.connect(SUBSYSTEM, HOST, 0, 0xffff, 0).status, 0x184);
    }
}

#[test]
fn the_removal_of_an_export_ends_its_sessions() {
    let target = start(Backend::Uring, &KEY);
    let mut admin = secured_admin(target.address, &identity(&KEY), PLAIN);
    block_on(target.running.stop(StopMode::Forced)).unwrap();
    assert_eq!(admin.read_to_end(), 0);
}

/// A first record of this length that is no valid message.
fn record(length: u16) -> Vec<u8> {
    let mut bytes = vec![22, 3, 1];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.resize(5 + usize::from(length), 1);
    bytes
}

#[test]
fn malformed_first_records_are_refused() {
    for backend in [Backend::Uring, Backend::Threads] {
        let target = start(backend, &KEY);
        for bytes in [
            record(1),
            record(500),
            record(16 << 10),
            record(0),
            vec![22, 9, 9, 0, 5],
            vec![22, 3, 1, 0xff, 0xff],
        ] {
            let mut socket = TcpStream::connect(target.address).unwrap();
            socket.write_all(&bytes).unwrap();
            let mut answer = [0; 7];
            socket.read_exact(&mut answer).unwrap();
            // An alert: the message cannot be decoded.
            assert_eq!(answer, [21, 3, 3, 0, 2, 2, 50]);
        }
        for length in [1, 4, 5, 100] {
            let mut socket = TcpStream::connect(target.address).unwrap();
            socket.write_all(&record(200)[..length]).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
            assert_eq!(socket.read(&mut [0]).unwrap_or(0), 0);
        }
        check_host(&target, &identity(&KEY), PLAIN);
    }
}

#[test]
fn a_stalled_handshake_ends() {
    for backend in [Backend::Uring, Backend::Threads] {
        // Longer than a handshake takes on a busy machine.
        let limit = Duration::from_secs(4);
        let limits = NvmeLimits { handshake: limit, ..NvmeLimits::default() };
        let target = Target::with_tls(backend, limits, configured(&KEY));
        let begin = Instant::now();
        // A session without a queue.
        let (_queue, tls) = secured(target.address, &identity(&KEY), PLAIN).unwrap();
        let mut socket = TcpStream::connect(target.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.write_all(&record(200)[..100]).unwrap();
        assert!(is_announced(&tls));
        assert!(begin.elapsed() >= limit);
        assert!(has_ended(&mut socket));
    }
}

/// True if the target ends a session by the alert for it, and not the connection alone.
fn is_announced(tls: &SharedTls) -> bool {
    tls.lock().read_to_end(&mut Vec::new()).is_ok()
}

/// True if the target ends a connection within the time limit of the socket.
fn has_ended(socket: &mut TcpStream) -> bool {
    let end = socket.read_to_end(&mut Vec::new());
    end.map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true)
}

#[test]
fn the_end_of_a_session_is_announced() {
    for backend in [Backend::Uring, Backend::Threads] {
        let limits = NvmeLimits { stalled: Duration::from_millis(500), ..NvmeLimits::default() };
        let target = Target::with_tls(backend, limits, configured(&KEY));
        let own = identity(&KEY);
        let admin = secured_admin(target.address, &own, PLAIN);
        // The host ends the session between two messages, and within one.
        let (_queue, tls) = secured_io(&admin, &own, 1);
        tls.lock().end();
        assert!(is_announced(&tls), "the host has closed the session");
        let (mut queue, tls) = secured_io(&admin, &own, 2);
        queue.put(&[4, 0, 72]);
        tls.lock().end();
        assert!(is_announced(&tls), "a message is cut off");
        let (mut queue, tls) = secured_io(&admin, &own, 3);
        queue.put(&[4, 0, 72]);
        assert!(is_announced(&tls), "the host stalls");
        let (mut queue, tls) = secured_io(&admin, &own, 4);
        queue.send_pdu(2, &[0; 16], &[], 0);
        assert!(is_announced(&tls), "the host has reported an error");
        let (mut queue, tls) = secured(target.address, &own, PLAIN).unwrap();
        assert_eq!(queue.connect(SUBSYSTEM, HOST, 0, 0xffff, 200).status, 0);
        assert!(is_announced(&tls), "the host is silent");
        // A failure of the session before a queue is connected.
        let (mut queue, tls) = secured(target.address, &own, PLAIN).unwrap();
        queue.stream.write_all(&[&[23, 3, 3, 0, 40][..], &[0; 40]].concat()).unwrap();
        assert!(is_announced(&tls), "a record is forged");
    }
}

#[test]
fn forged_and_truncated_records_end_one_session() {
    for backend in [Backend::Uring, Backend::Threads] {
        // Some of them are the beginning of a record, whose end does not arrive.
        let limits = NvmeLimits { stalled: Duration::from_millis(500), ..NvmeLimits::default() };
        let target = Target::with_tls(backend, limits, configured(&KEY));
        let admin = secured_admin(target.address, &identity(&KEY), PLAIN);
        let mut bystander = admin.io(SUBSYSTEM, 1);
        let forgeries: [&[u8]; 5] = [
            &[23, 3, 3, 0, 20, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
            // A record that is too long, or that begins no record.
            &[23, 3, 3, 0xff, 0xff],
            b"GET / HTTP/1.1\r\n\r\n",
            &[22, 3, 3, 0, 4, 1, 2, 3, 4],
            &[0; 128],
        ];
        for (number, forged) in (2..).zip(forgeries) {
            let (mut queue, tls) = secured_io(&admin, &identity(&KEY), number);
            queue.submit(Sqe::new(1, 1).blocks(0, 64), &pattern(1, 32 << 10), 0);
            queue.stream.write_all(forged).unwrap();
            // The target ends the session, and the connection.
            let _ = tls.lock().read_to_end(&mut Vec::new());
            let end = queue.stream.read(&mut [0]);
            assert!(end.map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |count| count == 0));
        }
        // A part of a record, and the end of the connection.
        let mut queue = admin.io(SUBSYSTEM, 10);
        queue.stream.write_all(&[23, 3, 3, 0, 100, 1, 2, 3]).unwrap();
        queue.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(queue.read_to_end(), 0);
        // The end of a session within a PDU, and between two.
        let (mut queue, tls) = secured_io(&admin, &identity(&KEY), 11);
        queue.put(&[4, 0, 72]);
        tls.lock().end();
        assert_eq!(queue.read_to_end(), 0);
        let (mut queue, tls) = secured_io(&admin, &identity(&KEY), 12);
        tls.lock().end();
        assert_eq!(queue.read_to_end(), 0);
        check_data(&mut bystander);
    }
}

#[test]
fn many_sessions_are_served() {
    let target = start(Backend::Uring, &KEY);
    let admin = secured_admin(target.address, &identity(&KEY), PLAIN);
    let mut queues: Vec<_> = (1..=64).map(|number| admin.io(SUBSYSTEM, number)).collect();
    let write = |at: u64, queue: &mut Queue| {
        let data = pattern(at, 64 << 10);
        queue.submit(Sqe::new(1, 1).blocks(at * 128, 128), &data, 8192)
    };
    for (at, queue) in (0..).zip(&mut queues) {
        write(at, queue);
    }
    for (at, queue) in (0..).zip(&mut queues) {
        let done = queue.complete(&pattern(at as u64, 64 << 10));
        assert_eq!(done.status, 0);
    }
    for (at, queue) in (0..).zip(queues.iter_mut().rev()) {
        assert!(queue.read(at * 128, 128).unwrap() == pattern(at, 64 << 10));
    }
}

#[test]
fn another_implementation_is_served() {
    if !test_support::has_program("openssl") {
        return;
    }
    let target = start(Backend::Uring, &KEY);
    for version in [0, 1] {
        let identity = TlsIdentity::new(version, &KEY, HOST, SUBSYSTEM);
        let tunnel = openssl_tunnel(target.address, &identity);
        let admin = Queue::admin(tunnel, SUBSYSTEM, PLAIN);
        let mut queue = admin.io(SUBSYSTEM, 1);
        check_data(&mut queue);
    }
    let mut wrong = identity(&KEY);
    wrong.key[0] ^= 1;
    let mut queue = Queue::open(openssl_tunnel(target.address, &wrong), PLAIN);
    let _ = queue.stream.write_all(&[0; 128]);
    assert_eq!(queue.read_to_end(), 0);
}

#[test]
fn invalid_keys_are_refused() {
    let target = Target::start(Backend::Uring, NvmeLimits::default(), &[]);
    let (NvmeTlsKey(valid), NvmeTlsKey(long)) = (configured(&KEY), configured(&LONG_KEY));
    for (bad, defect) in [
        ("", "the form NVMeTLSkey-1:HH:BASE64:"),
        ("DHHC-1:00:nR2ru2ZHCXqG3XAyaz0/+gB089FRFL0o838kvct0gfv9vUN3:", "the form NVMeTLSkey-1:HH:BASE64:"),
        ("NVMeTLSkey-1:01:AAAAAAAA:", "has 2 bytes"),
        (&valid.replacen("M", "N", 1), "the form"),
        (&valid.replacen("MTEx", "MTEy", 1), "a wrong checksum"),
        (&long.replacen(":02:", ":01:", 1), "48 bytes"),
    ] {
        let mut options = config(target.address, 2, &[]);
        options.network.tls_key = Some(NvmeTlsKey(bad.to_owned()));
        let error = target.add_with(2, &options).map(drop).unwrap_err();
        assert_eq!(error.kind(), ExportErrorKind::Invalid, "{bad}");
        let text = error.to_string();
        assert!(text.starts_with("the TLS key of export fast/vm2 ") && text.contains(defect), "{text}");
        assert!(bad.is_empty() || !text.contains(bad));
    }
}
