//! S3 on pools: which pools serve objects, and the stores of those that do.
//!
//! Always true: a pool that serves S3 is persisted; its service starts again with the pool. The
//! store is closed before its pool. Must not know: the S3 protocol, how objects are stored.

mod accounts;
mod blocks;
mod keys;
mod read_buffers;
mod table_file;
mod users;
mod web_identity;
mod webhooks;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object::{
    BucketInfo, Change, ListQuery, ObjectError, ObjectErrorKind, ObjectInfo, ObjectStore, StoreOptions,
    Versioning, VolumeStore,
};
use s3::{S3Options, S3Server};

use crate::blocking::blocking;
use crate::certificate::{CertificateFiles, CertificateStore};
use crate::error::{Error, ErrorKind, Result};
use crate::pools::{OBJECTS_VOLUME, Pools};
use crate::request::shown;
use crate::state::{S3Record, State, TlsRecord};
pub(crate) use accounts::Accounts;
use api::types::{
    Bucket, ChangeBucket, CreateVolume, EtagKind, ObjectPage, ObjectQuery, ObjectSummary, S3Service, S3State,
    StartS3,
};
use blocks::PoolBlocks;
pub(crate) use keys::{KeyFile, new_access_key};
use users::UserFile;
pub(crate) use users::{check_name, missing};
use web_identity::WebIdentity;
pub(crate) use webhooks::NamedOutbox;
use webhooks::{Delivery, WebhookFile};

/// The size of the hidden volume: addresses, not space.
const VOLUME_SIZE: u64 = 1 << 46;
const VOLUME_SECTOR: u32 = 4096;
/// Most objects of one answer.
const OBJECTS_MAX: usize = 1000;
/// The region of clients that the user does not choose.
const REGION: &str = "us-east-1";

/// The S3 services of the pools.
pub(crate) struct ObjectServices {
    pools: Arc<Pools>,
    state: Arc<State>,
    pub(crate) keys: Arc<KeyFile>,
    pub(crate) accounts: Arc<Accounts>,
    webhooks: Arc<WebhookFile>,
    services: Mutex<BTreeMap<String, ServiceEntry>>,
    /// Held while a service is started or stopped.
    changing: tokio::sync::Mutex<()>,
}

/// The service of a pool.
#[derive(Clone)]
struct ServiceEntry {
    record: S3Record,
    /// The running service, or the reason why it does not run.
    running: Result<Arc<RunningService>>,
}

/// A running service. The server and the delivery of events stop before the store closes.
struct RunningService {
    delivery: Delivery,
    server: S3Server,
    store: Arc<VolumeStore>,
    certificate: Option<Arc<CertificateStore>>,
}

