//! Known answers, computed by a program that was written from the specification (HMAC and SHA-2 of
//! Python), which shares no code with this one.

use proptest::prelude::*;

use super::*;

const HOST: &str = "nqn.2014-08.org.example:host";
const SUBSYSTEM: &str = "nqn.2014-08.org.example:disk";

/// A configured key of the bytes 0, 1, 2 and so on, in the interchange format.
fn key(number: &str, length: u8) -> NvmeTlsKey {
    encode(number, &(0..length).collect::<Vec<u8>>())
}

/// The defect of a key.
fn defect(text: &str) -> Option<TlsKeyDefect> {
    ConfiguredPsk::decode(text).err()
}

fn encode(number: &str, bytes: &[u8]) -> NvmeTlsKey {
    let all = [bytes, &key_checksum(bytes).to_le_bytes()].concat();
    NvmeTlsKey(format!("NVMeTLSkey-1:{number}:{}:", base64_simd::STANDARD.encode_to_string(all)))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The keys that are derived for an identity of this version and digest.
fn derived(key: &NvmeTlsKey, hash: &str, version: &str, digest: &str) -> Vec<String> {
    let mut text = format!("NVMe{version}R{hash} {HOST} {SUBSYSTEM}");
    if version == "1" {
        text = format!("{text} {digest}");
    }
    let identity = PskIdentity::decode(text.as_bytes()).unwrap();
    key.derive(&identity).iter().map(|key| hexadecimal(key)).collect()
}

/// Keys of version 0: number, bytes of the key, and the two keys of TLS, of the specification and
/// of early tools.
const VERSION_0: [(&str, u8, [&str; 2]); 4] = [
    (
        "00",
        32,
        [
            "548d56c57d2ba20814bc9a6369b9e575d3774aba5cd948b514228023644c5dfa",
            "5cf4652f119bd099005a5fcae87a0e21c04d7c8bed10b6897615a4e85e8a9bb0",
        ],
    ),
    (
        "00",
        48,
        [
            "f0c3abbcfb0106d273f525e2c64027d87e81e06f5d3d8bf2e36ca994519a8917d5cf4fb28c824489400fb3222f523c0e",
            "c2a3685df624535eb4a8724120e92b83520271522454b15bdb01df8818708db51c6f9ba3132eefd63b811f10e4b86209",
        ],
    ),
    (
        "01",
        32,
        [
            "a67c4d582c85532cd5baf0af82e8e8a2ab28ddef511a30ae707c5c5aa610046f",
            "0b5a761375ede69ad3331eaac736397f101b20d9f213a0c5d8dc21076a41fe53",
        ],
    ),
    (
        "02",
        48,
        [
            "fa3fc979d39cb4d8a7c827f7233e9415fb330e5d7d3c6f797bde7c98e352cd8582fc778e5ed6a50d2bdd7dc3b37fc7fa",
            "1f9a746f8c568927959ef62c2c16264243a6359b60242831bc791045e93e45fdcd8294f9f3c70a6f5bb65d35bdfe09ce",
        ],
    ),
];

/// Keys of version 1: number, bytes of the key, digest, and key of TLS.
const VERSION_1: [(&str, u8, &str, &str); 8] = [
    (
        "00",
        32,
        "LQ5bPx2v9AynhJSPjBRwgGUH7fuewRAMU8EfrNb2R1c=",
        "6f5d77d9e43c2c88402be82beb141f1edcd3a7df8ebf57e81a030d8e8fa82b74",
    ),
    (
        "00",
        32,
        "LQ5bPx2v9AynhJSPjBRwgGUH7fuewRAMU8EfrNb2R1c=",
        "19327f8e122cccf9ce7514c77ab4b2643b7a2c7de797d63b8e9cafee1bf45d51",
    ),
    (
        "00",
        48,
        "u5xWt1h48bmN5qQprMxunu0z/66tIREa3p2AsMTBXo84TAfyqA68j/XOoravUu2I",
        "dae7c359cb3371b63b75c59f79272e6bd4291c507fd0b22c79904b81532fa9e67f4ce260d593ecf52d53954941f98227",
    ),
    (
        "00",
        48,
        "u5xWt1h48bmN5qQprMxunu0z/66tIREa3p2AsMTBXo84TAfyqA68j/XOoravUu2I",
        "1cf83b1d2f8875d05b02e5509825d993740aa810925f76e8bd68248bd44b27838f9bb6f7c0633652565d0ac1c2fdb648",
    ),
    (
        "01",
        32,
        "rgCIzI93cCVJvKj3FRz+OQ90az0i9WIFieeHGQ3UOP4=",
        "ef49816e3dfbe048b33ba66d2c55b52e7e91cb056761b2a8058765abfffee2bf",
    ),
    (
        "01",
        32,
        "X3b/t6G8z+xObHWgMZnW7jqv4kOymhh1SkBKQfHCwHk=",
        "57c5c9d07c04edf49094009212cfa5d8cc278ae7327be6a60358d669b4d9881c",
    ),
    (
        "02",
        48,
        "+pNKFZl0cO8kTG+hJa9Nc69uBVz026mlwHp1aOA7KIJ02DGuFGcpARs7bTkqLGo2",
        "69a20e589b1abf2788c1c291d7cb89a98a3937e5dd4961ceeb2ecc66045b73c6bafa548cfdb3b60aea6cad9b809d8cf6",
    ),
    (
        "02",
        48,
        "5V9kJH+VMS98G6+TWLLvdywJbxAI4Yb4bR3spVMxXGoIfXSzS6llenHf9UZL1lO5",
        "7dea04287b081fdc623c3509133a1c5113525dffc5413ae5979af3eefe4e44474ba2b9cbe280d59c37a6817cfce72391",
    ),
];

fn hash_of(length: u8) -> &'static str {
    if length == 32 { "01" } else { "02" }
}

