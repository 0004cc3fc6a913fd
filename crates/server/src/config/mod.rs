//! The daemon's configuration, from a file, environment variables and flags with the same keys.
//!
//! Precedence: flag, environment variable, file, default. Unknown keys are errors, because a
//! setting that is silently ignored is noticed only when it matters.

mod error;
mod file;
#[cfg(test)]
mod fuzz;
mod groups;
mod keys;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use export::nvme::{DISCOVERY_PORT, NvmeDiscovery};
use reactor::{Access, Backend};

pub use error::ConfigError;
pub use keys::{KEYS, Key};

use crate::reactors;
use api::Size;

/// The configuration file that is read if no other is given.
pub const DEFAULT_FILE: &str = "/etc/gabion/gabion.toml";

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Readable text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The daemon's settings, described in [`KEYS`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table of keys describes them, for the manual as well")]
pub struct Config {
    pub socket: PathBuf,
    pub state_dir: PathBuf,
    pub clusters_directory: PathBuf,
    pub runs_directory: PathBuf,
    pub socket_group: Option<String>,
    pub export_group: Option<String>,
    pub log_level: String,
    pub log_format: LogFormat,
    pub threads: Option<usize>,
    pub cores: Vec<usize>,
    pub poll: Duration,
    pub coalesce_delay: Duration,
    pub io: Backend,
    pub map_memory: Size,
    pub checkpoint_after: Size,
    pub drive_wait: Duration,
    pub warn_at: Vec<u8>,
    pub retire_after: u32,
    pub latency_target: u32,
    pub api_listen: Vec<SocketAddr>,
    pub api_certificate: Option<PathBuf>,
    pub api_key: Option<PathBuf>,
    pub metrics_listen: Vec<SocketAddr>,
    pub nbd_socket: Option<PathBuf>,
    pub nbd_listen: Vec<SocketAddr>,
    pub iscsi_listen: Vec<SocketAddr>,
    pub nvme_listen: Vec<SocketAddr>,
    /// The addresses of the discovery service of NVMe/TCP.
    pub nvme_discovery: NvmeDiscovery,
    pub vhost_directory: PathBuf,
    pub fuse_directory: PathBuf,
    /// The directory of links to the ublk devices.
    pub ublk_directory: PathBuf,
    /// The pools to open at start, by name, with their drives.
    pub pools: BTreeMap<String, Vec<PathBuf>>,
}

impl Config {
    /// Returns the default settings for the user of this process.
    pub fn defaults() -> Self {
        Self::with_paths(DefaultPaths::of_this_user())
    }

    /// Returns the default settings for root, which the reference pages show.
    fn defaults_of_root() -> Self {
        Self::with_paths(DefaultPaths::of_root())
    }

    fn with_paths(places: DefaultPaths) -> Self {
        Self {
            socket: places.runtime.join("gabion.sock"),
            nbd_socket: Some(places.runtime.join(places.nbd_name)),
            vhost_directory: places.runtime.join(places.vhost_name),
            fuse_directory: places.runtime.join(places.fuse_name),
            ublk_directory: places.runtime.join(places.ublk_name),
            state_dir: places.state,
            clusters_directory: PathBuf::from("/var/lib/gabion/clusters"),
            runs_directory: places.runs,
            socket_group: None,
            export_group: None,
            api_listen: Vec::new(),
            api_certificate: None,
            api_key: None,
            log_level: "info".into(),
            log_format: LogFormat::Text,
            threads: None,
            cores: Vec::new(),
            poll: Duration::from_micros(50),
            coalesce_delay: Duration::from_micros(50),
            io: Backend::Auto,
            map_memory: Size(1 << 30),
            checkpoint_after: Size(1 << 30),
            drive_wait: Duration::from_secs(30),
            warn_at: vec![80, 90, 95],
            retire_after: 32,
            latency_target: 200,
            metrics_listen: Vec::new(),
            nbd_listen: Vec::new(),
            iscsi_listen: Vec::new(),
            nvme_listen: Vec::new(),
            nvme_discovery: NvmeDiscovery::Port(DISCOVERY_PORT),
            pools: BTreeMap::new(),
        }
    }

