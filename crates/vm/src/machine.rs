//! What a machine is made of, as it is kept and as it is checked.
//!
//! Always true: a machine that passed `Machine::check` can be told to QEMU and to libvirt; every text in it is of a kind
//! that neither can take for something else. Must not know: whether it runs.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::accelerator::Accelerator;
use crate::cpulist::CpuList;
use crate::error::{Error, ErrorKind, Result};

/// Most processors of a machine.
pub(crate) const CPUS_MAX: u32 = 512;
/// Least memory of a machine, in bytes.
pub(crate) const MEMORY_MIN: u64 = 64 << 20;
/// Most disks of a machine.
pub(crate) const DISKS_MAX: usize = 24;
/// Longest name: it is the machine's host name too.
const NAME_MAX: usize = 63;

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name, and host name.
    pub name: String,
    /// Its identity, as hexadecimal digits with dashes: what the guest finds in its firmware tables.
    pub uuid: String,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Its processors.
    pub cpus: Shape,
    /// Where they run.
    pub pin: Pin,
    /// Its memory.
    pub memory: Memory,
    /// By what it runs.
    pub accelerator: Accelerator,
    /// From what it starts.
    pub boot: Boot,
    /// Its disks, in order: vda, vdb, ...
    pub disks: Vec<Disk>,
    /// The reactor threads that carry its disks out, from 0. All of them if there are none.
    #[serde(default)]
    pub reactors: Vec<u32>,
    /// Its network.
    pub network: Network,
    /// What cloud-init in it is told.
    pub cloud_init: CloudInit,
    /// More arguments for QEMU, taken as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qemu: Vec<String>,
}

/// Processors as a machine sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Sockets.
    pub sockets: u32,
    /// Cores of each.
    pub cores: u32,
    /// Threads of each core.
    pub threads: u32,
}

impl Shape {
    /// One socket with these cores.
    pub fn of_cores(cores: u32) -> Self {
        Self { sockets: 1, cores, threads: 1 }
    }

    /// All processors; a number that is no machine's if there are too many.
    pub fn count(&self) -> u32 {
        self.sockets.saturating_mul(self.cores).saturating_mul(self.threads)
    }
}

impl FromStr for Shape {
    type Err = Error;

    /// `4`, or sockets x cores x threads: `1x4x2`.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let message = format!("'{text}' is not a number of processors from 1 to {CPUS_MAX}");
            Error::new(ErrorKind::Invalid, message).hint("write 4, or SOCKETSxCORESxTHREADS as in 1x4x2")
        };
        let parts: Vec<u32> =
            text.split('x').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let shape = match parts.as_slice() {
            [cores] => Self::of_cores(*cores),
            [sockets, cores, threads] => Self { sockets: *sockets, cores: *cores, threads: *threads },
            _ => return Err(wrong()),
        };
        if (1..=CPUS_MAX).contains(&shape.count()) { Ok(shape) } else { Err(wrong()) }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { sockets: 1, cores, threads: 1 } => cores.fmt(f),
            Self { sockets, cores, threads } => write!(f, "{sockets}x{cores}x{threads}"),
        }
    }
}

/// Where a machine's processors run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pin {
    /// Beside the cores that carry the disks out, if those stay on theirs; chosen at each start.
    #[default]
    Auto,
    /// Wherever the kernel puts them.
    None,
    /// On these: one after the other in their order, from the first again if there are fewer.
    Cpus(CpuList),
}

impl FromStr for Pin {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            list => {
                let cpus: CpuList = list
                    .parse()
                    .map_err(|error| Error::new(ErrorKind::Invalid, format!("{error}; or auto, none")))?;
                if cpus.0.is_empty() {
                    return Err(Error::new(
                        ErrorKind::Invalid,
                        "no processor is named; write auto, none or 2-5",
                    ));
                }
                Ok(Self::Cpus(cpus))
            }
        }
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Cpus(cpus) => cpus.fmt(f),
        }
    }
}

/// A machine's memory, which those who carry its disks out share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// In bytes.
    pub bytes: u64,
    /// Of what it is made.
    pub pages: Pages,
}

