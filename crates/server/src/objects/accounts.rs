//! The access keys, users and roles of the S3 services together.
//!
//! Always true: the keys of a user are deleted before the user, whose rights they would lose; a
//! policy that a role has exists.

use std::sync::{Arc, Mutex, PoisonError};

use s3::{IssuedSession, KeyStore, RoleError, RoleRequest, RoleSession, RoleStore, SessionError, UserRights};

use super::keys::KeyFile;
use super::users::{UserFile, missing};
use super::web_identity::{OpenSession, WebIdentity};
use crate::error::{Error, ErrorKind, Result};
use crate::request::shown;
use api::types::{ChangeS3Provider, ChangeS3Role, CreateS3Role, S3Policy, S3Provider, S3Role, S3User};

/// The access keys, users and roles.
pub(crate) struct Accounts {
    pub(crate) keys: Arc<KeyFile>,
    pub(crate) users: UserFile,
    pub(crate) web_identity: WebIdentity,
    /// Held while policies of roles change, or policies are deleted.
    pub(super) changing: Mutex<()>,
}

impl Accounts {
    /// Returns the users with their keys.
    pub(crate) fn users(&self) -> Vec<S3User> {
        let keys = self.keys.list();
        let of = |user: &str| {
            keys.iter().filter(|key| key.user == user).map(|key| key.access_key.clone()).collect()
        };
        self.users.users(of)
    }

    /// Returns a user.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn user(&self, name: &str) -> Result<S3User> {
        self.users().into_iter().find(|user| user.name == name).ok_or_else(|| missing("user", name))
    }

    /// Deletes a user and its access keys.
    ///
    /// # Errors
    /// `NotFound`; when a file cannot be written.
    pub(crate) fn delete_user(&self, name: &str) -> Result<()> {
        for key in self.user(name)?.keys {
            self.keys.delete(&key)?;
        }
        self.users.delete_user(name)
    }

    /// Returns the policies, also the built-in ones.
    pub(crate) fn policies(&self) -> Vec<S3Policy> {
        let tables = self.web_identity.roles.tables();
        self.users.policies(|policy| tables.roles_of_policy(policy))
    }

    /// Deletes a policy that no user, group or role has.
    ///
    /// # Errors
    /// `NotFound`, `Busy`, `Invalid` for a built-in policy.
    pub(crate) fn delete_policy(&self, name: &str) -> Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(role) = self.web_identity.roles.tables().roles_of_policy(name).first() {
            let message = format!("policy '{}' is attached to role '{role}'", shown(name));
            return Err(Error::new(ErrorKind::Busy, message)
                .hint(format!("'gabion role set {role} --policy ...' changes its policies")));
        }
        self.users.delete_policy(name)
    }

    /// Returns a provider.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn provider(&self, name: &str) -> Result<S3Provider> {
        let found = self.web_identity.providers().into_iter().find(|provider| provider.name == name);
        found.ok_or_else(|| missing("provider", name))
    }

    /// Changes a provider, whose keys are then fetched again.
    ///
    /// # Errors
    /// `Invalid`, `NotFound`.
    pub(crate) fn change_provider(&self, name: &str, request: ChangeS3Provider) -> Result<()> {
        self.web_identity.change_provider(name, request)
    }

    /// Returns a role.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn role(&self, name: &str) -> Result<S3Role> {
        let found = self.web_identity.roles().into_iter().find(|role| role.name == name);
        found.ok_or_else(|| missing("role", name))
    }

    /// Creates a role.
    ///
    /// # Errors
    /// `Invalid`, `Exists`; `NotFound` for a missing provider or policy.
    pub(crate) fn create_role(&self, request: CreateS3Role) -> Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_policies(&request.policies)?;
        self.web_identity.roles.create_role(request)
    }

    /// Changes a role.
    ///
    /// # Errors
    /// `Invalid`; `NotFound` for a missing role or policy.
    pub(crate) fn change_role(&self, name: &str, request: ChangeS3Role) -> Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_policies(request.policies.as_deref().unwrap_or_default())?;
        self.web_identity.roles.change_role(name, request)
    }

    /// Logs the roles with policies that do not exist, such as those of a file from a backup.
    pub(super) fn warn_of_missing_policies(&self) {
        for role in self.web_identity.roles() {
            if let Some(policy) = role.policies.iter().find(|policy| !self.users.has_policy(policy)) {
                let role = role.name;
                tracing::warn!(role, policy, "requests of the role are refused: its policy does not exist");
            }
        }
    }

    /// Returns a session with the rights of its role. A policy that does not exist may have denied
    /// what others allow.
    fn with_rights(&self, session: OpenSession) -> Result<RoleSession, SessionError> {
        let OpenSession { user, role, policies, limit } = session;
        let policies = self.users.parsed_policies(&policies).map_err(|policy| {
            SessionError::Invalid(format!("policy '{policy}' of role '{role}' does not exist"))
        })?;
        Ok(RoleSession { user, role, rights: UserRights { policies, limit } })
    }

    fn check_policies(&self, names: &[String]) -> Result<()> {
        match names.iter().find(|name| !self.users.has_policy(name)) {
            Some(name) => Err(missing("policy", name)),
            None => Ok(()),
        }
    }
}

impl KeyStore for Accounts {
    fn secret(&self, access_key: &str) -> Option<String> {
        self.keys.secret(access_key)
    }

    fn user(&self, access_key: &str) -> Option<String> {
        self.keys.user(access_key)
    }

    fn has_user(&self, user: &str) -> bool {
        self.keys.has_user(user) || self.users.contains(user)
    }

    fn rights(&self, user: &str) -> Option<UserRights> {
        self.users.rights(user)
    }
}

#[async_trait::async_trait]
impl RoleStore for Accounts {
    async fn assume(&self, request: RoleRequest) -> Result<IssuedSession, RoleError> {
        self.web_identity.assume(request).await
    }

    fn session_secret(&self, access_key: &str) -> Option<String> {
        self.web_identity.secret(access_key)
    }

    fn session(&self, access_key: &str, token: &str) -> Result<RoleSession, SessionError> {
        self.with_rights(self.web_identity.open_session(access_key, token)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_roles_with_missing_policies_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let accounts = Accounts {
            keys: Arc::new(KeyFile::open(directory.path()).unwrap()),
            users: UserFile::open(directory.path()).unwrap(),
            web_identity: WebIdentity::open(directory.path()).unwrap(),
            changing: Mutex::default(),
        };
        let session = |policies: &[&str]| {
            let policies = policies.iter().map(|&name| name.to_owned()).collect();
            let (user, role) = ("corp:anna".to_owned(), "ci".to_owned());
            accounts.with_rights(OpenSession { user, role, policies, limit: None })
        };
        let session_with_all = session(&["readonly", "writeonly"]).unwrap();
        assert_eq!(session_with_all.rights.policies.len(), 2);
        let refused = session(&["no-deletes", "readwrite"]).unwrap_err();
        let reason = "policy 'no-deletes' of role 'ci' does not exist".to_owned();
        assert_eq!(refused, SessionError::Invalid(reason));
    }
}
