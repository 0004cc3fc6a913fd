//! Disks of virtual machines: a vhost-user socket for each, and its queues on the reactors.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use export::OpenError;
use export::vhost::{Disk, QUEUES_MAX, Server};
use reactor::{Access, Handle, Platform, Reactor, Remote, Task};

use super::listen::{Purpose, listen_unix};
use super::queues::{check_queues, chosen_reactors, reactors_of};
use super::table::{Active, Manner, Name};
use super::volume::ExportedVolume;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::reactors::{self, Reactors, call_resident};

/// How long requests in flight are waited for when an export is ended.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of the longest path that a Unix socket can have.
const PATH_MAX: usize = 107;
/// Bytes of the serial number that a guest sees.
const SERIAL: usize = 20;

const PURPOSE: Purpose = Purpose { protocol: "vhost-user", flag: "--vhost-directory" };

/// The disks of virtual machines that are served.
pub(super) struct Vhost {
    directory: PathBuf,
    access: Access,
    reactors: Arc<Reactors>,
    /// How long a queue without requests is polled.
    poll: Duration,
    /// How long requests may gather.
    gather: Duration,
    served: Mutex<BTreeMap<Name, Handle<Local>>>,
}

/// A disk's server, on the reactor that it listens on.
struct Local {
    server: Rc<Server<MachineDisk>>,
    listening: Task<()>,
}

/// A volume as the disk of a virtual machine.
struct MachineDisk {
    name: Name,
    manner: Manner,
    active: Arc<Active>,
    reactors: Vec<Remote>,
    poll: Duration,
    gather: Duration,
}

impl Disk for MachineDisk {
    type Volume = ExportedVolume;

    fn name(&self) -> String {
        self.name.to_string()
    }

    fn serial(&self) -> String {
        serial(&self.name)
    }

    fn size(&self) -> u64 {
        self.active.volume.size()
    }

    fn sector(&self) -> u32 {
        self.active.volume.sector()
    }

    fn read_only(&self) -> bool {
        self.manner.read_only
    }

    fn reactors(&self) -> &[Remote] {
        &self.reactors
    }

    fn queues(&self) -> u16 {
        self.manner.queues.unwrap_or(QUEUES_MAX)
    }

    fn poll(&self) -> Duration {
        self.poll
    }

    fn gather(&self) -> Duration {
        self.gather
    }

    fn platform(&self) -> Rc<Platform> {
        reactors::platform()
    }

    fn note_front_end(&self, connected: bool) {
        self.active.connections.store(connected.into(), Ordering::Relaxed);
    }

    async fn open(&self) -> Result<ExportedVolume, OpenError> {
        Ok(ExportedVolume::of(&self.active.volume, self.manner.read_only))
    }
}

