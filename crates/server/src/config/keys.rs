//! The table of settings: name, help text, parser and default. The configuration file, environment
//! variables, flags, the manual and the tests are generated from it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use export::nvme::{DISCOVERY_PORT, NvmeDiscovery};
use jiff::SignedDuration;

use super::{Config, LogFormat};
use api::Size;

/// A setting.
pub struct Key {
    /// The section of the file.
    pub section: &'static str,
    /// The name within the section.
    pub name: &'static str,
    /// The placeholder of the value in the manual.
    pub value: &'static str,
    /// The help text, in sentences.
    pub help: &'static str,
    /// A valid value other than the default, as text.
    pub example: &'static str,
    set: fn(&mut Config, &str) -> Result<(), String>,
    show: fn(&Config) -> Shown,
}

/// A value as the configuration file shows it.
pub(super) enum Shown {
    /// A string.
    Text(String),
    /// A number.
    Number(u64),
    /// A list of strings.
    Texts(Vec<String>),
    /// A list of numbers.
    Numbers(Vec<u64>),
    /// No value; the text describes the default behaviour.
    Unset(&'static str),
}

impl Key {
    /// Returns the name in the file, such as `daemon.socket`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// Returns the name of the flag without the leading dashes.
    pub fn flag(&self) -> String {
        let name = self.name.replace('_', "-");
        if self.section == "daemon" { name } else { format!("{}-{name}", self.section) }
    }

    /// Returns the name of the environment variable.
    pub fn variable(&self) -> String {
        format!("GABION_{}", self.flag().replace('-', "_").to_ascii_uppercase())
    }

    /// Returns the default as text: `unset: ...` with the behaviour if there is no default value.
    pub fn default_text(&self) -> String {
        let list = |texts: Vec<String>| if texts.is_empty() { "empty".to_owned() } else { texts.join(", ") };
        match self.shown(&Config::defaults_of_root()) {
            Shown::Text(text) => text,
            Shown::Number(number) => number.to_string(),
            Shown::Texts(texts) => list(texts),
            Shown::Numbers(numbers) => list(numbers.iter().map(u64::to_string).collect()),
            Shown::Unset(behaviour) => format!("unset: {behaviour}"),
        }
    }

    /// Sets the value from text.
    pub(super) fn apply(&self, config: &mut Config, text: &str) -> Result<(), String> {
        (self.set)(config, text.trim())
    }

