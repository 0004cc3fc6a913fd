//! A machine with a Gabion disk: file system, verified load, kill of the daemon, drive failure,
//! resize, trim and power button.
//!
//! All in one machine, because its start takes long under emulation.

use std::path::Path;

use serde_json::Value;

use super::guest::{Guest, KERNEL_OPTIONS};
use super::harness::{Daemon, DaemonHome, command, run};
use super::initramfs::System;

/// Stops the machine if the test fails: it is not a child process.
struct StopWebVm<'a>(&'a DaemonHome);

impl Drop for StopWebVm<'_> {
    fn drop(&mut self) {
        let mut stop = command(&["vm", "stop", "web", "--force"]);
        stop.env("GABION_STATE_DIR", self.0.path("state")).env("GABION_SOCKET", self.0.socket());
        run(&mut stop);
    }
}

/// Returns the blocks written by users.
fn written(daemon: &Daemon) -> u64 {
    daemon.pool("fast")["counters"]["user_blocks"].as_u64().unwrap()
}

fn stored(daemon: &Daemon) -> u64 {
    daemon.json(&["volume", "show", "fast/data"])["stored"].as_u64().unwrap()
}

fn start(home: &DaemonHome) -> Daemon<'_> {
    home.start_with(&["--cores", "0"])
}

fn make(daemon: &Daemon, home: &DaemonHome, system: &System) {
    let drives = home.arg("drives");
    let pool = [
        "pool",
        "create",
        "fast",
        "--scheme",
        "4+1",
        "--files",
        &drives,
        "--file-size",
        "256M",
        "--count",
        "5",
    ];
    daemon.ok(&pool);
    let user_data = home.arg("mine.yaml");
    std::fs::write(&user_data, "#cloud-config\nhostname: ${vm.name}\nname: ${user}\n").unwrap();
    daemon.ok(&["vm", "template", "set", "user-data", "mine", &user_data]);
    let (kernel, initramfs) = (system.kernel.to_str().unwrap(), system.initramfs.to_str().unwrap());
    let mut create = vec!["vm", "create", "web", "--kernel", kernel, "--initramfs", initramfs];
    create.extend(["--append", KERNEL_OPTIONS, "--disk", "fast/data:256M"]);
    create.extend(["--cpus", "1x2x1", "--memory", "768M", "--accelerator", "tcg"]);
    create.extend(["--user-data", "mine", "--network-data", "dhcp", "--set", "user=ada"]);
    let made = daemon.json(&create);
    assert_eq!((&made["state"], &made["disks"][0]["made"]), (&"stopped".into(), &true.into()));
}

#[test]
fn a_machine_keeps_running_through_failures_and_changes_of_its_disk() {
    let Some(system) = System::make() else { return };
    let home = DaemonHome::new();
    let daemon = start(&home);
    let machines = StopWebVm(&home);
    make(&daemon, &home, &system);
    let started = daemon.json(&["vm", "start", "web"]);
    assert_eq!(started["state"], "running");
    check_processors(&started);
    let refusal = daemon.refused(&["vm", "start", "web"]);
    assert!(refusal.contains("is already running"), "{refusal}");
    let mut guest = Guest::attach(&home, "web");
    assert_eq!(guest.run("cat /sys/block/vda/serial"), "fast-data");

    cloud_init_receives_the_templates(&mut guest);
    guest.run("mkfs.ext4 -q /dev/vda && mount /dev/vda /mnt");
    guest.run(&fio("first", "--size=16m --rw=randwrite"));
    let daemon = the_daemon_is_killed_under_load(&home, daemon, &mut guest);
    a_drive_fails_under_load(&daemon, &mut guest);
    the_disk_grows(&daemon, &mut guest);
    trim_frees_space(&daemon, &mut guest);

    // A new daemon reads all written data.
    guest.run("echo 3 > /proc/sys/vm/drop_caches; umount /mnt && mount /dev/vda /mnt");
    guest.run(&fio("killed", "--size=32m --rw=read --verify_only=1"));
    drop(guest);
    daemon.ok(&["vm", "stop", "web", "--timeout", "60"]);
    assert_eq!(daemon.json(&["vm", "list"])[0]["state"], "stopped");
    let log = daemon.ok(&["vm", "console", "web", "--log"]);
    assert!(log.contains("the guest is ready"), "{log}");
    let refusal = daemon.refused(&["vm", "console", "web"]);
    assert!(refusal.contains("is not running"), "{refusal}");
    daemon.ok(&["vm", "delete", "web", "--volumes", "--yes"]);
    assert_eq!(daemon.json(&["volume", "list"]), serde_json::json!([]));
    assert_eq!(daemon.json(&["export", "list"]), serde_json::json!([]));
    drop(machines);
}