#[test]
fn keys_of_version_0_are_derived() {
    for (number, length, expected) in VERSION_0 {
        assert_eq!(derived(&key(number, length), hash_of(length), "0", ""), expected, "{number} {length}");
    }
}

#[test]
fn keys_of_version_1_are_derived() {
    for (number, length, digest, expected) in VERSION_1 {
        let keys = derived(&key(number, length), hash_of(length), "1", digest);
        assert!(keys.contains(&expected.to_owned()), "{number} {length}: {keys:?}");
        // The digest shows which form the tool has used, unless the host's name is no part of it.
        assert_eq!(keys.len(), if number == "00" { 2 } else { 1 });
    }
}

#[test]
fn other_identities_have_no_key() {
    let (_, length, digest, _) = VERSION_1[0];
    let key = key("00", length);
    assert!(derived(&key, "01", "1", &digest.replace('L', "M")).is_empty(), "a digest was not compared");
    assert!(derived(&key, "02", "0", "").is_empty(), "the hash is that of the key");
    assert!(derived(&NvmeTlsKey("NVMeTLSkey-1:00:".into()), "01", "0", "").is_empty());
}

#[test]
fn binders_are_computed() {
    let hello = b"a ClientHello up to its binders";
    for (hash, expected) in [
        (PskHash::Sha256, "b899dee60f6f952204686cc1e5a6dae878afc8772a059c96e7a108f85728a834"),
        (
            PskHash::Sha384,
            "c105b12523589ddf61da3530377f3336a113bb59bae65d2267e460b5907fe187dfa782eae613903002acaeb988392b2b",
        ),
    ] {
        let psk: Vec<u8> = (0..hash.length() as u8).collect();
        let binder = hash.binder(&psk, hello);
        assert_eq!(hexadecimal(&binder), expected);
        assert!(hash.is_proven(&psk, hello, &binder) && !hash.is_proven(&psk, &hello[1..], &binder));
    }
}

#[test]
fn only_well_formed_keys_are_accepted() {
    // As `nvme gen-tls-key` of nvme-cli 2.3 prints them, with and without `--hmac=2`.
    for printed in [
        "NVMeTLSkey-1:02:uRvDDgqFib1fTYmyDlfAKEDugyJo7PlPQLxF3ITXMY4+oBEzMK4CbfKCawDgmI6jjIPMZg==:",
        "NVMeTLSkey-1:01:yBd+GiJlgJu8iLUAYCeAjVyXhTSy87BrQwTIF51WOIhkBl26:",
    ] {
        NvmeTlsKey(printed.into()).check(&"fast/disk").unwrap();
    }
    for (number, length) in [("00", 32), ("00", 48), ("01", 32), ("02", 48)] {
        let NvmeTlsKey(text) = key(number, length);
        NvmeTlsKey(text.clone()).check(&"fast/disk").unwrap();
        for bad in [&text[1..], &text[..text.len() - 1], &text.replace("-1:", "-2:"), ""] {
            assert_eq!(defect(bad), Some(TlsKeyDefect::Form), "{bad}");
        }
        assert_eq!(defect(&text.replacen("A", "B", 1)), Some(TlsKeyDefect::Checksum));
    }
    for (number, length) in [("00", 31), ("00", 64), ("03", 64)] {
        assert_eq!(defect(&key(number, length).0), Some(TlsKeyDefect::Length(length.into())));
    }
    for (number, length) in [("01", 48), ("02", 32), ("03", 32), ("1", 32)] {
        assert_eq!(defect(&key(number, length).0), Some(TlsKeyDefect::Number(length.into())));
    }
    let error = key("01", 48).check(&"fast/disk").unwrap_err();
    assert!(error.to_string().starts_with("the TLS key of export fast/disk has 48 bytes"), "{error}");
}