/// Of what a machine's memory is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pages {
    /// Pages of the kernel's choice.
    #[default]
    Normal,
    /// Huge pages of 2 MiB, from the system's reserve.
    Huge2M,
    /// Huge pages of 1 GiB, from the system's reserve.
    Huge1G,
}

impl Pages {
    /// Bytes of a huge page.
    pub fn huge(self) -> Option<u64> {
        match self {
            Self::Normal => None,
            Self::Huge2M => Some(2 << 20),
            Self::Huge1G => Some(1 << 30),
        }
    }
}

impl FromStr for Pages {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.to_ascii_uppercase().as_str() {
            "2M" => Ok(Self::Huge2M),
            "1G" => Ok(Self::Huge1G),
            _ => {
                Err(Error::new(ErrorKind::Invalid, format!("there are no huge pages of '{text}': 2M or 1G")))
            }
        }
    }
}

/// From what a machine starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Boot {
    /// From its first disk.
    Disk,
    /// From a kernel that QEMU loads.
    Kernel {
        /// The kernel.
        kernel: PathBuf,
        /// Its first file system.
        initramfs: Option<PathBuf>,
        /// Its command line.
        append: String,
    },
}

/// A machine's disk: a volume behind a vhost-user socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// The volume, POOL/VOLUME.
    pub volume: String,
    /// True if it was made for this machine, and goes with it if asked.
    pub made: bool,
    /// True if the guest cannot write to it.
    pub read_only: bool,
}

/// A machine's network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// None.
    None,
    /// QEMU's own: outward only, but for what is forwarded. Needs no privilege.
    User {
        /// The machine's address on it.
        mac: Mac,
        /// Ports of this host that lead into the machine.
        forwards: Vec<Forward>,
    },
    /// A tap interface that exists already, usually in a bridge.
    Tap {
        /// The machine's address on it.
        mac: Mac,
        /// The interface.
        interface: String,
    },
}

impl Network {
    /// The machine's address.
    pub fn mac(&self) -> Option<Mac> {
        match self {
            Self::None => None,
            Self::User { mac, .. } | Self::Tap { mac, .. } => Some(*mac),
        }
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// One of QEMU's range, by three bytes that should be random.
    pub fn of_qemu(tail: [u8; 3]) -> Self {
        let [a, b, c] = tail;
        Self([0x52, 0x54, 0x00, a, b, c])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::new(
                ErrorKind::Invalid,
                format!("'{text}' is no address of a machine: write 52:54:00:12:34:56"),
            )
        };
        let byte = |part: &str| {
            let hex = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            u8::from_str_radix(part, 16).ok().filter(|_| hex).ok_or_else(wrong)
        };
        let bytes: Vec<u8> = text.split(':').map(byte).collect::<Result<_>>()?;
        let bytes: [u8; 6] = bytes.try_into().map_err(|_| wrong())?;
        // The lowest bit of the first byte means a group of machines.
        if bytes.first().is_some_and(|first| first & 1 == 0) { Ok(Self(bytes)) } else { Err(wrong()) }
    }
}

impl TryFrom<String> for Mac {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

/// What a forwarded port speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A port of this host that leads into a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// What it speaks.
    pub protocol: Protocol,
    /// The address of this host.
    pub address: IpAddr,
    /// The port of this host.
    pub host: u16,
    /// The machine's port.
    pub guest: u16,
}

impl FromStr for Forward {
    type Err = Error;

    /// `2222:22`, `0.0.0.0:8080:80`, `[::1]:8080:80`, each with `/udp` or `/tcp` behind it.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let message = format!("'{text}' forwards no port");
            Error::new(ErrorKind::Invalid, message)
                .hint("write [ADDRESS:]PORT:GUEST-PORT[/udp], for example 2222:22 or 0.0.0.0:8080:80")
        };
        let (ports, protocol) = match text.rsplit_once('/') {
            None => (text, Protocol::Tcp),
            Some((ports, "tcp")) => (ports, Protocol::Tcp),
            Some((ports, "udp")) => (ports, Protocol::Udp),
            Some(_) => return Err(wrong()),
        };
        let (host, guest) = ports.rsplit_once(':').ok_or_else(wrong)?;
        let (address, host) = host.rsplit_once(':').unwrap_or(("127.0.0.1", host));
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
        let address = address.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| wrong())?;
        Ok(Self { protocol, address, host: port(host)?, guest: port(guest)? })
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, address, host, guest } = self;
        let protocol = match protocol {
            Protocol::Tcp => "",
            Protocol::Udp => "/udp",
        };
        match address {
            IpAddr::V4(address) => write!(f, "{address}:{host}:{guest}{protocol}"),
            IpAddr::V6(address) => write!(f, "[{address}]:{host}:{guest}{protocol}"),
        }
    }
}

