//! The definition of a machine, as stored and validated.
//!
//! Always true: a machine that passed `Machine::check` can be rendered for QEMU and libvirt, and
//! none of its texts can be misread as syntax. Must not know: whether the machine is running.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::accelerator::Accelerator;
use crate::cpulist::CpuList;
use crate::error::{Error, ErrorKind, Result};

/// Maximum number of vCPUs of a machine.
pub(crate) const CPUS_MAX: u32 = 512;
/// Minimum memory of a machine, in bytes.
pub(crate) const MEMORY_MIN: u64 = 64 << 20;
/// Maximum number of disks of a machine.
pub(crate) const DISKS_MAX: usize = 24;
/// Maximum length of a name, which is also the host name.
const NAME_MAX: usize = 63;

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the machine, which is also the host name.
    pub name: String,
    /// Identity of the machine, as hexadecimal digits with dashes. The firmware tables of the guest
    /// contain it.
    pub uuid: String,
    /// Creation time, in seconds since 1970.
    pub created: u64,
    /// vCPUs of the machine.
    pub cpus: VcpuTopology,
    /// The pinning of its vCPUs.
    pub pin: Pin,
    /// Memory of the machine.
    pub memory: Memory,
    /// Accelerator of the machine.
    pub accelerator: Accelerator,
    /// Boot source of the machine.
    pub boot: Boot,
    /// Disks of the machine, in order: vda, vdb, ...
    pub disks: Vec<Disk>,
    /// The reactor threads that serve its disks, numbered from 0. Empty for all of them.
    #[serde(default)]
    pub reactors: Vec<u32>,
    /// Network of the machine.
    pub network: Network,
    /// Cloud-init configuration of the machine.
    pub cloud_init: CloudInit,
    /// Additional arguments for QEMU, passed unchanged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qemu: Vec<String>,
}

/// The vCPUs of a machine, as seen by the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuTopology {
    /// Sockets.
    pub sockets: u32,
    /// Cores per socket.
    pub cores: u32,
    /// Threads per core.
    pub threads: u32,
}

impl VcpuTopology {
    /// Returns one socket with these cores.
    pub fn from_cores(cores: u32) -> Self {
        Self { sockets: 1, cores, threads: 1 }
    }

    /// Returns the number of vCPUs; saturates for invalid values.
    pub fn count(&self) -> u32 {
        self.sockets.saturating_mul(self.cores).saturating_mul(self.threads)
    }
}

impl FromStr for VcpuTopology {
    type Err = Error;

    /// Parses `4`, or sockets x cores x threads: `1x4x2`.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let message = format!("'{text}' is not a number of vCPUs from 1 to {CPUS_MAX}");
            Error::new(ErrorKind::Invalid, message).hint("write 4, or SOCKETSxCORESxTHREADS as in 1x4x2")
        };
        let parts: Vec<u32> =
            text.split('x').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let shape = match parts.as_slice() {
            [cores] => Self::from_cores(*cores),
            [sockets, cores, threads] => Self { sockets: *sockets, cores: *cores, threads: *threads },
            _ => return Err(wrong()),
        };
        if (1..=CPUS_MAX).contains(&shape.count()) { Ok(shape) } else { Err(wrong()) }
    }
}

impl fmt::Display for VcpuTopology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { sockets: 1, cores, threads: 1 } => cores.fmt(f),
            Self { sockets, cores, threads } => write!(f, "{sockets}x{cores}x{threads}"),
        }
    }
}

/// The pinning of a machine's vCPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pin {
    /// Near the CPUs of the reactors that serve the disks, if the reactors are pinned; chosen at
    /// each start.
    #[default]
    Auto,
    /// Not pinned.
    None,
    /// On these CPUs, in order; starts over if there are fewer than vCPUs.
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
                    .map_err(|error| Error::new(ErrorKind::Invalid, format!("{error}, auto or none")))?;
                if cpus.0.is_empty() {
                    return Err(Error::new(
                        ErrorKind::Invalid,
                        "the list of CPUs is empty; write auto, none or a list such as 2-5",
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

/// A machine's memory, which the vhost-user back end maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Size in bytes.
    pub bytes: u64,
    /// Page size of its memory.
    pub pages: Pages,
}

/// Page size of a machine's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pages {
    /// Pages chosen by the kernel.
    #[default]
    Normal,
    /// Huge pages of 2 MiB, from the system's pool.
    Huge2M,
    /// Huge pages of 1 GiB, from the system's pool.
    Huge1G,
}

impl Pages {
    /// Returns the bytes of a huge page, or `None` for normal pages.
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
                Err(Error::new(ErrorKind::Invalid, format!("'{text}' is not a huge page size; use 2M or 1G")))
            }
        }
    }
}

/// The boot source of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Boot {
    /// The first disk.
    Disk,
    /// A kernel that QEMU loads.
    Kernel {
        /// The kernel.
        kernel: PathBuf,
        /// Initial file system of the kernel.
        initramfs: Option<PathBuf>,
        /// Command line of the kernel.
        append: String,
    },
}

