//! Users and access keys of gateways.

use std::sync::Arc;

use api::types::{AccessKey, CreateKey, CreateS3User, S3User};
use tokio::task::JoinSet;

use super::admin::parse;
use super::records::GatewayUser;
use super::{ADMINISTRATOR, Gateways, check_argument, unsupported};
use crate::error::{Error, ErrorKind, Result};
use crate::objects::{check_name, new_access_key};
use crate::request::shown;

impl Gateways {
    /// Returns the users of a cluster by name, without the administrator.
    ///
    /// # Errors
    /// `NotFound` without gateways; `Unreachable`.
    pub(crate) async fn users(self: &Arc<Self>, cluster: &str) -> Result<Vec<S3User>> {
        let users = self.all_users(cluster).await?;
        let others = users.iter().filter(|user| user.name() != ADMINISTRATOR);
        Ok(others.map(GatewayUser::to_wire).collect())
    }

    /// Returns the access keys of all users, by user, without their secrets.
    ///
    /// # Errors
    /// As [`Gateways::users`].
    pub(crate) async fn keys(self: &Arc<Self>, cluster: &str) -> Result<Vec<AccessKey>> {
        Ok(self.all_users(cluster).await?.iter().flat_map(GatewayUser::keys).collect())
    }

    /// Returns all users by name. Each of them needs a run of its own.
    async fn all_users(self: &Arc<Self>, cluster: &str) -> Result<Vec<GatewayUser>> {
        let names: Vec<String> = self.read(cluster, &["metadata", "list", "user"]).await?;
        let mut waiting = JoinSet::new();
        let mut users = Vec::new();
        let mut names = names.into_iter();
        loop {
            // The limit of a run includes its wait for a place.
            while waiting.len() < super::RUNS_MAX
                && let Some(name) = names.next()
            {
                let (gateways, cluster) = (self.clone(), cluster.to_owned());
                waiting.spawn(async move { gateways.find(&cluster, &name).await });
            }
            let Some(found) = waiting.join_next().await else { break };
            let found = found.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
            // A user that was deleted in the meantime is absent.
            users.extend(found?);
        }
        users.sort_by(|a: &GatewayUser, b| a.name().cmp(b.name()));
        Ok(users)
    }

