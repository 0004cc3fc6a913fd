//! Exports: which volumes are served to others, and whether they are at the moment.
//!
//! Owns the table of exports. Always true: what is in the table is remembered; an export is active only while its pool is
//! in service, and comes back by itself when that does. Must not know: how a protocol works.

mod nbd;
mod table;
mod volume;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::pools::Pools;
use crate::reactors::Reactors;
use crate::request::shown;
use crate::state::{RememberedExport, State};
use crate::wire::{CreateExport, Export, ExportState};
use nbd::Nbd;
use table::{Active, Entry, Name, Table};

/// See the module.
pub(crate) struct Exports {
    table: Arc<Table>,
    pools: Arc<Pools>,
    state: Arc<State>,
    nbd: Nbd,
}

impl Exports {
    /// Starts serving: the exports that are remembered, none of them active yet.
    ///
    /// # Errors
    /// When an address that is to be served on cannot be had.
    pub(crate) async fn start(
        config: &Config,
        reactors: &Reactors,
        pools: Arc<Pools>,
        state: Arc<State>,
    ) -> Result<Arc<Self>> {
        let table = Arc::new(Table::default());
        for export in state.get().exports {
            let RememberedExport { pool, volume, protocol, read_only } = export;
            table.insert(Name { pool, volume }, Entry { protocol, read_only, active: Err(waiting()) });
        }
        let nbd = Nbd::start(config, reactors, &table).await?;
        Ok(Arc::new(Self { table, pools, state, nbd }))
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
        Export {
            pool: name.pool.clone(),
            volume: name.volume.clone(),
            protocol: entry.protocol,
            read_only: entry.read_only,
            state,
            reason,
            uris: self.nbd.uris(name),
            connections,
        }
    }

    /// Exports a volume.
    ///
    /// # Errors
    /// When the pool is not open, has no such volume, or the volume is exported already.
    pub(crate) async fn create(&self, request: CreateExport) -> Result<Export> {
        let CreateExport { pool, volume, protocol, read_only } = request;
        let name = Name { pool, volume };
        if !self.nbd.listens() {
            return Err(Error::new(ErrorKind::Invalid, "the daemon serves NBD nowhere")
                .hint("set nbd.socket or nbd.listen in its configuration and restart it"));
        }
        let handle = self.pools.open_volume(&name.pool, &name.volume).await?;
        if self.table.contains(&name) {
            return Err(Error::new(ErrorKind::Exists, format!("'{name}' is exported already"))
                .hint("'gabion export list' shows where"));
        }
        let remembered =
            RememberedExport { pool: name.pool.clone(), volume: name.volume.clone(), protocol, read_only };
        self.state.update(|state| state.exports.push(remembered))?;
        let entry = Entry { protocol, read_only, active: Ok(Active::new(handle)) };
        let export = self.show(&name, &entry);
        tracing::info!(export = %name, %protocol, read_only, "volume exported");
        self.table.insert(name, entry);
        Ok(export)
    }

    /// Ends an export. Its clients' requests are refused from then on.
    ///
    /// # Errors
    /// When there is no such export, or that cannot be remembered.
    pub(crate) async fn delete(&self, pool: &str, volume: &str) -> Result<()> {
        let name = Name { pool: pool.to_owned(), volume: volume.to_owned() };
        if !self.table.contains(&name) {
            let message = format!("'{}/{}' is not exported", shown(pool), shown(volume));
            return Err(Error::new(ErrorKind::NotFound, message).hint("'gabion export list' shows what is"));
        }
        self.state
            .update(|state| state.exports.retain(|export| export.pool != pool || export.volume != volume))?;
        if let Some(Entry { active: Ok(active), .. }) = self.table.remove(&name) {
            self.nbd.revoke(active).await;
        }
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
        for name in self.table.list(|name, entry| (name.clone(), entry.active.is_ok())) {
            let (name, active) = name;
            if name.pool != pool || active {
                continue;
            }
            let opened = self.pools.open_volume(&name.pool, &name.volume).await;
            if let Err(error) = &opened {
                tracing::error!(export = %name, %error, "an export cannot be served");
            }
            self.table.set_active(&name, opened.map(Active::new));
        }
    }

    /// Stops serving the exports of a pool that goes out of service.
    pub(crate) async fn deactivate(&self, pool: &str) {
        for name in self.table.list(|name, _| name.clone()) {
            if name.pool == pool
                && let Some(active) = self.table.set_active(&name, Err(waiting()))
            {
                self.nbd.revoke(active).await;
            }
        }
    }

    /// Ends every connection, after the requests that have begun.
    pub(crate) async fn shut_down(&self) {
        self.nbd.shut_down().await;
        for name in self.table.list(|name, _| name.clone()) {
            self.table.set_active(&name, Err(waiting()));
        }
    }

    /// Where NBD is served: a Unix socket, and TCP addresses.
    pub(crate) fn addresses(&self) -> (Option<String>, Vec<String>) {
        self.nbd.addresses()
    }
}

fn waiting() -> Error {
    Error::new(ErrorKind::NotOpen, "its pool is not open")
}
