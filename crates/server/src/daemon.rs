//! The daemon's life: start, serve, end.
//!
//! Owns the order of things. Always true: requests are answered before pools are closed, and pools are closed before the
//! reactors end; a pool that cannot be opened does not keep the others from being served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::blocking::blocking;
use crate::capacity;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::exports::Exports;
use crate::http::{self, ApiSocket};
use crate::notify::notify;
use crate::operations::Operations;
use crate::panics;
use crate::pools::Pools;
use crate::reactors::Reactors;
use crate::state::State;
use api::types::{self, OperationKind, OperationState};

/// How long what another daemon uses is waited for at start.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// What the API works with.
pub(crate) struct Services {
    pub(crate) pools: Arc<Pools>,
    pub(crate) exports: Arc<Exports>,
    pub(crate) operations: Arc<Operations>,
    pub(crate) reactors: Arc<Reactors>,
    cores: Vec<u32>,
    started: Instant,
    ready: AtomicBool,
}

/// Runs the daemon on this thread until it is told to stop by SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start, or a pool could not be closed in order.
pub fn serve(config: &Config) -> Result<()> {
    panics::install();
    capacity::raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Error::new(ErrorKind::Internal, format!("cannot start: {error}")))?;
    runtime.block_on(run(config))
}

async fn run(config: &Config) -> Result<()> {
    // Before anything that takes long, so that a signal meanwhile is not lost.
    let mut signals = Signals::listen()?;
    let access = config.export_access()?;
    let (socket, listener) = patiently(|| ApiSocket::bind(&config.socket, access)).await?;
    let (services, state_lock) = start(config).await?;
    let (stop, stopped) = watch::channel(false);
    let server = tokio::spawn(answer(listener, services.clone(), stopped));
    tokio::spawn(open_pools(services.clone()));
    let watch = tokio::spawn(services.pools.clone().watch());

    let name = signals.next().await;
    tracing::info!(signal = name, "shutting down");
    notify("STOPPING=1");
    tokio::spawn(async move {
        let name = signals.next().await;
        tracing::warn!(
            signal = name,
            "told to stop a second time: ending at once, pools are recovered at the next start"
        );
        std::process::exit(1);
    });
    // While we still listen: nobody can have taken the name.
    drop(socket);
    // The server may have ended by itself; then nobody is told.
    let _ = stop.send(true);
    services.operations.close().await;
    match server.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "the API failed"),
        Err(error) => tracing::error!(%error, "the API failed"),
    }
    watch.abort();
    let closed = end(&services).await;
    drop(state_lock);
    tracing::info!("stopped");
    closed
}

async fn start(config: &Config) -> Result<(Arc<Services>, Arc<State>)> {
    let state = Arc::new(patiently(|| State::open(&config.state_dir)).await?);
    let settings = config.reactors();
    let reactors = Reactors::start(&settings).map_err(|error| {
        Error::new(ErrorKind::Internal, error.to_string())
            .hint("--cores and --threads say where reactors run, --io how they do their I/O")
    })?;
    let reactors = Arc::new(reactors);
    let pools = Pools::new(config, reactors.clone(), state.clone());
    let exports = Exports::start(config, &reactors, pools.clone(), state.clone()).await;
    let exports = exports.inspect_err(|_| reactors.stop())?;
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
    let services = Services {
        pools,
        exports,
        operations: Operations::new(),
        reactors,
        // The kernel's limit is far below this number's.
        cores: config.cores.iter().filter_map(|core| u32::try_from(*core).ok()).collect(),
        started: Instant::now(),
        ready: AtomicBool::new(false),
    };
    Ok((Arc::new(services), state))
}

/// Tries for a while to get what is in use: a daemon that was killed a moment ago may not be quite gone.
async fn patiently<T>(take: impl Fn() -> Result<T>) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        match take() {
            Err(error) if error.kind() == ErrorKind::Busy && Instant::now() < end => {
                tokio::time::sleep(PAUSE).await
            }
            result => return result,
        }
    }
}

/// Answers requests until told to stop, and then those that are in flight.
async fn answer(
    listener: UnixListener,
    services: Arc<Services>,
    mut stopped: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let told = async move {
        // An error means that the daemon is gone: as good as being told.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    axum::serve(listener, http::router(services)).with_graceful_shutdown(told).await
}

/// Opens the pools that are to be in service, side by side.
async fn open_pools(services: Arc<Services>) {
    let mut openings = JoinSet::new();
    for name in services.pools.waiting() {
        let (inside, pool) = (services.clone(), name.clone());
        let open = |progress| async move {
            let opened = inside.pools.open_at_start(&pool, &progress).await;
            opened.inspect_err(|error| {
                let hint = error.hint_text();
                tracing::error!(pool, %error, hint, "a pool is not served: 'gabion pool status' shows what to do");
            })?;
            inside.exports.activate(&pool).await;
            Ok(())
        };
        if let Ok(operation) = services.operations.start(OperationKind::PoolOpen, &name, open) {
            let operations = services.operations.clone();
            openings.spawn(async move {
                let patience = Duration::from_secs(3600);
                while operations.wait(operation.id, u64::MAX, patience).await.is_ok_and(is_running) {}
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

/// Ends exports, pools and reactors, in this order.
async fn end(services: &Arc<Services>) -> Result<()> {
    services.exports.shut_down().await;
    let mut closing = JoinSet::new();
    for name in services.pools.open_names() {
        let pools = services.pools.clone();
        closing.spawn(async move { pools.close_at_end(&name).await });
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

impl Services {
    /// Returns the status of the daemon.
    pub(crate) fn describe(&self) -> types::DaemonStatus {
        let (nbd_socket, nbd_listen) = self.exports.addresses();
        types::DaemonStatus {
            version: crate::version(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            reactors: self.reactors.all().len() as u64,
            cores: self.cores.clone(),
            io: self.reactors.backend().to_string(),
            ready: self.ready.load(Ordering::Relaxed),
            nbd_socket,
            nbd_listen,
        }
    }
}

/// The signals that end the daemon.
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
