//! The rights of users: the policies of a user and its groups.
//!
//! Always true: a user with rights may do only what a policy or an access control list permits; a
//! statement that denies wins over all that allow. Must not know: where users are stored.

use std::sync::Arc;

use crate::policy::{Decision, PolicyDocument, PolicyRequest};

/// A policy of users and groups.
#[derive(Clone, Debug)]
pub struct IdentityPolicy(PolicyDocument);

impl IdentityPolicy {
    /// Parses a document of IAM: statements with an effect, actions, resources and conditions.
    ///
    /// # Errors
    /// The reason why it is malformed.
    pub fn parse(document: &str) -> Result<Self, String> {
        PolicyDocument::parse_of_users(document).map(Self)
    }
}

/// The policies of a user, its own and those of its groups.
#[derive(Clone, Debug, Default)]
pub struct UserRights {
    /// The policies in any order.
    pub policies: Vec<Arc<IdentityPolicy>>,
    /// A policy that must allow each request too: that of a session.
    pub limit: Option<Arc<IdentityPolicy>>,
}

impl UserRights {
    /// Decides about a request.
    pub(crate) fn decide(&self, request: &PolicyRequest<'_>) -> Decision {
        if self.limit.as_ref().is_some_and(|limit| limit.0.decide(request) != Decision::Allow) {
            return Decision::Deny;
        }
        let decisions = self.policies.iter().map(|policy| policy.0.decide(request));
        decisions.fold(Decision::Silent, |before, next| match (before, next) {
            (Decision::Deny, _) | (_, Decision::Deny) => Decision::Deny,
            (Decision::Allow, _) | (_, Decision::Allow) => Decision::Allow,
            _ => Decision::Silent,
        })
    }
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
