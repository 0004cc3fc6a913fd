//! The one table of settings: name, explanation, and how a text becomes the value. The file, the environment, the flags,
//! the manual and the tests are made of it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{Config, LogFormat};
use api::Size;

/// A setting.
pub struct Key {
    /// Its section of the file.
    pub section: &'static str,
    /// Its name within the section.
    pub name: &'static str,
    /// What stands for the value in the manual.
    pub value: &'static str,
    /// What it does, in sentences.
    pub help: &'static str,
    /// A value other than the default, as text.
    pub example: &'static str,
    set: fn(&mut Config, &str) -> Result<(), String>,
    show: fn(&Config) -> Shown,
}

/// A value as it stands in a file.
pub(super) enum Shown {
    /// In quotes.
    Text(String),
    /// A number.
    Number(u64),
    /// A list of quoted texts.
    Texts(Vec<String>),
    /// A list of numbers.
    Numbers(Vec<u64>),
    /// Not set; what happens then.
    Unset(&'static str),
}

impl Key {
    /// Its name in the file: `daemon.socket`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// The name of its flag, without the dashes.
    pub fn flag(&self) -> String {
        let name = self.name.replace('_', "-");
        if self.section == "daemon" { name } else { format!("{}-{name}", self.section) }
    }

    /// The name of its environment variable.
    pub fn variable(&self) -> String {
        format!("GABION_{}", self.flag().replace('-', "_").to_ascii_uppercase())
    }

    /// Sets it from text.
    pub(super) fn apply(&self, config: &mut Config, text: &str) -> Result<(), String> {
        (self.set)(config, text.trim())
    }