#[test]
fn keys_are_compared() {
    let one = key("01", 32);
    assert!(one.is_same(&one.clone()));
    for other in [key("00", 32), key("02", 48), encode("01", &[7; 32]), NvmeTlsKey(String::new())] {
        assert!(!one.is_same(&other) && !other.is_same(&one));
    }
}

#[test]
fn debug_output_has_no_key() {
    let NvmeTlsKey(text) = key("01", 32);
    let error = NvmeTlsKey(format!("{text}:")).check(&"fast/disk").unwrap_err();
    for shown in [format!("{:?}", NvmeTlsKey(text)), format!("{error:?} {error}")] {
        assert!(!shown.contains("AAEC"), "{shown}");
    }
}

#[test]
fn identities_are_decoded() {
    let text = format!("NVMe1R02 {HOST} {SUBSYSTEM} AAAA");
    let identity = PskIdentity::decode(text.as_bytes()).unwrap();
    assert_eq!((identity.hash, identity.host, identity.subsystem), (PskHash::Sha384, HOST, SUBSYSTEM));
    assert_eq!(identity.digest, Some("AAAA"));
    for bad in [
        format!("NVMe0R02 {HOST} {SUBSYSTEM} AAAA"),
        format!("NVMe1R02 {HOST} {SUBSYSTEM}"),
        format!("NVMe1R02 {HOST} {SUBSYSTEM} "),
        format!("NVMe1R02 {HOST} {SUBSYSTEM} A A"),
        // A key that an authentication has generated.
        format!("NVMe0G01 {HOST} {SUBSYSTEM}"),
        format!("NVMe0R03 {HOST} {SUBSYSTEM}"),
        format!("NVMe2R01 {HOST} {SUBSYSTEM}"),
        format!("NVMe0R01  {HOST} {SUBSYSTEM}"),
        format!("NVMe0R01 {HOST}"),
        format!("NVMe0R01 host {SUBSYSTEM}"),
        format!("NVMe0R01 {HOST} disk"),
        "NVMe0R01".to_owned(),
        "NVM\u{e9}".to_owned(),
        String::new(),
    ] {
        assert_eq!(PskIdentity::decode(bad.as_bytes()), None, "{bad}");
    }
}

proptest! {
    #[test]
    fn keys_survive_their_encoding(bytes in prop::collection::vec(any::<u8>(), 48), is_long in any::<bool>(), flip in 0..384usize) {
        let bytes = &bytes[..if is_long { 48 } else { 32 }];
        let configured = ConfiguredPsk::decode(&encode("00", bytes).0).unwrap();
        prop_assert_eq!(&configured.bytes, bytes);
        // Any changed bit is detected.
        let mut changed = bytes.to_vec();
        changed[flip / 8 % bytes.len()] ^= 1 << (flip % 8);
        let all = [&changed[..], &key_checksum(bytes).to_le_bytes()].concat();
        let text = format!("NVMeTLSkey-1:00:{}:", base64_simd::STANDARD.encode_to_string(all));
        prop_assert!(ConfiguredPsk::decode(&text).is_err());
    }

    #[test]
    fn any_text_is_decoded_or_refused(text in "(NVMe)?(TLSkey-1:0[0-3]:|[01][RG]0[0-3] )?[ -~]{0,80}:?") {
        let _ = ConfiguredPsk::decode(&text);
        if let Some(identity) = PskIdentity::decode(text.as_bytes()) {
            prop_assert!(text.contains(identity.host) && text.contains(identity.subsystem));
        }
    }

    /// Names that are too long for a label have no key, and cause no panic.
    #[test]
    fn long_names_have_keys_of_version_1_only(host in 4..219usize, subsystem in 4..219usize) {
        let names = [host, subsystem].map(|length| format!("nqn.{}", "x".repeat(length)));
        let text = format!("NVMe0R01 {} {}", names[0], names[1]);
        let identity = PskIdentity::decode(text.as_bytes()).unwrap();
        let keys = key("01", 32).derive(&identity);
        prop_assert_eq!(keys.len(), if text.len() <= 255 { 2 } else { 0 });
        prop_assert!(keys.iter().all(|key| key.len() == 32));
    }
}