    /// Loads the settings. Without `file`, [`DEFAULT_FILE`] is read if it exists. `environment` and
    /// `flags` return the text of a variable or flag by name.
    ///
    /// # Errors
    /// For a file that cannot be read or parsed, an unknown key or an invalid value, with its
    /// place.
    pub fn load(
        file: Option<&Path>,
        environment: &dyn Fn(&str) -> Option<String>,
        flags: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let mut config = Self::defaults();
        match file {
            Some(path) => file::apply(&mut config, path)?,
            None if Path::new(DEFAULT_FILE).exists() => file::apply(&mut config, Path::new(DEFAULT_FILE))?,
            None => {}
        }
        for key in KEYS {
            if let Some(text) = environment(&key.variable()) {
                key.apply(&mut config, &text).map_err(|reason| ConfigError::value(key.variable(), reason))?;
            }
        }
        for key in KEYS {
            if let Some(text) = flags(&key.flag()) {
                let flag = format!("--{}", key.flag());
                key.apply(&mut config, &text).map_err(|reason| ConfigError::value(flag, reason))?;
            }
        }
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        match self.threads {
            Some(threads) if !self.cores.is_empty() && threads != self.cores.len() => {
                Err(ConfigError::Conflict(format!(
                    "daemon.threads is {threads}, but daemon.cores lists {} cores: set only one of them",
                    self.cores.len()
                )))
            }
            _ if self.api_certificate.is_some() != self.api_key.is_some() => Err(ConfigError::Conflict(
                "api.certificate and api.key belong together: set both of them, or none for a self-signed certificate"
                    .into(),
            )),
            _ => Ok(()),
        }
    }

    /// Renders the settings as a configuration file with the help text of every key.
    pub fn to_file(&self) -> String {
        file::render(self)
    }

    /// Returns the access rights of exports.
    ///
    /// # Errors
    /// `Invalid` when the host does not have the configured group.
    pub(crate) fn export_access(&self) -> crate::Result<Access> {
        let find = |group| groups::find(group).map_err(|error| error.context("daemon.export_group"));
        self.export_group.as_deref().map_or(Ok(Access::OWNER), |group| find(group).map(Access::with_group))
    }

    /// Returns the access rights of the API's socket.
    ///
    /// # Errors
    /// As [`Config::export_access`].
    pub(crate) fn socket_access(&self) -> crate::Result<Access> {
        let find = |group| groups::find(group).map_err(|error| error.context("daemon.socket_group"));
        self.socket_group.as_deref().map_or(Ok(Access::OWNER), |group| find(group).map(Access::with_group))
    }

    /// Returns the access rights of a new directory for sockets.
    ///
    /// # Errors
    /// As [`Config::export_access`].
    pub(crate) fn directory_access(&self) -> crate::Result<Access> {
        if self.export_group.is_some() { self.export_access() } else { self.socket_access() }
    }

    /// Returns the settings of the reactor threads.
    pub(crate) fn reactors(&self) -> reactors::Settings {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let cores = match self.cores.as_slice() {
            [] => vec![None; self.threads.unwrap_or((cpus / 2).max(1))],
            cores => cores.iter().copied().map(Some).collect(),
        };
        reactors::Settings { cores, poll: self.poll, backend: self.io }
    }
}

/// The default paths of the daemon for a user.
struct DefaultPaths {
    runtime: PathBuf,
    nbd_name: &'static str,
    vhost_name: &'static str,
    fuse_name: &'static str,
    ublk_name: &'static str,
    state: PathBuf,
    runs: PathBuf,
}

impl DefaultPaths {
    fn of_root() -> Self {
        Self {
            runtime: "/run/gabion".into(),
            nbd_name: "nbd.sock",
            vhost_name: "vhost",
            fuse_name: "fuse",
            ublk_name: "ublk",
            state: "/var/lib/gabion".into(),
            runs: "/var/lib/gabion/bench".into(),
        }
    }

    fn of_this_user() -> Self {
        if rustix::process::geteuid().is_root() {
            return Self::of_root();
        }
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let runtime = variable("XDG_RUNTIME_DIR").unwrap_or_else(|| {
            // The user has no runtime directory: the user number makes the name unique.
            std::env::temp_dir().join(format!("gabion-{}", rustix::process::geteuid().as_raw()))
        });
        let state = variable("XDG_STATE_HOME")
            .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
            .unwrap_or_else(|| runtime.clone());
        let state = state.join("gabion");
        let data =
            variable("XDG_DATA_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/share")));
        let runs = data.unwrap_or_else(|| "/var/tmp".into()).join("gabion/bench");
        Self {
            runtime,
            nbd_name: "gabion-nbd.sock",
            vhost_name: "gabion-vhost",
            fuse_name: "gabion-fuse",
            ublk_name: "gabion-ublk",
            state,
            runs,
        }
    }
}
