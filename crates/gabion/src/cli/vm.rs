//! The words of `gabion vm`.

use std::path::PathBuf;
use std::str::FromStr;

use api::Size;
use clap::{ArgGroup, Args, Subcommand};
use vm::{Accelerator, Forward, Mac, Network, Pages, Pin, TemplateKind, VcpuTopology};

use api::VolumeName;

/// Run virtual machines whose disks are volumes
///
/// QEMU runs them, with KVM where this user can use it and with its translator elsewhere. Their disks are exported by
/// vhost-user, their memory is shared with the daemon, and they go on when the daemon is restarted. What a machine is made
/// of is kept in the daemon's state directory, for the user who made it.
#[derive(Subcommand, Debug)]
pub(crate) enum VmCommand {
    Create(Box<CreateVmArgs>),
    /// Start a machine
    ///
    /// Exports of its disks that are missing are made. Its processors are put beside the cores that the daemon's reactors
    /// stay on; 'gabion vm show' says where and why.
    #[command(after_long_help = "\
Examples:
  gabion vm start web
  gabion vm start web --pin 2-5")]
    Start {
        /// The machine
        name: String,
        /// This time, run its processors there: auto, none, or processors as in 2-5
        #[arg(long, value_name = "WHERE")]
        pin: Option<Pin>,
    },
    /// Stop a machine
    ///
    /// Its power button is pressed, and its system is waited for. What it has not written is in its memory: --force loses
    /// it, as a power cut does.
    #[command(after_long_help = "\
Examples:
  gabion vm stop web
  gabion vm stop web --force")]
    Stop {
        /// The machine
        name: String,
        /// End it at once, as a power cut does
        #[arg(long)]
        force: bool,
        /// How many seconds its system may take to end
        #[arg(long, value_name = "SECONDS", default_value_t = 60, conflicts_with = "force")]
        timeout: u64,
    },
    /// List machines
    List,
    /// Show a machine: what it is made of, whether and where it runs
    #[command(after_long_help = "\
Examples:
  gabion vm show web
  gabion vm show web --libvirt > web.xml && virsh define web.xml")]
    Show {
        /// The machine
        name: String,
        /// Print it as libvirt's domain XML instead
        #[arg(long, conflicts_with = "json")]
        libvirt: bool,
    },
    /// Use a machine's serial console
    ///
    /// Ctrl-] leaves it, and the machine goes on. One at a time uses it. Whatever the machine prints is kept as well, from
    /// its start on.
    #[command(after_long_help = "\
Examples:
  gabion vm console web
  gabion vm console web --log | less")]
    Console {
        /// The machine
        name: String,
        /// Print what it has said since its start, and no more
        #[arg(long)]
        log: bool,
    },
    /// Delete a machine. Its volumes stay, unless it is said that they go
    #[command(after_long_help = "\
Examples:
  gabion vm delete web
  gabion vm delete web --volumes --yes")]
    Delete {
        /// The machine
        name: String,
        /// Delete the volumes too that were made for it: all that is in them is lost
        #[arg(long)]
        volumes: bool,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Show this host's processors: what they share, and who runs where
    Topology,
    #[command(subcommand)]
    Template(TemplateCommand),
}

/// Keep templates for cloud-init, by name
///
/// A place that is to be filled in is written ${name}, and given with 'gabion vm create --set name=value'. ${vm.name},
/// ${vm.uuid} and ${vm.mac} are known of every machine.
#[derive(Subcommand, Debug)]
pub(crate) enum TemplateCommand {
    /// Keep a file as a template, in place of the one that has the name
    #[command(after_long_help = "\
Examples:
  gabion vm template set user-data ops ./ops.yaml
  gabion vm create web --boot fast/web --image debian-12.qcow2 --user-data ops --network-data dhcp")]
    Set {
        /// What it is for: user-data, network-data or meta-data
        kind: TemplateKind,
        /// Its name
        name: String,
        /// The file
        file: PathBuf,
    },
    /// List templates, and what each wants to be told
    List,
    /// Print a template
    Show {
        /// What it is for: user-data, network-data or meta-data
        kind: TemplateKind,
        /// Its name
        name: String,
    },
    /// Delete a template
    Delete {
        /// What it is for: user-data, network-data or meta-data
        kind: TemplateKind,
        /// Its name
        name: String,
    },
}

/// Make a machine, with its volumes and their exports
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("start-from").required(true).multiple(true).args(["boot", "kernel"])),
    after_long_help = "\
Examples:
  # From a cloud image, which is copied into a new volume; a user and a network by cloud-init
  gabion vm create web --boot fast/web --image debian-12-generic.qcow2 --size 20G --cpus 4 --memory 4G \\
      --user-data ssh-key --set user=ada --set key=\"$(cat ~/.ssh/id_ed25519.pub)\" --network-data dhcp \\
      --forward 2222:22 --start
  ssh -p 2222 ada@localhost

  # From a kernel, with a new disk and one that is there already
  gabion vm create lab --kernel vmlinuz --initramfs initrd.img --append 'console=ttyS0' \\
      --disk fast/scratch:100G --disk fast/data

  # As a domain for libvirt
  gabion vm create db --boot fast/db --image db.qcow2 --libvirt > db.xml && virsh define db.xml"
)]
pub(crate) struct CreateVmArgs {
    /// Its name, which is its host name too: small letters, digits and '-'
    pub(crate) name: String,
    /// The volume to start from: one that is there, or a new one with --image or --size
    #[arg(long, value_name = "POOL/VOLUME")]
    pub(crate) boot: Option<VolumeName>,
    /// Copy this disk image (qcow2, raw, vhdx or vdi) into a new volume to start from
    #[arg(long, value_name = "FILE", requires = "boot")]
    pub(crate) image: Option<PathBuf>,
    /// Size of the new volume to start from. Without it, that of the image
    #[arg(long, value_name = "SIZE", requires = "boot")]
    pub(crate) size: Option<Size>,
    /// A kernel to start instead of what the first disk has
    #[arg(long, value_name = "FILE")]
    pub(crate) kernel: Option<PathBuf>,
    /// The kernel's first file system
    #[arg(long, value_name = "FILE", requires = "kernel")]
    pub(crate) initramfs: Option<PathBuf>,
    /// The kernel's command line
    #[arg(long, value_name = "TEXT", requires = "kernel", default_value = "console=ttyS0")]
    pub(crate) append: String,
    /// One more disk: a volume that is there, a new one with :SIZE, or one that the machine cannot write to with :ro. May
    /// be repeated
    #[arg(long, value_name = "POOL/VOLUME[:SIZE|:ro]")]
    pub(crate) disk: Vec<DiskWords>,
    /// Processors: a number of cores, or SOCKETSxCORESxTHREADS as in 1x4x2
    #[arg(long, value_name = "N", default_value = "2")]
    pub(crate) cpus: VcpuTopology,
    /// Memory
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    pub(crate) memory: Size,
    /// Take the memory from the system's reserve of huge pages: 2M or 1G
    #[arg(long, value_name = "2M|1G")]
    pub(crate) hugepages: Option<Pages>,
    /// Where its processors run: auto (beside the cores of the daemon's reactors, if those stay on theirs), none, or
    /// processors of this host as in 2-5. 'gabion vm topology' shows them
    #[arg(long, value_name = "WHERE", default_value = "auto")]
    pub(crate) pin: Pin,
    /// Reactor threads that carry its disks out, numbered from 0, as in '0,2'. Without it all
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) reactors: Vec<u32>,
    /// By what it runs: auto, kvm or tcg
    #[arg(long, value_name = "WHAT", default_value = "auto")]
    pub(crate) accelerator: Accelerator,
    /// Its network: user (outward, and inward what is forwarded; needs no privilege), tap:INTERFACE, or none
    #[arg(long, value_name = "KIND", default_value = "user")]
    pub(crate) network: NetworkWords,
    /// Its address on the network, as in 52:54:00:12:34:56. Without it one is drawn
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) mac: Option<Mac>,
    /// With the user network: a port of this host that leads into the machine, as in 2222:22 or 0.0.0.0:8080:80. May be
    /// repeated
    #[arg(long, value_name = "[ADDRESS:]PORT:PORT[/udp]")]
    pub(crate) forward: Vec<Forward>,
    /// Template of cloud-init's user data
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) user_data: Option<String>,
    /// Template of cloud-init's network data
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) network_data: Option<String>,
    /// Template of cloud-init's meta data
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) meta_data: Option<String>,
    /// What fills the templates in. May be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// One more argument for QEMU, as it is. May be repeated
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) qemu_arg: Vec<String>,
    /// Start it
    #[arg(long)]
    pub(crate) start: bool,
    /// Print libvirt's domain XML for it
    #[arg(long, conflicts_with_all = ["json", "start"])]
    pub(crate) libvirt: bool,
}

