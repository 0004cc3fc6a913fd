//! The life cycle of the daemon: start, service, shutdown.
//!
//! Owns the order of these steps. Invariants: in-flight API requests finish before pools are
//! closed, and pools are closed before the reactors stop; a pool that cannot be opened does not
//! affect the other pools.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::access::AccessControl;
use crate::blocking::blocking;
use crate::buckets::Buckets;
use crate::capacity;
use crate::certificate::{CertificateFiles, CertificateStore, self_signed};
use crate::cluster_statuses::ClusterStatuses;
use crate::clusters::Clusters;
use crate::config::Config;
use crate::consoles::Consoles;
use crate::error::{Error, ErrorKind, Result};
use crate::exports::Exports;
use crate::gateways::Gateways;
use crate::host_objects::HostObjects;
use crate::http::{self, ApiSocket, RemoteSockets};
use crate::image::ImageOperations;
use crate::live::LiveUpdates;
use crate::live_status;
use crate::notify::notify;
use crate::objects::ObjectServices;
use crate::operations::Operations;
use crate::panics;
use crate::pools::Pools;
use crate::reactors::Reactors;
use crate::services::Services;
use crate::state::State;
use crate::volumes::Volumes;
use crate::watchdog;
use api::types::{self, OperationKind, OperationState};

/// Time for which the daemon retries at start if another daemon holds the socket or the state
/// directory.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Runs the daemon on this thread until SIGTERM, SIGINT or SIGHUP. `host` has the objects that the
/// console also shows.
///
/// # Errors
/// When the daemon cannot start, or a pool cannot be closed cleanly.
pub fn serve(config: &Config, host: Arc<dyn HostObjects>) -> Result<()> {
    panics::install();
    capacity::raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Error::new(ErrorKind::Internal, format!("cannot start the daemon: {error}")))?;
    let result = runtime.block_on(run(config, host));
    // A call to a cluster that does not answer never ends, and must not delay the exit.
    runtime.shutdown_background();
    result
}

async fn run(config: &Config, host: Arc<dyn HostObjects>) -> Result<()> {
    // First, so that a signal during a slow start is not lost.
    let mut signals = Signals::listen()?;
    let (access, directory) = (config.socket_access()?, config.directory_access()?);
    let (socket, listener) = retry_while_busy(|| ApiSocket::bind(&config.socket, access, directory)).await?;
    let metrics_listeners = http::bind_tcp(&config.metrics_listen, "metrics", "--metrics-listen").await?;
    let remote = RemoteSockets::bind(&config.api_listen).await?;
    let (services, state_lock) = start(config, remote.addresses(), host).await?;
    let (stop, stopped) = watch::channel(false);
    for address in http::bound_addresses(&metrics_listeners) {
        tracing::info!(%address, "serving metrics");
    }
    for listener in metrics_listeners {
        tokio::spawn(serve_metrics(listener, services.clone(), stopped.clone()));
    }
    let mut servers = JoinSet::new();
    if let Some(certificate) = &services.certificate {
        for listener in remote.listen(certificate)? {
            servers.spawn(serve_api(listener, services.clone(), stopped.clone()));
        }
        for address in &services.api_listen {
            tracing::info!(%address, fingerprint = certificate.fingerprint(), "serving HTTPS");
        }
    }
    servers.spawn(serve_api(listener, services.clone(), stopped));
    tokio::spawn(open_pools(services.clone()));
    let watch = tokio::spawn(services.pools.clone().watch());
    let smart = tokio::spawn(services.pools.clone().watch_smart());
    let live = tokio::spawn(live_status::run(services.clone()));
    let clusters = tokio::spawn(services.exports.clone().watch_clusters());
    let watchdog = tokio::spawn(watchdog::run(services.reactors.clone()));

    let name = signals.next().await;
    tracing::info!(signal = name, "shutting down");
    notify("STOPPING=1");
    tokio::spawn(async move {
        let name = signals.next().await;
        tracing::warn!(
            signal = name,
            "second signal: exiting without closing the pools; they are recovered at the next start"
        );
        std::process::exit(1);
    });
    // The socket is removed while this process still listens, so that no other daemon has bound it.
    drop(socket);
    // An error means that the server has ended already.
    let _ = stop.send(true);
    services.live.close();
    services.operations.close().await;
    while let Some(served) = servers.join_next().await {
        match served {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the API server failed"),
            Err(error) => tracing::error!(%error, "the API server failed"),
        }
    }
    watch.abort();
    smart.abort();
    live.abort();
    clusters.abort();
    watchdog.abort();
    let closed = shut_down(&services).await;
    drop(state_lock);
    tracing::info!("stopped");
    closed
}

