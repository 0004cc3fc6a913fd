//! Exports: which volumes are served to clients, and whether they are at the moment.
//!
//! Owns the table of exports and its persistence. Always true: an export of the table is persisted;
//! it runs only while its pool is open, and starts again automatically with the pool. Must not
//! know: how a protocol works.

mod frontends;
mod io_counters;
mod owner;
mod pool_volume;
mod rbd_volume;
mod reservations;
mod served;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use export::iscsi::ChapAccount;
use export::nvme::{DhChapSecrets, NvmeTlsKey};
use export::{ExportConfig, ExportError, ExportErrorKind, NetworkConfig, RunningExport, StopMode};
use tokio::task::{AbortHandle, JoinSet};

use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::pools::OBJECTS_VOLUME;
use crate::reactors::Reactors;
use crate::request::shown;
use crate::state::{ExportRecord, State};
use crate::volumes::Volumes;
use api::types::{
    ChapOptions, CreateExport, DeleteExportQuery, DhChapOptions, Export, ExportState, NetworkOptions,
    TlsOptions,
};
use frontends::Frontends;
pub(crate) use io_counters::{BUCKETS, ExportCounters, IoKind, IoSums, bucket_nanos};
use owner::{check_manager, check_owner};
use pool_volume::PoolVolume;
pub(crate) use pool_volume::ReactorVolume;
use rbd_volume::RbdSource;
use served::ServedSource;
use table::{ExportEntry, ExportKey, Table, check_coexistence, new_key};

/// Interval between attempts to start the exports of a cluster that does not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The exports of the daemon.
pub(crate) struct Exports {
    table: Table,
    volumes: Arc<Volumes>,
    state: Arc<State>,
    frontends: Frontends,
    /// Held while an export is created, deleted, started or stopped: one change at a time.
    changing: tokio::sync::Mutex<()>,
}

impl Exports {
    /// Starts the frontends. The persisted exports wait for their pools.
    ///
    /// # Errors
    /// When an address cannot be bound.
    pub(crate) async fn start(
        config: &Config,
        reactors: &Arc<Reactors>,
        volumes: Arc<Volumes>,
        state: Arc<State>,
    ) -> Result<Arc<Self>> {
        let table = Table::default();
        let mut keys = Vec::new();
        for export in state.get().exports {
            let (key, entry) = from_state(export);
            keys.push(key.clone());
            table.insert(key, entry);
        }
        let frontends = Frontends::start(config, reactors, &keys, &state).await?;
        let changing = tokio::sync::Mutex::default();
        Ok(Arc::new(Self { table, volumes, state, frontends, changing }))
    }

    /// The exports.
    pub(crate) fn list(&self) -> Vec<Export> {
        self.table.all().iter().map(|(key, entry)| self.describe(key, entry)).collect()
    }

    /// The exports with the sums of their requests by kind, in the order of [`IoKind::ALL`].
    pub(crate) fn list_with_io(&self) -> Vec<(Export, [IoSums; 4])> {
        let with_io =
            |(key, entry): &(ExportKey, ExportEntry)| (self.describe(key, entry), entry.counters.sums());
        self.table.all().iter().map(with_io).collect()
    }

    fn describe(&self, key: &ExportKey, entry: &ExportEntry) -> Export {
        let (id, name) = (key.id(), key.name());
        let (state, reason, status, uris) = match &entry.running {
            Ok(running) => (ExportState::Active, None, running.status(), running.listeners()),
            Err(error) => {
                let uris = self.frontends.get(key.protocol).listeners(&name, &entry.config);
                (ExportState::Waiting, Some(error.to_string()), Default::default(), uris)
            }
        };
        let ExportKey { pool, volume, protocol, .. } = key.clone();
        let ExportConfig { read_only, queues, reactors, network } = entry.config.clone();
        Export {
            id,
            name: name.to_string(),
            pool,
            volume,
            protocol,
            read_only,
            shared: entry.shared,
            owner: entry.owner.clone(),
            state,
            reason,
            uris,
            queues,
            reactors,
            network: without_secrets(network),
            connections: status.connections,
            used_by: status.users,
        }
    }