/// A disk as it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskWords {
    pub(crate) volume: VolumeName,
    /// The size of a new volume.
    pub(crate) size: Option<Size>,
    pub(crate) read_only: bool,
}

impl FromStr for DiskWords {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, more) = text.split_once(':').map_or((text, None), |(name, more)| (name, Some(more)));
        let volume = name.parse().map_err(|error: api::NameError| error.to_string())?;
        let (size, read_only) = match more {
            None => (None, false),
            Some("ro") => (None, true),
            Some(size) => (Some(size.parse().map_err(|error: api::SizeError| error.to_string())?), false),
        };
        Ok(Self { volume, size, read_only })
    }
}

/// A network as it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NetworkWords {
    None,
    User,
    Tap(String),
}

impl FromStr for NetworkWords {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "none" => Ok(Self::None),
            None if text == "user" => Ok(Self::User),
            Some(("tap", interface)) if !interface.is_empty() => Ok(Self::Tap(interface.to_owned())),
            _ => Err(format!("there is no network '{text}': user, none or tap:INTERFACE")),
        }
    }
}

impl NetworkWords {
    /// The network, for a machine of this address.
    pub(crate) fn network(&self, mac: Mac, forwards: Vec<Forward>) -> Result<Network, String> {
        match self {
            Self::User => Ok(Network::User { mac, forwards }),
            _ if !forwards.is_empty() => Err("only the user network forwards ports".into()),
            Self::None => Ok(Network::None),
            Self::Tap(interface) => Ok(Network::Tap { mac, interface: interface.clone() }),
        }
    }
}

/// A name and a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                Ok(Self { name: name.to_owned(), value: value.to_owned() })
            }
            _ => Err("write NAME=VALUE".into()),
        }
    }
}