impl ObjectServices {
    /// Returns the services of the state, which wait for their pools.
    ///
    /// # Errors
    /// When the access keys, users, roles or webhooks cannot be read.
    pub(crate) fn new(pools: Arc<Pools>, state: Arc<State>) -> Result<Arc<Self>> {
        let keys = Arc::new(KeyFile::open(state.directory())?);
        let users = UserFile::open(state.directory())?;
        let web_identity = WebIdentity::open(state.directory())?;
        let webhooks = Arc::new(WebhookFile::open(state.directory())?);
        let changing = Mutex::default();
        let accounts = Arc::new(Accounts { keys: keys.clone(), users, web_identity, changing });
        accounts.warn_of_missing_policies();
        let waiting = |record| ServiceEntry { record, running: Err(waiting()) };
        let services = state.get().s3.into_iter().map(|(pool, record)| (pool, waiting(record))).collect();
        let (services, changing) = (Mutex::new(services), tokio::sync::Mutex::default());
        Ok(Arc::new(Self { pools, state, keys, accounts, webhooks, services, changing }))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ServiceEntry>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the services of all pools.
    pub(crate) fn list(&self) -> Vec<S3Service> {
        self.lock().iter().map(|(pool, entry)| describe(pool, entry)).collect()
    }

    /// Starts S3 on a pool.
    ///
    /// # Errors
    /// `Busy` if it is started; when the pool is not open, or the address is in use.
    pub(crate) async fn start(&self, pool: &str, request: StartS3) -> Result<S3Service> {
        let _changing = self.changing.lock().await;
        if self.lock().contains_key(pool) {
            let message = format!("S3 is already started on pool '{pool}'");
            return Err(Error::new(ErrorKind::Busy, message)
                .hint(format!("'gabion s3 stop {pool}' stops it; 'gabion s3 status' shows its address")));
        }
        if request.lifecycle_day == Some(0) {
            return Err(Error::new(ErrorKind::Invalid, "a lifecycle day of 0 s is too short")
                .hint("use at least 1 second, or omit --lifecycle-day for 86400"));
        }
        self.state.check_writable()?;
        let listen: SocketAddr = request.listen.parse().map_err(|_| {
            let message = format!("'{}' is not an address", shown(&request.listen));
            Error::new(ErrorKind::Invalid, message).hint("write ADDRESS:PORT, for example 127.0.0.1:9000")
        })?;
        let region = request.region.unwrap_or_else(|| REGION.to_owned());
        let StartS3 { domain, lifecycle_day, certificate, private_key, .. } = request;
        let tls = tls_record(certificate, private_key)?;
        let mut record = S3Record { listen: listen.to_string(), region, domain, lifecycle_day, tls };
        let running = self.run(pool, &record).await?;
        // With port 0, the same port is used again after a restart.
        record.listen = running.server.address().to_string();
        let persisted = record.clone();
        if let Err(error) = self.state.update(|state| drop(state.s3.insert(pool.to_owned(), persisted))) {
            drop_service(running).await;
            return Err(error);
        }
        let entry = ServiceEntry { record, running: Ok(running) };
        let service = describe(pool, &entry);
        tracing::info!(pool, listen = service.listen, "S3 started");
        self.lock().insert(pool.to_owned(), entry);
        Ok(service)
    }

    /// Opens the store and the server of a pool.
    async fn run(&self, pool: &str, record: &S3Record) -> Result<Arc<RunningService>> {
        let certificate = record.tls.as_ref().map(open_certificate).transpose()?;
        let tls = certificate.as_ref().map(CertificateStore::serve).transpose()?;
        let listener = TcpListener::bind(&record.listen).map_err(|error| {
            let kind = match error.kind() {
                std::io::ErrorKind::AddrInUse => ErrorKind::Busy,
                std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
                _ => ErrorKind::Invalid,
            };
            Error::new(kind, format!("cannot listen on {}: {error}", record.listen))
                .hint("choose another address with --listen")
        })?;
        let volume = match self.pools.open_volume(pool, OBJECTS_VOLUME).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let create = CreateVolume {
                    name: OBJECTS_VOLUME.to_owned(),
                    size: VOLUME_SIZE,
                    sector: Some(VOLUME_SECTOR),
                    thick: false,
                    shards: None,
                    data_pool: None,
                };
                self.pools.create_volume(pool, create).await?;
                self.pools.open_volume(pool, OBJECTS_VOLUME).await?
            }
            other => other?,
        };
        let blocks = Arc::new(PoolBlocks::attach(volume).await?);
        let opened = blocking(move || VolumeStore::open(blocks, StoreOptions::default())).await?;
        let store = Arc::new(opened.map_err(convert)?);
        let directory = self.state.directory().to_owned();
        let key = blocking(move || keys::object_key(&directory)).await??;
        let day = record.lifecycle_day.map(Duration::from_secs);
        let defaults = S3Options::default();
        let options = S3Options {
            region: record.region.clone(),
            domain: record.domain.clone(),
            encryption_key: Some(key),
            lifecycle_day: day.unwrap_or(defaults.lifecycle_day),
            tls,
            roles: Some(self.accounts.clone()),
            targets: Some(self.webhooks.clone()),
            ..defaults
        };
        let server = S3Server::start(listener, store.clone(), self.accounts.clone(), &options);
        match server {
            Ok(server) => {
                let delivery = Delivery::start(pool, &record.region, store.clone(), self.webhooks.clone());
                Ok(Arc::new(RunningService { delivery, server, store, certificate }))
            }
            Err(error) => {
                blocking(move || drop(store)).await?;
                Err(Error::new(ErrorKind::Internal, format!("cannot start the S3 server: {error}")))
            }
        }
    }

    /// Stops S3 on a pool. Its objects stay.
    ///
    /// # Errors
    /// `NotFound`; when the state cannot be persisted.
    pub(crate) async fn stop(&self, pool: &str) -> Result<()> {
        let _changing = self.changing.lock().await;
        let entry = self.lock().get(pool).cloned().ok_or_else(|| not_started(pool))?;
        self.state.update(|state| drop(state.s3.remove(pool)))?;
        self.lock().remove(pool);
        if let Ok(running) = entry.running {
            drop_service(running).await;
        }
        tracing::info!(pool, "S3 stopped");
        Ok(())
    }

    /// Starts the service of a pool that has been opened, if it has one.
    pub(crate) async fn activate(&self, pool: &str) {
        let _changing = self.changing.lock().await;
        let Some(entry) = self.lock().get(pool).cloned().filter(|entry| entry.running.is_err()) else {
            return;
        };
        let running = self.run(pool, &entry.record).await;
        if let Err(error) = &running {
            tracing::error!(pool, %error, "S3 is not available");
        }
        self.lock().insert(pool.to_owned(), ServiceEntry { record: entry.record, running });
    }

    /// Stops the service of a pool that is to be closed.
    pub(crate) async fn deactivate(&self, pool: &str) {
        let _changing = self.changing.lock().await;
        let before =
            self.lock().get_mut(pool).map(|entry| std::mem::replace(&mut entry.running, Err(waiting())));
        if let Some(Ok(running)) = before {
            drop_service(running).await;
        }
    }

    /// Forgets the service of a pool that does not exist any more.
    pub(crate) fn forget(&self, pool: &str) {
        self.lock().remove(pool);
    }

    /// Stops all services, before the pools are closed.
    pub(crate) async fn shut_down(&self) {
        let pools: Vec<String> = self.lock().keys().cloned().collect();
        for pool in pools {
            self.deactivate(&pool).await;
        }
    }

    /// Refuses to destroy a pool that serves S3.
    ///
    /// # Errors
    /// `Busy`.
    pub(crate) fn check_stopped(&self, pool: &str) -> Result<()> {
        if !self.lock().contains_key(pool) {
            return Ok(());
        }
        let message = format!("pool '{pool}' serves S3");
        Err(Error::new(ErrorKind::Busy, message).hint(format!("'gabion s3 stop {pool}' stops it")))
    }

    fn store(&self, pool: &str) -> Result<Arc<RunningService>> {
        let entry = self.lock().get(pool).cloned().ok_or_else(|| not_started(pool))?;
        entry.running
    }

    /// Returns the buckets of a pool by name.
    ///
    /// # Errors
    /// When S3 does not run on the pool.
    pub(crate) async fn buckets(&self, pool: &str) -> Result<Vec<Bucket>> {
        let running = self.store(pool)?;
        let buckets = blocking(move || running.store.buckets()).await?.map_err(convert)?;
        Ok(buckets.into_iter().map(to_wire).collect())
    }

    /// Returns a bucket.
    ///
    /// # Errors
    /// When S3 does not run on the pool, or the bucket does not exist.
    pub(crate) async fn bucket(&self, pool: &str, name: &str) -> Result<Bucket> {
        let (running, name) = (self.store(pool)?, name.to_owned());
        let bucket = blocking(move || running.store.bucket(&name)).await?.map_err(convert)?;
        Ok(to_wire(bucket))
    }

    /// Lists objects of a bucket by key.
    ///
    /// # Errors
    /// When S3 does not run on the pool, or the bucket does not exist.
    pub(crate) async fn objects(&self, pool: &str, bucket: &str, query: ObjectQuery) -> Result<ObjectPage> {
        let running = self.store(pool)?;
        let query = ListQuery {
            bucket: bucket.to_owned(),
            prefix: query.prefix.unwrap_or_default(),
            delimiter: query.delimiter.unwrap_or_default(),
            after: query.after.unwrap_or_default(),
            after_version: None,
            limit: query.limit.unwrap_or(OBJECTS_MAX).clamp(1, OBJECTS_MAX),
        };
        let page = blocking(move || running.store.list(&query)).await?.map_err(convert)?;
        let summary = |object: ObjectInfo| ObjectSummary {
            key: object.key,
            size: object.size,
            modified: object.modified_ms / 1000,
            etag: object.etag,
        };
        let objects = page.entries.into_iter().map(summary).collect();
        Ok(ObjectPage { objects, prefixes: page.prefixes, next: page.next })
    }

    /// Creates a bucket.
    ///
    /// # Errors
    /// For an invalid name or a name in use.
    pub(crate) async fn create_bucket(&self, pool: &str, name: &str) -> Result<Bucket> {
        let now_ms = crate::unix_time::unix_time() * 1000;
        let (versioning, settings) = (Versioning::Off, BTreeMap::new());
        let change = Change::CreateBucket { name: name.to_owned(), versioning, settings, now_ms };
        self.store(pool)?.store.commit(change).await.map_err(convert)?;
        self.bucket(pool, name).await
    }

    /// Changes the settings of a bucket.
    ///
    /// # Errors
    /// When S3 does not run on the pool, or the bucket does not exist.
    pub(crate) async fn change_bucket(
        &self,
        pool: &str,
        name: &str,
        request: ChangeBucket,
    ) -> Result<Bucket> {
        let running = self.store(pool)?;
        if let Some(etag) = request.etag {
            let value = match etag {
                EtagKind::Md5 => None,
                EtagKind::Fast => Some("fast".to_owned()),
            };
            let change = Change::SetBucket { bucket: name.to_owned(), name: "etag".to_owned(), value };
            running.store.commit(change).await.map_err(convert)?;
        }
        if let Some(quota) = request.quota {
            // No bucket holds nothing, so 0 removes the quota.
            let quota = (quota > 0).then_some(quota);
            let change = Change::SetQuota { bucket: name.to_owned(), quota };
            running.store.commit(change).await.map_err(convert)?;
        }
        self.bucket(pool, name).await
    }

    /// Deletes an empty bucket.
    ///
    /// # Errors
    /// `Busy` for a bucket with objects.
    pub(crate) async fn delete_bucket(&self, pool: &str, name: &str) -> Result<()> {
        let change = Change::DeleteBucket { name: name.to_owned() };
        self.store(pool)?.store.commit(change).await.map_err(convert)?;
        Ok(())
    }
}