/// Returns the arguments of a verified fio load.
fn fio(name: &str, more: &str) -> String {
    format!(
        "fio --name={name} --filename=/mnt/{name} --bs=4k --direct=1 --ioengine=libaio --iodepth=16 --verify=crc32c \
         --verify_fatal=1 --thread --output-format=terse --output=/tmp/fio {more} || {{ cat /tmp/fio; false; }}"
    )
}

/// The daemon is pinned to the first CPU, so the machine gets the others, if there are any.
fn check_processors(started: &Value) {
    let (pid, placement) = (&started["running"]["pid"], &started["running"]["placement"]);
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    match placement["cpus"].as_array().unwrap().as_slice() {
        [] => assert!(placement["why"].as_str().unwrap().contains("every CPU runs a reactor"), "{placement}"),
        _ => assert_eq!(allowed, placement["rest"].as_str().unwrap()),
    }
}

fn cloud_init_receives_the_templates(guest: &mut Guest) {
    guest.run("mount -t vfat -o ro /dev/vdb /seed");
    assert!(guest.run("blkid /dev/vdb").contains("LABEL=\"CIDATA\""));
    let user_data = guest.run("cat /seed/user-data");
    assert!(user_data.contains("hostname: web\nname: ada"), "{user_data}");
    let network = guest.run("cat /seed/network-config");
    assert!(network.contains("macaddress: \"52:54:00:"), "{network}");
    assert!(guest.run("cat /seed/meta-data").contains("local-hostname: web"));
}

fn the_daemon_is_killed_under_load<'a>(
    home: &'a DaemonHome,
    daemon: Daemon<'a>,
    guest: &mut Guest,
) -> Daemon<'a> {
    let before = written(&daemon);
    guest.begin(&fio("killed", "--size=32m --rw=randwrite --rate=12m"));
    guest.until("the load is under way", || written(&daemon) > before + 1000);
    daemon.kill();
    let daemon = start(home);
    guest.end();
    daemon
}

fn a_drive_fails_under_load(daemon: &Daemon, guest: &mut Guest) {
    let before = written(daemon);
    guest.begin(&fio("degraded", "--size=16m --rw=randrw --rate=8m"));
    guest.until("the load is under way", || written(daemon) > before + 500);
    daemon.ok(&["drive", "fail", "fast", "2", "--yes"]);
    guest.end();
    // Mirrored segments are rebuilt on the remaining drives.
    super::harness::until("nothing is left to rebuild", || daemon.pool("fast")["health"] == "degraded");
}

fn the_disk_grows(daemon: &Daemon, guest: &mut Guest) {
    daemon.ok(&["volume", "resize", "fast/data", "--size", "512M"]);
    guest.run("until [ $(cat /sys/block/vda/size) = 1048576 ]; do usleep 10000; done");
    guest.run("resize2fs /dev/vda > /tmp/grown 2>&1 || { cat /tmp/grown; false; }");
    let room = guest.run("df -m /mnt | tail -1");
    let mebibytes: u64 = room.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(mebibytes > 400, "{room}");
}

fn trim_frees_space(daemon: &Daemon, guest: &mut Guest) {
    let before = stored(daemon);
    guest.run("rm /mnt/first /mnt/degraded && sync && fstrim /mnt");
    let after = stored(daemon);
    assert!(before - after >= 32 << 20, "{before} {after}");
}