impl Vhost {
    pub(super) fn new(config: &Config, access: Access, reactors: Arc<Reactors>) -> Self {
        let directory = config.vhost_directory.clone();
        let (poll, gather) = (config.poll, config.gather);
        Self { directory, access, reactors, poll, gather, served: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Handle<Local>>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.directory.join(&name.pool).join(format!("{}.sock", name.volume))
    }

    /// Where a front end connects to.
    pub(super) fn uris(&self, name: &Name) -> Vec<String> {
        vec![format!("unix:{}", self.path(name).display())]
    }

    /// Refuses what cannot be served in any state of the pool.
    ///
    /// # Errors
    /// `Invalid`.
    pub(super) fn check(&self, name: &Name, manner: &Manner) -> Result<()> {
        check_queues(manner, QUEUES_MAX)?;
        let path = self.path(name);
        if path.as_os_str().len() > PATH_MAX {
            let message = format!(
                "{} is longer than the {PATH_MAX} bytes that a socket's path may have",
                path.display()
            );
            return Err(Error::new(ErrorKind::Invalid, message).hint(
                "start the daemon with a shorter --vhost-directory, or give pool and volume shorter names",
            ));
        }
        chosen_reactors(manner, &self.reactors).map(drop)
    }

    /// Serves a volume to whoever comes to its socket.
    ///
    /// # Errors
    /// As [`Vhost::check`]; when the socket cannot be had.
    pub(super) async fn serve(&self, name: &Name, manner: &Manner, active: &Arc<Active>) -> Result<()> {
        self.check(name, manner)?;
        let reactors = reactors_of(manner, &active.volume, &self.reactors)?;
        let Some(first) = reactors.first().cloned() else {
            return Err(Error::new(ErrorKind::Internal, "the daemon runs no reactor"));
        };
        let (name_of_it, manner, active) = (name.clone(), manner.clone(), active.clone());
        let (poll, gather, access) = (self.poll, self.gather, self.access);
        let (disk, path) =
            (MachineDisk { name: name_of_it, manner, active, reactors, poll, gather }, self.path(name));
        let start = move || async move {
            let listener = listen_unix(&path, access, PURPOSE).await?;
            let reactor = Reactor::current();
            let server = Server::new(Arc::new(disk));
            let listening = reactor.spawn(server.clone().listen(listener));
            Ok::<_, Error>(Handle::register(&reactor, Rc::new(Local { server, listening })))
        };
        let home = first.call(start).await??;
        let before = self.lock().insert(name.clone(), home);
        assert!(before.is_none(), "'{name}' is served twice");
        Ok(())
    }

    /// Ends the service of a volume, if it is served: cuts the machine off, and waits for what it has in flight.
    pub(super) async fn end(&self, name: &Name) {
        let Some(home) = self.lock().remove(name) else { return };
        let there = home.clone();
        let end = move |local: Rc<Local>| async move {
            local.server.shut_down().await;
            there.unregister();
            // From here on nothing holds the volume.
            if let Ok(Local { listening, .. }) = Rc::try_unwrap(local).map_err(drop) {
                listening.await;
            }
        };
        // A reactor that is gone serves nobody.
        if tokio::time::timeout(PATIENCE, call_resident(&home, end)).await.is_err() {
            tracing::warn!(export = %name, "a machine's disk was taken away with requests in flight");
        }
    }

    /// Tells the machine that a disk's size has changed.
    pub(super) async fn resized(&self, name: &Name) {
        let home = self.lock().get(name).cloned();
        if let Some(home) = home {
            let tell = |local: Rc<Local>| async move { local.server.resized() };
            // A reactor that is gone serves nobody.
            let _ = call_resident(&home, tell).await;
        }
    }

    /// Ends the service of every volume.
    pub(super) async fn shut_down(&self) {
        let names: Vec<Name> = self.lock().keys().cloned().collect();
        for name in names {
            self.end(&name).await;
        }
    }
}

/// What a guest sees as the disk's serial number, of at most 20 bytes: the name, or where that is longer its beginning and
/// what tells it from others with the same.
fn serial(name: &Name) -> String {
    let whole = format!("{}-{}", name.pool, name.volume);
    if whole.len() <= SERIAL {
        return whole;
    }
    // FNV-1a: the same for ever, which the standard library's hashes are not.
    let fold = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = whole.bytes().fold(0x811C_9DC5, fold);
    let front: String = whole.chars().take(SERIAL - 9).collect();
    format!("{front}-{hash:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_fit_and_differ() {
        let serial_of = |pool: &str, volume: &str| serial(&Name { pool: pool.into(), volume: volume.into() });
        assert_eq!(serial_of("fast", "vm01"), "fast-vm01");
        assert_eq!(serial_of("fast", "a-name-of-15-by"), "fast-a-name-of-15-by");
        let (one, two) = (serial_of("fast", "a-name-of-16-byt"), serial_of("fast", "a-name-of-16-bys"));
        assert_eq!((one.len(), two.len()), (SERIAL, SERIAL));
        assert!(one != two && one.starts_with("fast-a-name-"), "{one} {two}");
    }
}
