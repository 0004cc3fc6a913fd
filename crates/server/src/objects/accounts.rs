//! The access keys and users of the S3 services together.
//!
//! Always true: the keys of a user are deleted before the user, whose rights they would lose.

use std::sync::Arc;

use s3::{KeyStore, UserRights};

use super::keys::KeyFile;
use super::users::{UserFile, missing};
use crate::error::Result;
use api::types::S3User;

/// The access keys and users.
pub(crate) struct Accounts {
    pub(crate) keys: Arc<KeyFile>,
    pub(crate) users: UserFile,
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
