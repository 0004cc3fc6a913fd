//! A client of a pool's S3 service with an access key of its own.
//!
//! The daemon creates the key in memory; the end of the command deletes it. Requests are repeated
//! while the daemon restarts, with a new key, because the old one ended with the daemon.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use api::client::{Client, ServerTrust};
use api::types::{AccessKey, CreateKey, S3Service, S3State};
use api::{Error, ErrorKind, VolumeName};
use s3_client::{Address, Credentials, S3Client, S3Error};

/// Time for which the key is valid, in seconds. A longer transfer gets another one.
const KEY_VALID_S: u64 = 12 * 3600;
/// Time for which requests are repeated while the service cannot be reached.
const RETRY_TIME: Duration = Duration::from_secs(60);
const RETRY_PAUSE: Duration = Duration::from_millis(200);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

/// A session on one bucket.
pub(crate) struct ObjectSession {
    daemon: Client,
    pub(crate) client: S3Client,
    pub(crate) bucket: VolumeName,
    access_key: Mutex<String>,
}

impl ObjectSession {
    /// Opens a session.
    ///
    /// # Errors
    /// When the pool does not serve S3, or the daemon refuses a key.
    pub(crate) async fn open(daemon: &Client, bucket: &VolumeName) -> Result<Self> {
        let (client, access_key) = connect(daemon, &bucket.pool).await?;
        let access_key = Mutex::new(access_key);
        Ok(Self { daemon: daemon.clone(), client, bucket: bucket.clone(), access_key })
    }

    /// Deletes the access key.
    pub(crate) async fn close(&self) {
        let access_key = self.access_key.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // It expires if the daemon cannot be reached.
        drop(self.daemon.delete_key(&access_key).await);
    }

