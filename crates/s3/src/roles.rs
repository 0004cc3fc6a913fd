//! Roles: temporary credentials of clients that an identity provider has authenticated.
//!
//! Always true: a request with temporary credentials has the rights of the policies of its role
//! only. Must not know: identity providers, how tokens are verified.

use crate::identity::UserRights;

/// A request for temporary credentials: AssumeRoleWithWebIdentity.
#[derive(Clone)]
pub struct RoleRequest {
    /// The name of the role.
    pub role: String,
    /// The name that the client gives to the session.
    pub session_name: String,
    /// The token of the identity provider.
    pub token: String,
    /// The time for which the credentials are valid, in seconds; `None` for the default.
    pub duration_s: Option<u64>,
    /// A policy that limits the rights of the role.
    pub policy: Option<String>,
}

impl std::fmt::Debug for RoleRequest {
    /// Writes everything but the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoleRequest")
            .field("role", &self.role)
            .field("session_name", &self.session_name)
            .finish_non_exhaustive()
    }
}

/// Temporary credentials.
pub struct IssuedSession {
    /// The access key.
    pub access_key: String,
    /// The secret key.
    pub secret: String,
    /// The token that requests with the access key contain.
    pub token: String,
    /// The end of the session, in seconds since 1970.
    pub expires: u64,
    /// The claim `sub` of the token of the identity provider.
    pub subject: String,
    /// The audience of that token.
    pub audience: String,
    /// The issuer of that token.
    pub issuer: String,
}

impl std::fmt::Debug for IssuedSession {
    /// Writes neither the secret nor the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedSession").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// The reason why a role cannot be assumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleErrorKind {
    /// A parameter is malformed.
    Invalid,
    /// There is no such role, or the claims of the token do not permit it.
    Denied,
    /// The token is malformed, or not one of the provider for this service.
    InvalidToken,
    /// The token has expired.
    ExpiredToken,
    /// The identity provider does not answer, so that the token cannot be verified.
    Unreachable,
    /// The service has failed.
    Internal,
}

/// An error of a request for temporary credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleError {
    /// The kind.
    pub kind: RoleErrorKind,
    /// The reason.
    pub message: String,
}

impl RoleError {
    /// Returns an error.
    pub fn new(kind: RoleErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Returns the error of a role that does not exist, which a client may not learn.
    pub fn not_authorized() -> Self {
        Self::new(RoleErrorKind::Denied, "not authorized to assume the role")
    }
}

/// The session of a request.
#[derive(Clone, Debug)]
pub struct RoleSession {
    /// The name of its user, which differs from all names of users with access keys.
    pub user: String,
    /// The name of its role.
    pub role: String,
    /// The rights of the role.
    pub rights: UserRights,
}

/// The reason why a session token is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionError {
    /// The session has ended.
    Expired,
    /// The token is malformed, belongs to another access key, or its role or a policy of the role
    /// does not exist any more.
    Invalid(String),
}

/// The roles of a service.
#[async_trait::async_trait]
pub trait RoleStore: Send + Sync + 'static {
    /// Verifies the token of an identity provider and returns temporary credentials.
    async fn assume(&self, request: RoleRequest) -> Result<IssuedSession, RoleError>;

    /// Returns the secret of an access key of temporary credentials, which may have expired.
    fn session_secret(&self, access_key: &str) -> Option<String>;

    /// Verifies the session token of a request with this access key.
    ///
    /// # Errors
    /// `Expired`, `Invalid`.
    fn session(&self, access_key: &str, token: &str) -> Result<RoleSession, SessionError>;
}