    /// Returns a user, if it exists.
    async fn find(&self, cluster: &str, name: &str) -> Result<Option<GatewayUser>> {
        match self.run(cluster, &["user", "info", &format!("--uid={name}")]).await? {
            Ok(output) => parse(&output).map(Some),
            Err(refusal) if refusal.is_missing() => Ok(None),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Returns a user.
    ///
    /// # Errors
    /// `NotFound`; `Unreachable`.
    pub(crate) async fn user(&self, cluster: &str, name: &str) -> Result<S3User> {
        check_argument("user", name)?;
        let found = self.find(cluster, name).await?;
        found.map(|user| user.to_wire()).ok_or_else(|| missing_user(cluster, name))
    }

    /// Creates a user without access keys.
    ///
    /// # Errors
    /// `Invalid` for a name that is no user's, for policies and for groups; `Exists`.
    pub(crate) async fn create_user(&self, cluster: &str, request: CreateS3User) -> Result<S3User> {
        let CreateS3User { name, policies, groups } = request;
        check_name("user", &name)?;
        check_other("created", &name)?;
        if !policies.is_empty() {
            return Err(unsupported(cluster, "policies of users", "--policy"));
        }
        if !groups.is_empty() {
            return Err(unsupported(cluster, "groups of users", "--group"));
        }
        let (uid, display_name) = (format!("--uid={name}"), format!("--display-name={name}"));
        let created = match self.run(cluster, &["user", "create", &uid, &display_name]).await? {
            Ok(output) => parse::<GatewayUser>(&output)?,
            Err(refusal) if refusal.is_in_use() => {
                let message = format!("cluster '{cluster}' already has a user '{name}'");
                return Err(Error::new(ErrorKind::Exists, message).hint("choose another name"));
            }
            Err(refusal) => return Err(refusal.into()),
        };
        // The program makes a key with each user, whose secret nobody has seen.
        for key in created.keys() {
            let key = format!("--access-key={}", key.access_key);
            self.run(cluster, &["key", "rm", &uid, &key]).await??;
        }
        tracing::info!(cluster, user = name, "user of the object gateways created");
        self.user(cluster, &name).await
    }

    /// Deletes a user and its access keys.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if the user owns buckets; `Invalid` for the administrator.
    pub(crate) async fn delete_user(&self, cluster: &str, name: &str) -> Result<()> {
        check_argument("user", name)?;
        check_other("deleted", name)?;
        match self.run(cluster, &["user", "rm", &format!("--uid={name}")]).await? {
            Ok(_) => {}
            Err(refusal) if refusal.is_missing() => return Err(missing_user(cluster, name)),
            Err(refusal) if refusal.is_in_use() => {
                let message = format!("user '{name}' of cluster '{cluster}' owns buckets");
                return Err(Error::new(ErrorKind::Busy, message)
                    .hint(format!("'gabion bucket list {cluster}' lists the buckets; delete them first")));
            }
            Err(refusal) => return Err(refusal.into()),
        }
        tracing::info!(cluster, user = name, "user of the object gateways deleted");
        Ok(())
    }

    /// Creates an access key of a user, or of the administrator. Returns it with its secret.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a key that expires.
    pub(crate) async fn create_key(&self, cluster: &str, request: CreateKey) -> Result<AccessKey> {
        if request.valid_s.is_some() {
            return Err(unsupported(cluster, "access keys that expire", "--valid"));
        }
        let user = match request.user {
            Some(user) => user,
            None => self.administrator(cluster).await?.name().to_owned(),
        };
        check_argument("user", &user)?;
        // Chosen here, so that the key is recognised among those of the user.
        let access_key = new_access_key()?;
        let (uid, key) = (format!("--uid={user}"), format!("--access-key={access_key}"));
        let command = ["key", "create", "--key-type=s3", &uid, &key, "--gen-secret"];
        let changed = match self.run(cluster, &command).await? {
            Ok(output) => parse::<GatewayUser>(&output)?,
            Err(refusal) if refusal.is_missing() => return Err(missing_user(cluster, &user)),
            Err(refusal) => return Err(refusal.into()),
        };
        tracing::info!(cluster, access_key, "access key of the object gateways created");
        changed.key(&access_key).ok_or_else(|| {
            let message = format!("cluster '{cluster}' did not store the access key '{access_key}'");
            Error::new(ErrorKind::Internal, message)
        })
    }

    /// Deletes an access key.
    ///
    /// # Errors
    /// `NotFound`; `Unreachable`.
    pub(crate) async fn delete_key(&self, cluster: &str, access_key: &str) -> Result<()> {
        check_argument("key", access_key)?;
        let key = format!("--access-key={access_key}");
        let missing = || {
            let message = format!("cluster '{cluster}' has no access key '{}'", shown(access_key));
            Error::new(ErrorKind::NotFound, message)
                .hint(format!("'gabion key list --cluster {cluster}' lists the keys"))
        };
        let owner: GatewayUser = match self.run(cluster, &["user", "info", &key]).await? {
            Ok(output) => parse(&output)?,
            Err(refusal) if refusal.is_missing() => return Err(missing()),
            Err(refusal) => return Err(refusal.into()),
        };
        self.run(cluster, &["key", "rm", &format!("--uid={}", owner.name()), &key]).await??;
        tracing::info!(cluster, access_key, "access key of the object gateways deleted");
        Ok(())
    }

    /// Returns the administrator of a cluster; creates it if there is none.
    ///
    /// # Errors
    /// `Exists` if its name is that of another user.
    pub(super) async fn administrator(&self, cluster: &str) -> Result<GatewayUser> {
        let _creating = self.creating.lock().await;
        let user = match self.find(cluster, ADMINISTRATOR).await? {
            Some(user) => user,
            None => {
                let uid = format!("--uid={ADMINISTRATOR}");
                let name = "--display-name=administrator of Gabion";
                self.read(cluster, &["user", "create", &uid, name, "--admin", "--max-buckets=0"]).await?
            }
        };
        if user.is_administrator() {
            return Ok(user);
        }
        let message = format!("user '{ADMINISTRATOR}' of cluster '{cluster}' is not an administrator");
        Err(Error::new(ErrorKind::Exists, message)
            .hint(format!("'radosgw-admin user modify --uid={ADMINISTRATOR} --admin' makes it one")))
    }
}

/// Refuses a change of the administrator.
fn check_other(change: &str, name: &str) -> Result<()> {
    if name != ADMINISTRATOR {
        return Ok(());
    }
    let message = format!("user '{name}' is the administrator of Gabion and cannot be {change}");
    Err(Error::new(ErrorKind::Invalid, message).hint("choose another name"))
}

fn missing_user(cluster: &str, name: &str) -> Error {
    let name = shown(name);
    Error::new(ErrorKind::NotFound, format!("cluster '{cluster}' has no user '{name}'"))
        .hint(format!("'gabion user create {name} --cluster {cluster}' creates it"))
}
