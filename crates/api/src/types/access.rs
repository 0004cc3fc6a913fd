//! Access to the API: roles, tokens, sessions of browsers, and the audit log.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Role of a client. Each role permits all requests of the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads everything except tokens and the audit log, and changes nothing.
    Viewer,
    /// Changes volumes, snapshots and exports, and controls drives, rebuild and scrub.
    Operator,
    /// Creates and destroys pools, adds drives, and manages tokens.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];
}

impl fmt::Display for Role {
    /// Writes the name that the API uses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.to_string() == text);
        found.ok_or_else(|| format!("'{text}' is not a role: use viewer, operator or admin"))
    }
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Identifier: the part of the token after `gabion_`, up to the next underscore.
    pub id: String,
    /// Name that its creator chose.
    pub name: String,
    /// Role of its holder.
    pub role: Role,
    /// Time of its creation.
    pub created: u64,
    /// Time from which it is refused; absent for a token that does not expire.
    pub expires: Option<u64>,
    /// Time of its last use since the start of the daemon; absent if there was none.
    #[serde(default)]
    pub last_used: Option<u64>,
}

/// A request to create a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Name: the person or program that will use the token, up to 63 letters, digits, `.`, `_` and
    /// `-`.
    pub name: String,
    /// Role of its holder.
    pub role: Role,
    /// Seconds from now after which it is refused; absent for a token that does not expire.
    #[serde(default)]
    pub expires_in: Option<u64>,
}

/// A new token with its secret, which the daemon does not store and cannot show again.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// Description of the token.
    pub token: Token,
    /// The token itself, for the header `Authorization: Bearer`.
    pub secret: String,
}

impl fmt::Debug for CreatedToken {
    /// Writes everything but the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedToken").field("token", &self.token).finish_non_exhaustive()
    }
}

/// A request to begin the session of a browser.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSession {
    /// A valid token.
    pub token: String,
}

impl fmt::Debug for CreateSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateSession").finish_non_exhaustive()
    }
}

/// The client of a request, as the daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Identity {
    /// Name of its token, or its user on the daemon's host.
    pub name: String,
    /// Role of the client.
    pub role: Role,
    /// For the session of a browser: the value that the header `X-CSRF-Token` must have in requests
    /// that change something.
    #[serde(default)]
    pub csrf_token: Option<String>,
}

/// A request that changed something, or tried to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// Time of the response.
    pub time: u64,
    /// Name of the client's token, or its user on the daemon's host.
    pub client: String,
    /// Address of the client; absent on the Unix socket.
    #[serde(default)]
    pub address: Option<String>,
    /// Role of the client; absent if it was not authenticated.
    #[serde(default)]
    pub role: Option<Role>,
    /// Method of the request.
    pub method: String,
    /// Path of the request.
    pub path: String,
    /// Status of the response: below 400 for success.
    pub status: u16,
    /// Names and settings in the body of the request, without secrets: `name=fast scheme=4+1`.
    #[serde(default)]
    pub detail: Option<String>,
    /// Number of the operation that the request started.
    #[serde(default)]
    pub operation: Option<u64>,
    /// Result of the operation, in a second record at its end: `succeeded`, or `failed` and the
    /// reason.
    #[serde(default)]
    pub result: Option<String>,
}

/// The records of the audit log that a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Number of records, the newest: up to 10,000, and 1,000 if absent.
    #[serde(default)]
    pub last: Option<usize>,
}