async fn start(
    config: &Config,
    api_listen: Vec<SocketAddr>,
    host: Arc<dyn HostObjects>,
) -> Result<(Arc<Services>, Arc<State>)> {
    let state = Arc::new(retry_while_busy(|| State::open(&config.state_dir)).await?);
    let access = AccessControl::open(&config.state_dir)?;
    let certificate = if api_listen.is_empty() { None } else { Some(open_certificate(config)?) };
    let settings = config.reactors();
    let reactors = Reactors::start(&settings).map_err(|error| {
        Error::new(ErrorKind::Internal, error.to_string())
            .hint("check --cores and --threads (cores of the reactors) and --io (I/O backend)")
    })?;
    let reactors = Arc::new(reactors);
    let pools = Pools::new(config, reactors.clone(), state.clone());
    let clusters = Clusters::new(config);
    let gateways = Gateways::new(config, clusters.clone());
    let volumes = Volumes::new(pools.clone(), clusters);
    let exports = Exports::start(config, &reactors, volumes.clone(), state.clone()).await;
    let exports = exports.inspect_err(|_| reactors.stop())?;
    let objects = ObjectServices::new(pools.clone(), state.clone()).inspect_err(|_| reactors.stop())?;
    let version = crate::version();
    tracing::info!(
        version = version.version,
        pid = std::process::id(),
        reactors = settings.cores.len(),
        io = %reactors.backend(),
        socket = %config.socket.display(),
        state_dir = %config.state_dir.display(),
        "serving"
    );
    let runtime = config.socket.parent().map(std::path::Path::to_owned).unwrap_or_default();
    let images = Arc::new(ImageOperations::new(pools.clone(), reactors.clone(), state.clone(), runtime));
    let buckets = Buckets::new(volumes.clone(), objects.clone(), gateways.clone());
    let services = Services {
        pools,
        volumes,
        exports,
        objects,
        gateways,
        buckets,
        images,
        operations: Operations::new(),
        reactors,
        access,
        live: LiveUpdates::default(),
        cluster_statuses: ClusterStatuses::new(host.clone()),
        host,
        consoles: Consoles::default(),
        api_listen,
        certificate,
        // Core numbers always fit: the kernel's limit is far below 2^32.
        cores: config.cores.iter().filter_map(|core| u32::try_from(*core).ok()).collect(),
        started: Instant::now(),
        ready: AtomicBool::new(false),
    };
    Ok((Arc::new(services), state))
}

/// Opens the configured certificate, or the self-signed one.
fn open_certificate(config: &Config) -> Result<Arc<CertificateStore>> {
    let files = match (&config.api_certificate, &config.api_key) {
        (Some(certificate), Some(key)) => {
            CertificateFiles { certificate: certificate.clone(), key: key.clone() }
        }
        _ => self_signed(&config.state_dir, &config.api_listen)?,
    };
    CertificateStore::open(files)
}

/// Retries `acquire` while it fails with `Busy`: a daemon that was just killed may still exit.
async fn retry_while_busy<T>(acquire: impl Fn() -> Result<T>) -> Result<T> {
    let end = Instant::now() + BUSY_TIMEOUT;
    loop {
        match acquire() {
            Err(error) if error.kind() == ErrorKind::Busy && Instant::now() < end => {
                tokio::time::sleep(RETRY_INTERVAL).await
            }
            result => return result,
        }
    }
}

/// Serves the API until `stopped` is true, then finishes the in-flight requests.
async fn serve_api<L: Listener>(
    listener: L,
    services: Arc<Services>,
    mut stopped: watch::Receiver<bool>,
) -> std::io::Result<()>
where
    L::Addr: std::fmt::Debug,
    http::Sender: for<'a> Connected<IncomingStream<'a, L>>,
{
    let shutdown = async move {
        // An error means that the sender is gone, which stops the server too.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    axum::serve(listener, http::service(services)).with_graceful_shutdown(shutdown).await
}

/// Serves metrics to Prometheus until `stopped` is true.
async fn serve_metrics(
    listener: TcpListener,
    services: Arc<Services>,
    mut stopped: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let shutdown = async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    axum::serve(listener, http::metrics_router(services)).with_graceful_shutdown(shutdown).await
}

/// Opens the pools of the configuration and the state directory concurrently.
async fn open_pools(services: Arc<Services>) {
    let mut openings = JoinSet::new();
    for name in services.pools.names_to_open() {
        let (inside, pool) = (services.clone(), name.clone());
        let open = |progress| async move {
            let opened = inside.pools.open_at_start(&pool, &progress).await;
            opened.inspect_err(|error| {
                let hint = error.hint_text();
                tracing::error!(pool, %error, hint, "the pool is not open; see 'gabion pool status'");
            })?;
            inside.images.clean_up(&pool, &inside.operations).await;
            inside.exports.activate(&pool).await;
            inside.objects.activate(&pool).await;
            Ok(())
        };
        if let Ok(operation) = services.operations.start(OperationKind::PoolOpen, &name, open) {
            let operations = services.operations.clone();
            openings.spawn(async move {
                let timeout = Duration::from_secs(3600);
                while operations.wait(operation.id, u64::MAX, timeout).await.is_ok_and(is_running) {}
            });
        }
    }
    while openings.join_next().await.is_some() {}
    services.ready.store(true, Ordering::Relaxed);
    let open = services.pools.open_names().len();
    let all = services.pools.names().len();
    tracing::info!(open, pools = all, "ready");
    notify(&format!("READY=1\nSTATUS={open} of {all} pools are open"));
}

fn is_running(operation: types::Operation) -> bool {
    operation.state == OperationState::Running
}

/// Shuts down exports, pools and reactors, in this order.
async fn shut_down(services: &Arc<Services>) -> Result<()> {
    services.exports.shut_down().await;
    services.volumes.shut_down().await;
    services.objects.shut_down().await;
    let mut closing = JoinSet::new();
    for name in services.pools.open_names() {
        let pools = services.pools.clone();
        closing.spawn(async move { pools.close_at_shutdown(&name).await });
    }
    let mut result = Ok(());
    while let Some(closed) = closing.join_next().await {
        let closed = closed.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()));
        result = result.and(closed.and_then(|closed| closed));
    }
    let reactors = services.reactors.clone();
    blocking(move || reactors.stop()).await?;
    result
}

/// The signals that stop the daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> Result<Self> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Error::new(ErrorKind::Internal, format!("cannot receive signals: {error}")))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hang_up.recv() => "SIGHUP",
        }
    }
}