    /// Returns the value as the configuration file shows it.
    pub(super) fn shown(&self, config: &Config) -> Shown {
        (self.show)(config)
    }
}

/// Every setting, in the order of the manual.
pub const KEYS: &[Key] = &[
    Key {
        section: "daemon",
        name: "socket",
        value: "PATH",
        help: "Unix socket of the API, which the other commands connect to. Only the daemon's user may connect (mode 0600), \
               unless 'socket_group' is set.",
        example: "/tmp/elsewhere/gabion.sock",
        set: |config, text| set(&mut config.socket, path(text)),
        show: |config| shown_path(&config.socket),
    },
    Key {
        section: "daemon",
        name: "state_dir",
        value: "DIR",
        help: "Directory of the daemon's persistent state: the pools to open at start, and the exports. Each daemon needs a \
               directory of its own.",
        example: "/tmp/elsewhere/state",
        set: |config, text| set(&mut config.state_dir, path(text)),
        show: |config| shown_path(&config.state_dir),
    },
    Key {
        section: "daemon",
        name: "clusters_directory",
        value: "DIR",
        help: "Directory of the clusters that 'gabion cluster' has deployed or adopted, whose volumes the daemon serves. The \
               daemon's user needs to read ceph.conf, gabion.keyring and gabion-rgw.keyring of a cluster.",
        example: "/tmp/elsewhere/clusters",
        set: |config, text| set(&mut config.clusters_directory, path(text)),
        show: |config| shown_path(&config.clusters_directory),
    },
    Key {
        section: "daemon",
        name: "runs_directory",
        value: "DIR",
        help: "Directory of the stored runs of 'gabion bench run', which the console shows with their reports. Without the \
               option --results, the command stores runs in the default directory of its user.",
        example: "/tmp/elsewhere/bench",
        set: |config, text| set(&mut config.runs_directory, path(text)),
        show: |config| shown_path(&config.runs_directory),
    },
    Key {
        section: "daemon",
        name: "socket_group",
        value: "GROUP",
        help: "Group of the host, by name or number, that may use the Unix socket of the API, with all rights of an \
               administrator: the socket gets mode 0660. Default: only the daemon's user.",
        example: "gabion",
        set: |config, text| set(&mut config.socket_group, group(text).map(Some)),
        show: |config| match &config.socket_group {
            Some(group) => Shown::Text(group.clone()),
            None => Shown::Unset("only the daemon's user may use the socket"),
        },
    },
    Key {
        section: "daemon",
        name: "export_group",
        value: "GROUP",
        help: "Group of the host, by name or number, that may use exports: NBD and vhost-user sockets get mode 0660, and \
               directories created for exports get mode 0750. Default: only the daemon's user, modes 0600 and 0700.",
        example: "disk",
        set: |config, text| set(&mut config.export_group, group(text).map(Some)),
        show: |config| match &config.export_group {
            Some(group) => Shown::Text(group.clone()),
            None => Shown::Unset("only the daemon's user may use exports"),
        },
    },
    Key {
        section: "daemon",
        name: "log_level",
        value: "LEVEL",
        help: "Log level: error, warn, info, debug or trace; levels of single crates can be added, as in 'info,engine=debug'.",
        example: "debug",
        set: |config, text| set(&mut config.log_level, level(text)),
        show: |config| Shown::Text(config.log_level.clone()),
    },
    Key {
        section: "daemon",
        name: "log_format",
        value: "text|json",
        help: "Log format: 'text', or 'json' for one JSON object per line.",
        example: "json",
        set: |config, text| {
            let format = match text {
                "text" => Ok(LogFormat::Text),
                "json" => Ok(LogFormat::Json),
                _ => Err(format!("'{text}' is not a log format: use text or json")),
            };
            set(&mut config.log_format, format)
        },
        show: |config| {
            let name = match config.log_format {
                LogFormat::Text => "text",
                LogFormat::Json => "json",
            };
            Shown::Text(name.into())
        },
    },
    Key {
        section: "daemon",
        name: "threads",
        value: "N",
        help: "Number of reactor threads; each one can use a full core. Default: one for every two CPUs.",
        example: "3",
        set: |config, text| set(&mut config.threads, count(text).map(Some)),
        show: |config| match config.threads {
            Some(threads) => Shown::Number(threads as u64),
            None => Shown::Unset("one for every two CPUs"),
        },
    },
    Key {
        section: "daemon",
        name: "cores",
        value: "LIST",
        help: "Cores that reactor threads are pinned to, one thread per core: numbers and ranges, as in '0,2-3'. Default: \
               threads are not pinned.",
        example: "0,2-3",
        set: |config, text| set(&mut config.cores, cores(text)),
        show: |config| match config.cores.as_slice() {
            [] => Shown::Unset("threads are not pinned to cores"),
            cores => Shown::Numbers(cores.iter().map(|core| *core as u64).collect()),
        },
    },
    Key {
        section: "daemon",
        name: "poll",
        value: "DURATION",
        help: "Time that an idle reactor polls before it sleeps. A longer time lowers latency under light load and uses \
               more CPU time; 0 disables polling.",
        example: "1ms",
        set: |config, text| set(&mut config.poll, duration(text)),
        show: |config| Shown::Text(show_duration(config.poll)),
    },
    Key {
        section: "daemon",
        name: "coalesce_delay",
        value: "DURATION",
        help: "Longest time that requests of a vhost-user disk are coalesced into a batch when the load does not keep a \
               core busy; at most 'poll'. Coalescing saves CPU time and adds up to this time to the latency; 0 disables it.",
        example: "20us",
        set: |config, text| set(&mut config.coalesce_delay, duration(text)),
        show: |config| Shown::Text(show_duration(config.coalesce_delay)),
    },
    Key {
        section: "daemon",
        name: "io",
        value: "auto|io_uring|threads",
        help: "I/O backend for drives and sockets. 'threads' is slower and works where io_uring is forbidden; 'auto' uses \
               io_uring if the kernel allows it.",
        example: "threads",
        set: |config, text| {
            let backend = text.parse().map_err(|error: reactor::UnknownBackend| error.to_string());
            set(&mut config.io, backend)
        },
        show: |config| Shown::Text(config.io.to_string()),
    },
    Key {
        section: "daemon",
        name: "map_memory",
        value: "SIZE",
        help: "Memory for the block map of each pool. The map of 1 TiB of randomly written data takes 4 GiB; parts that do \
               not fit are read from the drives on demand.",
        example: "256MiB",
        set: |config, text| {
            let least = Size(1 << 20);
            let memory = size(text).and_then(|size| {
                if size < least {
                    Err(format!("{size} is less than the minimum of {least}"))
                } else {
                    Ok(size)
                }
            });
            set(&mut config.map_memory, memory)
        },
        show: |config| shown_size(config.map_memory),
    },
    Key {
        section: "daemon",
        name: "checkpoint_after",
        value: "SIZE",
        help: "Amount of log after which a shard writes a checkpoint. It limits the log that recovery replays after a crash.",
        example: "256MiB",
        set: |config, text| {
            let least = Size(1 << 20);
            let length = size(text).and_then(|size| {
                if size < least {
                    Err(format!("{size} is less than the minimum of {least}"))
                } else {
                    Ok(size)
                }
            });
            set(&mut config.checkpoint_after, length)
        },
        show: |config| shown_size(config.checkpoint_after),
    },
    Key {
        section: "daemon",
        name: "drive_wait",
        value: "DURATION",
        help: "Time that the daemon waits at start for missing drives before it opens a pool in degraded mode.",
        example: "5s",
        set: |config, text| set(&mut config.drive_wait, duration(text)),
        show: |config| Shown::Text(show_duration(config.drive_wait)),
    },
    Key {
        section: "daemon",
        name: "warn_at",
        value: "PERCENT,...|none",
        help: "One or more thresholds of the space usage, in percent. When a pool reaches a threshold, its status, its event \
               log and the daemon's log warn; 'none' disables the warnings.",
        example: "70,85,95",
        set: |config, text| set(&mut config.warn_at, thresholds(text)),
        show: |config| match config.warn_at.as_slice() {
            [] => Shown::Text("none".into()),
            warn_at => Shown::Numbers(warn_at.iter().map(|percent| u64::from(*percent)).collect()),
        },
    },
    Key {
        section: "daemon",
        name: "retire_after",
        value: "ZONES",
        help: "Remove a drive after read errors or checksum errors in this many of its zones within 24 h, if the other drives \
               have enough free space. A zone is 1/2048 of the pool's smallest drive, 1 to 64 MiB. 0 disables automatic removal.",
        example: "100",
        set: |config, text| {
            let zones = text.parse().map_err(|_| format!("'{text}' is not a number of zones"));
            set(&mut config.retire_after, zones)
        },
        show: |config| Shown::Number(u64::from(config.retire_after)),
    },
    Key {
        section: "daemon",
        name: "latency_target",
        value: "PERCENT",
        help: "Target mean latency under contention, in percent of the uncontended latency. Above it, the volume with the most \
               I/O is throttled: a higher target gives more throughput to busy volumes and more latency to the others. \
               0 disables throttling.",
        example: "300",
        set: |config, text| {
            let refusal = || format!("'{text}' is not a percentage from 110 to 10000, or 0");
            let percent =
                text.parse().ok().filter(|percent| *percent == 0 || (110..=10_000).contains(percent));
            set(&mut config.latency_target, percent.ok_or_else(refusal))
        },
        show: |config| Shown::Number(u64::from(config.latency_target)),
    },
    Key {
        section: "api",
        name: "listen",
        value: "ADDRESS:PORT",
        help: "TCP addresses, separated by commas, on which the API and the console are served over HTTPS to clients with a \
               token ('gabion token create').",
        example: "127.0.0.1:9188,[::1]:9188",
        set: |config, text| set(&mut config.api_listen, addresses(text)),
        show: |config| match config.api_listen.as_slice() {
            [] => Shown::Unset("the API is served on the Unix socket only"),
            addresses => Shown::Texts(addresses.iter().map(ToString::to_string).collect()),
        },
    },
    Key {
        section: "api",
        name: "certificate",
        value: "FILE",
        help: "Certificate chain for HTTPS (PEM). Changes of the file take effect within seconds. Default: a self-signed \
               certificate in the state directory.",
        example: "/etc/gabion/certificate.pem",
        set: |config, text| set(&mut config.api_certificate, path(text).map(Some)),
        show: |config| match &config.api_certificate {
            Some(path) => shown_path(path),
            None => Shown::Unset("a self-signed certificate, made at the first start"),
        },
    },
    Key {
        section: "api",
        name: "key",
        value: "FILE",
        help: "Private key of the certificate for HTTPS (PEM).",
        example: "/etc/gabion/certificate-key.pem",
        set: |config, text| set(&mut config.api_key, path(text).map(Some)),
        show: |config| match &config.api_key {
            Some(path) => shown_path(path),
            None => Shown::Unset("the key of the self-signed certificate"),
        },
    },
    Key {
        section: "metrics",
        name: "listen",
        value: "ADDRESS:PORT",
        help: "TCP addresses, separated by commas, on which metrics are served to Prometheus at /metrics, without encryption \
               and authentication. The API's Unix socket serves them as well.",
        example: "127.0.0.1:9187,[::1]:9187",
        set: |config, text| set(&mut config.metrics_listen, addresses(text)),
        show: |config| match config.metrics_listen.as_slice() {
            [] => Shown::Unset("metrics are not served over TCP"),
            addresses => Shown::Texts(addresses.iter().map(ToString::to_string).collect()),
        },
    },
    Key {
        section: "nbd",
        name: "socket",
        value: "PATH|none",
        help: "Unix socket on which volumes are exported over NBD.",
        example: "/tmp/elsewhere/nbd.sock",
        set: |config, text| {
            let socket = if text == "none" { Ok(None) } else { path(text).map(Some) };
            set(&mut config.nbd_socket, socket)
        },
        show: |config| match &config.nbd_socket {
            Some(socket) => shown_path(socket),
            None => Shown::Text("none".into()),
        },
    },
    Key {
        section: "nbd",
        name: "listen",
        value: "ADDRESS:PORT",
        help: "TCP addresses, separated by commas, on which volumes are exported over NBD. Connections are neither encrypted \
               nor authenticated: use only networks on which every host is trusted.",
        example: "127.0.0.1:10809,[::1]:10809",
        set: |config, text| set(&mut config.nbd_listen, addresses(text)),
        show: |config| match config.nbd_listen.as_slice() {
            [] => Shown::Unset("NBD is not served over TCP"),
            addresses => Shown::Texts(addresses.iter().map(ToString::to_string).collect()),
        },
    },
    Key {
        section: "iscsi",
        name: "listen",
        value: "ADDRESS:PORT",
        help: "TCP addresses, separated by commas, of iSCSI exports that are created without --listen. Connections are not \
               encrypted: use only networks on which every host is trusted.",
        example: "127.0.0.1:3260,[::1]:3260",
        set: |config, text| set(&mut config.iscsi_listen, addresses(text)),
        show: |config| match config.iscsi_listen.as_slice() {
            [] => Shown::Unset("each export names its own addresses"),
            addresses => Shown::Texts(addresses.iter().map(ToString::to_string).collect()),
        },
    },
    Key {
        section: "nvme",
        name: "listen",
        value: "ADDRESS:PORT",
        help: "TCP addresses, separated by commas, of NVMe/TCP exports that are created without --listen. Connections are \
               neither encrypted nor authenticated: use only networks on which every host is trusted.",
        example: "127.0.0.1:4420,[::1]:4420",
        set: |config, text| set(&mut config.nvme_listen, addresses(text)),
        show: |config| match config.nvme_listen.as_slice() {
            [] => Shown::Unset("each export names its own addresses"),
            addresses => Shown::Texts(addresses.iter().map(ToString::to_string).collect()),
        },
    },
    Key {
        section: "nvme",
        name: "discovery",
        value: "ADDRESS:PORT|auto|none",
        help: "TCP addresses, separated by commas, of the NVMe discovery service, which lists to a host the subsystems that it \
               may use. With 'auto', it listens on port 8009 of the addresses of NVMe/TCP exports while these exist. Every \
               address of an export serves discovery in any case.",
        example: "10.0.0.1:8009",
        set: |config, text| {
            let discovery = match text {
                "auto" => Ok(NvmeDiscovery::Port(DISCOVERY_PORT)),
                "none" => Ok(NvmeDiscovery::ExportsOnly),
                text => addresses(text).map(NvmeDiscovery::Addresses),
            };
            set(&mut config.nvme_discovery, discovery)
        },
        show: |config| match &config.nvme_discovery {
            NvmeDiscovery::Port(_) => Shown::Text("auto".into()),
            NvmeDiscovery::ExportsOnly => Shown::Text("none".into()),
            NvmeDiscovery::Addresses(addresses) => {
                Shown::Texts(addresses.iter().map(ToString::to_string).collect())
            }
        },
    },
    Key {
        section: "vhost",
        name: "directory",
        value: "DIR",
        help: "Directory of the vhost-user sockets for virtual machines, POOL/VOLUME.sock. It is created if it does not exist.",
        example: "/tmp/elsewhere/vhost",
        set: |config, text| set(&mut config.vhost_directory, path(text)),
        show: |config| shown_path(&config.vhost_directory),
    },
    Key {
        section: "fuse",
        name: "directory",
        value: "DIR",
        help: "Directory of the volumes exported as files over FUSE, POOL/VOLUME. It is created if it does not exist.",
        example: "/tmp/elsewhere/fuse",
        set: |config, text| set(&mut config.fuse_directory, path(text)),
        show: |config| shown_path(&config.fuse_directory),
    },
    Key {
        section: "ublk",
        name: "directory",
        value: "DIR",
        help: "Directory of links to the volumes exported as ublk block devices, POOL/VOLUME. It is created if it does not exist.",
        example: "/tmp/elsewhere/ublk",
        set: |config, text| set(&mut config.ublk_directory, path(text)),
        show: |config| shown_path(&config.ublk_directory),
    },
];

fn set<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

fn path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(format!("'{text}' is not an absolute path")) }
}

