//! The access keys of S3 clients.
//!
//! Secrets are encrypted with AES-256-GCM by a key in a file of its own. Always true: a secret is
//! shown once, when it is created; the files are readable by the owner only, and are replaced as a
//! whole. Secrets are never logged. Keys that expire are in memory only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use s3::{DEFAULT_USER, KeyStore};
use serde::{Deserialize, Serialize};

use super::table_file::{damaged_file, read_tables};
use super::users::check_name;
use crate::error::{Error, ErrorKind, Result};
use crate::private_file;
use crate::request::shown;
use crate::unix_time::unix_time;
use api::types::AccessKey;

const FILE: &str = "s3-keys.json";
const KEY_FILE: &str = "s3-keys.key";
/// The key that encrypts objects. Without it, they cannot be read.
const OBJECT_KEY_FILE: &str = "s3-objects.key";
const VERSION: u32 = 1;
/// The contents for errors.
const CONTENTS: &str = "access keys";
/// The largest number of keys.
const KEYS_MAX: usize = 10_000;
/// The longest time for which a key that expires is valid, in seconds.
const VALID_MAX_S: u64 = 7 * 86_400;
/// The characters of access keys and secrets: 32, so that a byte gives one without bias.
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// The lengths of access keys and secrets in characters; a character has 5 bits.
const ACCESS_KEY_LENGTH: usize = 20;
const SECRET_LENGTH: usize = 40;

/// The access keys of S3 clients.
pub(crate) struct KeyFile {
    directory: PathBuf,
    keys: Mutex<BTreeMap<String, OpenKey>>,
}

/// A decrypted key.
#[derive(Clone)]
struct OpenKey {
    created: u64,
    user: String,
    secret: String,
    /// The end of the key, in seconds since 1970.
    expires: Option<u64>,
}

impl OpenKey {
    fn is_valid(&self, now: u64) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

/// The contents of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredKeys {
    version: u32,
    keys: Vec<StoredKey>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredKey {
    access_key: String,
    created: u64,
    /// The user; absent for the administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// Nonce and encrypted secret in hexadecimal digits.
    nonce: String,
    secret: String,
}

impl KeyFile {
    /// Reads the keys of a state directory.
    ///
    /// # Errors
    /// When a file cannot be read or decrypted.
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let mut keys = BTreeMap::new();
        if let Some(stored) = read_tables::<StoredKeys>(&path, VERSION, CONTENTS)? {
            let cipher = cipher(directory, false)?;
            for key in stored.keys {
                let secret = decrypt(&cipher, &key).ok_or_else(|| damaged(&path, "a secret is damaged"))?;
                let user = key.user.unwrap_or_else(|| DEFAULT_USER.to_owned());
                let open = OpenKey { created: key.created, user, secret, expires: None };
                keys.insert(key.access_key, open);
            }
        }
        Ok(Self { directory: directory.to_owned(), keys: Mutex::new(keys) })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, OpenKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn valid(&self, access_key: &str) -> Option<OpenKey> {
        self.lock().get(access_key).filter(|key| key.is_valid(unix_time())).cloned()
    }

    /// Returns the keys without their secrets.
    pub(crate) fn list(&self) -> Vec<AccessKey> {
        let describe = |(name, key): (&String, &OpenKey)| AccessKey {
            access_key: name.clone(),
            created: Some(key.created),
            user: key.user.clone(),
            secret: None,
            expires: key.expires,
        };
        let now = unix_time();
        self.lock().iter().filter(|(_, key)| key.is_valid(now)).map(describe).collect()
    }

    /// Creates a key of a user, or of the administrator; with `valid_s`, one that expires after
    /// this number of seconds. Returns it with its secret.
    ///
    /// # Errors
    /// For an invalid name of a user or time; when there are too many keys; when the files cannot
    /// be written.
    pub(crate) fn create(&self, user: Option<&str>, valid_s: Option<u64>) -> Result<AccessKey> {
        let user = user.unwrap_or(DEFAULT_USER).to_owned();
        check_name("user", &user)?;
        if let Some(valid_s) = valid_s.filter(|valid_s| !(1..=VALID_MAX_S).contains(valid_s)) {
            let message = format!("an access key cannot be valid for {valid_s} s");
            return Err(
                Error::new(ErrorKind::Invalid, message).hint(format!("use 1 to {VALID_MAX_S} seconds"))
            );
        }
        let created = unix_time();
        let mut keys = self.lock();
        let mut changed = keys.clone();
        changed.retain(|_, key| key.is_valid(created));
        if changed.len() >= KEYS_MAX {
            let message = format!("there are {KEYS_MAX} access keys already");
            return Err(Error::new(ErrorKind::Invalid, message)
                .hint("delete access keys with 'gabion key delete KEY'"));
        }
        let (access_key, secret) = (new_access_key()?, random_text(SECRET_LENGTH)?);
        let expires = valid_s.map(|valid_s| created + valid_s);
        let key = OpenKey { created, user: user.clone(), secret: secret.clone(), expires };
        changed.insert(access_key.clone(), key);
        if expires.is_none() {
            self.write(&changed)?;
        }
        *keys = changed;
        Ok(AccessKey { access_key, created: Some(created), user, secret: Some(secret), expires })
    }

