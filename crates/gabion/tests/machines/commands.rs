//! Refused commands, and the output for users and libvirt.

use std::process::Command;

use serde_json::json;

use super::harness::{DaemonHome, command, run};

#[test]
fn refused_machines_leave_nothing() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let image = home.file("disk.raw", 3 << 20);
    let backed = home.arg("part.qcow2");
    let create = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", image.as_str(), backed.as_str()];
    let has_images = Command::new("qemu-img").args(create).status().is_ok_and(|status| status.success());
    let mut refused = vec![
        (vec!["Web", "--boot", "fast/vm01"], "not a valid machine name"),
        (vec!["web", "--boot", "fast/none"], "volume fast/none does not exist"),
        (vec!["web", "--boot", "slow/vm01"], "slow"),
        (vec!["web", "--boot", "fast/vm01", "--size", "1G"], "already"),
        (vec!["web", "--boot", "fast/vm01", "--disk", "fast/vm01"], "is listed twice"),
        (vec!["web", "--boot", "fast/vm01", "--memory", "1M"], "64 MiB"),
        (vec!["web", "--boot", "fast/vm01", "--user-data", "none"], "no user-data template"),
        (vec!["web", "--boot", "fast/vm01", "--user-data", "ssh-key"], "needs a value for"),
        // The second step fails, so the first must be rolled back.
        (vec!["web", "--boot", "fast/new", "--size", "1G", "--reactors", "9"], "no reactor 9"),
    ];
    if has_images {
        refused.push((vec!["web", "--boot", "fast/new", "--image", &backed], "depends on another file"));
        refused.push((
            vec!["web", "--boot", "fast/new", "--image", &image, "--size", "1M"],
            "is smaller than the disk",
        ));
        refused.push((vec!["web", "--boot", "fast/new", "--image", "/nowhere"], "No such file"));
    }
    for (arguments, expected) in refused {
        let refusal = daemon.refused(&[&["vm", "create"], arguments.as_slice()].concat());
        assert!(refusal.contains(expected), "{arguments:?}: {refusal}");
    }
    for invalid in [
        &["web"][..],
        &["web", "--boot", "vm01"],
        &["web", "--boot", "fast/vm01", "--cpus", "0"],
        &["web", "--boot", "fast/vm01", "--pin", "a"],
        &["web", "--boot", "fast/vm01", "--network", "token-ring"],
        &["web", "--boot", "fast/vm01", "--forward", "22"],
        &["web", "--boot", "fast/vm01", "--network", "none", "--forward", "2222:22"],
        &["web", "--boot", "fast/vm01", "--mac", "01:00:00:00:00:00"],
        &["web", "--image", "x"],
        &["web", "--initramfs", "x"],
    ] {
        let ran = home.gabion(&[&["vm", "create"], invalid].concat());
        assert_eq!(ran.code, Some(2), "{invalid:?}: {ran:?}");
    }
    assert_eq!(daemon.json(&["vm", "list"]), json!([]));
    assert_eq!(daemon.json(&["export", "list"]), json!([]));
    assert_eq!(daemon.json(&["volume", "list"]).as_array().unwrap().len(), 1);
    assert!(!home.path("state/machines/web").exists());
    daemon.stop();
}

#[test]
fn a_machine_with_a_busy_or_missing_disk_does_not_start() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["vm", "create", "web", "--boot", "fast/vm01"]);
    let refusal = daemon.refused(&["vm", "create", "web", "--boot", "fast/vm01"]);
    assert!(refusal.contains("already"), "{refusal}");
    let refusal = daemon.refused(&["vm", "stop", "db"]);
    assert!(refusal.contains("no machine 'db'"), "{refusal}");
    let front = std::os::unix::net::UnixStream::connect(home.path("vhost/fast/vm01.sock")).unwrap();
    super::harness::until("it is connected", || daemon.json(&["export", "list"])[0]["connections"] == 1);
    let refusal = daemon.refused(&["vm", "start", "web"]);
    assert!(refusal.contains("another machine"), "{refusal}");
    drop(front);
    daemon.ok(&["export", "delete", "fast/vm01"]);
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let refusal = daemon.refused(&["vm", "start", "web"]);
    assert!(refusal.contains("over nbd"), "{refusal}");
    daemon.ok(&["export", "delete", "fast/vm01"]);
    daemon.ok(&["volume", "delete", "fast/vm01", "--yes"]);
    let refusal = daemon.refused(&["vm", "start", "web"]);
    assert!(refusal.contains("no volume 'vm01'"), "{refusal}");
    assert_eq!(daemon.json(&["vm", "show", "web"])["state"], "stopped");
    // A machine without its volume can be deleted.
    daemon.ok(&["vm", "delete", "web", "--volumes", "--yes"]);
    daemon.stop();
}

