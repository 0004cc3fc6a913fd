//! DH-HMAC-CHAP, with a host written from the specification.

use export::nvme::{DhChapSecrets, NvmeLimits};
use export::{ExportErrorKind, ExportName, Frontend};
use num_bigint::BigUint;
use reactor::Backend;
use ring::{digest, hmac};

use crate::initiator::{HOST, PLAIN, Queue, Sqe, Wire, u16_of, u32_of};
use crate::secrets::printed;
use crate::target::{SUBSYSTEM, Target, block_on, config};

const HOST_KEY: [u8; 32] = [0x11; 32];
const CONTROLLER_KEY: [u8; 64] = [0x22; 64];
pub(crate) const HASHES: [(u8, usize); 3] = [(1, 32), (2, 48), (3, 64)];

/// A secret whose key is used as it is, or combined with the name of its owner.
fn secret(number: &str, key: &[u8]) -> String {
    printed("DHHC-1", number, key)
}

fn algorithm(hash: u8) -> hmac::Algorithm {
    [hmac::HMAC_SHA256, hmac::HMAC_SHA384, hmac::HMAC_SHA512][usize::from(hash) - 1]
}

fn transformed(key: &[u8], hash: u8, owner: &str) -> Vec<u8> {
    let key = hmac::Key::new(algorithm(hash), key);
    hmac::sign(&key, format!("{owner}NVMe-over-Fabrics").as_bytes()).as_ref().to_vec()
}

/// The groups of RFC 7919: identifier, bits, and the number that makes the prime.
const GROUPS: [(u8, u32, u64); 5] = [
    (1, 2048, 560_316),
    (2, 3072, 2_625_351),
    (3, 4096, 5_736_041),
    (4, 6144, 15_705_020),
    (5, 8192, 10_965_728),
];

/// The prime of a group: 2^b - 2^(b-64) + (floor(2^(b-130) e) + X) 2^64 - 1.
fn prime(bits: u32, shift: u64) -> BigUint {
    let one = BigUint::from(1u8);
    let (mut sum, mut term) = (BigUint::default(), &one << (bits - 130 + 64));
    for divisor in 1u32.. {
        if term == BigUint::default() {
            break;
        }
        sum += &term;
        term /= divisor;
    }
    let middle = ((sum >> 64u32) + shift) << 64u32;
    (&one << bits) - (&one << (bits - 64)) + middle - one
}

/// A number with leading zeros.
fn padded(number: &BigUint, bits: u32) -> Vec<u8> {
    let bytes = number.to_bytes_be();
    [vec![0; bits as usize / 8 - bytes.len()], bytes].concat()
}

/// A host that authenticates itself, and perhaps the subsystem.
pub(crate) struct ChapHost {
    key: Vec<u8>,
    controller_key: Option<Vec<u8>>,
    hash: (u8, usize),
    /// The only group that the host supports; 0 for none.
    group: u8,
}

impl ChapHost {
    /// A host with the right keys.
    pub(crate) fn right(hash: (u8, usize), is_mutual: bool) -> Self {
        let controller_key = is_mutual.then(|| transformed(&CONTROLLER_KEY, 3, SUBSYSTEM));
        Self { key: HOST_KEY.to_vec(), controller_key, hash, group: 0 }
    }

