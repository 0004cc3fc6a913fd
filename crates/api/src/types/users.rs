//! S3: users, groups, policies, identity providers and roles.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A user of S3 whose rights are those of its policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct S3User {
    /// Name of the user.
    pub name: String,
    /// Time of its creation; absent on a cluster whose release of Ceph does not report it.
    pub created: Option<u64>,
    /// Names of its own policies.
    pub policies: Vec<String>,
    /// Names of its groups.
    pub groups: Vec<String>,
    /// Its access keys, without their secrets.
    pub keys: Vec<String>,
}

/// Request to create a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateS3User {
    /// Name of the user: 1 to 64 letters, digits, hyphens, underscores and dots.
    pub name: String,
    /// Names of its policies.
    #[serde(default)]
    pub policies: Vec<String>,
    /// Names of its groups.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// Request to change a user. Absent fields stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeS3User {
    /// Names of all its policies from now on.
    pub policies: Option<Vec<String>>,
    /// Names of all its groups from now on.
    pub groups: Option<Vec<String>>,
}

/// A group of users, who have its policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct S3Group {
    /// Name of the group.
    pub name: String,
    /// Time of its creation.
    pub created: u64,
    /// Names of its policies.
    pub policies: Vec<String>,
    /// Names of its users.
    pub users: Vec<String>,
}

/// Request to create a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateS3Group {
    /// Name of the group: 1 to 64 letters, digits, hyphens, underscores and dots.
    pub name: String,
    /// Names of its policies.
    #[serde(default)]
    pub policies: Vec<String>,
}

/// Request to change a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeS3Group {
    /// Names of all its policies from now on.
    pub policies: Vec<String>,
}

/// A policy of users and groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct S3Policy {
    /// Name of the policy.
    pub name: String,
    /// Time of its creation; absent for a built-in policy.
    pub created: Option<u64>,
    /// Its document in the format of IAM.
    #[schema(value_type = Object)]
    pub document: serde_json::Value,
    /// Names of the users that have it themselves.
    pub users: Vec<String>,
    /// Names of the groups that have it.
    pub groups: Vec<String>,
    /// Names of the roles that have it.
    pub roles: Vec<String>,
}

/// Request to create a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "name": "read-home",
    "document": {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::home/*"}]
    }
}))]
pub struct CreateS3Policy {
    /// Name of the policy: 1 to 64 letters, digits, hyphens, underscores and dots.
    pub name: String,
    /// Its document in the format of IAM: `Version` and `Statement`.
    #[schema(value_type = Object)]
    pub document: serde_json::Value,
}

/// Request to replace the document of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "document": {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::home/*"}]
    }
}))]
pub struct ChangeS3Policy {
    /// Its document in the format of IAM: `Version` and `Statement`.
    #[schema(value_type = Object)]
    pub document: serde_json::Value,
}

/// An identity provider: the issuer of tokens (OpenID Connect) that clients exchange for temporary
/// credentials of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct S3Provider {
    /// Name of the provider.
    pub name: String,
    /// Time of its creation.
    pub created: u64,
    /// Claim `iss` of its tokens, an URL.
    pub issuer: String,
    /// Client ids: a token needs one of them in its claim `aud`.
    pub audiences: Vec<String>,
    /// Claim of its tokens that is the name of the user.
    pub user_claim: String,
    /// File with its keys (JWKS) on the host of the daemon; absent if the discovery document of the
    /// issuer names their address.
    pub key_file: Option<String>,
    /// File with the certificates (PEM) of the authorities of its certificate; absent for those of
    /// the system.
    pub authorities: Option<String>,
    /// Names of its roles.
    pub roles: Vec<String>,
    /// Number of its keys in memory; 0 before the first token.
    pub keys: u64,
    /// Time at which the keys were fetched.
    pub fetched: Option<u64>,
    /// Reason why the last attempt to fetch the keys failed.
    pub problem: Option<String>,
}

/// Request to create an identity provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateS3Provider {
    /// Name of the provider: 1 to 64 letters, digits, hyphens, underscores and dots.
    pub name: String,
    /// Claim `iss` of its tokens: an URL that begins with `https://`, or with `http://` for this
    /// host.
    pub issuer: String,
    /// Client ids: a token needs one of them in its claim `aud`.
    pub audiences: Vec<String>,
    /// Claim of its tokens that is the name of the user; `sub` if absent.
    pub user_claim: Option<String>,
    /// Absolute path of a file with its keys (JWKS), in place of the discovery document.
    pub key_file: Option<String>,
    /// Absolute path of a file with the certificates (PEM) of the authorities of its certificate.
    pub authorities: Option<String>,
}

/// Request to change an identity provider. Absent fields stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeS3Provider {
    /// All client ids from now on.
    pub audiences: Option<Vec<String>>,
    /// Claim of its tokens that is the name of the user.
    pub user_claim: Option<String>,
    /// Absolute path of a file with its keys; empty for the discovery document.
    pub key_file: Option<String>,
    /// Absolute path of a file with the certificates of authorities; empty for those of the system.
    pub authorities: Option<String>,
}

/// A role: the policies of clients with a token of an identity provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct S3Role {
    /// Name of the role. Its ARN is `arn:aws:iam:::role/NAME`.
    pub name: String,
    /// Time of its creation.
    pub created: u64,
    /// Name of the identity provider.
    pub provider: String,
    /// Names of its policies.
    pub policies: Vec<String>,
    /// Patterns of claims, all of which a token must match. `*` stands for any text and `?` for a
    /// character; of a claim with several values, one must match.
    pub claims: BTreeMap<String, String>,
    /// Longest time of a session in seconds.
    pub session_max: u64,
}

/// Request to create a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "name": "ci",
    "provider": "corp",
    "policies": ["readonly"],
    "claims": {"groups": "storage-*"}
}))]
pub struct CreateS3Role {
    /// Name of the role: 1 to 64 letters, digits, hyphens, underscores and dots.
    pub name: String,
    /// Name of the identity provider.
    pub provider: String,
    /// Names of its policies.
    #[serde(default)]
    pub policies: Vec<String>,
    /// Patterns of claims, all of which a token must match.
    #[serde(default)]
    pub claims: BTreeMap<String, String>,
    /// True to accept every token of the provider for its audiences; `claims` is then empty.
    #[serde(default)]
    pub any_claims: bool,
    /// Longest time of a session in seconds, up to 43,200; 3,600 if absent.
    pub session_max: Option<u64>,
}

/// Request to change a role. Absent fields stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeS3Role {
    /// Names of all its policies from now on, also for existing sessions.
    pub policies: Option<Vec<String>>,
    /// Patterns of all claims from now on, for new sessions.
    pub claims: Option<BTreeMap<String, String>>,
    /// True to accept every token of the provider for its audiences from now on.
    #[serde(default)]
    pub any_claims: bool,
    /// Longest time of a new session in seconds.
    pub session_max: Option<u64>,
}
