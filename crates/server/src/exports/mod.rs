//! Exports: which volumes are served to others, and whether they are at the moment.
//!
//! Owns the table of exports. Always true: what is in the table is remembered; an export is active only while its pool is
//! in service, and comes back by itself when that does. Must not know: how a protocol works.

mod fuse;
mod listen;
mod nbd;
mod queues;
mod table;
mod ublk;
mod vhost;
mod volume;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::pools::Pools;
use crate::reactors::Reactors;
use crate::request::shown;
use crate::state::{RememberedExport, State};
use api::types::{CreateExport, Export, ExportState, Protocol};
use fuse::Fuse;
pub(crate) use listen::{Purpose, listen_unix};
use nbd::Nbd;
use table::{Active, Entry, Manner, Name, Table};
use ublk::Ublk;
use vhost::Vhost;

/// See the module.
pub(crate) struct Exports {
    table: Arc<Table>,
    pools: Arc<Pools>,
    state: Arc<State>,
    nbd: Nbd,
    vhost: Vhost,
    fuse: Fuse,
    ublk: Ublk,
    /// Held while what is served changes: one change at a time.
    changing: tokio::sync::Mutex<()>,
}

impl Exports {
    /// Starts serving: the exports that are remembered, none of them active yet.
    ///
    /// # Errors
    /// When an address that is to be served on cannot be had.
    pub(crate) async fn start(
        config: &Config,
        reactors: &Arc<Reactors>,
        pools: Arc<Pools>,
        state: Arc<State>,
    ) -> Result<Arc<Self>> {
        let table = Arc::new(Table::default());
        for export in state.get().exports {
            let RememberedExport { pool, volume, protocol, read_only, queues, reactors } = export;
            let manner = Manner { protocol, read_only, queues, reactors };
            table.insert(Name { pool, volume }, Entry { manner, active: Err(waiting()) });
        }
        let access = config.export_access()?;
        let nbd = Nbd::start(config, access, reactors, &table).await?;
        let vhost = Vhost::new(config, access, reactors.clone());
        let fuse = Fuse::new(config, access, reactors.clone());
        for name in table.names(Protocol::Fuse) {
            fuse.hold(&name).await;
        }
        let ublk = Ublk::new(config, access, reactors.clone());
        ublk.clear(&table.names(Protocol::Ublk)).await;
        Ok(Arc::new(Self {
            table,
            pools,
            state,
            nbd,
            vhost,
            fuse,
            ublk,
            changing: tokio::sync::Mutex::default(),
        }))
    }

    /// The exports.
    pub(crate) fn list(&self) -> Vec<Export> {
        self.table.list(|name, entry| self.show(name, entry))
    }

    fn show(&self, name: &Name, entry: &Entry) -> Export {
        let (state, reason, connections) = match &entry.active {
            Ok(active) => (ExportState::Active, None, active.connections.load(Ordering::Relaxed)),
            Err(error) => (ExportState::Waiting, Some(error.to_string()), 0),
        };
        let Manner { protocol, read_only, queues, reactors } = entry.manner.clone();
        let uris = match protocol {
            Protocol::Nbd => self.nbd.uris(name),
            Protocol::VhostUser => self.vhost.uris(name),
            Protocol::Fuse => self.fuse.uris(name),
            Protocol::Ublk => self.ublk.uris(name),
        };
        let Name { pool, volume } = name.clone();
        Export { pool, volume, protocol, read_only, state, reason, uris, queues, reactors, connections }
    }

