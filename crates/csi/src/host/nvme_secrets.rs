//! Secrets by which the kernel and a target authenticate each other (DH-HMAC-CHAP).
//!
//! Always true: the value of a secret is not in debug output.

use std::fmt;
use std::io;

use crc_fast::{CrcAlgorithm, checksum};

/// Length of a secret.
const LENGTH: usize = 32;

/// The secrets of one disk.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct NvmeSecrets {
    /// The secret of the host.
    pub(crate) host: String,
    /// The secret of the target.
    pub(crate) controller: String,
}

impl fmt::Debug for NvmeSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NvmeSecrets")
    }
}

impl NvmeSecrets {
    /// Returns random secrets.
    ///
    /// # Errors
    /// If the kernel has no random numbers.
    pub(crate) fn random() -> io::Result<Self> {
        let secret = || {
            let mut bytes = [0; LENGTH];
            getrandom::fill(&mut bytes).map_err(io::Error::other)?;
            Ok::<_, io::Error>(encode(&bytes))
        };
        Ok(Self { host: secret()?, controller: secret()? })
    }

    /// Returns the options by which the kernel gets the secrets.
    pub(super) fn options(&self) -> String {
        format!(",dhchap_secret={},dhchap_ctrl_secret={}", self.host, self.controller)
    }
}

/// Returns a secret in the form `DHHC-1:00:BASE64:`, for a key that is used as it is.
fn encode(bytes: &[u8]) -> String {
    let [a, b, c, d, ..] = checksum(CrcAlgorithm::Crc32IsoHdlc, bytes).to_le_bytes();
    format!("DHHC-1:00:{}:", base64_simd::STANDARD.encode_to_string([bytes, &[a, b, c, d]].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A secret that `nvme gen-dhchap-key` has printed.
    const PRINTED: &str = "DHHC-1:00:nR2ru2ZHCXqG3XAyaz0/+gB089FRFL0o838kvct0gfv9vUN3:";

    #[test]
    fn secrets_have_the_form_of_other_tools() {
        let text = PRINTED.strip_prefix("DHHC-1:00:").unwrap().strip_suffix(':').unwrap();
        let bytes = base64_simd::STANDARD.decode_to_vec(text).unwrap();
        assert_eq!(encode(&bytes[..LENGTH]), PRINTED);
    }

    #[test]
    fn secrets_are_random_and_not_shown() {
        let (one, two) = (NvmeSecrets::random().unwrap(), NvmeSecrets::random().unwrap());
        assert!(one != two && one.host != one.controller);
        assert!(!format!("{one:?}").contains("DHHC"));
        assert!(one.options().contains(&format!(",dhchap_secret={}", one.host)));
    }
}
