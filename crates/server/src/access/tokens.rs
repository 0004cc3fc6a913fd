//! The tokens of remote clients, in a file of the state directory.
//!
//! Invariant: the file holds hashes of the tokens only, and is complete after a crash at any point.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::types::{CreateToken, CreatedToken, Role, Token};
use serde::{Deserialize, Serialize};

use super::secret::{hash, is_same, new_secret};
use crate::error::{Error, ErrorKind, Result};
use crate::private_file;
use crate::request::shown;

const FILE: &str = "tokens.json";
const PREFIX: &str = "gabion_";
/// Most tokens.
const TOKENS_MAX: usize = 1000;
/// Number of digits of an identifier.
const ID_DIGITS: usize = 12;

/// A token as the file has it, by identifier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRecord {
    name: String,
    role: Role,
    created: u64,
    expires: Option<u64>,
    /// SHA-256 of the whole token.
    hash: String,
}

#[derive(Default)]
struct StoredTokens {
    records: BTreeMap<String, TokenRecord>,
    /// Time of the last use since the start of the daemon.
    used: BTreeMap<String, u64>,
}

/// The tokens.
pub(super) struct TokenStore {
    path: PathBuf,
    tokens: Mutex<StoredTokens>,
}

/// Returns the identifier in a token.
pub(super) fn id_of(token: &str) -> Option<&str> {
    Some(token.strip_prefix(PREFIX)?.split_once('_')?.0)
}

impl TokenStore {
    /// Reads the file, if it exists.
    ///
    /// # Errors
    /// When it cannot be read or parsed.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let failed = |reason: String| {
            let message = format!("cannot read the tokens in {}: {reason}", path.display());
            Error::new(ErrorKind::Io, message)
                .hint("restore the file from a backup, or remove it and create new tokens")
        };
        let records = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(failed(error.to_string())),
        };
        Ok(Self { path, tokens: Mutex::new(StoredTokens { records, used: BTreeMap::new() }) })
    }

    fn lock(&self) -> MutexGuard<'_, StoredTokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the description of a valid token, and notes its use.
    pub(super) fn authenticate(&self, token: &str, now: u64) -> Option<Token> {
        let id = id_of(token)?;
        let mut tokens = self.lock();
        let record = tokens.records.get(id).filter(|record| is_same(&record.hash, &hash(token)))?;
        if record.expires.is_some_and(|expires| expires <= now) {
            return None;
        }
        let described = describe(id, record, Some(now));
        tokens.used.insert(id.to_owned(), now);
        Some(described)
    }

    /// Returns the description of a token that exists and has not expired.
    pub(super) fn valid(&self, id: &str, now: u64) -> Option<Token> {
        let tokens = self.lock();
        let record = tokens.records.get(id)?;
        let is_valid = record.expires.is_none_or(|expires| expires > now);
        is_valid.then(|| describe(id, record, tokens.used.get(id).copied()))
    }

    /// Returns all tokens.
    pub(super) fn list(&self) -> Vec<Token> {
        let tokens = self.lock();
        let used = |id: &String| tokens.used.get(id).copied();
        tokens.records.iter().map(|(id, record)| describe(id, record, used(id))).collect()
    }

    /// Creates a token.
    ///
    /// # Errors
    /// `Invalid` for its name or time; `NoSpace` with too many tokens; when it cannot be stored.
    pub(super) fn create(&self, request: &CreateToken, now: u64) -> Result<CreatedToken> {
        check(request)?;
        let mut tokens = self.lock();
        if tokens.records.len() >= TOKENS_MAX {
            let message = format!("there are {TOKENS_MAX} tokens already");
            return Err(
                Error::new(ErrorKind::NoSpace, message).hint("delete tokens with 'gabion token delete ID'")
            );
        }
        let mut id = new_secret()?;
        id.truncate(ID_DIGITS);
        let secret = format!("{PREFIX}{id}_{}", new_secret()?);
        let record = TokenRecord {
            name: request.name.clone(),
            role: request.role,
            created: now,
            expires: request.expires_in.map(|seconds| now.saturating_add(seconds)),
            hash: hash(&secret),
        };
        let token = describe(&id, &record, None);
        self.change(&mut tokens, |records| drop(records.insert(id, record)))?;
        tracing::info!(token = token.id, name = token.name, role = %token.role, "token created");
        Ok(CreatedToken { token, secret })
    }

    /// Deletes a token.
    ///
    /// # Errors
    /// `NotFound`; when the change cannot be stored.
    pub(super) fn delete(&self, id: &str) -> Result<()> {
        let mut tokens = self.lock();
        if !tokens.records.contains_key(id) {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("no token has the identifier '{}'", shown(id)),
            )
            .hint("'gabion token list' shows the tokens"));
        }
        self.change(&mut tokens, |records| drop(records.remove(id)))?;
        tokens.used.remove(id);
        tracing::info!(token = id, "token deleted");
        Ok(())
    }

    /// Changes the tokens in the file and then in memory.
    fn change(
        &self,
        tokens: &mut StoredTokens,
        change: impl FnOnce(&mut BTreeMap<String, TokenRecord>),
    ) -> Result<()> {
        let mut records = tokens.records.clone();
        change(&mut records);
        let text = serde_json::to_vec_pretty(&records)
            .map_err(|error| Error::new(ErrorKind::Internal, format!("cannot encode the tokens: {error}")))?;
        private_file::replace(&self.path, &text)?;
        tokens.records = records;
        Ok(())
    }
}