    /// Exports a volume.
    ///
    /// # Errors
    /// When the pool is not open, has no such volume, the volume is exported already, or cannot be served in this way.
    pub(crate) async fn create(&self, request: CreateExport) -> Result<Export> {
        let CreateExport { pool, volume, protocol, read_only, queues, reactors } = request;
        // Nobody writes to a snapshot.
        let read_only = read_only || volume.contains('@');
        let (name, manner) = (Name { pool, volume }, Manner { protocol, read_only, queues, reactors });
        let _changing = self.changing.lock().await;
        let handle = self.pools.open_volume(&name.pool, &name.volume).await?;
        self.check(&name, &manner)?;
        if self.table.contains(&name) {
            return Err(Error::new(ErrorKind::Exists, format!("'{name}' is exported already"))
                .hint("'gabion export list' shows where"));
        }
        let active = Active::new(handle);
        self.begin(&name, &manner, &active).await?;
        if let Err(error) = self.remember(&name, &manner) {
            self.end(&name, &manner, active).await;
            self.fuse.forget(&name).await;
            return Err(error);
        }
        let entry = Entry { manner, active: Ok(active) };
        let export = self.show(&name, &entry);
        tracing::info!(export = %name, %protocol, read_only, "volume exported");
        self.table.insert(name, entry);
        Ok(export)
    }

    fn remember(&self, name: &Name, manner: &Manner) -> Result<()> {
        let Name { pool, volume } = name.clone();
        let Manner { protocol, read_only, queues, reactors } = manner.clone();
        let remembered = RememberedExport { pool, volume, protocol, read_only, queues, reactors };
        self.state.update(|state| state.exports.push(remembered))
    }

    /// Refuses what makes no sense, or cannot be served here.
    fn check(&self, name: &Name, manner: &Manner) -> Result<()> {
        match manner.protocol {
            Protocol::Nbd | Protocol::Fuse if manner.queues.is_some() || !manner.reactors.is_empty() => {
                Err(Error::new(ErrorKind::Invalid, "only exports by vhost-user and ublk have queues"))
            }
            Protocol::Nbd if !self.nbd.listens() => {
                Err(Error::new(ErrorKind::Invalid, "the daemon serves NBD nowhere")
                    .hint("set nbd.socket or nbd.listen in its configuration and restart it"))
            }
            Protocol::Nbd | Protocol::Fuse => Ok(()),
            Protocol::VhostUser => self.vhost.check(name, manner),
            Protocol::Ublk => self.ublk.check(name, manner, &self.table.names(Protocol::Ublk)),
        }
    }

    /// Begins to serve what is in the table.
    async fn begin(&self, name: &Name, manner: &Manner, active: &Arc<Active>) -> Result<()> {
        match manner.protocol {
            // Its servers look into the table.
            Protocol::Nbd => Ok(()),
            Protocol::VhostUser => self.vhost.serve(name, manner, active).await,
            Protocol::Fuse => self.fuse.serve(name, manner, active).await,
            Protocol::Ublk => self.ublk.serve(name, manner, active).await,
        }
    }

    /// Takes a volume away from its clients, and waits for what they have in flight.
    async fn end(&self, name: &Name, manner: &Manner, active: Arc<Active>) {
        match manner.protocol {
            Protocol::Nbd => self.nbd.revoke(active).await,
            Protocol::VhostUser => self.vhost.end(name).await,
            Protocol::Fuse => self.fuse.end(name).await,
            Protocol::Ublk => self.ublk.end(name).await,
        }
    }

    /// Ends an export. Its clients' requests are refused from then on. One that this host itself uses is left as it is,
    /// unless it is forced: file systems may lie on it.
    ///
    /// # Errors
    /// When there is no such export, it is in use, or that cannot be remembered.
    pub(crate) async fn delete(&self, pool: &str, volume: &str, force: bool) -> Result<()> {
        let _changing = self.changing.lock().await;
        let name = Name { pool: pool.to_owned(), volume: volume.to_owned() };
        if !self.table.contains(&name) {
            let message = format!("'{}/{}' is not exported", shown(pool), shown(volume));
            return Err(Error::new(ErrorKind::NotFound, message).hint("'gabion export list' shows what is"));
        }
        if !force {
            self.fuse.close(&name).await?;
            self.ublk.close(&name).await?;
        }
        let others = |export: &RememberedExport| export.pool != pool || export.volume != volume;
        if let Err(error) = self.state.update(|state| state.exports.retain(others)) {
            self.fuse.reopen(&name);
            self.ublk.reopen(&name);
            return Err(error);
        }
        if let Some(Entry { manner, active: Ok(active) }) = self.table.remove(&name) {
            self.end(&name, &manner, active).await;
        }
        self.fuse.forget(&name).await;
        tracing::info!(export = %name, "export ended");
        Ok(())
    }