    /// Deletes a key. Requests with it fail from then on.
    ///
    /// # Errors
    /// `NotFound`; when the file cannot be written.
    pub(crate) fn delete(&self, access_key: &str) -> Result<()> {
        let mut keys = self.lock();
        let mut changed = keys.clone();
        let removed = changed.remove(access_key);
        if removed.is_none() {
            let message = format!("there is no access key '{}'", shown(access_key));
            return Err(Error::new(ErrorKind::NotFound, message).hint("'gabion key list' lists the keys"));
        }
        if removed.is_some_and(|key| key.expires.is_none()) {
            self.write(&changed)?;
        }
        *keys = changed;
        Ok(())
    }

    fn write(&self, keys: &BTreeMap<String, OpenKey>) -> Result<()> {
        let cipher = cipher(&self.directory, true)?;
        let lasting = keys.iter().filter(|(_, key)| key.expires.is_none());
        let stored = lasting.map(|(access_key, key)| encrypt(&cipher, access_key, key));
        let stored = StoredKeys { version: VERSION, keys: stored.collect::<Result<_>>()? };
        let path = self.directory.join(FILE);
        let bytes = serde_json::to_vec(&stored).map_err(|error| damaged(&path, &error.to_string()))?;
        private_file::replace(&path, &bytes)
    }
}

impl KeyStore for KeyFile {
    fn secret(&self, access_key: &str) -> Option<String> {
        self.valid(access_key).map(|key| key.secret)
    }

    fn user(&self, access_key: &str) -> Option<String> {
        self.valid(access_key).map(|key| key.user)
    }

    fn has_user(&self, user: &str) -> bool {
        self.lock().values().any(|key| key.user == user)
    }
}

/// Returns the key that encrypts objects; creates its file if there is none.
///
/// # Errors
/// When the file cannot be read or written, or is damaged.
pub(super) fn object_key(directory: &Path) -> Result<[u8; 32]> {
    Ok(key_of_file(&directory.join(OBJECT_KEY_FILE), true)?.unwrap_or_default())
}

/// Returns the key in a file. Without the file, creates it if `create` is set, else returns `None`.
///
/// # Errors
/// When the file cannot be read or written, or is damaged.
pub(super) fn key_of_file(path: &Path, create: bool) -> Result<Option<[u8; 32]>> {
    let key = match private_file::read(path)? {
        Some(key) => key,
        None if create => {
            let mut key = vec![0; 32];
            fill_random(&mut key)?;
            private_file::replace(path, &key)?;
            key
        }
        None => return Ok(None),
    };
    key.try_into().map(Some).map_err(|_| damaged(path, "it is not 32 bytes long"))
}

/// Returns the cipher of the key file. Creates the file if `create` is set.
fn cipher(directory: &Path, create: bool) -> Result<Aes256Gcm> {
    let path = directory.join(KEY_FILE);
    let Some(key) = key_of_file(&path, create)? else {
        return Err(damaged(&path, "the key file is missing; the secrets cannot be read without it"));
    };
    Ok(Aes256Gcm::new(&key.into()))
}

fn encrypt(cipher: &Aes256Gcm, access_key: &str, key: &OpenKey) -> Result<StoredKey> {
    let SealedSecret { nonce, secret } = seal(cipher, access_key, &key.secret)?;
    let user = (key.user != DEFAULT_USER).then(|| key.user.clone());
    Ok(StoredKey { access_key: access_key.to_owned(), created: key.created, user, nonce, secret })
}

fn decrypt(cipher: &Aes256Gcm, key: &StoredKey) -> Option<String> {
    unseal(cipher, &key.access_key, &key.nonce, &key.secret)
}

/// An encrypted secret in hexadecimal digits.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SealedSecret {
    nonce: String,
    secret: String,
}

impl SealedSecret {
    /// Encrypts a secret with the key file of the access keys, which is created if there is none.
    /// Only the same name decrypts it.
    ///
    /// # Errors
    /// When the key file cannot be used.
    pub(super) fn new(directory: &Path, name: &str, secret: &str) -> Result<Self> {
        seal(&cipher(directory, true)?, name, secret)
    }

