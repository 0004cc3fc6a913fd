//! First messages that are built here, byte by byte.

use super::*;

const HOST: &str = "nqn.2014-08.org.example:host";
const DISK: &str = "nqn.2014-08.org.example:disk";
/// The configured key of the bytes 0 to 31.
const KEY: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

/// Data after its length, a number of `width` bytes.
fn field(width: usize, bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u64).to_le_bytes();
    let length: Vec<u8> = length[..width].iter().rev().copied().collect();
    [&length, bytes].concat()
}

fn extension(kind: u16, bytes: &[u8]) -> Vec<u8> {
    [vec![(kind >> 8) as u8, kind as u8], field(2, bytes)].concat()
}

/// A first message with this cipher suite and these extensions.
fn hello_with(suite: [u8; 2], extensions: &[u8]) -> Vec<u8> {
    let body = [
        &[3, 3][..],
        &[7; 32],
        &field(1, &[9; 32]),
        &field(2, &suite),
        &field(1, &[0]),
        &field(2, extensions),
    ]
    .concat();
    [vec![1], field(3, &body)].concat()
}

/// The cipher suite of the key.
const SUITE: [u8; 2] = [0x13, 0x01];

/// The extensions before the keys: the version, and the use of keys.
fn usual() -> Vec<u8> {
    [extension(43, &[2, 3, 4]), extension(45, &[2, 0, 1])].concat()
}

/// A first message that offers identities, each with a key that proves it.
fn hello(offers: &[(&str, &[u8])]) -> Vec<u8> {
    hello_of(SUITE, &usual(), offers)
}

/// A first message with this cipher suite, these extensions, and offers as in [`hello`].
fn hello_of(suite: [u8; 2], before: &[u8], offers: &[(&str, &[u8])]) -> Vec<u8> {
    let build = |binders: &[Vec<u8>]| {
        let identities: Vec<u8> =
            offers.iter().flat_map(|(name, _)| [field(2, name.as_bytes()), vec![0; 4]].concat()).collect();
        let binders: Vec<u8> = binders.iter().flat_map(|binder| field(1, binder)).collect();
        let keys = [field(2, &identities), field(2, &binders)].concat();
        (hello_with(suite, &[before, &extension(41, &keys)].concat()), 2 + binders.len())
    };
    let (unproven, length) = build(&vec![vec![0; 32]; offers.len()]);
    let partial = &unproven[..unproven.len() - length];
    let prove = |(_, key): &(&str, &[u8])| PskHash::Sha256.binder(key, partial);
    build(&offers.iter().map(prove).collect::<Vec<_>>()).0
}

/// The identity of the key, and the keys that are derived from it.
fn derived() -> (String, Vec<Vec<u8>>) {
    let text = format!("NVMe0R01 {HOST} {DISK}");
    let keys = NvmeTlsKey(KEY.into()).derive(&PskIdentity::decode(text.as_bytes()).unwrap());
    (text, keys)
}

fn choose(hello: &[u8]) -> Result<(TlsKey, TlsPeer), KeyRefusal> {
    choose_key(hello, |subsystem, host| (subsystem == DISK && host == HOST).then(|| NvmeTlsKey(KEY.into())))
}

#[test]
fn a_proven_key_is_chosen() {
    let (name, keys) = derived();
    for key in &keys {
        let (chosen, peer) = choose(&hello(&[(&name, key)])).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        assert_eq!((&chosen.identity[..], &chosen.secret), (name.as_bytes(), key));
        assert_eq!((peer.names.host.as_str(), peer.names.subsystem.as_str()), (HOST, DISK));
        assert!(peer.key.is_same(&NvmeTlsKey(KEY.into())));
        // Others may be offered before.
        let foreign = format!("NVMe0R01 {HOST} {DISK}2");
        let offers = [("ticket", &key[..]), (&foreign, key), (&name, key)];
        assert!(choose(&hello(&offers)).is_ok_and(|(chosen, _)| chosen.identity == name.as_bytes()));
    }
}