#[test]
fn a_qemu_failure_is_reported_and_leaves_no_process() {
    if !test_support::has_program("qemu-system-x86_64") {
        return;
    }
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&[
        "vm",
        "create",
        "web",
        "--boot",
        "fast/vm01",
        "--qemu-arg=-device",
        "--qemu-arg=no-such-device",
    ]);
    let refusal = daemon.refused(&["vm", "start", "web"]);
    assert!(refusal.contains("no-such-device") && refusal.contains("qemu.log"), "{refusal}");
    assert_eq!(daemon.json(&["vm", "list"])[0]["state"], "stopped");
    daemon.stop();
}

#[test]
fn libvirt_accepts_the_domain_xml() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--cores", "0"]);
    daemon.make_pool();
    let (kernel, initramfs) = (home.file("k&k", 1), home.file("i", 1));
    let plain = [
        "vm",
        "create",
        "web",
        "--boot",
        "fast/vm01",
        "--disk",
        "fast/more:1G",
        "--libvirt",
        "--forward",
        "22:22",
    ];
    let other = [
        "vm",
        "create",
        "lab",
        "--kernel",
        &kernel,
        "--initramfs",
        &initramfs,
        "--append",
        "a<b",
        "--libvirt",
    ];
    let more = [
        "--disk",
        "fast/lab:1G",
        "--network",
        "tap:tap0",
        "--pin",
        "0",
        "--cpus",
        "2x4x2",
        "--hugepages",
        "2M",
    ];
    let seed =
        ["--user-data", "username-setup", "--set", "user=ada", "--set", "password=x", "--accelerator", "kvm"];
    let domains = [daemon.ok(&plain), daemon.ok(&[&other[..], &more, &seed].concat())];
    for (index, domain) in domains.iter().enumerate() {
        let path = home.arg(&format!("domain-{index}.xml"));
        std::fs::write(&path, domain).unwrap();
        // libvirt's schema, and its parser with the test driver.
        for program in ["virt-xml-validate", "virsh"] {
            let mut check = Command::new(program);
            match program {
                "virsh" => check.args(["-q", "-c", "test:///default", "define", "--validate", &path]),
                _ => check.args([&path, "domain"]),
            };
            if test_support::has_program(program) {
                let output = check.output().unwrap();
                assert!(output.status.success(), "{program}: {output:?}\n{domain}");
            }
        }
    }
    let socket = home.path("vhost/fast/vm01.sock");
    assert!(
        domains[0].contains(&format!("<source type='unix' path='{}'>", socket.display())),
        "{}",
        domains[0]
    );
    assert!(
        domains[1].contains("<vcpupin vcpu='15' cpuset='0'/>") && domains[1].contains("k&amp;k"),
        "{}",
        domains[1]
    );
    daemon.ok(&["vm", "show", "web", "--libvirt"]);
    daemon.stop();
}

#[test]
fn machines_templates_and_cpus_are_listed() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--cores", "0"]);
    daemon.make_pool();
    assert!(daemon.ok(&["vm", "list"]).contains("no machines"));
    let forwards = ["--forward", "2222:22", "--forward", "[::1]:53:53/udp"];
    daemon.ok(&[&["vm", "create", "web", "--boot", "fast/vm01"], &forwards[..]].concat());
    let list = daemon.ok(&["vm", "list"]);
    assert!(list.contains("user, 127.0.0.1:2222:22 [::1]:53:53/udp") && list.contains("fast/vm01"), "{list}");
    assert_eq!(daemon.ok(&["vm", "list", "--quiet"]), "web\n");
    let shown = daemon.ok(&["vm", "show", "web"]);
    assert!(shown.contains("machine 'web': stopped") && shown.contains("2, pinned: auto"), "{shown}");
    let host = daemon.ok(&["vm", "topology"]);
    assert!(host.contains("reactor 0"), "{host}");
    assert_eq!(daemon.json(&["vm", "topology"])["cpus"][0]["reactors"], json!([0]));
    let templates = daemon.ok(&["vm", "template", "list"]);
    assert!(templates.contains("username-setup") && templates.contains("password user"), "{templates}");
    let text = daemon.ok(&["vm", "template", "show", "network-data", "dhcp"]);
    assert!(text.contains("dhcp4: true"), "{text}");
    let refusal = daemon.refused(&["vm", "template", "delete", "network-data", "dhcp"]);
    assert!(refusal.contains("is built in"), "{refusal}");
    daemon.stop();
    // Without a daemon.
    let ran = run(command(&["vm", "topology"])
        .env("GABION_SOCKET", home.arg("none"))
        .env("GABION_STATE_DIR", home.path("state")));
    assert!(ran.code == Some(0) && ran.out.contains("No daemon"), "{ran:?}");
}

#[test]
fn help_of_vm_commands_has_usage_and_examples() {
    for path in
        [&["create"][..], &["start"], &["stop"], &["show"], &["console"], &["delete"], &["template", "set"]]
    {
        let ran = run(command(&["vm"]).args(path).arg("--help"));
        assert_eq!(ran.code, Some(0));
        assert!(ran.out.contains("Usage:") && ran.out.contains("Examples:"), "{path:?}: {}", ran.out);
    }
}
