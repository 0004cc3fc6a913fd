//! Sessions of browsers, in memory: a restart of the daemon ends them.
//!
//! Invariant: a session belongs to a token, and is useless once the token is invalid.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::secret::{hash, new_secret};
use crate::error::Result;

/// Time after which a session ends.
pub(crate) const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);
/// Most sessions. A new one ends the oldest.
const SESSIONS_MAX: usize = 1000;

/// A session.
#[derive(Clone)]
pub(super) struct BrowserSession {
    /// Identifier of its token.
    pub(super) token: String,
    pub(super) csrf_token: String,
    began: Instant,
}

/// The sessions by the hash of the cookie.
#[derive(Default)]
pub(super) struct Sessions(Mutex<BTreeMap<String, BrowserSession>>);

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BrowserSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session. Returns the values of its cookie and of its CSRF header.
    ///
    /// # Errors
    /// When the system provides no random numbers.
    pub(super) fn begin(&self, token: &str, now: Instant) -> Result<(String, String)> {
        let (cookie, csrf_token) = (new_secret()?, new_secret()?);
        let mut sessions = self.lock();
        sessions.retain(|_, session| now.saturating_duration_since(session.began) < SESSION_TIME);
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.began).map(|(key, _)| key.clone());
            oldest.map(|key| sessions.remove(&key));
        }
        let session = BrowserSession { token: token.to_owned(), csrf_token: csrf_token.clone(), began: now };
        sessions.insert(hash(&cookie), session);
        Ok((cookie, csrf_token))
    }

    /// Returns the session of a cookie.
    pub(super) fn find(&self, cookie: &str, now: Instant) -> Option<BrowserSession> {
        let found = self.lock().get(&hash(cookie)).cloned()?;
        (now.saturating_duration_since(found.began) < SESSION_TIME).then_some(found)
    }

    /// Ends a session.
    pub(super) fn end(&self, cookie: &str) {
        self.lock().remove(&hash(cookie));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_on_request_and_with_its_time() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let (cookie, csrf) = sessions.begin("id", now).unwrap();
        assert_eq!(sessions.find(&cookie, now).unwrap().csrf_token, csrf);
        assert!(sessions.find(&csrf, now).is_none());
        assert!(sessions.find(&cookie, now + SESSION_TIME).is_none());
        sessions.end(&cookie);
        assert!(sessions.find(&cookie, now).is_none());
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let (first, _) = sessions.begin("id", now).unwrap();
        for number in 0..SESSIONS_MAX {
            sessions.begin("id", now + Duration::from_nanos(1 + number as u64)).unwrap();
        }
        assert!(sessions.find(&first, now).is_none());
        assert_eq!(sessions.lock().len(), SESSIONS_MAX);
    }
}