/// Stops a service on a thread that may block.
async fn drop_service(running: Arc<RunningService>) {
    running.delivery.stop().await;
    let stopped = blocking(move || {
        match Arc::try_unwrap(running) {
            Ok(RunningService { server, store, .. }) => {
                drop(server);
                drop(store);
            }
            // A request of the API still uses the store and drops it.
            Err(shared) => drop(shared),
        }
    });
    if let Err(error) = stopped.await {
        tracing::error!(%error, "S3 did not stop cleanly");
    }
}

/// Checks the files of a certificate for HTTPS.
fn tls_record(certificate: Option<String>, private_key: Option<String>) -> Result<Option<TlsRecord>> {
    let (certificate, private_key) = match (certificate, private_key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(private_key)) => (certificate, private_key),
        (Some(_), None) => {
            return Err(Error::new(ErrorKind::Invalid, "a certificate was given without its private key")
                .hint("add --private-key FILE"));
        }
        (None, Some(_)) => {
            return Err(Error::new(ErrorKind::Invalid, "a private key was given without its certificate")
                .hint("add --certificate FILE"));
        }
    };
    if let Some(path) = [&certificate, &private_key].into_iter().find(|path| !path.starts_with('/')) {
        let message = format!("'{}' is not an absolute path", shown(path));
        return Err(Error::new(ErrorKind::Invalid, message)
            .hint("give the path of the file on the host of the daemon, from / on"));
    }
    Ok(Some(TlsRecord { certificate, private_key }))
}

