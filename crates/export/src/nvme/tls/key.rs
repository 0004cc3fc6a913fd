//! The pre-shared keys of exports, in the form in which tools print them, and the keys of TLS
//! connections that are derived from them.
//!
//! Always true: the value of a key is not in debug output.

use std::fmt;

use super::derive::{LabelForm, PskHash};
use super::identity::PskIdentity;
use crate::nvme::authentication::crc32;
use crate::{ExportError, ExportErrorKind};

/// The text that is a part of every digest.
const SEED: &[u8] = b"NVMe-over-Fabrics";

/// A pre-shared key (PSK) in the interchange format: `NVMeTLSkey-1:HH:BASE64:`.
#[derive(Clone, PartialEq, Eq)]
pub struct NvmeTlsKey(pub String);

impl fmt::Debug for NvmeTlsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NvmeTlsKey")
    }
}

impl NvmeTlsKey {
    /// Checks the form of the key.
    ///
    /// # Errors
    /// `Invalid`.
    pub(in crate::nvme) fn check(&self) -> Result<(), ExportError> {
        if ConfiguredPsk::decode(&self.0).is_some() {
            return Ok(());
        }
        let message = "the TLS key does not have the form NVMeTLSkey-1:HH:BASE64:".to_owned();
        Err(ExportError::new(ExportErrorKind::Invalid, message)
            .hint("'nvme gen-tls-key' creates such a key: HH is 00, 01 or 02"))
    }

    /// The keys of TLS connections with this identity, of which a host uses one. Empty if the
    /// identity is not one of this key.
    pub(super) fn derive(&self, identity: &PskIdentity<'_>) -> Vec<Vec<u8>> {
        let Some(configured) = ConfiguredPsk::decode(&self.0) else { return Vec::new() };
        if configured.hash != identity.hash {
            return Vec::new();
        }
        let forms = [LabelForm::Standard, LabelForm::Legacy].into_iter();
        forms.filter_map(|form| configured.retained(form, identity.host)?.tls_key(identity)).collect()
    }
}

/// A decoded key.
struct ConfiguredPsk {
    bytes: Vec<u8>,
    hash: PskHash,
    /// The key is combined with the name of the host.
    is_transformed: bool,
}

/// A key between one host and all subsystems.
struct RetainedPsk {
    bytes: Vec<u8>,
    hash: PskHash,
    form: LabelForm,
}

impl ConfiguredPsk {
    fn decode(text: &str) -> Option<Self> {
        let (number, text) = text.strip_prefix("NVMeTLSkey-1:")?.strip_suffix(':')?.split_once(':')?;
        let mut bytes = base64_simd::STANDARD.decode_to_vec(text).ok()?;
        let at = bytes.len().checked_sub(4)?;
        let checksum = bytes.split_off(at);
        let hash = match bytes.len() {
            32 => PskHash::Sha256,
            48 => PskHash::Sha384,
            _ => return None,
        };
        let is_transformed = number != "00";
        let fits = !is_transformed || PskHash::numbered(number) == Some(hash);
        (fits && checksum == crc32(&bytes).to_le_bytes()).then_some(Self { bytes, hash, is_transformed })
    }

    /// The key of a host. `None` if its name is too long.
    fn retained(&self, form: LabelForm, host: &str) -> Option<RetainedPsk> {
        let bytes = match self.is_transformed {
            true => self.hash.derive(form, &self.bytes, "HostNQN", host.as_bytes())?,
            false => self.bytes.clone(),
        };
        Some(RetainedPsk { bytes, hash: self.hash, form })
    }
}

impl RetainedPsk {
    /// The key of TLS connections with this identity. `None` if the identity is one of another key,
    /// or too long.
    fn tls_key(&self, identity: &PskIdentity<'_>) -> Option<Vec<u8>> {
        let Some(digest) = identity.digest else {
            return self.hash.derive(self.form, &self.bytes, "nvme-tls-psk", identity.text.as_bytes());
        };
        if digest != self.digest(identity) {
            return None;
        }
        let context = format!("{} {digest}", self.hash.number());
        self.hash.derive(self.form, &self.bytes, "nvme-tls-psk", context.as_bytes())
    }

    /// The digest of the key, which identities of version 1 name.
    fn digest(&self, identity: &PskIdentity<'_>) -> String {
        let parts = [identity.host.as_bytes(), b" ", identity.subsystem.as_bytes(), b" ", SEED];
        base64_simd::STANDARD.encode_to_string(self.hash.sign(&self.bytes, &parts))
    }
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
