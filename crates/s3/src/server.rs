//! The HTTP server.
//!
//! Always true: the number of connections, the time for a TLS handshake, the time for a request's
//! headers, and the memory for each request are bounded; a stopped server has finished or dropped
//! all of its connections.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use object::ObjectStore;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::S3ServiceBuilder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::encryption::ServiceKeys;
use crate::front::{BucketHost, FrontService};
use crate::gateway::{EventTargets, Gateway, KeyAuth, KeyStore};
use crate::md5_service::Md5Service;
use crate::piece_buffers::PieceBuffers;
use crate::roles::RoleStore;

/// The largest number of connections. Others wait in the queue of the socket.
const CONNECTIONS_MAX: usize = 4096;
/// The time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for the headers of a request, and for the next request of a connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest headers of a request in bytes.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// The time that requests have to finish when the server is stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Uploads by HTML forms at the same time, and the largest file and fields of one in bytes: they
/// are held in memory.
const FORMS_MAX: usize = 8;
const FORM_FILE_MAX: u64 = 64 << 20;
const FORM_FIELDS_MAX: usize = 1 << 20;
/// The largest document of a request in bytes.
const XML_MAX: usize = 4 << 20;
/// The time between two applications of lifecycle rules.
const LIFECYCLE_PERIOD_MIN: Duration = Duration::from_secs(1);
const LIFECYCLE_PERIOD_MAX: Duration = Duration::from_secs(3600);
/// Threads that may block, for reads and large bodies.
const BLOCKING_THREADS: usize = 64;

/// Settings of a server.
#[derive(Clone)]
pub struct S3Options {
    /// The region that clients must use.
    pub region: String,
    /// The number of threads for connections.
    pub threads: usize,
    /// The domain of addresses in which the bucket is the first label of the host.
    pub domain: Option<String>,
    /// The key that encrypts the data keys of SSE-S3 and SSE-KMS.
    pub encryption_key: Option<[u8; 32]>,
    /// The length of a day of lifecycle rules.
    pub lifecycle_day: Duration,
    /// The certificate of the server; without one it speaks plain HTTP.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The roles of clients with temporary credentials.
    pub roles: Option<Arc<dyn RoleStore>>,
    /// The receivers of events.
    pub targets: Option<Arc<dyn EventTargets>>,
}

impl std::fmt::Debug for S3Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Options").field("region", &self.region).finish_non_exhaustive()
    }
}

impl Default for S3Options {
    fn default() -> Self {
        Self {
            region: "us-east-1".to_owned(),
            threads: 2,
            domain: None,
            encryption_key: None,
            lifecycle_day: Duration::from_secs(24 * 3600),
            tls: None,
            roles: None,
            targets: None,
        }
    }
}

/// A running server. Dropping it stops it.
pub struct S3Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    runtime: Option<Runtime>,
}

impl S3Server {
    /// Starts a server on a bound socket.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn start(
        listener: TcpListener,
        store: Arc<dyn ObjectStore>,
        keys: Arc<dyn KeyStore>,
        options: &S3Options,
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.threads.max(1))
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("s3")
            .enable_all()
            .build()?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let region: Arc<str> = options.region.as_str().into();
        let gateway = Gateway {
            store,
            keys: keys.clone(),
            roles: options.roles.clone(),
            targets: options.targets.clone(),
            service_keys: ServiceKeys { root: options.encryption_key },
            region: region.clone(),
            settings: Arc::default(),
            md5: Arc::new(Md5Service::start()),
            pieces: PieceBuffers::default(),
            lifecycle_day: options.lifecycle_day,
            has_tls: options.tls.is_some(),
        };
        let mut builder = S3ServiceBuilder::new(gateway.clone());
        builder.set_auth(KeyAuth { keys, roles: options.roles.clone() });
        builder.set_access(gateway.clone());
        builder.set_host(BucketHost { domain: options.domain.clone() });
        let mut config = S3Config::default();
        config.post_object_max_file_size = FORM_FILE_MAX;
        config.form_max_fields_size = FORM_FIELDS_MAX;
        config.xml_max_body_size = XML_MAX;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        let forms = Arc::new(Semaphore::new(FORMS_MAX));
        let domain = options.domain.as_deref().map(Arc::from);
        let front =
            FrontService { service: builder.build(), gateway: gateway.clone(), region, domain, forms };
        let (stop, stopped) = watch::channel(false);
        let guard = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        drop(guard);
        runtime.spawn(apply_lifecycle(gateway, stopped.clone()));
        let acceptor = options.tls.clone().map(TlsAcceptor::from);
        runtime.spawn(accept(listener, acceptor, front, stopped));
        Ok(Self { address, stop, runtime: Some(runtime) })
    }

    /// The address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        let Some(runtime) = self.runtime.take() else { return };
        // Not on a thread of another runtime, which may not block.
        let stopping = std::thread::spawn({
            let stop = self.stop.clone();
            move || {
                runtime.block_on(async {
                    // All connections hold a receiver.
                    let _ = tokio::time::timeout(STOP_TIMEOUT, stop.closed()).await;
                });
                runtime.shutdown_timeout(Duration::from_secs(1));
            }
        });
        if stopping.join().is_err() {
            tracing::error!("the S3 server did not stop cleanly");
        }
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    acceptor: Option<TlsAcceptor>,
    front: FrontService,
    mut stopped: watch::Receiver<bool>,
) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = wait_for_stop(&mut stopped) => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Answers are written as a whole; a failure costs latency only.
        let _ = stream.set_nodelay(true);
        let (front, stopped, acceptor) = (front.clone(), stopped.clone(), acceptor.clone());
        tokio::spawn(async move {
            match acceptor {
                None => serve_connection(stream, peer, front, stopped).await,
                Some(acceptor) => {
                    match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => serve_connection(stream, peer, front, stopped).await,
                        Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
                        Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
                    }
                }
            }
            drop(permit);
        });
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    front: FrontService,
    mut stopped: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| {
        let front = front.clone();
        async move { front.call(request, peer).await }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        result = connection.as_mut() => log_end(result),
        () = wait_for_stop(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            log_end(connection.await);
        }
    }
}

/// Applies lifecycle rules from time to time until the server stops.
async fn apply_lifecycle(gateway: Gateway, mut stopped: watch::Receiver<bool>) {
    let day = gateway.lifecycle_day;
    let period = (day / 10).clamp(LIFECYCLE_PERIOD_MIN, LIFECYCLE_PERIOD_MAX);
    loop {
        tokio::select! {
            () = tokio::time::sleep(period) => {}
            () = wait_for_stop(&mut stopped) => return,
        }
        let store = gateway.store.clone();
        match tokio::task::spawn_blocking(move || crate::lifecycle::apply(&store, day)).await {
            Ok(Ok(0)) => {}
            Ok(Ok(deleted)) => tracing::info!(deleted, "lifecycle rules were applied"),
            Ok(Err(error)) => tracing::warn!(%error, "lifecycle rules could not be applied"),
            Err(error) => tracing::error!(%error, "lifecycle rules could not be applied"),
        }
    }
}

async fn wait_for_stop(stopped: &mut watch::Receiver<bool>) {
    // An error means that the server is gone.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

fn log_end(result: hyper::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "an S3 connection ended with an error");
    }
}
