//! Secrets of hosts and subsystems, in the form in which tools print them.
//!
//! Always true: the value of a secret is not in debug output.

use std::fmt;

use ring::hmac::{self, HMAC_SHA256, HMAC_SHA384, HMAC_SHA512};

use crate::nvme::key_checksum::key_checksum;
use crate::{ExportError, ExportErrorKind};

/// The text that is a part of every transformed key.
const LABEL: &[u8] = b"NVMe-over-Fabrics";

/// The secrets of an export, each as `DHHC-1:NN:BASE64:`.
#[derive(Clone, PartialEq, Eq)]
pub struct DhChapSecrets {
    /// The secret by which hosts authenticate themselves.
    pub host: String,
    /// The secret by which the subsystem authenticates itself, if a host asks for it.
    pub controller: Option<String>,
}

impl fmt::Debug for DhChapSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DhChapSecrets(controller: {})", self.controller.is_some())
    }
}

impl DhChapSecrets {
    /// Checks the form of the secrets.
    ///
    /// # Errors
    /// `Invalid`.
    pub(in crate::nvme) fn check(&self) -> Result<(), ExportError> {
        let host = Some(("host", &self.host));
        let controller = self.controller.as_ref().map(|secret| ("controller", secret));
        for (role, secret) in host.into_iter().chain(controller) {
            if DhChapKey::decode(secret).is_none() {
                let message = format!("the secret of the {role} does not have the form DHHC-1:NN:BASE64:");
                return Err(ExportError::new(ExportErrorKind::Invalid, message)
                    .hint("'nvme gen-dhchap-key' creates such a secret"));
            }
        }
        if self.controller.as_ref() == Some(&self.host) {
            let message = "the host and the controller have the same secret".to_owned();
            return Err(ExportError::new(ExportErrorKind::Invalid, message)
                .hint("create another one with 'nvme gen-dhchap-key'"));
        }
        Ok(())
    }

    /// The keys between a host and a subsystem of these names. `None` if the form of a secret is
    /// invalid.
    pub(in crate::nvme) fn keys(&self, host: &str, subsystem: &str) -> Option<DhChapKeys> {
        let controller = match &self.controller {
            Some(secret) => Some(DhChapKey::decode(secret)?.transformed(subsystem)),
            None => None,
        };
        Some(DhChapKeys { host: DhChapKey::decode(&self.host)?.transformed(host), controller })
    }
}

/// The keys between one host and one subsystem.
pub(in crate::nvme) struct DhChapKeys {
    pub(super) host: Vec<u8>,
    pub(super) controller: Option<Vec<u8>>,
}

/// A decoded secret.
struct DhChapKey {
    bytes: Vec<u8>,
    /// The function that combines the key with the name of its owner; none for a key that is used
    /// as it is.
    transform: Option<hmac::Algorithm>,
}

impl DhChapKey {
    fn decode(secret: &str) -> Option<Self> {
        let (number, text) = secret.strip_prefix("DHHC-1:")?.strip_suffix(':')?.split_once(':')?;
        let (transform, length) = match number {
            "00" => (None, None),
            "01" => (Some(HMAC_SHA256), Some(32)),
            "02" => (Some(HMAC_SHA384), Some(48)),
            "03" => (Some(HMAC_SHA512), Some(64)),
            _ => return None,
        };
        let mut bytes = base64_simd::STANDARD.decode_to_vec(text).ok()?;
        let at = bytes.len().checked_sub(4)?;
        let checksum = bytes.split_off(at);
        let fits = matches!(bytes.len(), 32 | 48 | 64) && length.is_none_or(|length| bytes.len() == length);
        (fits && checksum == key_checksum(&bytes).to_le_bytes()).then_some(Self { bytes, transform })
    }

    /// The key of the owner of this name.
    fn transformed(self, owner: &str) -> Vec<u8> {
        let Some(transform) = self.transform else { return self.bytes };
        let mut context = hmac::Context::with_key(&hmac::Key::new(transform, &self.bytes));
        context.update(owner.as_bytes());
        context.update(LABEL);
        context.sign().as_ref().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_decoded() {
        let encode = |number: &str, bytes: &[u8]| {
            let all = [bytes, &key_checksum(bytes).to_le_bytes()].concat();
            format!("DHHC-1:{number}:{}:", base64_simd::STANDARD.encode_to_string(all))
        };
        for (number, length) in [("00", 32), ("00", 48), ("00", 64), ("01", 32), ("02", 48), ("03", 64)] {
            let bytes = vec![0x5a; length];
            let secret = encode(number, &bytes);
            let key = DhChapKey::decode(&secret).unwrap();
            assert_eq!(key.bytes, bytes);
            let key = key.transformed("nqn.x");
            assert_eq!((key.len(), key == bytes), (length, number == "00"));
            for bad in [&secret[1..], &secret[..secret.len() - 1], &secret.replace("DHHC-1:0", "DHHC-1:4")] {
                assert!(DhChapKey::decode(bad).is_none(), "{bad}");
            }
            let changed = secret.replacen('W', "X", 1);
            assert!(DhChapKey::decode(&changed).is_none(), "a checksum was not compared");
        }
        // As `nvme gen-dhchap-key` of nvme-cli 2.3 prints them.
        for (secret, length) in [
            ("DHHC-1:00:nR2ru2ZHCXqG3XAyaz0/+gB089FRFL0o838kvct0gfv9vUN3:", 32),
            ("DHHC-1:02:IxTl16N0lf/MJtvczU2MMsG+I1M5B73zk87LplvAcS4qEhYTDZgw7IXaL9eLMCAIxQ8/0Q==:", 48),
        ] {
            assert_eq!(DhChapKey::decode(secret).unwrap().bytes.len(), length);
        }
        for (number, length) in [("00", 31), ("01", 48), ("02", 32), ("03", 32)] {
            assert!(DhChapKey::decode(&encode(number, &vec![1; length])).is_none());
        }
    }

    #[test]
    fn debug_output_has_no_secret() {
        let secrets = DhChapSecrets { host: "DHHC-1:00:secret:".into(), controller: None };
        assert!(!format!("{secrets:?}").contains("secret:"));
        assert!(secrets.check().is_err());
    }
}
