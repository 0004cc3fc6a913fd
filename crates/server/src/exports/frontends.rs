//! The frontends of the daemon: the only place that knows which protocols exist.
//!
//! A new protocol is a module in `export`, a variant of [`Protocol`], and a line in
//! [`Frontends::start`] with the protocol's configuration keys.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use export::fuse::FuseFrontend;
use export::iscsi::{IscsiConfig, IscsiFrontend};
use export::nbd::{NbdConfig, NbdFrontend};
use export::nvme::{NvmeConfig, NvmeFrontend};
use export::ublk::{UblkConfig, UblkFrontend};
use export::vhost::{VhostConfig, VhostFrontend};
use export::{Frontend, FrontendContext, ReactorSet, ReservationRegistry};

use super::reservations::StoredInState;
use super::served::ServedSource;
use super::{ExportKey, convert};
use crate::capacity::{iscsi_limits, nbd_limits, nvme_limits};
use crate::config::Config;
use crate::error::Result;
use crate::reactors::{self, Reactors};
use crate::state::State;
use api::types::Protocol;

/// The frontends by protocol.
pub(super) struct Frontends {
    table: Vec<(Protocol, Box<dyn Frontend<ServedSource>>)>,
    nbd_addresses: (Option<PathBuf>, Vec<SocketAddr>),
}

impl Frontends {
    /// Starts the frontends, and lets each reserve the names of its exports.
    ///
    /// # Errors
    /// When an address cannot be bound.
    pub(super) async fn start(
        config: &Config,
        reactors: &Arc<Reactors>,
        exports: &[ExportKey],
        state: &Arc<State>,
    ) -> Result<Self> {
        let set = ReactorSet::new(reactors.all(), reactors.backend(), reactors::platform);
        let context = FrontendContext { reactors: set, access: config.export_access()? };
        let nbd = NbdConfig {
            socket: config.nbd_socket.clone(),
            listen: config.nbd_listen.clone(),
            limits: nbd_limits(reactors.all().len()),
        };
        let nbd = NbdFrontend::start(nbd, &context).await.map_err(convert)?;
        let nbd_addresses = nbd.addresses();
        let reservations = ReservationRegistry::new(Some(Arc::new(StoredInState(state.clone()))));
        let nvme = NvmeConfig {
            listen: config.nvme_listen.clone(),
            discovery: config.nvme_discovery.clone(),
            limits: nvme_limits(reactors.all().len()),
            reservations: reservations.clone(),
        };
        let nvme = NvmeFrontend::start(nvme, &context).await.map_err(convert)?;
        let iscsi = IscsiConfig {
            listen: config.iscsi_listen.clone(),
            limits: iscsi_limits(reactors.all().len()),
            reservations,
        };
        let iscsi = IscsiFrontend::start(iscsi, &context).await.map_err(convert)?;
        let vhost = VhostConfig {
            directory: config.vhost_directory.clone(),
            poll: config.poll,
            coalesce_delay: config.coalesce_delay,
        };
        let owner = std::fs::canonicalize(&config.state_dir).unwrap_or_else(|_| config.state_dir.clone());
        let ublk = UblkConfig { directory: config.ublk_directory.clone(), owner };
        let fuse = config.fuse_directory.clone();
        let table: Vec<(Protocol, Box<dyn Frontend<ServedSource>>)> = vec![
            (Protocol::Nbd, Box::new(nbd)),
            (Protocol::VhostUser, Box::new(VhostFrontend::new(vhost, context.clone()))),
            (Protocol::Fuse, Box::new(FuseFrontend::new(fuse, context.clone()))),
            (Protocol::Ublk, Box::new(UblkFrontend::new(ublk, context))),
            (Protocol::NvmeTcp, Box::new(nvme)),
            (Protocol::Iscsi, Box::new(iscsi)),
        ];
        for (protocol, frontend) in &table {
            let own = exports.iter().filter(|key| key.protocol == *protocol);
            let names: Vec<_> = own.map(ExportKey::name).collect();
            frontend.reserve(&names).await;
        }
        Ok(Self { table, nbd_addresses })
    }

    /// The frontend of a protocol.
    pub(super) fn get(&self, protocol: Protocol) -> &dyn Frontend<ServedSource> {
        match self.table.iter().find(|(served, _)| *served == protocol) {
            Some((_, frontend)) => &**frontend,
            None => unreachable!("protocol {protocol} has no frontend"),
        }
    }

    /// Closes the listeners that exports share.
    pub(super) async fn shut_down(&self) {
        for (_, frontend) in &self.table {
            frontend.shut_down().await;
        }
    }

    /// The Unix socket and the TCP addresses of NBD.
    pub(super) fn nbd_addresses(&self) -> (Option<String>, Vec<String>) {
        let (socket, tcp) = &self.nbd_addresses;
        let socket = socket.as_ref().map(|path| path.to_string_lossy().into_owned());
        (socket, tcp.iter().map(ToString::to_string).collect())
    }
}
