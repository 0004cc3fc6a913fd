//! S3: users, groups and policies.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A user of S3 whose rights are those of its policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct S3User {
    /// Name of the user.
    pub name: String,
    /// Time of its creation.
    pub created: u64,
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
}

/// Request to create a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
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
pub struct ChangeS3Policy {
    /// Its document in the format of IAM: `Version` and `Statement`.
    #[schema(value_type = Object)]
    pub document: serde_json::Value,
}
