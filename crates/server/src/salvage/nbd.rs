//! NBD exports of the volumes of a pool under salvage.

use std::path::Path;
use std::rc::Rc;

use export::nbd::{Limits, NbdServer};
use export::{ListedExport, ListenLabel, OpenError, OpenErrorKind, OpenExport, listen_unix};
use reactor::{Access, Handle, Reactor};

use super::volume::ReadOnlyVolume;
use crate::error::Result;
use crate::exports::convert;
use crate::reactors::{call_object, platform};

/// A Unix socket with the NBD exports.
pub struct NbdSocket {
    server: Handle<NbdServer<SalvagedExports>>,
}

impl NbdSocket {
    /// Refuses new connections, finishes the in-flight requests of the others, closes them, and
    /// removes the socket file.
    pub async fn shut_down(self) {
        let shut = |server: Rc<NbdServer<SalvagedExports>>| async move { server.shut_down().await };
        // An error means that the reactor, and with it the server, is gone.
        let _ = call_object(&self.server, shut).await;
    }
}

/// The exports, with the names of the daemon: `POOL/VOLUME`.
struct SalvagedExports {
    pool: Rc<engine::Salvage>,
}

impl SalvagedExports {
    fn export_name(&self, name: &str) -> String {
        format!("{}/{name}", self.pool.name())
    }
}

impl export::Exports for SalvagedExports {
    type Volume = ReadOnlyVolume;

    async fn open(&self, name: &str) -> Result<OpenExport<ReadOnlyVolume>, OpenError> {
        let own = name.strip_prefix(self.pool.name()).and_then(|rest| rest.strip_prefix('/'));
        match own.and_then(|own| self.pool.volume(own).ok()) {
            Some(volume) => {
                let description = "salvaged, read-only".to_owned();
                Ok(OpenExport { volume: ReadOnlyVolume::new(volume), description })
            }
            None => Err(OpenError::new(OpenErrorKind::NotFound, format!("there is no export {name:?}"))),
        }
    }

    async fn list(&self) -> Vec<ListedExport> {
        let listed = |info: engine::SalvageVolumeInfo| ListedExport {
            name: self.export_name(&info.name),
            description: if info.snapshot { "snapshot" } else { "volume" }.to_owned(),
        };
        self.pool.volumes().into_iter().map(listed).collect()
    }
}

pub(super) async fn serve(pool: &Handle<engine::Salvage>, socket: &Path) -> Result<NbdSocket> {
    let path = socket.to_owned();
    let start = |pool: Rc<engine::Salvage>| async move {
        let label = ListenLabel { protocol: "NBD", setting: "--nbd" };
        let listener = listen_unix(&platform(), &path, Access::OWNER, label).await.map_err(convert)?;
        let server = NbdServer::new(SalvagedExports { pool }, Limits::default());
        let listening = server.clone();
        Reactor::current().spawn(async move { listening.listen(listener).await }).detach();
        Ok(NbdSocket { server: Handle::register(&Reactor::current(), server) })
    };
    call_object(pool, start).await?
}