fn check(request: &CreateToken) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if request.name.is_empty() || request.name.len() > 63 || !request.name.bytes().all(is_plain) {
        let message = format!("'{}' is not a valid name of a token", shown(&request.name));
        return Err(
            Error::new(ErrorKind::Invalid, message).hint("use up to 63 letters, digits, '.', '_' and '-'")
        );
    }
    if request.expires_in == Some(0) {
        return Err(
            Error::new(ErrorKind::Invalid, "the token would expire at once").hint("use, for example, 30d")
        );
    }
    Ok(())
}

fn describe(id: &str, record: &TokenRecord, last_used: Option<u64>) -> Token {
    let TokenRecord { name, role, created, expires, hash: _ } = record.clone();
    Token { id: id.to_owned(), name, role, created, expires, last_used }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str, expires_in: Option<u64>) -> CreateToken {
        CreateToken { name: name.into(), role: Role::Operator, expires_in }
    }

    #[test]
    fn a_token_is_valid_until_it_expires_or_is_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let store = TokenStore::open(directory.path()).unwrap();
        let created = store.create(&request("ci", Some(100)), 1000).unwrap();
        let secret = created.secret.clone();
        assert_eq!(store.authenticate(&secret, 1099).unwrap().role, Role::Operator);
        assert_eq!(store.list()[0].last_used, Some(1099));
        assert_eq!(store.authenticate(&secret, 1100), None);
        let mut other = secret.clone();
        other.replace_range(secret.len() - 1.., if secret.ends_with('0') { "1" } else { "0" });
        for wrong in [&other, "", "gabion_", "gabion__", &secret[..20], &created.token.id] {
            assert_eq!(store.authenticate(wrong, 1001), None, "{wrong}");
        }
        // Another daemon on the same directory, after a restart.
        let again = TokenStore::open(directory.path()).unwrap();
        assert!(again.authenticate(&secret, 1001).is_some());
        again.delete(&created.token.id).unwrap();
        assert_eq!(again.authenticate(&secret, 1001), None);
        assert_eq!(again.delete(&created.token.id).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(TokenStore::open(directory.path()).unwrap().list().is_empty());
    }

    #[test]
    fn the_file_has_no_secret_and_is_private() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let store = TokenStore::open(directory.path()).unwrap();
        let created = store.create(&request("ci", None), 0).unwrap();
        let path = directory.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        let random = created.secret.rsplit('_').next().unwrap();
        assert!(text.contains(&hash(&created.secret)) && !text.contains(random), "{text}");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(!format!("{created:?}").contains(random));
    }

    #[test]
    fn invalid_names_and_times_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let store = TokenStore::open(directory.path()).unwrap();
        for (name, expires) in
            [("", None), ("a b", None), ("a\n", None), (&*"x".repeat(64), None), ("a", Some(0))]
        {
            assert_eq!(store.create(&request(name, expires), 0).unwrap_err().kind(), ErrorKind::Invalid);
        }
        std::fs::write(directory.path().join(FILE), "{").unwrap();
        assert_eq!(TokenStore::open(directory.path()).err().unwrap().kind(), ErrorKind::Io);
    }
}
