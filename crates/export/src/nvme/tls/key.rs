//! The pre-shared keys of exports, in the form in which tools print them, and the keys of TLS
//! connections that are derived from them.
//!
//! Always true: the value of a key is not in debug output.

use std::fmt;

use super::derive::{LabelForm, PskHash};
use super::identity::PskIdentity;
use crate::nvme::key_checksum::key_checksum;
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
    /// Checks the form of the key of an export.
    ///
    /// # Errors
    /// `Invalid`.
    pub(in crate::nvme) fn check(&self, export: &dyn fmt::Display) -> Result<(), ExportError> {
        let Err(defect) = ConfiguredPsk::decode(&self.0) else { return Ok(()) };
        let message = format!("the TLS key of export {export} {defect}");
        Err(ExportError::new(ExportErrorKind::Invalid, message)
            .hint("create a key by 'nvme gen-tls-key', and give its file as --tls-key"))
    }

    /// True if both keys are the same. Takes the same time for all keys of a length.
    pub(in crate::nvme) fn is_same(&self, other: &Self) -> bool {
        let (own, other) = (self.0.as_bytes(), other.0.as_bytes());
        let differences = own.iter().zip(other).fold(0, |all, (own, other)| all | (own ^ other));
        own.len() == other.len() && std::hint::black_box(differences) == 0
    }

    /// The keys of TLS connections with this identity, of which a host uses one. Empty if the
    /// identity is not one of this key.
    pub(super) fn derive(&self, identity: &PskIdentity<'_>) -> Vec<Vec<u8>> {
        let Ok(configured) = ConfiguredPsk::decode(&self.0) else { return Vec::new() };
        if configured.hash != identity.hash {
            return Vec::new();
        }
        let forms = [LabelForm::Standard, LabelForm::Legacy].into_iter();
        forms.filter_map(|form| configured.retained(form, identity.host)?.tls_key(identity)).collect()
    }
}

/// The reason why a key is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum TlsKeyDefect {
    #[error("does not have the form NVMeTLSkey-1:HH:BASE64:")]
    Form,
    #[error("has {0} bytes; keys have 32 or 48")]
    Length(usize),
    #[error("has a wrong checksum: a character is missing or was changed")]
    Checksum,
    #[error("has {0} bytes, and another number: 01 is for 32 bytes, 02 for 48 bytes, and 00 for both")]
    Number(usize),
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
    fn decode(text: &str) -> Result<Self, TlsKeyDefect> {
        let (number, bytes, checksum) = Self::parts(text).ok_or(TlsKeyDefect::Form)?;
        let hash = match bytes.len() {
            32 => PskHash::Sha256,
            48 => PskHash::Sha384,
            length => return Err(TlsKeyDefect::Length(length)),
        };
        let is_transformed = number != "00";
        if is_transformed && PskHash::numbered(number) != Some(hash) {
            return Err(TlsKeyDefect::Number(bytes.len()));
        }
        if checksum != key_checksum(&bytes).to_le_bytes() {
            return Err(TlsKeyDefect::Checksum);
        }
        Ok(Self { bytes, hash, is_transformed })
    }

    /// The number, the key and the checksum of a text.
    fn parts(text: &str) -> Option<(&str, Vec<u8>, Vec<u8>)> {
        let (number, text) = text.strip_prefix("NVMeTLSkey-1:")?.strip_suffix(':')?.split_once(':')?;
        let mut bytes = base64_simd::STANDARD.decode_to_vec(text).ok()?;
        let checksum = bytes.split_off(bytes.len().checked_sub(4)?);
        Some((number, bytes, checksum))
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