    /// Decrypts the secret; `None` if it is damaged.
    ///
    /// # Errors
    /// When the key file cannot be used.
    pub(super) fn open(&self, directory: &Path, name: &str) -> Result<Option<String>> {
        Ok(unseal(&cipher(directory, false)?, name, &self.nonce, &self.secret))
    }
}

fn seal(cipher: &Aes256Gcm, name: &str, secret: &str) -> Result<SealedSecret> {
    let mut nonce = [0; 12];
    fill_random(&mut nonce)?;
    let payload = Payload { msg: secret.as_bytes(), aad: name.as_bytes() };
    let secret = cipher.encrypt(Nonce::from_slice(&nonce), payload);
    let secret = secret.map_err(|_| Error::new(ErrorKind::Internal, "cannot encrypt a secret"))?;
    Ok(SealedSecret { nonce: hex(&nonce), secret: hex(&secret) })
}

fn unseal(cipher: &Aes256Gcm, name: &str, nonce: &str, secret: &str) -> Option<String> {
    let (nonce, secret) = (unhex(nonce)?, unhex(secret)?);
    let nonce: [u8; 12] = nonce.try_into().ok()?;
    let payload = Payload { msg: &secret, aad: name.as_bytes() };
    String::from_utf8(cipher.decrypt(Nonce::from_slice(&nonce), payload).ok()?).ok()
}

fn fill_random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("cannot read random numbers: {error}")))
}

/// Returns a new access key, without a secret.
pub(crate) fn new_access_key() -> Result<String> {
    random_text(ACCESS_KEY_LENGTH)
}

/// Returns a random text of the characters of access keys and secrets.
pub(super) fn random_text(length: usize) -> Result<String> {
    let mut bytes = vec![0; length];
    fill_random(&mut bytes)?;
    Ok(text_of(&bytes))
}

/// Returns a text with a character of access keys and secrets for each byte.
pub(super) fn text_of(bytes: &[u8]) -> String {
    let character = |byte: &u8| ALPHABET.get(usize::from(byte % 32)).map_or('A', |byte| char::from(*byte));
    bytes.iter().map(character).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = (0..text.len()).step_by(2).map(|at| text.get(at..at + 2));
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

fn damaged(path: &Path, reason: &str) -> Error {
    damaged_file(path, reason, CONTENTS)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn secrets_survive_a_restart_encrypted() {
        let directory = tempfile::tempdir().unwrap();
        let keys = KeyFile::open(directory.path()).unwrap();
        let created = keys.create(None, None).unwrap();
        let secret = created.secret.unwrap();
        assert_eq!(keys.list().len(), 1);
        assert!(keys.list().iter().all(|key| key.secret.is_none()));
        let again = KeyFile::open(directory.path()).unwrap();
        assert_eq!(again.secret(&created.access_key).unwrap(), secret);
        for file in [FILE, KEY_FILE] {
            let path = directory.path().join(file);
            let text = std::fs::read(&path).unwrap();
            assert!(!text.windows(secret.len()).any(|part| part == secret.as_bytes()), "{file}");
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        again.delete(&created.access_key).unwrap();
        assert_eq!(again.delete(&created.access_key).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(KeyFile::open(directory.path()).unwrap().list().is_empty());
    }

    #[test]
    fn keys_that_expire_are_in_memory_only() {
        let directory = tempfile::tempdir().unwrap();
        let keys = KeyFile::open(directory.path()).unwrap();
        let created = keys.create(None, Some(600)).unwrap();
        assert_eq!(created.expires, created.created.map(|created| created + 600));
        assert!(!directory.path().join(FILE).exists());
        let lasting = keys.create(None, None).unwrap();
        assert_eq!((keys.list().len(), keys.secret(&created.access_key)), (2, created.secret));
        assert!(KeyFile::open(directory.path()).unwrap().list().len() == 1);
        // Its time has passed.
        keys.lock().get_mut(&created.access_key).unwrap().expires = Some(unix_time());
        assert_eq!((keys.secret(&created.access_key), keys.user(&created.access_key)), (None, None));
        assert_eq!(keys.list().len(), 1);
        keys.delete(&lasting.access_key).unwrap();
        for wrong in [0, VALID_MAX_S + 1] {
            assert_eq!(keys.create(None, Some(wrong)).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn secrets_of_another_key_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        KeyFile::open(directory.path()).unwrap().create(None, None).unwrap();
        std::fs::write(directory.path().join(KEY_FILE), [7; 32]).unwrap();
        assert_eq!(KeyFile::open(directory.path()).err().unwrap().kind(), ErrorKind::Corrupt);
    }
}
