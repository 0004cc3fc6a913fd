//! Formatting of users, groups and policies of S3.

use api::types::{S3Group, S3Policy, S3User};

use super::table::table;

fn joined(names: &[String]) -> String {
    if names.is_empty() { "-".to_owned() } else { names.join(",") }
}

/// Formats users as a table.
pub(crate) fn users(users: &[S3User]) -> String {
    if users.is_empty() {
        return "no users; 'gabion user create NAME' creates one".into();
    }
    let row = |user: &S3User| {
        vec![user.name.clone(), joined(&user.policies), joined(&user.groups), joined(&user.keys)]
    };
    table(&["USER", "POLICIES", "GROUPS", "ACCESS KEYS"], users.iter().map(row))
}

/// Formats groups as a table.
pub(crate) fn user_groups(groups: &[S3Group]) -> String {
    if groups.is_empty() {
        return "no groups; 'gabion group create NAME --policy readonly' creates one".into();
    }
    let row = |group: &S3Group| vec![group.name.clone(), joined(&group.policies), joined(&group.users)];
    table(&["GROUP", "POLICIES", "USERS"], groups.iter().map(row))
}

/// Formats policies as a table.
pub(crate) fn user_policies(policies: &[S3Policy]) -> String {
    let row = |policy: &S3Policy| {
        let created = policy.created.map_or_else(|| "built in".to_owned(), super::time::utc);
        vec![policy.name.clone(), created, joined(&policy.users), joined(&policy.groups)]
    };
    table(&["POLICY", "CREATED", "USERS", "GROUPS"], policies.iter().map(row))
}
