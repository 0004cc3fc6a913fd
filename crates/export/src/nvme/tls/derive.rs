//! The functions that derive keys: HKDF-Extract, and HKDF-Expand-Label for up to one block.
//!
//! Source: RFC 5869; RFC 8446, 7.1.

use ring::{digest, hmac};

/// The hash function of a key, and of the cipher suite that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PskHash {
    Sha256,
    Sha384,
}

/// The form of the input of an expansion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelForm {
    /// The HkdfLabel structure of TLS 1.3.
    Standard,
    /// The form of libnvme before 1.16, and of `nvme --compat` since: without the lengths of label
    /// and context, and with the length of the key in the byte order of the host, little endian.
    Legacy,
}

impl PskHash {
    /// The hash function of this number in keys and identities.
    pub(super) fn numbered(number: &str) -> Option<Self> {
        match number {
            "01" => Some(Self::Sha256),
            "02" => Some(Self::Sha384),
            _ => None,
        }
    }

    /// The number in keys and identities.
    pub(super) fn number(self) -> &'static str {
        match self {
            Self::Sha256 => "01",
            Self::Sha384 => "02",
        }
    }

    /// Bytes of its output, and of keys.
    pub(super) fn length(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }

    fn algorithm(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
        }
    }

    fn digest(self, bytes: &[u8]) -> digest::Digest {
        let algorithm = match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
        };
        digest::digest(algorithm, bytes)
    }

    /// The HMAC of the concatenation of `parts`.
    pub(super) fn sign(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let mut context = hmac::Context::with_key(&hmac::Key::new(self.algorithm(), key));
        parts.iter().for_each(|part| context.update(part));
        context.sign().as_ref().to_vec()
    }

    /// HKDF-Extract without a salt, then HKDF-Expand-Label for as many bytes as a hash has. `None`
    /// if the context is too long.
    pub(super) fn derive(
        self,
        form: LabelForm,
        input: &[u8],
        label: &str,
        context: &[u8],
    ) -> Option<Vec<u8>> {
        self.expand(form, &self.extract(input), label, context)
    }

    /// HKDF-Extract without a salt.
    fn extract(self, input: &[u8]) -> Vec<u8> {
        self.sign(&vec![0; self.length()], &[input])
    }

    /// HKDF-Expand-Label for as many bytes as a hash has: the first block of HKDF-Expand.
    fn expand(self, form: LabelForm, key: &[u8], label: &str, context: &[u8]) -> Option<Vec<u8>> {
        const PREFIX: &str = "tls13 ";
        /// The number of the first block.
        const FIRST: &[u8] = &[1];
        let length = self.length() as u16;
        let label = format!("{PREFIX}{label}");
        let context_length = u8::try_from(context.len()).ok()?;
        Some(match form {
            LabelForm::Standard => {
                // The most significant byte first.
                let [low, high] = length.to_le_bytes();
                let head = [high, low, label.len() as u8];
                self.sign(key, &[&head, label.as_bytes(), &[context_length], context, FIRST])
            }
            LabelForm::Legacy => self.sign(key, &[&length.to_le_bytes(), label.as_bytes(), context, FIRST]),
        })
    }

    /// True if a binder over a ClientHello up to its binders proves that the sender knows an
    /// external key. Takes the same time for all binders. Source: RFC 8446, 4.2.11.2.
    pub(super) fn is_proven(self, key: &[u8], partial_hello: &[u8], binder: &[u8]) -> bool {
        let key = self.binder_key(key).map(|key| hmac::Key::new(self.algorithm(), &key));
        key.is_some_and(|key| hmac::verify(&key, self.digest(partial_hello).as_ref(), binder).is_ok())
    }

    /// The key of the HMAC that is a binder.
    fn binder_key(self, key: &[u8]) -> Option<Vec<u8>> {
        let expand =
            |key: &[u8], label, context: &[u8]| self.expand(LabelForm::Standard, key, label, context);
        let binder_key = expand(&self.extract(key), "ext binder", self.digest(b"").as_ref())?;
        expand(&binder_key, "finished", b"")
    }

    /// The binder over a ClientHello up to its binders.
    #[cfg(test)]
    pub(super) fn binder(self, key: &[u8], partial_hello: &[u8]) -> Vec<u8> {
        self.sign(&self.binder_key(key).unwrap(), &[self.digest(partial_hello).as_ref()])
    }
}
