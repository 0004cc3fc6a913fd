//! Temporary credentials. Nothing is stored for a session: its token holds all of it, and its
//! secret follows from its access key.
//!
//! Always true: a token that this state directory did not sign is refused; secrets and tokens need
//! the file [`FILE`], which is readable by the owner only, and survive a restart with it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use base64_simd::URL_SAFE_NO_PAD;
use ring::hmac;
use s3::SessionError;
use serde::{Deserialize, Serialize};

use super::super::keys::{key_of_file, random_text, text_of};
use crate::error::Result;

const FILE: &str = "s3-sessions.key";
/// The first characters of access keys of sessions, as in AWS.
const PREFIX: &str = "ASIA";
const ACCESS_KEY_LENGTH: usize = 20;
const SECRET_LENGTH: usize = 40;
/// The largest token in bytes: claims with a policy of 2 KiB, in base64.
const TOKEN_MAX: usize = 16 << 10;

/// The contents of a session token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionClaims {
    /// The access key to which the token belongs.
    pub(super) access_key: String,
    pub(super) role: String,
    /// The identities of the role and of its provider: a new role or provider of the same name does
    /// not revive the session.
    pub(super) role_id: String,
    pub(super) provider_id: String,
    pub(super) user: String,
    /// The end in seconds since 1970.
    pub(super) expires: u64,
    /// A policy that limits the rights of the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<String>,
}

/// The secrets of a session.
pub(super) struct SessionSecrets {
    pub(super) access_key: String,
    pub(super) secret: String,
    pub(super) token: String,
}

/// Signs session tokens and verifies them.
pub(super) struct SessionSigner {
    directory: PathBuf,
    keys: OnceLock<SessionKeys>,
    creating: Mutex<()>,
}

struct SessionKeys {
    of_tokens: hmac::Key,
    of_secrets: hmac::Key,
}

impl SessionKeys {
    /// Derives two keys from one, so that no secret is the signature of a token.
    fn new(root: &[u8; 32]) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA512, root);
        let derive = |name: &[u8]| hmac::Key::new(hmac::HMAC_SHA512, hmac::sign(&root, name).as_ref());
        Self { of_tokens: derive(b"session token"), of_secrets: derive(b"session secret") }
    }

    fn secret(&self, access_key: &str) -> String {
        let bytes = hmac::sign(&self.of_secrets, access_key.as_bytes());
        text_of(bytes.as_ref().get(..SECRET_LENGTH).unwrap_or_default())
    }
}

