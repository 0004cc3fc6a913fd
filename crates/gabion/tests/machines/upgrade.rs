//! An upgrade of the package under a running machine: the program is replaced as dpkg does, and the
//! daemon is restarted as `systemctl try-restart` does with the unit, while the guest writes and
//! verifies. This process stands for dpkg and systemd.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::guest::{Guest, KERNEL_OPTIONS};
use super::harness::{Daemon, DaemonHome, command, run};
use super::initramfs::System;

/// Stops the machine if the test fails: it is not a child process.
struct StopMachine<'a>(&'a DaemonHome);

impl Drop for StopMachine<'_> {
    fn drop(&mut self) {
        let mut stop = command(&["vm", "stop", "web", "--force"]);
        stop.env("GABION_STATE_DIR", self.0.path("state")).env("GABION_SOCKET", self.0.socket());
        run(&mut stop);
    }
}

/// Replaces the installed program: a new file beside it, renamed over it, as dpkg does. The old
/// file stays in use until its daemon ends.
fn install(home: &DaemonHome, strip: &str) -> PathBuf {
    let (installed, new) = (home.path("gabion"), home.path("gabion.dpkg-new"));
    let mut command = Command::new("strip");
    command.arg(strip).arg("-o").arg(&new).arg(env!("CARGO_BIN_EXE_gabion"));
    assert!(command.status().unwrap().success());
    std::fs::rename(&new, &installed).unwrap();
    installed
}

/// Starts the installed daemon and waits until it is ready, as the unit does.
fn start<'a>(home: &'a DaemonHome, installed: &Path) -> Daemon<'a> {
    let tested = home.serve(&["--threads", "1"]);
    let mut serve = Command::new(installed);
    serve.args(tested.get_args());
    for (name, value) in tested.get_envs() {
        match value {
            Some(value) => serve.env(name, value),
            None => serve.env_remove(name),
        };
    }
    let daemon = home.start_by(serve);
    let running = std::fs::metadata(format!("/proc/{}/exe", daemon.pid())).unwrap();
    assert_eq!(running.ino(), std::fs::metadata(installed).unwrap().ino(), "it runs the installed file");
    daemon
}

/// Returns the blocks written by users.
fn written(daemon: &Daemon) -> u64 {
    daemon.pool("fast")["counters"]["user_blocks"].as_u64().unwrap()
}

/// Returns the arguments of a verified fio load.
fn fio(more: &str) -> String {
    format!(
        "fio --name=load --filename=/mnt/load --size=24m --bs=4k --direct=1 --ioengine=libaio --iodepth=16 \
         --verify=crc32c --verify_fatal=1 --thread --output-format=terse --output=/tmp/fio {more} \
         || {{ cat /tmp/fio; false; }}"
    )
}

#[test]
fn a_machine_writes_without_errors_while_the_daemon_is_upgraded() {
    if !test_support::has_program("strip") {
        return;
    }
    let Some(system) = System::make() else { return };
    let home = DaemonHome::new();
    let mut daemon = start(&home, &install(&home, "--strip-debug"));
    let machine = StopMachine(&home);
    let drives = home.arg("drives");
    let files = ["--files", &drives, "--file-size", "256M", "--count", "3"];
    daemon.ok(&[&["pool", "create", "fast", "--scheme", "2+1"][..], &files].concat());
    let (kernel, initramfs) = (system.kernel.to_str().unwrap(), system.initramfs.to_str().unwrap());
    let mut create = vec!["vm", "create", "web", "--kernel", kernel, "--initramfs", initramfs];
    create.extend(["--append", KERNEL_OPTIONS]);
    create.extend(["--disk", "fast/data:128M", "--cpus", "1", "--memory", "512M", "--accelerator", "tcg"]);
    create.extend(["--network", "none", "--start"]);
    daemon.ok(&create);
    let qemu = daemon.json(&["vm", "list"])[0]["running"]["pid"].clone();
    let mut guest = Guest::attach(&home, "web");
    guest.run("mkfs.ext4 -q /dev/vda && mount /dev/vda /mnt");

    // Two upgrades during one load. Each file differs from the one before.
    let before = written(&daemon);
    guest.begin(&fio("--rw=randwrite --rate=3m"));
    guest.until("the load is under way", || written(&daemon) > before + 500);
    for strip in ["--strip-all", "--strip-debug"] {
        let installed = install(&home, strip);
        // The daemon ends with success and without an error in its log.
        daemon.stop();
        daemon = start(&home, &installed);
        let after = written(&daemon);
        guest.until("the guest continues with the new daemon", || written(&daemon) > after + 500);
    }
    guest.end();

    // The guest saw no error, and everything that it wrote is there.
    guest.run("echo 3 > /proc/sys/vm/drop_caches; umount /mnt && mount /dev/vda /mnt");
    guest.run(&fio("--rw=read --verify_only=1"));
    let errors = guest.run("dmesg | grep -ciE 'i/o error|buffer i/o|ext4-fs error|reset' || true");
    assert_eq!(errors.trim(), "0");
    assert_eq!(daemon.json(&["vm", "list"])[0]["running"]["pid"], qemu, "the machine was not restarted");
    drop(guest);
    daemon.ok(&["vm", "stop", "web", "--timeout", "60"]);
    drop(machine);
    daemon.stop();
}