/// A disk of a machine: a volume behind a vhost-user socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// The volume, as POOL/VOLUME.
    pub volume: String,
    /// True if the volume was created for this machine; it can be deleted together with the
    /// machine.
    pub made: bool,
    /// True if the guest cannot write to it.
    pub read_only: bool,
}

/// The network of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// No network.
    None,
    /// QEMU's user network: outbound connections, and inbound ones through forwarded ports. Needs
    /// no privileges.
    User {
        /// The machine's MAC address.
        mac: Mac,
        /// Forwarded ports of this host.
        forwards: Vec<Forward>,
    },
    /// An existing tap interface, usually part of a bridge.
    Tap {
        /// The machine's MAC address.
        mac: Mac,
        /// The interface.
        interface: String,
    },
}

impl Network {
    /// Returns the machine's MAC address.
    pub fn mac(&self) -> Option<Mac> {
        match self {
            Self::None => None,
            Self::User { mac, .. } | Self::Tap { mac, .. } => Some(*mac),
        }
    }
}

/// A MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Returns an address with QEMU's prefix and three bytes that should be random.
    pub fn with_qemu_prefix(tail: [u8; 3]) -> Self {
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
                format!(
                    "'{text}' is not the MAC address of a single machine; write it like 52:54:00:12:34:56"
                ),
            )
        };
        let byte = |part: &str| {
            let hex = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            u8::from_str_radix(part, 16).ok().filter(|_| hex).ok_or_else(wrong)
        };
        let bytes: Vec<u8> = text.split(':').map(byte).collect::<Result<_>>()?;
        let bytes: [u8; 6] = bytes.try_into().map_err(|_| wrong())?;
        // The lowest bit of the first byte marks multicast addresses.
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

/// The protocol of a forwarded port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A port of this host that is forwarded to a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// Protocol of the forwarded port.
    pub protocol: Protocol,
    /// The listening address on this host.
    pub address: IpAddr,
    /// The port on this host.
    pub host: u16,
    /// The port in the guest.
    pub guest: u16,
}

impl FromStr for Forward {
    type Err = Error;

    /// Parses `2222:22`, `0.0.0.0:8080:80` or `[::1]:8080:80`, optionally followed by `/udp` or
    /// `/tcp`.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let message = format!("'{text}' is not a port forwarding");
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

/// The cloud-init configuration of a machine: names of templates, and the values for their
/// placeholders. Unused if no template is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudInit {
    /// The template of the user data.
    pub user_data: Option<String>,
    /// The template of the network data.
    pub network_data: Option<String>,
    /// The template of the meta data.
    pub meta_data: Option<String>,
    /// The values of the placeholders, by name.
    pub values: std::collections::BTreeMap<String, String>,
}

impl CloudInit {
    /// Returns true if a template is named.
    pub fn is_configured(&self) -> bool {
        self.user_data.is_some() || self.network_data.is_some() || self.meta_data.is_some()
    }
}

/// Checks the name of a machine: it must be valid as a host name and as the name of a directory.
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
    Err(Error::new(ErrorKind::Invalid, format!("'{}' is not a valid machine name", shown.escape_default()))
        .hint(format!("use up to {NAME_MAX} lowercase letters and digits, with '-' only between them: it is also the host name")))
}

impl Machine {
    /// Returns the free texts that QEMU and libvirt receive; the others have a checked format.
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

    /// Checks that the definition is valid.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message));
        if !(1..=CPUS_MAX).contains(&self.cpus.count()) {
            return invalid(format!("a machine has 1 to {CPUS_MAX} vCPUs, not {}", self.cpus));
        }
        let page = self.memory.pages.huge().unwrap_or(1 << 20);
        if self.memory.bytes < MEMORY_MIN || !self.memory.bytes.is_multiple_of(page) {
            return invalid(format!(
                "the memory of a machine must be at least {} MiB and a multiple of {} MiB",
                MEMORY_MIN >> 20,
                page >> 20
            ));
        }
        if self.boot == Boot::Disk && self.disks.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a machine without a disk has no boot source")
                .hint("add a disk with --boot, or a --kernel"));
        }
        if self.disks.len() > DISKS_MAX {
            return invalid(format!("a machine has up to {DISKS_MAX} disks"));
        }
        for (index, disk) in self.disks.iter().enumerate() {
            if self.disks.iter().take(index).any(|other| other.volume == disk.volume) {
                return invalid(format!("volume '{}' is listed twice", disk.volume));
            }
        }
        // XML allows neither.
        let wrong = |c: char| c.is_control() || matches!(c, '\u{FFFE}' | '\u{FFFF}');
        if let Some(text) = self.texts().find(|text| text.contains(wrong)) {
            let shown = text.escape_default();
            return invalid(format!(
                "'{shown}' contains a control character, which is not allowed in a machine definition"
            ));
        }
        if let Network::Tap { interface, .. } = &self.network {
            // The kernel's length limit, and the characters that it allows in names.
            let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b',';
            if interface.is_empty() || interface.len() > 15 || !interface.bytes().all(plain) {
                return invalid(format!(
                    "'{}' is not a valid name of a network interface",
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