impl SessionSigner {
    /// Reads the key of a state directory, if it has one.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let signer =
            Self { directory: directory.to_owned(), keys: OnceLock::new(), creating: Mutex::default() };
        if let Some(root) = key_of_file(&directory.join(FILE), false)? {
            let _ = signer.keys.set(SessionKeys::new(&root));
        }
        Ok(signer)
    }

    /// Returns the keys. Makes their file before the first session.
    fn keys(&self) -> Result<&SessionKeys> {
        let _creating = self.creating.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = self.keys.get() {
            return Ok(keys);
        }
        let root = key_of_file(&self.directory.join(FILE), true)?.unwrap_or_default();
        Ok(self.keys.get_or_init(|| SessionKeys::new(&root)))
    }

    /// Returns the credentials of a new session. Their access key replaces that of the claims.
    ///
    /// # Errors
    /// When the key file cannot be made.
    pub(super) fn issue(&self, claims: SessionClaims) -> Result<SessionSecrets> {
        let keys = self.keys()?;
        let access_key = format!("{PREFIX}{}", random_text(ACCESS_KEY_LENGTH - PREFIX.len())?);
        let claims = SessionClaims { access_key: access_key.clone(), ..claims };
        let payload = serde_json::to_vec(&claims).unwrap_or_default();
        let payload = URL_SAFE_NO_PAD.encode_to_string(payload);
        let signature = hmac::sign(&keys.of_tokens, payload.as_bytes());
        let token = format!("{payload}.{}", URL_SAFE_NO_PAD.encode_to_string(signature));
        Ok(SessionSecrets { secret: keys.secret(&access_key), access_key, token })
    }

    /// Returns the secret of an access key of this form.
    pub(super) fn secret(&self, access_key: &str) -> Option<String> {
        let is_session = access_key.starts_with(PREFIX) && access_key.len() == ACCESS_KEY_LENGTH;
        Some(self.keys.get().filter(|_| is_session)?.secret(access_key))
    }

    /// Verifies the token of a request with this access key.
    ///
    /// # Errors
    /// `Expired`, `Invalid`.
    pub(super) fn open_token(
        &self,
        access_key: &str,
        token: &str,
        now: u64,
    ) -> Result<SessionClaims, SessionError> {
        let malformed = || SessionError::Invalid("the session token is malformed".to_owned());
        let keys = self.keys.get().filter(|_| token.len() <= TOKEN_MAX).ok_or_else(malformed)?;
        let (payload, signature) = token.split_once('.').ok_or_else(malformed)?;
        let signature = URL_SAFE_NO_PAD.decode_to_vec(signature).map_err(|_| malformed())?;
        hmac::verify(&keys.of_tokens, payload.as_bytes(), &signature).map_err(|_| malformed())?;
        let payload = URL_SAFE_NO_PAD.decode_to_vec(payload).map_err(|_| malformed())?;
        let claims: SessionClaims = serde_json::from_slice(&payload).map_err(|_| malformed())?;
        if claims.access_key != access_key {
            return Err(SessionError::Invalid("the session token belongs to another access key".to_owned()));
        }
        if claims.expires <= now {
            return Err(SessionError::Expired);
        }
        Ok(claims)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn claims(expires: u64) -> SessionClaims {
        SessionClaims {
            access_key: String::new(),
            role: "ci".to_owned(),
            role_id: "1".to_owned(),
            provider_id: "2".to_owned(),
            user: "corp:anna".to_owned(),
            expires,
            policy: None,
        }
    }

    #[test]
    fn sessions_survive_a_restart_and_end() {
        let directory = tempfile::tempdir().unwrap();
        let signer = SessionSigner::open(directory.path()).unwrap();
        assert_eq!(signer.secret("ASIA2222222222222222"), None, "there is no session yet");
        let issued = signer.issue(claims(1000)).unwrap();
        let mode = directory.path().join(FILE).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = SessionSigner::open(directory.path()).unwrap();
        assert_eq!(again.secret(&issued.access_key).as_ref(), Some(&issued.secret));
        let opened = again.open_token(&issued.access_key, &issued.token, 999).unwrap();
        assert_eq!((opened.role.as_str(), opened.user.as_str()), ("ci", "corp:anna"));
        for now in [1000, 2000] {
            let ended = again.open_token(&issued.access_key, &issued.token, now);
            assert_eq!(ended, Err(SessionError::Expired));
        }
        // Without the file, the sessions are gone.
        std::fs::remove_file(directory.path().join(FILE)).unwrap();
        let other = SessionSigner::open(directory.path()).unwrap();
        other.issue(claims(1000)).unwrap();
        assert_ne!(other.secret(&issued.access_key).as_ref(), Some(&issued.secret));
        assert!(matches!(
            other.open_token(&issued.access_key, &issued.token, 0),
            Err(SessionError::Invalid(_))
        ));
    }

    #[test]
    fn changed_tokens_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let signer = SessionSigner::open(directory.path()).unwrap();
        let issued = signer.issue(claims(1000)).unwrap();
        let other = signer.issue(claims(1000)).unwrap();
        assert!(signer.open_token(&issued.access_key, &other.token, 0).is_err(), "the token of another key");
        let (payload, signature) = issued.token.split_once('.').unwrap();
        let decoded = String::from_utf8(URL_SAFE_NO_PAD.decode_to_vec(payload).unwrap()).unwrap();
        let admin = URL_SAFE_NO_PAD.encode_to_string(decoded.replace("\"ci\"", "\"admin\""));
        for token in [
            format!("{admin}.{signature}"),
            format!("{payload}."),
            payload.to_owned(),
            format!("{payload}.{}", &signature[..signature.len() - 4]),
            String::new(),
            ".".repeat(TOKEN_MAX + 1),
        ] {
            assert!(signer.open_token(&issued.access_key, &token, 0).is_err(), "{token}");
        }
        assert!(signer.open_token(&issued.access_key, &issued.token, 0).is_ok());
        for access_key in ["ASIA", "AKIA2222222222222222", ""] {
            assert_eq!(signer.secret(access_key), None, "{access_key}");
        }
    }
}