/// What cloud-init is told: templates by name, and what fills them in. Nothing at all if no template is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudInit {
    /// The template of the user data.
    pub user_data: Option<String>,
    /// The template of the network data.
    pub network_data: Option<String>,
    /// The template of the meta data.
    pub meta_data: Option<String>,
    /// Names and values that fill them in.
    pub values: std::collections::BTreeMap<String, String>,
}

impl CloudInit {
    /// True if there is something to tell.
    pub fn is_wanted(&self) -> bool {
        self.user_data.is_some() || self.network_data.is_some() || self.meta_data.is_some()
    }
}

/// Refuses what cannot be a machine's name: it is a host name and the name of a directory.
///
/// # Errors
/// `Invalid`.
pub fn check_name(name: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let inside = name.bytes().all(|byte| plain(byte) || byte == b'-');
    let ends = name.bytes().next().is_some_and(plain) && name.bytes().last().is_some_and(plain);
    if inside && ends && name.len() <= NAME_MAX {
        return Ok(());
    }
    let shown: String = name.chars().take(NAME_MAX + 1).collect();
    Err(Error::new(ErrorKind::Invalid, format!("'{}' is no name for a machine", shown.escape_default()))
        .hint(format!("small letters, digits and '-' between them, at most {NAME_MAX}: it is a host name")))
}

impl Machine {
    /// The texts that QEMU and libvirt are given, but for those whose form is checked.
    fn texts(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let mut texts = vec![Cow::from(&self.uuid)];
        if let Boot::Kernel { kernel, initramfs, append } = &self.boot {
            texts.extend([kernel.to_string_lossy(), Cow::from(append)]);
            texts.extend(initramfs.as_ref().map(|path| path.to_string_lossy()));
        }
        let volumes = self.disks.iter().map(|disk| disk.volume.as_str());
        texts.extend(volumes.chain(self.qemu.iter().map(String::as_str)).map(Cow::from));
        texts.into_iter()
    }

    /// Refuses what cannot be a machine.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message));
        if !(1..=CPUS_MAX).contains(&self.cpus.count()) {
            return invalid(format!("a machine has 1 to {CPUS_MAX} processors, not {}", self.cpus));
        }
        let page = self.memory.pages.huge().unwrap_or(1 << 20);
        if self.memory.bytes < MEMORY_MIN || !self.memory.bytes.is_multiple_of(page) {
            return invalid(format!(
                "a machine has at least {} MiB of memory, in whole pieces of {} MiB",
                MEMORY_MIN >> 20,
                page >> 20
            ));
        }
        if self.boot == Boot::Disk && self.disks.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a machine without a disk has nothing to start from")
                .hint("give it one with --boot, or a --kernel"));
        }
        if self.disks.len() > DISKS_MAX {
            return invalid(format!("a machine has at most {DISKS_MAX} disks"));
        }
        for (index, disk) in self.disks.iter().enumerate() {
            if self.disks.iter().take(index).any(|other| other.volume == disk.volume) {
                return invalid(format!("'{}' is named twice: a volume is one disk", disk.volume));
            }
        }
        // XML has neither.
        let wrong = |c: char| c.is_control() || matches!(c, '\u{FFFE}' | '\u{FFFF}');
        if let Some(text) = self.texts().find(|text| text.contains(wrong)) {
            let shown = text.escape_default();
            return invalid(format!("'{shown}' holds a control character, which no definition can hold"));
        }
        if let Network::Tap { interface, .. } = &self.network {
            // The kernel's limit, and what it does not take in names.
            let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b',';
            if interface.is_empty() || interface.len() > 15 || !interface.bytes().all(plain) {
                return invalid(format!(
                    "'{}' is no name of a network interface",
                    interface.escape_default()
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