    /// True if a volume is exported.
    pub(crate) fn is_exported(&self, pool: &str, volume: &str) -> bool {
        self.table.contains(&Name { pool: pool.to_owned(), volume: volume.to_owned() })
    }

    /// Refuses to delete a volume that is exported.
    ///
    /// # Errors
    /// `Busy`.
    pub(crate) fn check_volume_unused(&self, pool: &str, volume: &str) -> Result<()> {
        if !self.is_exported(pool, volume) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Busy, format!("volume '{pool}/{volume}' is exported"))
            .hint(format!("'gabion export delete {pool}/{volume}' ends that")))
    }

    /// Refuses to take away a pool that clients use.
    ///
    /// # Errors
    /// `Busy`, naming the exports.
    pub(crate) fn check_unused(&self, pool: &str, force: bool) -> Result<()> {
        let active = |(name, entry): (&Name, &Entry)| {
            (name.pool == pool && entry.active.is_ok()).then(|| name.to_string())
        };
        let exported: Vec<String> =
            self.table.list(|name, entry| active((name, entry))).into_iter().flatten().collect();
        if force || exported.is_empty() {
            return Ok(());
        }
        let message = format!("volumes of pool '{pool}' are exported: {}", exported.join(", "));
        Err(Error::new(ErrorKind::Busy, message).hint(
            "'gabion export delete' ends an export; 'gabion pool close --force' disconnects the clients and keeps the \
             exports for when the pool is opened again",
        ))
    }

    /// Serves the exports of a pool that has come into service.
    pub(crate) async fn activate(&self, pool: &str) {
        let _changing = self.changing.lock().await;
        for (name, manner, active) in self.table.list(what) {
            if name.pool != pool || active.is_some() {
                continue;
            }
            let opened = self.activate_one(&name, &manner).await;
            if let Err(error) = &opened {
                tracing::error!(export = %name, %error, "an export cannot be served");
            }
            self.table.set_active(&name, opened);
        }
    }

    async fn activate_one(&self, name: &Name, manner: &Manner) -> Result<Arc<Active>> {
        let active = Active::new(self.pools.open_volume(&name.pool, &name.volume).await?);
        self.begin(name, manner, &active).await?;
        Ok(active)
    }

    /// Stops serving the exports of a pool that goes out of service.
    pub(crate) async fn deactivate(&self, pool: &str) {
        let _changing = self.changing.lock().await;
        for (name, manner, _) in self.table.list(what) {
            if name.pool == pool
                && let Some(active) = self.table.set_active(&name, Err(waiting()))
            {
                self.end(&name, &manner, active).await;
            }
        }
    }

    /// Tells the clients of a volume that its size has changed, as far as their protocol has words for it.
    pub(crate) async fn resized(&self, pool: &str, volume: &str) {
        let name = Name { pool: pool.to_owned(), volume: volume.to_owned() };
        self.vhost.resized(&name).await;
        self.fuse.resized(&name).await;
        self.ublk.resized(&name).await;
    }

    /// Ends every connection, after the requests that have begun.
    pub(crate) async fn shut_down(&self) {
        let _changing = self.changing.lock().await;
        self.nbd.shut_down().await;
        self.vhost.shut_down().await;
        self.fuse.shut_down(&self.table.names(Protocol::Fuse)).await;
        self.ublk.shut_down().await;
        for name in self.table.list(|name, _| name.clone()) {
            self.table.set_active(&name, Err(waiting()));
        }
    }

    /// Where NBD is served: a Unix socket, and TCP addresses.
    pub(crate) fn addresses(&self) -> (Option<String>, Vec<String>) {
        self.nbd.addresses()
    }
}

/// An export's name, how it is served, and what, if anything.
fn what(name: &Name, entry: &Entry) -> (Name, Manner, Option<Arc<Active>>) {
    (name.clone(), entry.manner.clone(), entry.active.clone().ok())
}

fn waiting() -> Error {
    Error::new(ErrorKind::NotOpen, "its pool is not open")
}