    /// Authenticates. Fails with the explanation of the controller.
    pub(crate) fn authenticate(&self, queue: &mut Queue) -> Result<(), u8> {
        let (number, length) = self.hash;
        let mut negotiation = vec![0; 72];
        (negotiation[4], negotiation[7], negotiation[8]) = (7, 1, 1);
        (negotiation[10], negotiation[11], negotiation[12]) = (1, 1, number);
        negotiation[42] = self.group;
        send(queue, &negotiation);
        let challenge = fetch(queue)?;
        assert_eq!((challenge[1], challenge[6], challenge[8]), (1, length as u8, number));
        assert_eq!((u16_of(&challenge, 4), challenge[9]), (7, self.group));
        let value_length = usize::from(u16_of(&challenge, 10));
        let (value, exchange_key) = self.exchange(&challenge[16 + length..16 + length + value_length]);
        let sequence = u32_of(&challenge, 12);
        assert_ne!(sequence, 0);
        // A challenge is combined with the key of the exchange.
        let combined = |challenge: &[u8]| match &exchange_key {
            Some(key) => hmac::sign(&hmac::Key::new(algorithm(number), key), challenge).as_ref().to_vec(),
            None => challenge.to_vec(),
        };
        let drawn = combined(&challenge[16..16 + length]);
        let response = self.sign(&self.key, &drawn, sequence, "HostHost", [HOST, SUBSYSTEM]);
        let mut reply = vec![1, 2, 0, 0, 7, 0, length as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        reply[10..12].copy_from_slice(&(value.len() as u16).to_le_bytes());
        reply.extend_from_slice(&response);
        let own = vec![0x77; length];
        if self.controller_key.is_some() {
            (reply[8], reply[12]) = (1, 99);
            reply.extend_from_slice(&own);
        } else {
            reply.extend(vec![0; length]);
        }
        reply.extend_from_slice(&value);
        send(queue, &reply);
        let success = fetch(queue)?;
        assert_eq!((success[0], success[1], success[6]), (1, 3, length as u8));
        if let Some(key) = &self.controller_key {
            assert_eq!(success[8], 1);
            let expected = self.sign(key, &combined(&own), 99, "Controller", [SUBSYSTEM, HOST]);
            assert_eq!(success[16..16 + length], expected);
            send(queue, &[1, 4, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        Ok(())
    }

    /// The host's value of a Diffie-Hellman exchange, and the key: the digest of the secret.
    fn exchange(&self, value: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
        let Some((_, bits, shift)) = GROUPS.into_iter().find(|(number, ..)| *number == self.group) else {
            assert!(value.is_empty());
            return (Vec::new(), None);
        };
        assert_eq!(value.len(), bits as usize / 8);
        let prime = prime(bits, shift);
        let exponent = BigUint::from_bytes_be(&[0x9d; 40]);
        let own = BigUint::from(2u8).modpow(&exponent, &prime);
        let secret = padded(&BigUint::from_bytes_be(value).modpow(&exponent, &prime), bits);
        let function = [&digest::SHA256, &digest::SHA384, &digest::SHA512][usize::from(self.hash.0) - 1];
        (padded(&own, bits), Some(digest::digest(function, &secret).as_ref().to_vec()))
    }

    fn sign(&self, key: &[u8], challenge: &[u8], sequence: u32, role: &str, names: [&str; 2]) -> Vec<u8> {
        let mut message = challenge.to_vec();
        message.extend(sequence.to_le_bytes());
        message.extend([7, 0, 0]);
        message.extend(format!("{role}{}\0{}", names[0], names[1]).as_bytes());
        hmac::sign(&hmac::Key::new(algorithm(self.hash.0), key), &message).as_ref().to_vec()
    }
}

fn command(kind: u8, length: usize) -> Sqe {
    Sqe::new(0x7f, kind.into()).put(41, &[1, 1, 0xe9]).word(11, length as u32)
}

fn send(queue: &mut Queue, message: &[u8]) {
    assert_eq!(queue.send(command(5, message.len()), message), 0);
}

/// Fetches a message; fails with the explanation of a failure.
fn fetch(queue: &mut Queue) -> Result<Vec<u8>, u8> {
    let message = queue.fetch(command(6, 2048), 2048).unwrap();
    if message[..2] == [0, 0xf0] { Err(message[7]) } else { Ok(message) }
}

/// The secrets of an export, and of the subsystem if the authentication is mutual.
pub(crate) fn secrets(is_mutual: bool) -> DhChapSecrets {
    let controller = is_mutual.then(|| secret("03", &CONTROLLER_KEY));
    DhChapSecrets { host: secret("00", &HOST_KEY), controller }
}

fn target(backend: Backend, secrets: DhChapSecrets) -> Target {
    Target::with_secrets(backend, NvmeLimits::default(), secrets)
}

/// Connects a queue, which asks for an authentication.
fn connected(target: &Target, wire: Wire, id: u16, controller: u16) -> Queue {
    let mut queue = Queue::negotiated(target.address, wire);
    let done = queue.connect(SUBSYSTEM, HOST, id, controller, 0);
    assert_eq!((done.status, done.result >> 16), (0, 2), "an authentication is required");
    queue
}

#[test]
fn hosts_authenticate_themselves_on_each_queue() {
    let digests = Wire { header_digest: true, data_digest: true, alignment: 3, ..PLAIN };
    for (backend, wire) in [(Backend::Uring, PLAIN), (Backend::Threads, digests)] {
        for is_mutual in [false, true] {
            let target = target(backend, secrets(is_mutual));
            for hash in HASHES {
                let host = ChapHost::right(hash, is_mutual);
                let mut admin = connected(&target, wire, 0, 0xffff);
                host.authenticate(&mut admin).unwrap();
                admin.enable();
                let mut queue = connected(&target, wire, 1, admin.controller);
                assert_eq!(queue.run(Sqe::new(2, 1).blocks(0, 1)).status, 0x191, "a read too early");
                host.authenticate(&mut queue).unwrap();
                assert_eq!(queue.write(0, &[hash.0; 4096]), 0);
                assert_eq!(queue.read(0, 8).unwrap(), [hash.0; 4096]);
            }
        }
    }
}

#[test]
fn hosts_authenticate_themselves_with_each_group() {
    for (backend, is_mutual) in [(Backend::Uring, true), (Backend::Threads, false)] {
        let target = target(backend, secrets(is_mutual));
        for (at, (group, ..)) in GROUPS.into_iter().enumerate() {
            let host = ChapHost { group, ..ChapHost::right(HASHES[at % 3], is_mutual) };
            let mut admin = connected(&target, PLAIN, 0, 0xffff);
            host.authenticate(&mut admin).unwrap();
            admin.enable();
            let mut queue = connected(&target, PLAIN, 1, admin.controller);
            host.authenticate(&mut queue).unwrap();
            assert_eq!(queue.write(0, &[group; 4096]), 0);
            assert_eq!(queue.read(0, 8).unwrap(), [group; 4096]);
        }
        // The secret is needed with a group too.
        let wrong = ChapHost { key: vec![0x12; 32], group: 1, ..ChapHost::right(HASHES[0], false) };
        let mut queue = connected(&target, PLAIN, 0, 0xffff);
        assert_eq!(wrong.authenticate(&mut queue), Err(1));
        assert_eq!(queue.read_to_end(), 0);
        let unknown = ChapHost { group: 9, ..ChapHost::right(HASHES[0], false) };
        let mut queue = connected(&target, PLAIN, 0, 0xffff);
        assert_eq!(unknown.authenticate(&mut queue), Err(5));
    }
}

#[test]
fn hosts_without_the_secret_are_disconnected() {
    for backend in [Backend::Uring, Backend::Threads] {
        let target = target(backend, secrets(false));
        let wrong = ChapHost { key: vec![0x12; 32], ..ChapHost::right(HASHES[0], false) };
        let mut queue = connected(&target, PLAIN, 0, 0xffff);
        assert_eq!(wrong.authenticate(&mut queue), Err(1));
        assert_eq!(queue.read_to_end(), 0);
        // The subsystem has no secret, and a host insists on one.
        let mut queue = connected(&target, PLAIN, 0, 0xffff);
        assert_eq!(ChapHost::right(HASHES[0], true).authenticate(&mut queue), Err(1));
        assert_eq!(queue.read_to_end(), 0);
        // Other commands are refused, and not for ever.
        let mut queue = connected(&target, PLAIN, 0, 0xffff);
        for _ in 0..16 {
            assert_eq!(queue.run(Sqe::new(6, 0).word(10, 1)).status, 0x191);
        }
        assert_eq!(queue.read_to_end(), 0);
        // An I/O queue of a controller whose host is authenticated.
        let host = ChapHost::right(HASHES[2], false);
        let mut admin = connected(&target, PLAIN, 0, 0xffff);
        host.authenticate(&mut admin).unwrap();
        admin.enable();
        let mut queue = connected(&target, PLAIN, 1, admin.controller);
        assert_eq!(wrong.authenticate(&mut queue), Err(1));
        assert_eq!(queue.read_to_end(), 0);
    }
}

#[test]
fn a_response_is_of_no_use_a_second_time() {
    let target = target(Backend::Auto, secrets(false));
    let mut queue = connected(&target, PLAIN, 0, 0xffff);
    let host = ChapHost::right(HASHES[0], false);
    let mut negotiation = vec![0; 72];
    (negotiation[4], negotiation[7], negotiation[8]) = (7, 1, 1);
    (negotiation[10], negotiation[11], negotiation[12]) = (1, 1, 1);
    send(&mut queue, &negotiation);
    let challenge = fetch(&mut queue).unwrap();
    let response =
        host.sign(&host.key, &challenge[16..48], u32_of(&challenge, 12), "HostHost", [HOST, SUBSYSTEM]);
    let reply = [&[1, 2, 0, 0, 7, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &response].concat();
    let mut other = connected(&target, PLAIN, 0, 0xffff);
    send(&mut other, &negotiation);
    fetch(&mut other).unwrap();
    send(&mut other, &reply);
    assert_eq!(fetch(&mut other), Err(1));
    assert_eq!(other.read_to_end(), 0);
    send(&mut queue, &reply);
    assert!(fetch(&mut queue).is_ok());
}

#[test]
fn secrets_of_a_subsystem_agree() {
    let target = target(Backend::Auto, secrets(false));
    let name = ExportName::new("fast/vm02");
    let mut second = config(target.address, 2, &[]);
    let start = |config: &export::ExportConfig| {
        let started = block_on(target.frontend.start(&name, config, target.source.clone()));
        started.map(drop).map_err(|error| (error.kind(), error.to_string()))
    };
    let (kind, message) = start(&second).unwrap_err();
    assert!(kind == ExportErrorKind::Invalid && message.contains("other secrets"), "{message}");
    second.network.dhchap = Some(secrets(true));
    assert_eq!(start(&second).unwrap_err().0, ExportErrorKind::Invalid);
    second.network.dhchap = Some(secrets(false));
    start(&second).unwrap();
    // The form of secrets.
    let same = Some(secret("03", &CONTROLLER_KEY));
    for bad in [
        DhChapSecrets { host: "DHHC-1:00:AAAA:".into(), controller: None },
        DhChapSecrets { host: secret("01", &CONTROLLER_KEY), controller: None },
        DhChapSecrets { host: secret("03", &CONTROLLER_KEY), controller: same },
    ] {
        second.network.dhchap = Some(bad);
        assert_eq!(target.frontend.check(&name, &second).unwrap_err().kind(), ExportErrorKind::Invalid);
    }
}

#[test]
fn hosts_of_other_exports_are_asked_again() {
    // A host that was connected without a secret must not see a namespace that requires one.
    let target = Target::start(Backend::Auto, NvmeLimits::default(), &[]);
    let mut admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
    // For another host, so that the subsystem remains.
    let other = "nqn.2014-08.org.nvmexpress:uuid:99999999-2222-3333-4444-555555555555";
    let _kept = target.add(2, &[other]);
    block_on(target.running.stop(export::StopMode::Orderly)).unwrap();
    let mut with_secrets = config(target.address, 3, &[HOST]);
    with_secrets.network.dhchap = Some(secrets(false));
    let name = ExportName::new("fast/vm03");
    let _running = block_on(target.frontend.start(&name, &with_secrets, target.source.clone())).unwrap();
    admin.read_to_end();
    let mut queue = connected(&target, PLAIN, 0, 0xffff);
    ChapHost::right(HASHES[0], false).authenticate(&mut queue).unwrap();
    queue.enable();
}