    /// Runs a request; repeats it after a restart of the daemon and after lost connections.
    ///
    /// # Errors
    /// The last error of the request, with the names of the bucket and of `key`.
    pub(crate) async fn retry<T>(
        &self,
        key: &str,
        mut request: impl AsyncFnMut() -> s3_client::Result<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + RETRY_TIME;
        let mut pause = RETRY_PAUSE;
        loop {
            let error = match request().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let is_key_lost = error.code() == Some("InvalidAccessKeyId");
            if (!error.is_transient() && !is_key_lost) || Instant::now() >= deadline {
                return Err(self.explain(key, error));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
            // Until the daemon serves again, the request fails and is repeated.
            if is_key_lost && let Ok(key) = new_key(&self.daemon).await {
                self.client.set_credentials(credentials(&key));
                *self.access_key.lock().unwrap_or_else(PoisonError::into_inner) = key.access_key;
            }
        }
    }

    /// Adds the names of the bucket and the object to an error.
    pub(crate) fn explain(&self, key: &str, error: S3Error) -> anyhow::Error {
        let bucket = &self.bucket;
        let explained = match error.code() {
            Some("NoSuchBucket") => {
                let message = format!("there is no bucket {bucket}");
                let hint = format!("'gabion bucket list {}' lists the buckets", bucket.pool);
                Error::new(ErrorKind::NotFound, message).hint(hint)
            }
            Some("NoSuchKey") => {
                let message = format!("there is no object '{key}' in bucket {bucket}");
                let hint = format!("'gabion object list {bucket}' lists the objects");
                Error::new(ErrorKind::NotFound, message).hint(hint)
            }
            Some("QuotaExceeded") => {
                let message = format!("object '{key}' exceeds the quota of bucket {bucket}");
                Error::new(ErrorKind::NoSpace, message)
                    .hint(format!("delete objects, or use 'gabion bucket set {bucket} --quota SIZE'"))
            }
            Some("StorageFull") => {
                let pool = &bucket.pool;
                let message = format!("pool {pool} has no space for object '{key}' of bucket {bucket}");
                Error::new(ErrorKind::NoSpace, message).hint(format!(
                    "delete objects, snapshots or volumes, or add a drive with 'gabion drive add {pool}'; \
                     'gabion pool status {pool}' shows the space"
                ))
            }
            Some("PreconditionFailed") => {
                let message = format!("object '{key}' of bucket {bucket} was replaced during the transfer");
                Error::new(ErrorKind::Busy, message).hint("run the command again")
            }
            _ => {
                let kind = match &error {
                    S3Error::Invalid(_) => ErrorKind::Invalid,
                    S3Error::Connect { .. } => ErrorKind::Unreachable,
                    S3Error::Checksum { .. } => ErrorKind::Corrupt,
                    _ => ErrorKind::Io,
                };
                let name = if key.is_empty() { bucket.to_string() } else { format!("{bucket}/{key}") };
                Error::new(kind, format!("{name}: {error}"))
            }
        };
        explained.into()
    }
}

/// Returns a client of the service of a pool, and its access key, which the caller deletes.
///
/// # Errors
/// When the pool does not serve S3, or the daemon refuses a key.
pub(crate) async fn connect(daemon: &Client, pool: &str) -> Result<(S3Client, String)> {
    let services = daemon.list_s3().await?;
    if !services.iter().any(|service| service.pool == pool) {
        check_pool(daemon, pool).await?;
    }
    let service = active(&services, pool)?;
    let host = reachable(&service.listen, daemon.server_host());
    let address = Address::parse(&format!("{}://{host}", service.scheme()))?;
    // The daemon names the certificate of its own service, so its names need not match.
    let trust = service.fingerprint.as_deref().map(ServerTrust::fingerprint).transpose()?;
    let tls = trust.map(|trust| trust.client_config()).transpose()?;
    let key = new_key(daemon).await?;
    let client = S3Client::with_tls(address, service.region.clone(), credentials(&key), tls);
    Ok((client, key.access_key))
}

/// Refuses a cluster: its gateways may be reachable for other hosts than this one.
async fn check_pool(daemon: &Client, name: &str) -> Result<()> {
    let pools = daemon.list_pools().await?;
    let is_pool = pools.iter().any(|pool| pool.name == name);
    if is_pool || !daemon.list_clusters().await?.iter().any(|cluster| cluster.name == name) {
        return Ok(());
    }
    let message = format!("'{name}' is a cluster, whose objects are transferred by other S3 clients");
    Err(Error::new(ErrorKind::Invalid, message)
        .hint(format!("'gabion key create --cluster {name}' creates a key for them"))
        .into())
}

async fn new_key(daemon: &Client) -> api::Result<AccessKey> {
    daemon.create_key(&CreateKey { user: None, valid_s: Some(KEY_VALID_S) }).await
}

fn credentials(key: &AccessKey) -> Credentials {
    Credentials::new(key.access_key.clone(), key.secret.clone().unwrap_or_default())
}

/// Returns the active service of a pool.
fn active<'a>(services: &'a [S3Service], pool: &str) -> api::Result<&'a S3Service> {
    let start = format!("start it with 'gabion s3 start {pool} --listen 127.0.0.1:9000'");
    let service = services.iter().find(|service| service.pool == pool).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("pool {pool} does not serve S3")).hint(start)
    })?;
    match (service.state, &service.reason) {
        (S3State::Active, _) => Ok(service),
        (S3State::Waiting, reason) => {
            let reason = reason.as_deref().unwrap_or("it has not started");
            Err(Error::new(ErrorKind::NotOpen, format!("S3 on pool {pool} is not active: {reason}")))
        }
    }
}

/// Returns the address for clients of a service. One that listens on all addresses is reached at
/// the host of the daemon.
fn reachable(listen: &str, server_host: Option<&str>) -> String {
    match listen.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => match server_host {
            Some(host) => format!("{host}:{}", address.port()),
            None => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port()).to_string(),
        },
        _ => listen.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_on_all_addresses_are_reached_at_the_host_of_the_daemon() {
        for (listen, host, expected) in [
            ("127.0.0.1:9000", Some("storage1"), "127.0.0.1:9000"),
            ("0.0.0.0:9000", Some("storage1"), "storage1:9000"),
            ("0.0.0.0:9000", None, "127.0.0.1:9000"),
            ("[::]:9000", Some("[fd00::1]"), "[fd00::1]:9000"),
        ] {
            assert_eq!(reachable(listen, host), expected);
        }
    }
}
