//! The interface between a daemon and the protocols by which volumes are served.
//!
//! Owns [`Frontend`], one implementation of which exists for each protocol, and [`RunningExport`],
//! a volume that is served. Always true: a frontend reaches storage through [`VolumeSource`] and
//! [`crate::Volume`] alone; the name of an export stays reserved from [`Frontend::reserve`] or
//! [`Frontend::start`] until [`Frontend::release`].
//!
//! Must not know: pools, how exports are persisted, which frontends exist.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use reactor::Remote;

use crate::iscsi::ChapAccount;
use crate::nvme::{DhChapSecrets, NvmeTlsKey};
use crate::{ExportError, Volume};

/// A future of the control path. Frontends change state rarely, so that one allocation per call
/// does not matter.
pub type ControlFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A volume that frontends open on any number of reactors. Used from several threads.
pub trait VolumeSource: Send + Sync + 'static {
    /// The volume as one reactor uses it.
    type Volume: Volume + 'static;

    /// Size in bytes, now.
    fn size(&self) -> u64;

    /// Sector size in bytes, as [`Volume::sector`].
    fn sector(&self) -> u32;

    /// The reactors that own the volume's blocks, each once: requests that arrive there need no
    /// message to another reactor. Empty if the source has no preference.
    fn reactors(&self) -> Vec<Remote>;

    /// The identity of the volume, in the form of a UUID: the same after a restart, and different
    /// from that of any other volume.
    fn identity(&self) -> [u8; 16];

    /// Opens the volume for the reactor of this thread.
    fn open(&self) -> Self::Volume;
}

/// The name of an export: path components separated by `/`, such as `pool/volume`. Unique within a
/// frontend.
///
/// The components are plain file names: frontends use them below their directories.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExportName(String);

impl ExportName {
    /// A name of these components.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path of this name, with `suffix` appended, below `directory`.
    pub fn path_below(&self, directory: &Path, suffix: &str) -> PathBuf {
        directory.join(format!("{}{suffix}", self.0))
    }
}

impl fmt::Display for ExportName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The options of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportConfig {
    /// Refuse writes.
    pub read_only: bool,
    /// Number of queues; the frontend's default if absent. Only for protocols that have queues.
    pub queues: Option<u16>,
    /// Reactors that serve the queues, in turn, numbered from 0; those of the volume if empty. Only
    /// for protocols that have queues.
    pub reactors: Vec<u32>,
    /// Options of protocols that serve network disks.
    pub network: NetworkConfig,
}

/// The options of an export as a network disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkConfig {
    /// TCP addresses; those of the frontend if empty.
    pub listen: Vec<SocketAddr>,
    /// The name by which hosts find the disk: the NQN of its subsystem, or the IQN of its target.
    pub target: Option<String>,
    /// The number of the disk among those with the same target: the id of its namespace, or its
    /// logical unit number.
    pub unit: Option<u32>,
    /// The names of the hosts that may use the disk: their NQNs or IQNs. All hosts if empty.
    pub hosts: Vec<String>,
    /// The credentials that iSCSI initiators need; none if absent.
    pub chap: Option<ChapAccount>,
    /// The secrets that NVMe hosts need; none if absent.
    pub dhchap: Option<DhChapSecrets>,
    /// The key of TLS connections that NVMe hosts need; connections without TLS if absent.
    pub tls_key: Option<NvmeTlsKey>,
}

/// The state of a running export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportStatus {
    /// Connected clients; for a file, open file handles. Zero where the protocol cannot count them.
    pub connections: u64,
    /// Users of the export on this host that are known: mount points and devices stacked on it.
    pub users: Vec<String>,
}

/// The way in which a running export is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Fails with `Busy`, and changes nothing, while this host uses the export. Network clients are
    /// disconnected.
    Orderly,
    /// Disconnects every user: their later requests fail.
    Forced,
    /// The process ends. Devices that can outlive it stay for the next process; otherwise as
    /// [`StopMode::Forced`].
    Handover,
}

/// A protocol by which volumes are served.
pub trait Frontend<S: VolumeSource>: Send + Sync {
    /// The protocol's name, for logs and errors.
    fn name(&self) -> &'static str;

    /// Checks that an export is possible: that its options are valid and this host can serve it.
    ///
    /// # Errors
    /// `Invalid`; `Exists` when the name conflicts with a reserved one.
    fn check(&self, name: &ExportName, config: &ExportConfig) -> Result<(), ExportError>;

    /// The addresses, paths and URIs at which clients find an export of this name, running or not.
    fn listeners(&self, name: &ExportName, config: &ExportConfig) -> Vec<String>;

    /// Adds the options to a configuration that the frontend chooses for this volume, and that stay
    /// the same for the life of the export. Its caller persists the result.
    fn complete(&self, config: ExportConfig, source: &S) -> ExportConfig {
        let _ = source;
        config
    }

    /// Reserves the names of exports that are not running yet, and removes the remains of a process
    /// that died. Called once, before the first [`Frontend::start`].
    fn reserve<'a>(&'a self, names: &'a [ExportName]) -> ControlFuture<'a, ()>;

    /// Serves a volume until the running export is stopped.
    ///
    /// # Errors
    /// As [`Frontend::check`]; when the address, file or device cannot be created.
    fn start<'a>(
        &'a self,
        name: &'a ExportName,
        config: &'a ExportConfig,
        source: Arc<S>,
    ) -> ControlFuture<'a, Result<Arc<dyn RunningExport>, ExportError>>;

    /// Ends the reservation of a name. Its export is not running.
    fn release<'a>(&'a self, name: &'a ExportName) -> ControlFuture<'a, ()>;

    /// Closes the listeners that the exports of this frontend share. Called once, after the last
    /// stop.
    fn shut_down(&self) -> ControlFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// A volume that is being served.
pub trait RunningExport: Send + Sync {
    /// Returns the addresses, paths and URIs at which clients find the export.
    fn listeners(&self) -> Vec<String>;

    /// Returns the current users of the export.
    fn status(&self) -> ExportStatus;

    /// Announces the volume's new size to clients, as far as the protocol can.
    fn resize(&self) -> ControlFuture<'_, ()>;

    /// Stops serving, and waits a limited time for requests in flight. The name stays reserved. A
    /// second call does nothing.
    ///
    /// # Errors
    /// `Busy` in [`StopMode::Orderly`] alone: the export keeps running.
    fn stop(&self, mode: StopMode) -> ControlFuture<'_, Result<(), ExportError>>;
}
