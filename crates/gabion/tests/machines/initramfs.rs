//! An initramfs for guests: busybox, kernel modules, fio and mkfs with their libraries.
//!
//! `./run setup` installs the kernel and busybox; the rest is from the host.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::turn::Turn;

/// Kernel modules that the guest loads at boot.
const MODULES: [&str; 9] =
    ["virtio_pci", "virtio_blk", "button", "evdev", "vfat", "nls_cp437", "nls_ascii", "ublk_drv", "sd_mod"];
/// Kernel modules that tests load.
const LATER: [&str; 4] = ["scsi_debug", "nvme_tcp", "nbd", "loop"];
/// Programs of the host that are copied into the guest.
const PROGRAMS: [&str; 4] = ["blkid", "fio", "mkfs.ext4", "resize2fs"];

const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
# Only what the tests ask for appears on the console from here on.
echo 2 > /proc/sys/kernel/printk
for module in $(cat /modules/order); do insmod /modules/$module.ko; done
# The power button: what must not be lost is written, and off.
mkdir -p /etc/acpi/PWRF
printf '#!/bin/sh\numount /mnt\npoweroff -f\n' > /etc/acpi/PWRF/00000080
chmod +x /etc/acpi/PWRF/00000080
acpid -l /dev/null -p /acpid.pid
# Not at the terminal itself: a shell there edits lines and prompts.
exec < /dev/ttyS0 > /dev/ttyS0 2>&1
stty -echo -onlcr
echo 'the guest is ready'
while true; do cat | sh; done
"#;

/// Kernel and initramfs of guests.
pub(crate) struct System {
    pub(crate) kernel: PathBuf,
    pub(crate) initramfs: PathBuf,
    /// Modules in the initramfs.
    modules: Vec<String>,
    _home: tempfile::TempDir,
    _turn: Turn,
}

impl System {
    /// Waits for a turn and creates the initramfs; returns `None` if tests that need it are
    /// skipped.
    pub(crate) fn make() -> Option<Self> {
        Self::make_with(&[])
    }

    /// Creates the initramfs with additional programs of the host.
    pub(crate) fn make_with(programs: &[&Path]) -> Option<Self> {
        if !test_support::has_programs(&PROGRAMS) {
            return None;
        }
        let guest = test_support::guest_kernel(env!("CARGO_BIN_EXE_gabion"))?;
        let turn = Turn::wait();
        let kernel = one(&guest.join("boot"), "vmlinuz-");
        let home = tempfile::tempdir().unwrap();
        let initramfs = home.path().join("initramfs");
        let mut archive = Archive(std::io::BufWriter::new(std::fs::File::create(&initramfs).unwrap()));
        let modules = fill(&mut archive, &guest, programs);
        archive.end();
        Some(Self { kernel, initramfs, modules, _home: home, _turn: turn })
    }

    /// Returns true if the guest has this module.
    pub(crate) fn has(&self, module: &str) -> bool {
        self.modules.iter().any(|name| name == module)
    }
}

/// Returns the only entry of a directory with this prefix.
fn one(directory: &Path, prefix: &str) -> PathBuf {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        names.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix)).collect();
    found.sort();
    found.pop().unwrap_or_else(|| panic!("{}: no {prefix}", directory.display()))
}

fn fill(archive: &mut Archive, guest: &Path, programs: &[&Path]) -> Vec<String> {
    for directory in ["bin", "dev", "proc", "sys", "etc", "mnt", "tmp", "seed", "run", "modules"] {
        archive.directory(Path::new(directory));
    }
    archive.file(Path::new("init"), INIT.as_bytes());
    archive.file(Path::new("bin/busybox"), &std::fs::read(guest.join("bin/busybox")).unwrap());
    let mut order = Vec::new();
    let all = find(&one(&guest.join("lib/modules"), "").join("kernel"));
    for name in MODULES {
        module(archive, &all, name, &mut order);
    }
    LATER.iter().for_each(|name| module(archive, &all, name, &mut order));
    let at_start = order.iter().map(String::as_str).filter(|name| !LATER.contains(name));
    archive.file(Path::new("modules/order"), at_start.collect::<Vec<_>>().join(" ").as_bytes());
    let mut files = BTreeSet::new();
    for program in PROGRAMS {
        files.extend(libraries(&test_support::find_program(program).unwrap()));
    }
    let mut made = BTreeSet::new();
    for program in programs {
        let inside = Path::new("bin").join(program.file_name().unwrap());
        archive.file(&inside, &std::fs::read(program).unwrap());
        files.extend(libraries(program).into_iter().skip(1));
    }
    for file in files {
        let inside = file.strip_prefix("/").unwrap();
        let above: Vec<_> = inside.ancestors().skip(1).filter(|path| *path != Path::new("")).collect();
        for directory in above.into_iter().rev().filter(|path| *path != Path::new("bin")) {
            if made.insert(directory.to_owned()) {
                archive.directory(directory);
            }
        }
        archive.file(inside, &std::fs::read(&file).unwrap());
    }
    order
}

/// Returns a program and its shared libraries.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    std::iter::once(program.to_owned()).chain(words.map(PathBuf::from)).collect()
}

fn find(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(find(&path)) } else { found.push(path) }
    }
    found
}

/// Adds a module after its dependencies. A built-in module has no file.
fn module(archive: &mut Archive, all: &[PathBuf], name: &str, order: &mut Vec<String>) {
    let file = all.iter().find(|path| {
        let stem = path.file_name().unwrap().to_str().unwrap().strip_suffix(".ko");
        stem.is_some_and(|stem| stem.replace('-', "_") == name)
    });
    let Some(file) = file.filter(|_| !order.contains(&name.to_owned())) else { return };
    let bytes = std::fs::read(file).unwrap();
    let mark = b"\0depends=";
    let at = bytes.windows(mark.len()).position(|window| window == mark).unwrap() + mark.len();
    let depends = String::from_utf8(bytes[at..].split(|byte| *byte == 0).next().unwrap().to_vec()).unwrap();
    for other in depends.split(',').filter(|other| !other.is_empty()) {
        module(archive, all, &other.replace('-', "_"), order);
    }
    archive.file(&Path::new("modules").join(format!("{name}.ko")), &bytes);
    order.push(name.to_owned());
}

/// An archive in the format of the kernel (cpio, "newc").
struct Archive(std::io::BufWriter<std::fs::File>);

impl Archive {
    fn directory(&mut self, path: &Path) {
        self.add(path.to_str().unwrap(), 0o040_755, &[]);
    }

    fn file(&mut self, path: &Path, bytes: &[u8]) {
        self.add(path.to_str().unwrap(), 0o100_755, bytes);
    }

    fn end(mut self) {
        self.add("TRAILER!!!", 0, &[]);
        self.0.flush().unwrap();
    }

    fn add(&mut self, path: &str, mode: u32, bytes: &[u8]) {
        // Inode, mode, owner, group, links, time, size, four device numbers, length of the name, no
        // checksum.
        let fields = [0, mode, 0, 0, 1, 0, bytes.len() as u32, 0, 0, 0, 0, path.len() as u32 + 1, 0];
        let fields: String = fields.iter().map(|field| format!("{field:08X}")).collect();
        let header = format!("070701{fields}{path}\0");
        self.padded(header.as_bytes());
        self.padded(bytes);
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
        self.0.write_all(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()]).unwrap();
    }
}
