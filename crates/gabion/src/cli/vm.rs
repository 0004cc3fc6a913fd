//! Arguments of `gabion vm`.

use std::path::PathBuf;
use std::str::FromStr;

use api::Size;
use clap::{ArgGroup, Args, Subcommand};
use vm::{Accelerator, Forward, Mac, Network, Pages, Pin, TemplateKind, VcpuTopology};

use api::VolumeName;

/// Create and run virtual machines with volumes as disks
///
/// Machines run in QEMU, with KVM if the user may use it and with TCG (emulation) otherwise. Their
/// disks are vhost-user exports: the guest memory is shared with the daemon, and machines keep
/// running across daemon restarts. Machine definitions are stored in the daemon's state directory,
/// for the current user.
#[derive(Subcommand, Debug)]
pub(crate) enum VmCommand {
    Create(Box<CreateVmArgs>),
    /// Start a machine
    ///
    /// Creates missing exports of its disks. The vCPUs are pinned near the pinned reactor threads
    /// of the daemon; 'gabion vm show' prints the placement and its reason.
    #[command(after_long_help = "\
Examples:
  gabion vm start web
  gabion vm start web --pin 2-5")]
    Start {
        /// Name of the machine
        name: String,
        /// CPU pinning for this run: auto, none, or CPUs of this host, as in 2-5 [default: as
        /// created]
        #[arg(long, value_name = "PIN")]
        pin: Option<Pin>,
    },
    /// Stop a machine
    ///
    /// Presses the ACPI power button and waits for the guest to shut down. --force ends it
    /// immediately; data in guest memory that is not written to its disks is lost, as in a power
    /// failure.
    #[command(after_long_help = "\
Examples:
  gabion vm stop web
  gabion vm stop web --force")]
    Stop {
        /// Name of the machine
        name: String,
        /// End the machine immediately, as in a power failure
        #[arg(long)]
        force: bool,
        /// Time for the guest to shut down, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 60, conflicts_with = "force")]
        timeout: u64,
    },
    /// List machines
    List,
    /// Show a machine: definition, state and CPU placement
    #[command(after_long_help = "\
Examples:
  gabion vm show web
  gabion vm show web --libvirt > web.xml && virsh define web.xml")]
    Show {
        /// Name of the machine
        name: String,
        /// Print libvirt domain XML instead
        #[arg(long, conflicts_with = "json")]
        libvirt: bool,
    },
    /// Connect to a machine's serial console
    ///
    /// Ctrl-] disconnects; the machine keeps running. One client at a time can connect. All console
    /// output since the start is also logged.
    #[command(after_long_help = "\
Examples:
  gabion vm console web
  gabion vm console web --log | less")]
    Console {
        /// Name of the machine
        name: String,
        /// Print the log of the console since the last start, and exit
        #[arg(long)]
        log: bool,
    },
    /// Delete a machine. Its volumes are kept unless --volumes is given
    #[command(after_long_help = "\
Examples:
  gabion vm delete web
  gabion vm delete web --volumes --yes")]
    Delete {
        /// Name of the machine
        name: String,
        /// Also delete the volumes that were created for it, with all their data
        #[arg(long)]
        volumes: bool,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Show the CPUs of this host: cores, caches, NUMA nodes, reactor threads and machines
    Topology,
    #[command(subcommand)]
    Template(TemplateCommand),
}

/// Manage cloud-init templates
///
/// A placeholder is written ${name}; 'gabion vm create --set name=value' sets its value.
/// ${vm.name}, ${vm.uuid} and ${vm.mac} are predefined for every machine.
#[derive(Subcommand, Debug)]
pub(crate) enum TemplateCommand {
    /// Store a file as a template; a template of the same name is replaced
    #[command(after_long_help = "\
Examples:
  gabion vm template set user-data ops ./ops.yaml
  gabion vm create web --boot fast/web --image debian-12.qcow2 --user-data ops --network-data dhcp")]
    Set {
        /// Kind of the template: user-data, network-data or meta-data
        kind: TemplateKind,
        /// Name of the template
        name: String,
        /// File to store
        file: PathBuf,
    },
    /// List templates and their placeholders
    List,
    /// Print a template
    Show {
        /// Kind of the template: user-data, network-data or meta-data
        kind: TemplateKind,
        /// Name of the template
        name: String,
    },
    /// Delete a template
    Delete {
        /// Kind of the template: user-data, network-data or meta-data
        kind: TemplateKind,
        /// Name of the template
        name: String,
    },
}

/// Create a machine, with its volumes and their exports
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("start-from").required(true).multiple(true).args(["boot", "kernel"])),
    after_long_help = "\
Examples:
  # From a cloud image, copied into a new volume; cloud-init configures a user and the network
  gabion vm create web --boot fast/web --image debian-12-generic.qcow2 --size 20G --cpus 4 --memory 4G \\
      --user-data ssh-key --set user=ada --set key=\"$(cat ~/.ssh/id_ed25519.pub)\" --network-data dhcp \\
      --forward 2222:22 --start
  ssh -p 2222 ada@localhost

  # From a kernel, with a new disk and an existing one
  gabion vm create lab --kernel vmlinuz --initramfs initrd.img --append 'console=ttyS0' \\
      --disk fast/scratch:100G --disk fast/data

  # As a libvirt domain
  gabion vm create db --boot fast/db --image db.qcow2 --libvirt > db.xml && virsh define db.xml"
)]
pub(crate) struct CreateVmArgs {
    /// Name of the machine, also its host name: lower-case letters, digits and '-'
    pub(crate) name: String,
    /// Boot volume: an existing one, or a new one with --image or --size
    #[arg(long, value_name = "POOL/VOLUME")]
    pub(crate) boot: Option<VolumeName>,
    /// Create the boot volume from this disk image (qcow2, raw, vhdx or vdi)
    #[arg(long, value_name = "FILE", requires = "boot")]
    pub(crate) image: Option<PathBuf>,
    /// Size of the new boot volume [default: that of the image]
    #[arg(long, value_name = "SIZE", requires = "boot")]
    pub(crate) size: Option<Size>,
    /// Boot this kernel instead of the first disk
    #[arg(long, value_name = "FILE")]
    pub(crate) kernel: Option<PathBuf>,
    /// Initial RAM file system of the kernel
    #[arg(long, value_name = "FILE", requires = "kernel")]
    pub(crate) initramfs: Option<PathBuf>,
    /// Command line of the kernel
    #[arg(long, value_name = "TEXT", requires = "kernel", default_value = "console=ttyS0")]
    pub(crate) append: String,
    /// Additional disk: an existing volume, a new one of SIZE, or a read-only one with ':ro'. May
    /// be repeated
    #[arg(long, value_name = "POOL/VOLUME[:SIZE|:ro]")]
    pub(crate) disk: Vec<DiskSpec>,
    /// vCPUs: a number of cores, or SOCKETSxCORESxTHREADS as in 1x4x2
    #[arg(long, value_name = "N", default_value = "2")]
    pub(crate) cpus: VcpuTopology,
    /// Memory size
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    pub(crate) memory: Size,
    /// Allocate the memory from reserved huge pages of this size: 2M or 1G
    #[arg(long, value_name = "2M|1G")]
    pub(crate) hugepages: Option<Pages>,
    /// CPU pinning: auto (near the pinned reactor threads of the daemon), none, or CPUs of this
    /// host, as in 2-5. 'gabion vm topology' lists them
    #[arg(long, value_name = "PIN", default_value = "auto")]
    pub(crate) pin: Pin,
    /// Reactor threads that serve the disks, numbered from 0, as in 0,2 [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) reactors: Vec<u32>,
    /// QEMU accelerator: auto, kvm or tcg
    #[arg(long, value_name = "ACCELERATOR", default_value = "auto")]
    pub(crate) accelerator: Accelerator,
    /// Network: user (outbound, and --forward for inbound; unprivileged), tap:INTERFACE, or none
    #[arg(long, value_name = "KIND", default_value = "user")]
    pub(crate) network: NetworkSpec,
    /// MAC address, as in 52:54:00:12:34:56 [default: random]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) mac: Option<Mac>,
    /// Forward a host port to a guest port (user network only), as in 2222:22 or 0.0.0.0:8080:80.
    /// May be repeated
    #[arg(long, value_name = "[ADDRESS:]HOST:GUEST[/udp]")]
    pub(crate) forward: Vec<Forward>,
    /// Template of the cloud-init user data
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) user_data: Option<String>,
    /// Template of the cloud-init network configuration
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) network_data: Option<String>,
    /// Template of the cloud-init meta-data
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) meta_data: Option<String>,
    /// Value of a template placeholder. May be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<TemplateValue>,
    /// Additional argument for QEMU. May be repeated
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) qemu_arg: Vec<String>,
    /// Start the machine
    #[arg(long)]
    pub(crate) start: bool,
    /// Print libvirt domain XML for the machine
    #[arg(long, conflicts_with_all = ["json", "start"])]
    pub(crate) libvirt: bool,
}