    /// Exports a volume.
    ///
    /// # Errors
    /// When the pool is not open or has no such volume; `Busy` beside an export that excludes this
    /// one; when the frontend refuses.
    pub(crate) async fn create(&self, request: CreateExport) -> Result<Export> {
        let CreateExport { pool, volume, protocol, read_only, shared, queues, reactors, network, owner } =
            request;
        check_owner(owner.as_deref())?;
        if volume == OBJECTS_VOLUME {
            let message = format!("volume '{pool}/{volume}' holds the objects of the pool");
            return Err(Error::new(ErrorKind::Invalid, message).hint("S3 serves it: 'gabion s3 status'"));
        }
        // Snapshots are read-only.
        let read_only = read_only || volume.contains('@');
        let config = ExportConfig { read_only, queues, reactors, network: from_options(network) };
        let counters = Arc::<ExportCounters>::default();
        // Before the lock: a cluster that does not answer must not delay other exports.
        let source = self.open(&pool, &volume, read_only, &counters).await?;
        let _changing = self.changing.lock().await;
        let others = self.table.of_volume(&pool, &volume);
        check_coexistence(&others, &format!("{pool}/{volume}"), read_only, shared)?;
        let key = new_key(&others, &pool, &volume, protocol);
        let config = self.frontends.get(protocol).complete(config, &source);
        let running = self.start_one(&key, &config, source).await?;
        let entry = ExportEntry { config, shared, owner, running: Ok(running.clone()), counters };
        let record = to_state(&key, &entry);
        if let Err(error) = self.state.update(|state| state.exports.push(record)) {
            stop(&key, &*running, StopMode::Forced).await;
            self.frontends.get(protocol).release(&key.name()).await;
            return Err(error);
        }
        let export = self.describe(&key, &entry);
        tracing::info!(export = %key.name(), id = key.id(), read_only, shared, "volume exported");
        self.table.insert(key, entry);
        Ok(export)
    }

    /// Opens a volume of a pool or cluster.
    async fn open(
        &self,
        pool: &str,
        volume: &str,
        read_only: bool,
        counters: &Arc<ExportCounters>,
    ) -> Result<ServedSource> {
        let counters = counters.clone();
        let Some(clusters) = self.volumes.cluster(pool) else {
            let volume = self.volumes.pools().open_volume(pool, volume).await?;
            return Ok(ServedSource::Pool(PoolVolume { volume, counters }));
        };
        let image = clusters.open(pool, volume, read_only).await?;
        let snapshot = volume.split_once('@').map_or("", |(_, snapshot)| snapshot);
        let identity = format!("{pool}/{}/{}@{snapshot}", image.pool().id(), image.id());
        Ok(ServedSource::Cluster(RbdSource { image, identity, counters }))
    }