fn shown_path(path: &std::path::Path) -> Shown {
    Shown::Text(path.to_string_lossy().into_owned())
}

fn group(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b":,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        Ok(text.to_owned())
    } else {
        Err(format!("'{text}' is not a valid group name or number"))
    }
}

fn level(text: &str) -> Result<String, String> {
    let known = |level: &str| ["error", "warn", "info", "debug", "trace", "off"].contains(&level);
    let mut levels = text.split(',').map(|part| part.split_once('=').map_or(part, |(_, level)| level).trim());
    match levels.find(|level| !known(level)) {
        None => Ok(text.to_owned()),
        Some(level) => {
            Err(format!("'{level}' is not a log level: use error, warn, info, debug, trace or off"))
        }
    }
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=1024) => Ok(count),
        _ => Err(format!("'{text}' is not a number from 1 to 1024")),
    }
}

fn cores(text: &str) -> Result<Vec<usize>, String> {
    let wrong = || format!("'{text}' is not a list of cores: use, for example, 0,2-3");
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| wrong())?;
        let last: usize = last.trim().parse().map_err(|_| wrong())?;
        if last < first || last - first >= 1024 {
            return Err(wrong());
        }
        for core in first..=last {
            if cores.contains(&core) {
                return Err(format!("core {core} is listed twice"));
            }
            cores.push(core);
        }
    }
    Ok(cores)
}