/// A disk argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskSpec {
    pub(crate) volume: VolumeName,
    /// Size of a new volume; none for an existing one.
    pub(crate) size: Option<Size>,
    pub(crate) read_only: bool,
}

impl FromStr for DiskSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, suffix) = match text.split_once(':') {
            Some((name, suffix)) => (name, Some(suffix)),
            None => (text, None),
        };
        let volume = name.parse().map_err(|error: api::NameError| error.to_string())?;
        let (size, read_only) = match suffix {
            None => (None, false),
            Some("ro") => (None, true),
            Some(size) => (Some(size.parse().map_err(|error: api::SizeError| error.to_string())?), false),
        };
        Ok(Self { volume, size, read_only })
    }
}

/// A network argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NetworkSpec {
    None,
    User,
    Tap(String),
}

impl FromStr for NetworkSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "none" => Ok(Self::None),
            None if text == "user" => Ok(Self::User),
            Some(("tap", interface)) if !interface.is_empty() => Ok(Self::Tap(interface.to_owned())),
            _ => Err(format!("unknown network '{text}': give user, none or tap:INTERFACE")),
        }
    }
}

impl NetworkSpec {
    /// Returns the network of a machine with this MAC address.
    ///
    /// # Errors
    /// If ports are forwarded on a network other than `user`.
    pub(crate) fn network(&self, mac: Mac, forwards: Vec<Forward>) -> Result<Network, String> {
        match self {
            Self::User => Ok(Network::User { mac, forwards }),
            _ if !forwards.is_empty() => Err("--forward requires --network user".into()),
            Self::None => Ok(Network::None),
            Self::Tap(interface) => Ok(Network::Tap { mac, interface: interface.clone() }),
        }
    }
}

/// The value of a template placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateValue {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl FromStr for TemplateValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                Ok(Self { name: name.to_owned(), value: value.to_owned() })
            }
            _ => Err("not of the form NAME=VALUE".into()),
        }
    }
}