fn open_certificate(tls: &TlsRecord) -> Result<Arc<CertificateStore>> {
    let TlsRecord { certificate, private_key } = tls;
    CertificateStore::open(CertificateFiles { certificate: certificate.into(), key: private_key.into() })
}

fn waiting() -> Error {
    Error::new(ErrorKind::NotOpen, "its pool is not open")
}

fn not_started(pool: &str) -> Error {
    let message = format!("S3 is not started on pool '{}'", shown(pool));
    Error::new(ErrorKind::NotFound, message)
        .hint(format!("'gabion s3 start {} --listen 127.0.0.1:9000' starts it", shown(pool)))
}

fn describe(pool: &str, entry: &ServiceEntry) -> S3Service {
    let (state, reason) = match &entry.running {
        Ok(_) => (S3State::Active, None),
        Err(error) => (S3State::Waiting, Some(error.to_string())),
    };
    let running = entry.running.as_ref().ok();
    S3Service {
        pool: pool.to_owned(),
        listen: entry.record.listen.clone(),
        region: entry.record.region.clone(),
        domain: entry.record.domain.clone(),
        certificate: entry.record.tls.as_ref().map(|tls| tls.certificate.clone()),
        fingerprint: running
            .and_then(|running| running.certificate.as_ref())
            .map(|found| found.fingerprint()),
        state,
        reason,
    }
}

fn to_wire(bucket: BucketInfo) -> Bucket {
    Bucket {
        name: bucket.name,
        created: bucket.created_ms / 1000,
        objects: bucket.counters.objects,
        versions: Some(bucket.counters.versions),
        bytes: bucket.counters.bytes,
        quota: bucket.quota,
        etag: match bucket.settings.get("etag").map(String::as_str) {
            Some("fast") => EtagKind::Fast,
            _ => EtagKind::Md5,
        },
        owner: bucket.settings.get("owner").cloned().unwrap_or_else(|| s3::DEFAULT_USER.to_owned()),
        versioning: Some(format!("{:?}", bucket.versioning).to_lowercase()),
    }
}

fn convert(error: ObjectError) -> Error {
    let kind = match error.kind() {
        ObjectErrorKind::NoSuchBucket => ErrorKind::NotFound,
        ObjectErrorKind::BucketExists => ErrorKind::Exists,
        ObjectErrorKind::BucketNotEmpty => ErrorKind::Busy,
        ObjectErrorKind::Invalid => ErrorKind::Invalid,
        ObjectErrorKind::NoSpace => ErrorKind::NoSpace,
        ObjectErrorKind::Closed => ErrorKind::NotOpen,
        _ => ErrorKind::Io,
    };
    Error::new(kind, error.to_string())
}