    /// Starts the exports of clusters that wait, every few seconds until it is cancelled: a cluster
    /// may answer, or its directory be mounted, later than the daemon starts. A cluster that does
    /// not answer delays no other one.
    pub(crate) async fn watch_clusters(self: Arc<Self>) {
        let (mut attempts, mut running) = (JoinSet::new(), BTreeMap::<String, AbortHandle>::new());
        loop {
            while attempts.try_join_next().is_some() {}
            running.retain(|_, attempt| !attempt.is_finished());
            for (key, entry) in self.table.all() {
                let waits = entry.running.is_err() && self.volumes.cluster(&key.pool).is_some();
                if waits && !running.contains_key(&key.pool) {
                    let (exports, cluster) = (self.clone(), key.pool.clone());
                    let attempt = attempts.spawn(async move { exports.activate(&cluster).await });
                    running.insert(key.pool, attempt);
                }
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    async fn start_one(
        &self,
        key: &ExportKey,
        config: &ExportConfig,
        source: ServedSource,
    ) -> Result<Arc<dyn RunningExport>> {
        let (frontend, name) = (self.frontends.get(key.protocol), key.name());
        frontend.check(&name, config).map_err(convert)?;
        frontend.start(&name, config, Arc::new(source)).await.map_err(convert)
    }

    /// Deletes an export of a volume. Its clients' requests fail from then on. An export that this
    /// host uses stays unless the request forces it, because file systems may be mounted on it.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` when the request fits several exports; `Busy`; when the state cannot
    /// be persisted.
    pub(crate) async fn delete(&self, pool: &str, volume: &str, request: &DeleteExportQuery) -> Result<()> {
        let _changing = self.changing.lock().await;
        let (key, entry) = self.select(pool, volume, request)?;
        if !request.force {
            check_manager(&key, entry.owner.as_deref(), request.owner.as_deref())?;
        }
        self.state.check_writable()?;
        if let Ok(running) = &entry.running {
            let mode = if request.force { StopMode::Forced } else { StopMode::Orderly };
            running.stop(mode).await.map_err(convert)?;
        }
        let record = to_state(&key, &entry);
        if let Err(error) = self.state.update(|state| state.exports.retain(|export| *export != record)) {
            let opened = self.open_again(&key, &entry).await;
            self.start_again(&key, &entry, opened).await;
            return Err(error);
        }
        self.table.remove(&key);
        self.frontends.get(key.protocol).release(&key.name()).await;
        tracing::info!(export = %key.name(), id = key.id(), "export deleted");
        Ok(())
    }

    /// The export that a request means.
    fn select(
        &self,
        pool: &str,
        volume: &str,
        request: &DeleteExportQuery,
    ) -> Result<(ExportKey, ExportEntry)> {
        let all = self.table.of_volume(pool, volume);
        let shown_name = format!("{}/{}", shown(pool), shown(volume));
        let not_found = |message: String| {
            Err(Error::new(ErrorKind::NotFound, message).hint("'gabion export list' shows the exports"))
        };
        if all.is_empty() {
            return not_found(format!("'{shown_name}' is not exported"));
        }
        let fits = |key: &ExportKey| {
            request.id.as_ref().is_none_or(|id| *id == key.id())
                && request.protocol.is_none_or(|protocol| protocol == key.protocol)
        };
        let ids = |exports: &[(ExportKey, ExportEntry)]| {
            exports.iter().map(|(key, _)| key.id()).collect::<Vec<_>>().join(", ")
        };
        let existing = ids(&all);
        let mut selected: Vec<_> = all.into_iter().filter(|(key, _)| fits(key)).collect();
        match (selected.pop(), selected.is_empty()) {
            (None, _) => not_found(format!("'{shown_name}' has no such export; it has {existing}")),
            (Some(only), true) => Ok(only),
            (Some(last), false) => {
                selected.push(last);
                let message = format!("'{shown_name}' has several such exports: {}", ids(&selected));
                Err(Error::new(ErrorKind::Invalid, message).hint("name one with --id"))
            }
        }
    }

    /// Returns the names of the exported volumes of a pool.
    pub(crate) fn exported_volumes(&self, pool: &str) -> BTreeSet<String> {
        self.table.volumes(pool)
    }

    /// True if a volume is exported.
    pub(crate) fn is_exported(&self, pool: &str, volume: &str) -> bool {
        !self.table.of_volume(pool, volume).is_empty()
    }

    /// Refuses to delete a volume that is exported.
    ///
    /// # Errors
    /// `Busy`, which names the exports.
    pub(crate) fn check_volume_unused(&self, pool: &str, volume: &str) -> Result<()> {
        let exports = self.table.of_volume(pool, volume);
        if exports.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = exports.iter().map(|(key, _)| key.id()).collect();
        let message = format!("volume '{pool}/{volume}' is exported by {}", ids.join(", "));
        let owner = exports.iter().find_map(|(_, entry)| entry.owner.as_deref());
        let hint = match (owner, ids.as_slice()) {
            (Some(owner), _) => format!("{owner} manages an export: let it delete the export first"),
            (None, [_]) => format!("'gabion export delete {pool}/{volume}' removes the export"),
            (None, _) => format!("'gabion export delete {pool}/{volume} --id ID' removes an export"),
        };
        Err(Error::new(ErrorKind::Busy, message).hint(hint))
    }

    /// Refuses to close a pool whose volumes are exported.
    ///
    /// # Errors
    /// `Busy`, which names the volumes.
    pub(crate) fn check_unused(&self, pool: &str, force: bool) -> Result<()> {
        let running = self.table.of_pool(pool).into_iter().filter(|(_, entry)| entry.running.is_ok());
        let mut exported: Vec<String> =
            running.map(|(key, _)| format!("{}/{}", key.pool, key.volume)).collect();
        exported.dedup();
        if force || exported.is_empty() {
            return Ok(());
        }
        let message = format!("volumes of pool '{pool}' are exported: {}", exported.join(", "));
        Err(Error::new(ErrorKind::Busy, message).hint(
            "'gabion export delete' removes an export; 'gabion pool close --force' disconnects the clients and keeps \
             the exports for when the pool is opened again",
        ))
    }

    /// Starts the exports of a pool that has been opened.
    pub(crate) async fn activate(&self, pool: &str) {
        for (key, _) in self.table.of_pool(pool) {
            let Some(entry) = self.waiting(&key) else { continue };
            let opened = self.open_again(&key, &entry).await;
            let _changing = self.changing.lock().await;
            // It may have been deleted or started meanwhile.
            if self.waiting(&key).is_some() {
                self.start_again(&key, &entry, opened).await;
            }
        }
    }

    /// Returns an export that does not run.
    fn waiting(&self, key: &ExportKey) -> Option<ExportEntry> {
        let exports = self.table.of_volume(&key.pool, &key.volume);
        exports
            .into_iter()
            .find(|(other, entry)| other == key && entry.running.is_err())
            .map(|(_, entry)| entry)
    }

    async fn open_again(&self, key: &ExportKey, entry: &ExportEntry) -> Result<ServedSource> {
        self.open(&key.pool, &key.volume, entry.config.read_only, &entry.counters).await
    }

    async fn start_again(&self, key: &ExportKey, entry: &ExportEntry, opened: Result<ServedSource>) {
        let running = match opened {
            Ok(source) => self.start_one(key, &entry.config, source).await,
            Err(error) => Err(error),
        };
        // Attempts that fail alike are logged once.
        if let Err(error) = &running
            && entry.running.as_ref().err() != Some(error)
        {
            let (export, id) = (key.name(), key.id());
            match self.volumes.cluster(&key.pool) {
                // `watch_clusters` starts it again.
                Some(_) => tracing::warn!(%export, id, %error, "cannot serve an export yet: trying again"),
                None => tracing::error!(%export, id, %error, "cannot serve an export"),
            }
        }
        self.table.set_running(key, running);
    }

    /// Stops the exports of a pool that is being closed.
    pub(crate) async fn deactivate(&self, pool: &str) {
        let _changing = self.changing.lock().await;
        for (key, _) in self.table.of_pool(pool) {
            if let Some(running) = self.table.set_running(&key, Err(waiting())) {
                stop(&key, &*running, StopMode::Forced).await;
            }
        }
    }

    /// Announces the new size of a volume to its clients.
    pub(crate) async fn resized(&self, pool: &str, volume: &str) {
        for (_, entry) in self.table.of_volume(pool, volume) {
            if let Ok(running) = entry.running {
                running.resize().await;
            }
        }
    }

    /// Ends every connection, after the requests that have begun.
    pub(crate) async fn shut_down(&self) {
        let _changing = self.changing.lock().await;
        let exports = self.table.all();
        for (key, _) in &exports {
            if let Some(running) = self.table.set_running(key, Err(waiting())) {
                stop(key, &*running, StopMode::Handover).await;
            }
        }
        self.frontends.shut_down().await;
        for (key, _) in &exports {
            self.frontends.get(key.protocol).release(&key.name()).await;
        }
    }

    /// The Unix socket and the TCP addresses of NBD.
    pub(crate) fn addresses(&self) -> (Option<String>, Vec<String>) {
        self.frontends.nbd_addresses()
    }
}

/// Stops an export in a way that it cannot refuse.
async fn stop(key: &ExportKey, running: &dyn RunningExport, mode: StopMode) {
    if let Err(error) = running.stop(mode).await {
        tracing::error!(export = %key.name(), id = key.id(), %error, "an export was not stopped in order");
    }
}

/// An export as the state file has it.
fn to_state(key: &ExportKey, entry: &ExportEntry) -> ExportRecord {
    let ExportKey { pool, volume, protocol, number } = key.clone();
    let ExportConfig { read_only, queues, reactors, network } = entry.config.clone();
    let (shared, owner, network) = (entry.shared, entry.owner.clone(), to_options(network));
    ExportRecord { pool, volume, protocol, number, read_only, shared, queues, reactors, network, owner }
}

/// An export of the state file, which waits for its pool.
fn from_state(export: ExportRecord) -> (ExportKey, ExportEntry) {
    let ExportRecord { pool, volume, protocol, number, read_only, shared, queues, reactors, network, owner } =
        export;
    let config = ExportConfig { read_only, queues, reactors, network: from_options(network) };
    let key = ExportKey { pool, volume, protocol, number };
    (key, ExportEntry { config, shared, owner, running: Err(waiting()), counters: Arc::default() })
}

/// The options of a network disk as the API and the state file have them.
fn to_options(network: NetworkConfig) -> NetworkOptions {
    let NetworkConfig { listen, target, unit, hosts, chap, dhchap, tls_key } = network;
    let chap = chap.map(|ChapAccount { user, secret, target }| {
        let (target_user, target_secret) = target.unzip();
        ChapOptions { user, secret: Some(secret), target_user, target_secret }
    });
    let dhchap = dhchap.map(|DhChapSecrets { host, controller }| DhChapOptions {
        secret: Some(host),
        controller_secret: controller,
    });
    let tls = tls_key.map(|NvmeTlsKey(key)| TlsOptions { key: Some(key) });
    NetworkOptions { listen, target, unit, hosts, chap, dhchap, tls }
}

/// The options of a network disk without its secrets, for readers.
fn without_secrets(network: NetworkConfig) -> NetworkOptions {
    let mut options = to_options(network);
    if let Some(chap) = &mut options.chap {
        (chap.secret, chap.target_secret) = (None, None);
    }
    if let Some(dhchap) = &mut options.dhchap {
        (dhchap.secret, dhchap.controller_secret) = (None, None);
    }
    if let Some(tls) = &mut options.tls {
        tls.key = None;
    }
    options
}

/// The options of a network disk as frontends have them.
fn from_options(network: NetworkOptions) -> NetworkConfig {
    let NetworkOptions { listen, target, unit, hosts, chap, dhchap, tls } = network;
    let chap = chap.map(|ChapOptions { user, secret, target_user, target_secret }| ChapAccount {
        user,
        // A frontend refuses an empty secret.
        secret: secret.unwrap_or_default(),
        target: (target_user.is_some() || target_secret.is_some())
            .then(|| (target_user.unwrap_or_default(), target_secret.unwrap_or_default())),
    });
    let dhchap = dhchap.map(|DhChapOptions { secret, controller_secret }| DhChapSecrets {
        // A frontend refuses an empty secret.
        host: secret.unwrap_or_default(),
        controller: controller_secret,
    });
    // A frontend refuses an empty key.
    let tls_key = tls.map(|TlsOptions { key }| NvmeTlsKey(key.unwrap_or_default()));
    NetworkConfig { listen, target, unit, hosts, chap, dhchap, tls_key }
}

fn waiting() -> Error {
    Error::new(ErrorKind::NotOpen, "its pool is not open")
}

/// An error of a frontend as the API shows it.
pub(crate) fn convert(error: ExportError) -> Error {
    let kind = match error.kind() {
        ExportErrorKind::Invalid => ErrorKind::Invalid,
        ExportErrorKind::Exists => ErrorKind::Exists,
        ExportErrorKind::Busy => ErrorKind::Busy,
        ExportErrorKind::Denied => ErrorKind::Denied,
        ExportErrorKind::Io => ErrorKind::Io,
        ExportErrorKind::ShuttingDown => ErrorKind::ShuttingDown,
        ExportErrorKind::Internal => ErrorKind::Internal,
    };
    let converted = Error::new(kind, error.to_string());
    match error.hint_text() {
        Some(hint) => converted.hint(hint),
        None => converted,
    }
}
