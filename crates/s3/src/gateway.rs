//! The state that all operations share.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object::{Change, ChangeSource, ObjectError, ObjectStore, Outcome};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};

use crate::encryption::ServiceKeys;
use crate::errors::{convert, internal, unexpected_outcome};
use crate::identity::UserRights;
use crate::md5_service::Md5Service;
use crate::piece_buffers::PieceBuffers;
use crate::roles::RoleStore;
use crate::settings::{BucketSettings, SettingsCache};

/// The access keys and their users.
pub trait KeyStore: Send + Sync + 'static {
    /// Returns the secret of an access key.
    fn secret(&self, access_key: &str) -> Option<String>;

    /// Returns the user of an access key.
    fn user(&self, access_key: &str) -> Option<String>;

    /// True if a user has an access key.
    fn has_user(&self, user: &str) -> bool;

    /// Returns the rights of a user that has policies. `None` for other users, who own the buckets
    /// that they create, and may use others as far as these permit it.
    fn rights(&self, user: &str) -> Option<UserRights> {
        let _ = user;
        None
    }
}

/// The receivers that the rules of buckets may name.
pub trait EventTargets: Send + Sync + 'static {
    /// True if there is a receiver of this name.
    fn has_target(&self, name: &str) -> bool;
}

/// Executes operations on a store.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) keys: Arc<dyn KeyStore>,
    pub(crate) roles: Option<Arc<dyn RoleStore>>,
    pub(crate) targets: Option<Arc<dyn EventTargets>>,
    pub(crate) service_keys: ServiceKeys,
    pub(crate) region: Arc<str>,
    pub(crate) settings: Arc<SettingsCache>,
    pub(crate) md5: Arc<Md5Service>,
    pub(crate) pieces: PieceBuffers,
    /// The length of a day of lifecycle rules.
    pub(crate) lifecycle_day: Duration,
    /// True if the service speaks HTTPS.
    pub(crate) has_tls: bool,
}

impl Gateway {
    /// Applies a change without events.
    pub(crate) async fn commit(&self, change: Change) -> S3Result<Outcome> {
        self.store.commit(change).await.map_err(convert)
    }

    /// Applies a change of a sender.
    pub(crate) async fn commit_from(&self, change: Change, source: ChangeSource) -> S3Result<Outcome> {
        self.store.commit_from(change, source).await.map_err(convert)
    }

    /// Applies a change of a sender whose answer is an object.
    pub(crate) async fn commit_object(
        &self,
        change: Change,
        source: ChangeSource,
    ) -> S3Result<object::ObjectInfo> {
        match self.commit_from(change, source).await? {
            Outcome::Object(info) => Ok(info),
            _ => Err(unexpected_outcome()),
        }
    }

    /// Reads from the store, on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn ObjectStore) -> Result<T, ObjectError> + Send + 'static,
    ) -> S3Result<T> {
        let store = self.store.clone();
        blocking(move || work(&*store)).await?.map_err(convert)
    }

    /// Returns the settings of a bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`.
    pub(crate) async fn settings(&self, bucket: &str) -> S3Result<Arc<BucketSettings>> {
        // The epoch is read first: settings that change meanwhile are read again.
        let epoch = self.store.settings_epoch();
        if let Some(settings) = self.settings.get(bucket, epoch) {
            return Ok(settings);
        }
        let name = bucket.to_owned();
        let info = self.read(move |store| store.bucket(&name)).await?;
        let settings = Arc::new(BucketSettings::new(info));
        self.settings.put(epoch, &settings);
        Ok(settings)
    }
}

/// Runs blocking work on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> S3Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(internal)
}

/// The time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A time for answers, in whole seconds as in HTTP headers.
pub(crate) fn timestamp(ms: u64) -> s3s::dto::Timestamp {
    (SystemTime::UNIX_EPOCH + Duration::from_secs(ms / 1000)).into()
}

/// Verifies signatures by the access keys.
pub(crate) struct KeyAuth {
    pub(crate) keys: Arc<dyn KeyStore>,
    pub(crate) roles: Option<Arc<dyn RoleStore>>,
}

#[async_trait::async_trait]
impl S3Auth for KeyAuth {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let of_session = || self.roles.as_ref()?.session_secret(access_key);
        match self.keys.secret(access_key).or_else(of_session) {
            Some(secret) => Ok(SecretKey::from(secret)),
            None => Err(s3_error!(InvalidAccessKeyId, "the access key does not exist")),
        }
    }
}
