//! Authentication and authorisation of API clients.
//!
//! Owns tokens, sessions of browsers, the limit on failed attempts, and the audit log. Invariants:
//! no secret is stored, logged or shown after its creation; only hashes are compared; all state of
//! clients that are not authenticated is bounded. Must not know: HTTP, and what requests do.

mod attempts;
mod audit;
mod secret;
mod sessions;
mod tokens;

use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use api::types::{AuditRecord, CreateToken, CreatedToken, Identity, Role, Token};

use crate::error::{Error, ErrorKind, Result};
use crate::unix_time::unix_time;
use attempts::AttemptLimiter;
pub(crate) use attempts::sender_key;
use audit::AuditLog;
pub(crate) use sessions::SESSION_TIME;
use sessions::{Sessions, csrf_token};
use tokens::TokenStore;

/// Access to the API by remote clients, and the audit log of all clients.
pub(crate) struct AccessControl {
    tokens: TokenStore,
    sessions: Sessions,
    attempts: AttemptLimiter,
    audit: AuditLog,
}

/// A new session of a browser.
pub(crate) struct NewSession {
    pub(crate) identity: Identity,
    /// The value of the cookie.
    pub(crate) cookie: String,
}

impl AccessControl {
    /// Reads the tokens in the state directory.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn open(state_dir: &Path) -> Result<Self> {
        Ok(Self {
            tokens: TokenStore::open(state_dir)?,
            sessions: Sessions::open(state_dir),
            attempts: AttemptLimiter::default(),
            audit: AuditLog::open(state_dir)?,
        })
    }

    /// Returns the holder of a token.
    ///
    /// # Errors
    /// `Unauthenticated`; `TooManyAttempts` for a sender that has failed too often.
    pub(crate) fn by_token(&self, secret: &str, sender: IpAddr) -> Result<Identity> {
        let now = Instant::now();
        self.attempts.check(sender, now)?;
        let found = self.tokens.authenticate(secret, unix_time());
        let token = found.ok_or_else(|| {
            self.attempts.failed(sender, now);
            unauthenticated("the token is unknown or has expired")
        })?;
        self.attempts.succeeded(sender);
        Ok(Identity { name: token.name, role: token.role, csrf_token: None })
    }

    /// Returns the owner of a session.
    ///
    /// # Errors
    /// As [`AccessControl::by_token`].
    pub(crate) fn by_cookie(&self, cookie: &str, sender: IpAddr) -> Result<Identity> {
        let now = Instant::now();
        self.attempts.check(sender, now)?;
        let session = self.sessions.find(cookie, unix_time());
        let found = session.and_then(|session| {
            let token = self.tokens.valid(&session.token, unix_time())?;
            Some(Identity { name: token.name, role: token.role, csrf_token: Some(csrf_token(cookie)) })
        });
        // A browser whose session has ended sends its cookie several times: that is no attack.
        found.ok_or_else(|| unauthenticated("the session has ended"))
    }

    /// Begins the session of a browser.
    ///
    /// # Errors
    /// As [`AccessControl::by_token`].
    pub(crate) fn begin_session(&self, secret: &str, sender: IpAddr) -> Result<NewSession> {
        let identity = self.by_token(secret, sender)?;
        let token = tokens::id_of(secret).unwrap_or_default();
        let cookie = self.sessions.begin(token, unix_time())?;
        let identity = Identity { csrf_token: Some(csrf_token(&cookie)), ..identity };
        Ok(NewSession { identity, cookie })
    }

    /// Ends a session.
    ///
    /// # Errors
    /// When its end cannot be stored.
    pub(crate) fn end_session(&self, cookie: &str) -> Result<()> {
        self.sessions.end(cookie)
    }

    /// Returns the tokens.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        self.tokens.list()
    }

    /// Creates a token.
    ///
    /// # Errors
    /// `Invalid`; when it cannot be stored.
    pub(crate) fn create_token(&self, request: &CreateToken) -> Result<CreatedToken> {
        self.tokens.create(request, unix_time())
    }

    /// Deletes a token. Its sessions end.
    ///
    /// # Errors
    /// `NotFound`; when the change cannot be stored.
    pub(crate) fn delete_token(&self, id: &str) -> Result<()> {
        self.tokens.delete(id)
    }

    /// Adds a record to the audit log, and writes it to the daemon's log.
    pub(crate) fn record(&self, record: &AuditRecord) {
        self.audit.add(record);
    }

    /// Returns the last records of the audit log, the oldest first.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn audit(&self, last: usize) -> Result<Vec<AuditRecord>> {
        self.audit.last(last)
    }
}

/// Checks that a role permits a request that requires another one.
///
/// # Errors
/// `Forbidden`.
pub(crate) fn check_role(identity: &Identity, required: Role) -> Result<()> {
    if identity.role >= required {
        return Ok(());
    }
    let message =
        format!("'{}' has the role {}, and the request requires {required}", identity.name, identity.role);
    Err(Error::new(ErrorKind::Forbidden, message)
        .hint(format!("use a token that was created with --role {required}")))
}

/// Returns the error for a request without valid proof of identity.
pub(crate) fn unauthenticated(reason: &str) -> Error {
    Error::new(ErrorKind::Unauthenticated, reason.to_owned())
        .hint("create a token on the daemon's host with 'gabion token create NAME --role viewer'")
}