#[test]
fn other_offers_are_refused() {
    let refusal = |hello: &[u8]| choose(hello).map(drop).unwrap_err();
    let (name, keys) = derived();
    let names = |host: &str| TlsNames { host: host.into(), subsystem: DISK.into() };
    let wrong = KeyRefusal::Wrong(names(HOST));
    assert_eq!(refusal(&hello_with(SUITE, &usual())), KeyRefusal::NoOffer);
    assert_eq!(refusal(&hello(&[("ticket", &keys[0])])), KeyRefusal::Foreign);
    let (other, long) = (format!("{HOST}2"), format!("NVMe0R02 {HOST} {DISK}"));
    let foreign = format!("NVMe0R01 {other} {DISK}");
    let unknown = (foreign.as_str(), &keys[0][..]);
    assert_eq!(refusal(&hello(&[unknown])), KeyRefusal::Unknown(names(&other)));
    assert_eq!(refusal(&hello(&[(&long, &[1; 48])])), KeyRefusal::Other(names(HOST)));
    assert_eq!(refusal(&hello(&[(&name, &[1; 32])])), wrong);
    // The offer for an export with a key is reported.
    assert_eq!(refusal(&hello(&[unknown, (&name, &[1; 32]), unknown])), wrong);
    // The proof covers every byte before it.
    let valid = hello(&[(&name, &keys[0])]);
    for at in [6, 10, 50] {
        let mut changed = valid.clone();
        changed[at] ^= 1;
        assert_eq!(refusal(&changed), wrong, "byte {at}");
    }
    for at in [valid.len() - 1, valid.len() - 32] {
        let mut changed = valid.clone();
        changed[at] ^= 1;
        assert_eq!(refusal(&changed), wrong, "byte {at}");
    }
}

#[test]
fn hosts_that_cannot_use_their_key_are_refused() {
    let (name, keys) = derived();
    let refusal = |suite, before: &[u8]| {
        let error = choose(&hello_of(suite, before, &[(&name, &keys[0])])).map(drop).unwrap_err();
        (error.alert(), error.to_string())
    };
    for suite in [[0x13, 0x02], [0x13, 0x03]] {
        let (alert, text) = refusal(suite, &usual());
        assert!(alert == 40 && text.contains("TLS_AES_128_GCM_SHA256") && text.contains(HOST), "{text}");
    }
    let (alert, text) = refusal(SUITE, &extension(43, &[2, 3, 4]));
    assert!(alert == 109 && text.contains("psk_key_exchange_modes"), "{text}");
    let (alert, text) = refusal(SUITE, &[extension(43, &[2, 3, 4]), extension(45, &[1, 0])].concat());
    assert!(alert == 40 && text.contains("psk_dhe_ke"), "{text}");
}

#[test]
fn malformed_messages_are_refused() {
    let (name, keys) = derived();
    let valid = hello(&[(&name, &keys[0])]);
    for length in 0..valid.len() {
        assert_eq!(ClientHello::decode(&valid[..length]), None, "{length} bytes");
    }
    assert_eq!(ClientHello::decode(&[&valid[..], &[0]].concat()), None);
    let keys = [field(2, &[field(2, b"name"), vec![0; 4]].concat()), field(2, &field(1, &[0; 32]))].concat();
    for bad in [
        // The keys are not the last extension, or have no binder.
        hello_with(SUITE, &[extension(41, &keys), extension(43, &[2, 3, 4])].concat()),
        hello_with(SUITE, &extension(41, &keys[..keys.len() - 33])),
        hello_with(SUITE, &extension(41, &[&keys[..], &[0]].concat())),
        hello_with(SUITE, &[0]),
        // The ways in which keys are used are cut off.
        hello_with(SUITE, &extension(45, &[2, 1])),
    ] {
        assert_eq!(ClientHello::decode(&bad), None);
    }
}

#[test]
fn many_offers_are_limited() {
    let (name, keys) = derived();
    let foreign = "NVMe0R01 nqn.x nqn.y";
    let mut offers = vec![(foreign, &keys[0][..]); 7];
    offers.push((&name, &keys[0]));
    assert!(choose(&hello(&offers)).is_ok());
    offers.insert(0, (foreign, &keys[0]));
    assert_eq!(choose(&hello(&offers)).map(drop).unwrap_err().alert(), 115);
}