fn thresholds(text: &str) -> Result<Vec<u8>, String> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let percent = |part: &str| match part.trim().parse() {
        Ok(percent @ 1..=99) => Ok(percent),
        _ => Err(format!("'{}' is not a percentage from 1 to 99", part.trim())),
    };
    let mut all = text.split(',').map(percent).collect::<Result<Vec<u8>, _>>()?;
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Longest duration of a setting.
const DURATION_MAX: Duration = Duration::from_secs(86_400);

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a duration: use, for example, 50us, 20ms, 30s or 2min");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let duration: SignedDuration = text.parse().map_err(|_| wrong())?;
    let duration = Duration::try_from(duration).map_err(|_| wrong())?;
    if duration.subsec_nanos() % 1000 != 0 {
        return Err(wrong());
    }
    if duration > DURATION_MAX {
        return Err(format!("'{text}' is more than a day"));
    }
    Ok(duration)
}

/// Formats a duration with one unit, as the pages of the reference show it.
fn show_duration(duration: Duration) -> String {
    const UNITS: [(&str, u64); 4] = [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("min", 60_000_000)];
    let micros = duration.as_micros();
    let unit = UNITS
        .iter()
        .rev()
        .find(|(_, unit)| micros >= u128::from(*unit) && micros.is_multiple_of(u128::from(*unit)));
    unit.map_or("0".into(), |(name, unit)| format!("{}{name}", micros / u128::from(*unit)))
}

fn size(text: &str) -> Result<Size, String> {
    text.parse().map_err(|error: api::SizeError| error.to_string())
}

fn shown_size(size: Size) -> Shown {
    let text = size.to_string().replace(' ', "");
    // The text form may be rounded; a rounded size is shown as a number of bytes.
    if text.parse() == Ok(size) { Shown::Text(text) } else { Shown::Number(size.0) }
}

fn addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    let address = |part: &str| {
        let wrong =
            || format!("'{}' is not an address and port: use, for example, 127.0.0.1:10809", part.trim());
        part.trim().parse().map_err(|_| wrong())
    };
    text.split(',').map(address).collect()
}
