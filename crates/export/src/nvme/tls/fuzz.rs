//! Fuzz target: the first message of a TLS client, identities and configured keys.
//!
//! No bytes are taken for a proof of a key; decoding uses memory in proportion to its input.

use ::fuzz::within;

use super::*;
use crate::ExportName;

/// The configured key of the bytes 0 to 31.
const KEY: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

::fuzz::target!(nvme_tls, |bytes| match bytes {
    [0, rest @ ..] => check_key(rest),
    [_, rest @ ..] => check_hello(rest),
    [] => {}
});

fn check_key(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let export = ExportName::new("fast/disk");
    let is_valid = within(bytes.len() + 4096, || NvmeTlsKey(text.to_owned()).check(&export).is_ok());
    assert!(!is_valid || text.starts_with("NVMeTLSkey-1:0") && (60..100).contains(&text.len()));
}

fn check_hello(bytes: &[u8]) {
    let chosen = within(64 << 10, || {
        choose_key(bytes, |subsystem, host| {
            assert!(subsystem.starts_with("nqn.") && host.starts_with("nqn."));
            Some(NvmeTlsKey(KEY.to_owned()))
        })
    });
    assert!(chosen.is_err(), "an attacker has guessed a proof");
}
