//! The libvirt definition of a machine: a domain in XML, for virsh(1).
//!
//! Pure functions. Features without a libvirt equivalent are omitted and mentioned in a comment.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::accelerator::Accelerator;
use crate::machine::{Boot, Machine, Network};
use crate::placement::Placement;

/// Returns a machine as a domain. `disks` are the sockets of its disks, in order; `seed` is its
/// cloud-init seed disk, and `kvm` is true if KVM is usable on this host.
pub fn domain(
    machine: &Machine,
    disks: &[PathBuf],
    seed: Option<&Path>,
    kvm: bool,
    placement: &Placement,
) -> String {
    let mut xml = String::new();
    // A requested accelerator is kept even if it is not available: the domain may be for another
    // host.
    let kvm = match machine.accelerator {
        Accelerator::Auto => kvm,
        asked => asked == Accelerator::Kvm,
    };
    let kind = if kvm { "kvm" } else { "qemu" };
    let mut line = |depth: usize, text: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(xml, "{:depth$}{text}", "", depth = depth * 2);
    };
    line(0, format!("<domain type='{kind}'>"));
    line(1, format!("<name>{}</name>", escaped(&machine.name)));
    line(1, format!("<uuid>{}</uuid>", escaped(&machine.uuid)));
    line(1, format!("<memory unit='MiB'>{}</memory>", machine.memory.bytes >> 20));
    line(1, "<memoryBacking>".into());
    if let Some(size) = machine.memory.pages.huge() {
        line(2, "<hugepages>".into());
        line(3, format!("<page size='{}' unit='MiB'/>", size >> 20));
        line(2, "</hugepages>".into());
    }
    line(2, "<source type='memfd'/>".into());
    line(2, "<access mode='shared'/>".into());
    line(1, "</memoryBacking>".into());
    line(1, format!("<vcpu placement='static'>{}</vcpu>", machine.cpus.count()));
    if !placement.cpus.is_empty() {
        line(1, "<cputune>".into());
        for (cpu, list) in placement.cpus.iter().enumerate() {
            line(2, format!("<vcpupin vcpu='{cpu}' cpuset='{list}'/>"));
        }
        line(2, format!("<emulatorpin cpuset='{}'/>", placement.rest));
        line(1, "</cputune>".into());
    }
    if let Some(node) = placement.node {
        line(1, format!("<numatune>\n    <memory mode='preferred' nodeset='{node}'/>\n  </numatune>"));
    }
    line(1, "<os>".into());
    line(2, "<type arch='x86_64' machine='q35'>hvm</type>".into());
    match &machine.boot {
        Boot::Disk => line(2, "<boot dev='hd'/>".into()),
        Boot::Kernel { kernel, initramfs, append } => {
            line(2, format!("<kernel>{}</kernel>", path(kernel)));
            if let Some(initramfs) = initramfs {
                line(2, format!("<initrd>{}</initrd>", path(initramfs)));
            }
            line(2, format!("<cmdline>{}</cmdline>", escaped(append)));
        }
    }
    line(1, "</os>".into());
    line(1, "<features>\n    <acpi/>\n    <apic/>\n  </features>".into());
    let mode = if kvm { "host-passthrough" } else { "maximum" };
    line(1, format!("<cpu mode='{mode}'>"));
    let shape = machine.cpus;
    let (sockets, cores, threads) = (shape.sockets, shape.cores, shape.threads);
    line(2, format!("<topology sockets='{sockets}' cores='{cores}' threads='{threads}'/>"));
    line(1, "</cpu>".into());
    line(1, "<clock offset='utc'/>".into());
    line(1, "<devices>".into());
    let queues = machine.cpus.count().min(64);
    for (index, (socket, disk)) in disks.iter().zip(&machine.disks).enumerate() {
        line(2, "<disk type='vhostuser' device='disk'>".into());
        line(3, format!("<driver name='qemu' type='raw' queues='{queues}'/>"));
        line(3, format!("<source type='unix' path='{}'>", path(socket)));
        line(4, "<reconnect enabled='yes' timeout='1'/>".into());
        line(3, "</source>".into());
        line(3, format!("<target dev='{}' bus='virtio'/>", target(index)));
        if disk.read_only {
            line(3, "<!-- read-only: the daemon refuses writes -->".into());
        }
        line(2, "</disk>".into());
    }
    if let Some(seed) = seed {
        line(2, "<disk type='file' device='disk'>".into());
        line(3, "<driver name='qemu' type='raw'/>".into());
        line(3, format!("<source file='{}'/>", path(seed)));
        line(3, format!("<target dev='{}' bus='virtio'/>", target(disks.len())));
        line(3, "<readonly/>".into());
        line(2, "</disk>".into());
    }
    match &machine.network {
        Network::None => {}
        Network::User { mac, forwards } => {
            line(2, "<interface type='user'>".into());
            line(3, format!("<mac address='{mac}'/>"));
            line(3, "<model type='virtio'/>".into());
            line(2, "</interface>".into());
            for forward in forwards {
                line(2, format!("<!-- not supported by this interface type: port forwarding {forward} -->"));
            }
        }
        Network::Tap { mac, interface } => {
            line(2, "<interface type='ethernet'>".into());
            line(3, format!("<mac address='{mac}'/>"));
            line(3, format!("<target dev='{}' managed='no'/>", escaped(interface)));
            line(3, "<model type='virtio'/>".into());
            line(2, "</interface>".into());
        }
    }
    line(2, "<serial type='pty'/>".into());
    line(2, "<console type='pty'/>".into());
    line(2, "<rng model='virtio'>\n      <backend model='random'>/dev/urandom</backend>\n    </rng>".into());
    line(1, "</devices>".into());
    line(0, "</domain>".into());
    xml
}

/// Returns the name of a disk in the guest: vda to vdz, vdaa and so on.
fn target(index: usize) -> String {
    let letter = |index: usize| char::from(b'a' + u8::try_from(index % 26).unwrap_or(0));
    match index / 26 {
        0 => format!("vd{}", letter(index)),
        more => format!("vd{}{}", letter(more - 1), letter(index)),
    }
}

fn path(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}

/// Escapes a text for an XML element or attribute.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&apos;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}
