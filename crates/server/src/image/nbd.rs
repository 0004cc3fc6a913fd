//! A private NBD socket with one volume, for qemu-img(1).

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use engine::Volume;
use export::nbd::{Limits, NbdServer};
use export::{ListedExport, ListenLabel, OpenError, OpenErrorKind, OpenExport, listen_unix};
use reactor::{Access, Handle, Reactor, Remote};

use crate::error::Result;
use crate::exports::{ExportCounters, ReactorVolume, convert};
use crate::reactors::{call_object, platform};
use api::paths::encode_segment;

/// Name of the only export.
const EXPORT: &str = "image";

/// A socket for this process's user, with one volume.
pub(super) struct PrivateNbd {
    serving: Handle<Serving>,
    path: PathBuf,
}

/// The reactor's part of a socket.
struct Serving {
    server: Rc<NbdServer<SingleExport>>,
    volume: SharedVolume,
}

/// The volume until the end of the service, which closes it.
type SharedVolume = Rc<RefCell<Option<Volume>>>;

impl PrivateNbd {
    /// Serves a volume on a new socket.
    ///
    /// # Errors
    /// When the socket cannot be created.
    pub(super) async fn serve(volume: Volume, reactor: &Remote, path: &Path) -> Result<Self> {
        let socket = path.to_owned();
        let start = move || async move {
            let label = ListenLabel { protocol: "NBD", setting: "daemon.socket" };
            let listener = listen_unix(&platform(), &socket, Access::OWNER, label).await.map_err(convert)?;
            let volume = Rc::new(RefCell::new(Some(volume)));
            let server = NbdServer::new(SingleExport { volume: volume.clone() }, Limits::default());
            let listening = server.clone();
            Reactor::current().spawn(async move { listening.listen(listener).await }).detach();
            let serving = Rc::new(Serving { server, volume });
            Ok::<_, crate::error::Error>(Handle::register(&Reactor::current(), serving))
        };
        let serving = reactor.call(start).await??;
        Ok(Self { serving, path: path.to_owned() })
    }

    /// Returns the URI of the export.
    pub(super) fn uri(&self) -> String {
        let path = self.path.to_string_lossy().split('/').map(encode_segment).collect::<Vec<_>>().join("/");
        format!("nbd+unix:///{EXPORT}?socket={path}")
    }

    /// Finishes the in-flight requests, closes the connections and the volume, and removes the
    /// socket.
    pub(super) async fn shut_down(self) {
        let shut = |serving: Rc<Serving>| async move {
            serving.server.shut_down().await;
            serving.volume.take();
        };
        // An error means that the reactor, and with it the server, is gone.
        let _ = call_object(&self.serving, shut).await;
    }
}

struct SingleExport {
    volume: SharedVolume,
}

impl export::Exports for SingleExport {
    type Volume = ReactorVolume;

    async fn open(&self, name: &str) -> Result<OpenExport<ReactorVolume>, OpenError> {
        if name == EXPORT
            && let Some(volume) = &*self.volume.borrow()
        {
            let description = "copy of an image".to_owned();
            return Ok(OpenExport {
                volume: ReactorVolume::new(volume, &ExportCounters::default()),
                description,
            });
        }
        Err(OpenError::new(OpenErrorKind::NotFound, format!("there is no export {name:?}")))
    }

    async fn list(&self) -> Vec<ListedExport> {
        vec![ListedExport { name: EXPORT.to_owned(), description: "copy of an image".to_owned() }]
    }
}
