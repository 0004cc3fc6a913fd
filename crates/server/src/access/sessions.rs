//! Sessions of browsers, in a file of the state directory: a restart of the daemon keeps them.
//!
//! Invariants: a session belongs to a token, and is useless once the token is invalid; the file
//! holds hashes of the cookies only. The CSRF token is derived from the cookie and not stored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::secret::{hash, new_secret};
use crate::error::{Error, ErrorKind, Result};
use crate::private_file;

const FILE: &str = "sessions.json";
/// Time after which a session ends.
pub(crate) const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);
/// Most sessions. A new one ends the oldest.
const SESSIONS_MAX: usize = 1000;

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BrowserSession {
    /// Identifier of its token.
    pub(super) token: String,
    /// Time of its beginning, in seconds since 1970.
    began: u64,
}

impl BrowserSession {
    fn is_valid(&self, now: u64) -> bool {
        // A clock that was set back ends no session early.
        now.saturating_sub(self.began) < SESSION_TIME.as_secs()
    }
}

/// The sessions by the hash of the cookie.
pub(super) struct Sessions {
    path: PathBuf,
    sessions: Mutex<BTreeMap<String, BrowserSession>>,
}

/// Returns the value of the CSRF header for the session of a cookie.
pub(super) fn csrf_token(cookie: &str) -> String {
    hash(&format!("csrf {cookie}"))
}

impl Sessions {
    /// Reads the file, if it exists. Browsers log in again if it is damaged.
    pub(super) fn open(directory: &Path) -> Self {
        let path = directory.join(FILE);
        let sessions = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "all sessions of the console have ended");
                BTreeMap::new()
            }),
            Err(_) => BTreeMap::new(),
        };
        Self { path, sessions: Mutex::new(sessions) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BrowserSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session. Returns the value of its cookie.
    ///
    /// # Errors
    /// When the system provides no random numbers, or the session cannot be stored.
    pub(super) fn begin(&self, token: &str, now: u64) -> Result<String> {
        let cookie = new_secret()?;
        let mut sessions = self.lock();
        sessions.retain(|_, session| session.is_valid(now));
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.began).map(|(key, _)| key.clone());
            oldest.map(|key| sessions.remove(&key));
        }
        sessions.insert(hash(&cookie), BrowserSession { token: token.to_owned(), began: now });
        self.store(&sessions)?;
        Ok(cookie)
    }

    /// Returns the session of a cookie.
    pub(super) fn find(&self, cookie: &str, now: u64) -> Option<BrowserSession> {
        self.lock().get(&hash(cookie)).filter(|session| session.is_valid(now)).cloned()
    }

    /// Ends a session.
    ///
    /// # Errors
    /// When its end cannot be stored. It has ended until the daemon is restarted.
    pub(super) fn end(&self, cookie: &str) -> Result<()> {
        let mut sessions = self.lock();
        if sessions.remove(&hash(cookie)).is_some() {
            self.store(&sessions)?;
        }
        Ok(())
    }

    fn store(&self, sessions: &BTreeMap<String, BrowserSession>) -> Result<()> {
        let text = serde_json::to_vec(sessions).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("cannot encode the sessions: {error}"))
        })?;
        private_file::replace(&self.path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    #[test]
    fn a_session_survives_a_restart_and_ends_on_request_and_with_its_time() {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(directory.path());
        let cookie = sessions.begin("id", NOW).unwrap();
        assert_eq!(sessions.find(&cookie, NOW).unwrap().token, "id");
        assert!(sessions.find(&csrf_token(&cookie), NOW).is_none());
        assert!(csrf_token(&cookie) != cookie && csrf_token("a") != csrf_token("b"));
        assert!(sessions.find(&cookie, NOW + SESSION_TIME.as_secs()).is_none());
        let text = std::fs::read_to_string(directory.path().join(FILE)).unwrap();
        assert!(!text.contains(&cookie) && !text.contains(&csrf_token(&cookie)), "{text}");
        let again = Sessions::open(directory.path());
        assert!(again.find(&cookie, NOW).is_some());
        again.end(&cookie).unwrap();
        assert!(again.find(&cookie, NOW).is_none());
        assert!(Sessions::open(directory.path()).find(&cookie, NOW).is_none());
        std::fs::write(directory.path().join(FILE), "{").unwrap();
        assert!(Sessions::open(directory.path()).lock().is_empty());
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(directory.path());
        let first = sessions.begin("id", NOW).unwrap();
        let other = BrowserSession { token: "id".into(), began: NOW + 1 };
        sessions.lock().extend((1..SESSIONS_MAX).map(|number| (number.to_string(), other.clone())));
        sessions.begin("id", NOW + 2).unwrap();
        assert!(sessions.find(&first, NOW + 2).is_none());
        assert_eq!(sessions.lock().len(), SESSIONS_MAX);
    }
}
