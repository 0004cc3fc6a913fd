//! The volumes of a pool that is salvaged, served by NBD.

use std::path::Path;
use std::rc::Rc;

use export::nbd::{Limits, NbdServer};
use export::{ListedExport, ListenLabel, OpenError, OpenErrorKind, OpenExport, listen_unix};
use reactor::{Access, Handle, Reactor};

use super::volume::ReadOnlyVolume;
use crate::error::Result;
use crate::exports::convert;
use crate::reactors::{call_resident, platform};

/// A socket on which volumes are served.
pub struct NbdSocket {
    server: Handle<NbdServer<Offered>>,
}

impl NbdSocket {
    /// Takes no more connections, and ends those that there are after the requests that they have begun. The socket's file is gone
    /// then.
    pub async fn shut_down(self) {
        let shut = |server: Rc<NbdServer<Offered>>| async move { server.shut_down().await };
        // A reactor that is gone serves nobody.
        let _ = call_resident(&self.server, shut).await;
    }
}

/// The volumes, named `POOL/VOLUME` as the daemon names them.
struct Offered {
    pool: Rc<engine::Salvage>,
}

impl Offered {
    fn full(&self, name: &str) -> String {
        format!("{}/{name}", self.pool.name())
    }
}

impl export::Exports for Offered {
    type Volume = ReadOnlyVolume;

    async fn open(&self, name: &str) -> Result<OpenExport<ReadOnlyVolume>, OpenError> {
        let own = name.strip_prefix(self.pool.name()).and_then(|rest| rest.strip_prefix('/'));
        match own.and_then(|own| self.pool.volume(own).ok()) {
            Some(volume) => {
                let description = "salvaged, read-only".to_owned();
                Ok(OpenExport { volume: ReadOnlyVolume::new(volume), description })
            }
            None => Err(OpenError::new(OpenErrorKind::NotFound, format!("no export is called {name:?}"))),
        }
    }

    async fn list(&self) -> Vec<ListedExport> {
        let listed = |info: engine::SalvageVolumeInfo| ListedExport {
            name: self.full(&info.name),
            description: if info.snapshot { "snapshot" } else { "volume" }.to_owned(),
        };
        self.pool.volumes().into_iter().map(listed).collect()
    }
}

pub(super) async fn serve(home: &Handle<engine::Salvage>, socket: &Path) -> Result<NbdSocket> {
    let path = socket.to_owned();
    let start = |pool: Rc<engine::Salvage>| async move {
        let label = ListenLabel { protocol: "NBD", setting: "--nbd" };
        let listener = listen_unix(&platform(), &path, Access::OWNER, label).await.map_err(convert)?;
        let server = NbdServer::new(Offered { pool }, Limits::default());
        let listening = server.clone();
        Reactor::current().spawn(async move { listening.listen(listener).await }).detach();
        Ok(NbdSocket { server: Handle::register(&Reactor::current(), server) })
    };
    call_resident(home, start).await?
}
