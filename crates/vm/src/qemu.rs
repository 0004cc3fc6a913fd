//! The QEMU command line of a machine.
//!
//! Always true: no text of a machine can become a separate argument or option (commas are doubled,
//! as QEMU requires). Pure functions; must not know whether the files exist.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::accelerator::Accelerator;
use crate::machine::{Boot, Forward, Machine, Network, Protocol, VcpuTopology};

/// The program.
pub(crate) const PROGRAM: &str = "qemu-system-x86_64";

/// Paths of a machine's files and sockets while it runs.
#[derive(Clone, Debug)]
pub(crate) struct RuntimePaths {
    /// The vhost-user sockets of its disks, in the order of the disks.
    pub(crate) disks: Vec<PathBuf>,
    /// The QMP socket.
    pub(crate) qmp: PathBuf,
    /// The socket of the serial console.
    pub(crate) console: PathBuf,
    /// The log of the console's output.
    pub(crate) console_log: PathBuf,
    /// The cloud-init seed disk, if any.
    pub(crate) seed: Option<PathBuf>,
}

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// The program.
    pub(crate) program: String,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
}

/// Returns the command line of a machine, which starts with paused vCPUs.
pub(crate) fn command(
    machine: &Machine,
    paths: &RuntimePaths,
    accelerator: Accelerator,
    node: Option<u32>,
) -> Command {
    let mut args = ArgBuilder::default();
    args.option("-name", format!("guest={},debug-threads=on", machine.name));
    args.option("-uuid", machine.uuid.clone());
    args.flag("-S");
    args.flag("-nodefaults");
    args.flag("-no-user-config");
    args.option("-display", "none");
    args.option("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    args.option("-machine", format!("q35,accel={},memory-backend=memory", accelerator.name()));
    args.option("-cpu", if accelerator == Accelerator::Kvm { "host" } else { "max" });
    args.option("-smp", processors(machine.cpus, accelerator));
    memory(&mut args, machine, node);
    args.option("-rtc", "base=utc");
    socket(&mut args, "qmp", &paths.qmp, None);
    args.option("-mon", "chardev=qmp,mode=control");
    socket(&mut args, "console", &paths.console, Some(&paths.console_log));
    args.option("-serial", "chardev:console");
    disks(&mut args, machine, paths);
    network(&mut args, &machine.network);
    args.option("-device", "virtio-rng-pci");
    if let Boot::Kernel { kernel, initramfs, append } = &machine.boot {
        args.option("-kernel", kernel.as_os_str());
        if let Some(initramfs) = initramfs {
            args.option("-initrd", initramfs.as_os_str());
        }
        args.option("-append", append.clone());
    }
    args.0.extend(machine.qemu.iter().map(OsString::from));
    Command { program: PROGRAM.into(), arguments: args.0 }
}

fn memory(args: &mut ArgBuilder, machine: &Machine, node: Option<u32>) {
    let mebibytes = machine.memory.bytes >> 20;
    args.option("-m", format!("{mebibytes}M"));
    let huge = machine.memory.pages.huge();
    let huge =
        huge.map(|size| format!(",hugetlb=on,hugetlbsize={}M,prealloc=on", size >> 20)).unwrap_or_default();
    let node = node.map(|node| format!(",host-nodes={node},policy=preferred")).unwrap_or_default();
    args.option("-object", format!("memory-backend-memfd,id=memory,size={mebibytes}M,share=on{huge}{node}"));
}

fn socket(args: &mut ArgBuilder, id: &str, path: &Path, log: Option<&Path>) {
    let mut value = OsString::from(format!("socket,id={id},server=on,wait=off,path="));
    value.push(escaped(path));
    if let Some(log) = log {
        value.push(",logappend=off,logfile=");
        value.push(escaped(log));
    }
    args.option("-chardev", value);
}

fn disks(args: &mut ArgBuilder, machine: &Machine, paths: &RuntimePaths) {
    for (index, path) in paths.disks.iter().enumerate() {
        let mut value = OsString::from(format!("socket,id=disk{index},reconnect=1,path="));
        value.push(escaped(path));
        args.option("-chardev", value);
        let queues = machine.cpus.count().min(64);
        let first = if index == 0 && machine.boot == Boot::Disk { ",bootindex=1" } else { "" };
        args.option(
            "-device",
            format!("vhost-user-blk-pci,id=vd{index},chardev=disk{index},num-queues={queues}{first}"),
        );
    }
    if let Some(seed) = &paths.seed {
        let mut value =
            OsString::from("driver=raw,node-name=seed,read-only=on,file.driver=file,file.filename=");
        value.push(escaped(seed));
        args.option("-blockdev", value);
        args.option("-device", "virtio-blk-pci,id=seed,drive=seed,serial=cidata");
    }
}

fn network(args: &mut ArgBuilder, network: &Network) {
    let forward = |forward: &Forward| {
        let protocol = match forward.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        let address = match forward.address {
            std::net::IpAddr::V4(address) => address.to_string(),
            std::net::IpAddr::V6(address) => format!("[{address}]"),
        };
        format!(",hostfwd={protocol}:{address}:{}-:{}", forward.host, forward.guest)
    };
    let mac = match network {
        Network::None => return,
        Network::User { mac, forwards } => {
            let forwards: String = forwards.iter().map(forward).collect();
            args.option("-netdev", format!("user,id=net0{forwards}"));
            mac
        }
        Network::Tap { mac, interface } => {
            args.option("-netdev", format!("tap,id=net0,ifname={interface},script=no,downscript=no"));
            mac
        }
    };
    // Without the option ROM for network boot, which takes seconds and is not needed.
    args.option("-device", format!("virtio-net-pci,netdev=net0,mac={mac},romfile="));
}

/// Returns the processors of a machine as a value of `-smp`. TCG leaves out memory barriers if a
/// machine can never have a second processor, although vhost-user servers access its queues: it
/// would miss interrupts and wait forever. A single processor therefore has a free socket beside
/// it.
fn processors(vcpus: VcpuTopology, accelerator: Accelerator) -> String {
    let VcpuTopology { sockets, cores, threads } = vcpus;
    match (accelerator, vcpus.count()) {
        (Accelerator::Tcg, 1) => "1,sockets=2,cores=1,threads=1,maxcpus=2".into(),
        (_, count) => format!("{count},sockets={sockets},cores={cores},threads={threads}"),
    }
}

#[derive(Default)]
struct ArgBuilder(Vec<OsString>);

impl ArgBuilder {
    fn flag(&mut self, flag: &str) {
        self.0.push(flag.into());
    }

    fn option(&mut self, option: &str, value: impl Into<OsString>) {
        self.flag(option);
        self.0.push(value.into());
    }
}

/// Escapes a path within a list of options.
fn escaped(path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut bytes = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        bytes.push(*byte);
        if *byte == b',' {
            bytes.push(b',');
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Memory, Pages};
    use crate::testing::machine;

    fn paths() -> RuntimePaths {
        let at = |name: &str| PathBuf::from(format!("/run/a,b/{name}"));
        RuntimePaths {
            disks: vec![at("one.sock"), at("two.sock")],
            qmp: at("qmp"),
            console: at("console"),
            console_log: at("log"),
            seed: Some(at("seed")),
        }
    }

    /// Returns the values of an option.
    fn values(command: &Command, option: &str) -> Vec<String> {
        let pairs = command.arguments.windows(2).filter(|pair| pair[0] == option);
        pairs.map(|pair| pair[1].to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_single_emulated_processor_has_room_for_another() {
        let one = VcpuTopology::from_cores(1);
        assert_eq!(processors(one, Accelerator::Tcg), "1,sockets=2,cores=1,threads=1,maxcpus=2");
        assert_eq!(processors(one, Accelerator::Kvm), "1,sockets=1,cores=1,threads=1");
        let two = VcpuTopology::from_cores(2);
        assert_eq!(processors(two, Accelerator::Tcg), "2,sockets=1,cores=2,threads=1");
    }

    #[test]
    fn disks_are_sockets_and_memory_is_shared() {
        let command = command(&machine(), &paths(), Accelerator::Tcg, None);
        assert_eq!(values(&command, "-object"), ["memory-backend-memfd,id=memory,size=2048M,share=on"]);
        assert_eq!(values(&command, "-smp"), ["4,sockets=1,cores=4,threads=1"]);
        assert!(
            values(&command, "-chardev")
                .contains(&"socket,id=disk1,reconnect=1,path=/run/a,,b/two.sock".into())
        );
        let devices = values(&command, "-device");
        assert!(devices.contains(&"vhost-user-blk-pci,id=vd0,chardev=disk0,num-queues=4,bootindex=1".into()));
        assert!(devices.contains(&"vhost-user-blk-pci,id=vd1,chardev=disk1,num-queues=4".into()));
        assert!(devices.contains(&"virtio-net-pci,netdev=net0,mac=52:54:00:01:02:03,romfile=".into()));
        assert_eq!(values(&command, "-netdev"), ["user,id=net0,hostfwd=tcp:127.0.0.1:2222-:22"]);
        assert!(values(&command, "-blockdev")[0].ends_with("file.filename=/run/a,,b/seed"));
        assert_eq!(values(&command, "-kernel"), [""; 0]);
    }

    #[test]
    fn huge_pages_node_kernel_and_tap_are_passed() {
        let mut machine = machine();
        machine.memory = Memory { bytes: 4 << 30, pages: Pages::Huge1G };
        machine.boot =
            Boot::Kernel { kernel: "/k".into(), initramfs: Some("/i".into()), append: "a b,c".into() };
        machine.network = Network::Tap { mac: machine.network.mac().unwrap(), interface: "tap0".into() };
        machine.cpus = "2x4x2".parse().unwrap();
        machine.qemu = vec!["-device".into(), "usb-ehci".into()];
        let command = command(&machine, &RuntimePaths { seed: None, ..paths() }, Accelerator::Kvm, Some(1));
        assert_eq!(
            values(&command, "-object"),
            ["memory-backend-memfd,id=memory,size=4096M,share=on,hugetlb=on,hugetlbsize=1024M,prealloc=on,\
              host-nodes=1,policy=preferred"]
        );
        assert_eq!(values(&command, "-netdev"), ["tap,id=net0,ifname=tap0,script=no,downscript=no"]);
        assert_eq!(
            (values(&command, "-cpu"), values(&command, "-append")),
            (vec!["host".into()], vec!["a b,c".into()])
        );
        assert!(values(&command, "-device").iter().all(|device| !device.contains("bootindex")));
        assert_eq!(values(&command, "-blockdev"), [""; 0]);
        assert_eq!(command.arguments.last().unwrap(), "usb-ehci");
    }
}