    /// Its value as it stands in a file.
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
        help: "Unix socket of the API, for the other commands. Only the daemon's user may connect to it (mode 0600).",
        example: "/tmp/elsewhere/gabion.sock",
        set: |config, text| set(&mut config.socket, path(text)),
        show: |config| shown_path(&config.socket),
    },
    Key {
        section: "daemon",
        name: "state_dir",
        value: "DIR",
        help: "Directory in which the daemon remembers which pools to open and what is exported. One daemon uses it.",
        example: "/tmp/elsewhere/state",
        set: |config, text| set(&mut config.state_dir, path(text)),
        show: |config| shown_path(&config.state_dir),
    },
    Key {
        section: "daemon",
        name: "export_group",
        value: "GROUP",
        help: "Group of the host, by name or number, whose members may use exports: sockets of NBD and vhost-user get mode \
               0660, directories that are made for exports 0750. Without it only the daemon's user may: 0600 and 0700.",
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
        help: "What is logged: error, warn, info, debug or trace; also by room, as in 'info,engine=debug'.",
        example: "debug",
        set: |config, text| set(&mut config.log_level, level(text)),
        show: |config| Shown::Text(config.log_level.clone()),
    },
    Key {
        section: "daemon",
        name: "log_format",
        value: "text|json",
        help: "How logs are written: text for people, or one JSON object a line.",
        example: "json",
        set: |config, text| {
            let format = match text {
                "text" => Ok(LogFormat::Text),
                "json" => Ok(LogFormat::Json),
                _ => Err(format!("there is no log format '{text}': text or json")),
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
        help: "Reactor threads, each of which may use a core of its own. Without it: one for every two CPUs.",
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
        help: "Cores that reactor threads stay on, one thread each: numbers and ranges, as in '0,2-3'. Without it they \
               are not tied to cores.",
        example: "0,2-3",
        set: |config, text| set(&mut config.cores, cores(text)),
        show: |config| match config.cores.as_slice() {
            [] => Shown::Unset("threads are not tied to cores"),
            cores => Shown::Numbers(cores.iter().map(|core| *core as u64).collect()),
        },
    },
    Key {
        section: "daemon",
        name: "poll",
        value: "DURATION",
        help: "How long a reactor with nothing to do polls before it sleeps. Longer saves some latency under light \
               load and costs CPU time; 0 sleeps at once.",
        example: "1ms",
        set: |config, text| set(&mut config.poll, duration(text)),
        show: |config| Shown::Text(show_duration(config.poll)),
    },
    Key {
        section: "daemon",
        name: "gather",
        value: "DURATION",
        help: "How long requests of a machine's disk may gather, to be done together, where they keep a core busy for a \
               part of the time only; no longer than 'poll'. Saves CPU time and costs as much latency under such load; \
               0 does each at once.",
        example: "20us",
        set: |config, text| set(&mut config.gather, duration(text)),
        show: |config| Shown::Text(show_duration(config.gather)),
    },
    Key {
        section: "daemon",
        name: "io",
        value: "auto|io_uring|threads",
        help: "How drives and sockets are read and written. Threads are slower and work where io_uring is forbidden.",
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
        help: "Memory for each pool's block map. The map of 1 TiB of randomly written data takes 4 GiB; what does not \
               fit is read from the drives when it is needed.",
        example: "256MiB",
        set: |config, text| {
            let least = Size(1 << 20);
            let memory = size(text).and_then(|size| {
                if size < least {
                    Err(format!("{size} is less than the {least} that a map needs"))
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
        help: "Bytes of log after which a checkpoint is made: what a shard reads at most after a crash.",
        example: "256MiB",
        set: |config, text| {
            let least = Size(1 << 20);
            let length = size(text).and_then(|size| {
                if size < least { Err(format!("{size} is less than {least}")) } else { Ok(size) }
            });
            set(&mut config.checkpoint_after, length)
        },
        show: |config| shown_size(config.checkpoint_after),
    },
    Key {
        section: "daemon",
        name: "drive_wait",
        value: "DURATION",
        help: "How long the daemon waits at start for drives that are not there yet, before it opens a pool without \
               them.",
        example: "5s",
        set: |config, text| set(&mut config.drive_wait, duration(text)),
        show: |config| Shown::Text(show_duration(config.drive_wait)),
    },
    Key {
        section: "daemon",
        name: "warn_at",
        value: "PERCENT,...|none",
        help: "How full a pool may be before its status, its event log and the daemon's log warn of it: one or several numbers.",
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
        help: "In how many of its zones a drive may fail reads, or answer them wrongly, within a day before it counts as failing and is \
               emptied, if the others have room. A zone is a 2048th of the pool's smallest drive, 1 to 64 MiB. 0: however many.",
        example: "100",
        set: |config, text| {
            let zones = text.parse().map_err(|_| format!("'{text}' is not a number of zones"));
            set(&mut config.retire_after, zones)
        },
        show: |config| Shown::Number(u64::from(config.retire_after)),
    },
    Key {
        section: "daemon",
        name: "slowdown",
        value: "PERCENT",
        help: "How long operations may take in the mean beside those of other volumes, in percent of what they take by themselves, before \
               the volume that asks for most is held back: more lets it do more, and the others wait longer. 0: however long.",
        example: "300",
        set: |config, text| {
            let refusal = || format!("'{text}' is not a number of percent from 110 to 10000, or 0");
            let percent =
                text.parse().ok().filter(|percent| *percent == 0 || (110..=10_000).contains(percent));
            set(&mut config.slowdown, percent.ok_or_else(refusal))
        },
        show: |config| Shown::Number(u64::from(config.slowdown)),
    },
    Key {
        section: "nbd",
        name: "socket",
        value: "PATH|none",
        help: "Unix socket on which volumes are served by NBD.",
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
        help: "TCP addresses on which volumes are served by NBD, separated by commas. There is neither encryption nor \
               a password: use networks that only trusted hosts reach.",
        example: "127.0.0.1:10809,[::1]:10809",
        set: |config, text| set(&mut config.nbd_listen, addresses(text)),
        show: |config| match config.nbd_listen.as_slice() {
            [] => Shown::Unset("NBD is not served over TCP"),
            addresses => Shown::Texts(addresses.iter().map(ToString::to_string).collect()),
        },
    },
    Key {
        section: "vhost",
        name: "directory",
        value: "DIR",
        help: "Directory in which each disk of a virtual machine has its vhost-user socket, POOL/VOLUME.sock. It is made \
               if need be.",
        example: "/tmp/elsewhere/vhost",
        set: |config, text| set(&mut config.vhost_directory, path(text)),
        show: |config| shown_path(&config.vhost_directory),
    },
    Key {
        section: "fuse",
        name: "directory",
        value: "DIR",
        help: "Directory in which each volume that is served as a file is seen, as POOL/VOLUME. It is made if need be.",
        example: "/tmp/elsewhere/fuse",
        set: |config, text| set(&mut config.fuse_directory, path(text)),
        show: |config| shown_path(&config.fuse_directory),
    },
    Key {
        section: "ublk",
        name: "directory",
        value: "DIR",
        help: "Directory in which each volume that is served as a block device has a link to it, as POOL/VOLUME. It is made \
               if need be.",
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
        Err(format!("'{text}' is not the name or number of a group"))
    }
}

fn level(text: &str) -> Result<String, String> {
    let known = |level: &str| ["error", "warn", "info", "debug", "trace", "off"].contains(&level);
    let wrong = text.split(',').map(|part| part.split_once('=').map_or(part, |(_, level)| level).trim());
    match wrong.into_iter().find(|level| !known(level)) {
        None => Ok(text.to_owned()),
        Some(level) => Err(format!("there is no log level '{level}': error, warn, info, debug or trace")),
    }
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=1024) => Ok(count),
        _ => Err(format!("'{text}' is not a number from 1 to 1024")),
    }
}

fn cores(text: &str) -> Result<Vec<usize>, String> {
    let wrong = || format!("'{text}' is not a list of cores: write for example 0,2-3");
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

const DURATIONS: [(&str, u64); 4] = [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("min", 60_000_000)];

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a duration: write for example 50us, 20ms, 30s or 2min");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = DURATIONS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?.1;
    let micros = number.checked_mul(unit).filter(|micros| *micros <= 86_400_000_000);
    micros.map(Duration::from_micros).ok_or_else(|| format!("'{text}' is more than a day"))
}

fn show_duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    let unit = DURATIONS
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
    // What is shown for people may be rounded.
    if text.parse() == Ok(size) { Shown::Text(text) } else { Shown::Number(size.0) }
}

fn addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    let address = |part: &str| {
        let wrong =
            || format!("'{}' is not an address and port: write for example 127.0.0.1:10809", part.trim());
        part.trim().parse().map_err(|_| wrong())
    };
    text.split(',').map(address).collect()
}
