//! A machine that boots from a volume created from an image.

use std::process::Command;

use super::harness::{DaemonHome, command, run, until};

/// Returns a boot sector that prints a line on the serial port and halts.
fn boot_sector() -> Vec<u8> {
    let mut code = vec![
        0xFA, // cli
        0x31, 0xC0, // xor ax, ax
        0x8E, 0xD8, // mov ds, ax
        0xFC, // cld
        0xBE, 0x20, 0x7C, // mov si, 0x7C20: the text
        0xBA, 0xF8, 0x03, // mov dx, 0x3F8: the serial port
        0xAC, // next: lodsb
        0x84, 0xC0, // test al, al
        0x74, 0x03, // jz end
        0xEE, // out dx, al
        0xEB, 0xF8, // jmp next
        0xF4, // end: hlt
        0xEB, 0xFD, // jmp end
    ];
    code.resize(0x20, 0x90);
    code.extend(b"started from a volume\r\n\0");
    code.resize(510, 0);
    code.extend([0x55, 0xAA]);
    code
}

struct StopImageVm<'a>(&'a DaemonHome);

impl Drop for StopImageVm<'_> {
    fn drop(&mut self) {
        let mut stop = command(&["vm", "stop", "image", "--force"]);
        stop.env("GABION_STATE_DIR", self.0.path("state")).env("GABION_SOCKET", self.0.socket());
        run(&mut stop);
    }
}

#[test]
fn a_machine_boots_from_a_volume_created_from_an_image() {
    if !test_support::has_programs(&["qemu-system-x86_64", "qemu-img"]) {
        return;
    }
    let home = DaemonHome::new();
    let daemon = home.start();
    let _stop_vm = StopImageVm(&home);
    daemon.make_pool();
    let mut disk = boot_sector();
    // More than one sector, to verify the whole copy.
    disk.resize(3 << 20, 0);
    disk[2 << 20..].fill(0xA5);
    let (raw, qcow2) = (home.arg("disk.raw"), home.arg("disk.qcow2"));
    std::fs::write(&raw, &disk).unwrap();
    let made = Command::new("qemu-img")
        .args(["convert", "-f", "raw", "-O", "qcow2", &raw, &qcow2])
        .status()
        .unwrap();
    assert!(made.success());
    let create = [
        "vm",
        "create",
        "image",
        "--boot",
        "fast/image",
        "--image",
        &qcow2,
        "--size",
        "8M",
        "--memory",
        "128M",
    ];
    daemon.ok(&[&create[..], &["--network", "none", "--cpus", "1", "--accelerator", "tcg", "--start"]].concat());
    until("the firmware boots the volume", || {
        daemon.ok(&["vm", "console", "image", "--log"]).contains("started from a volume")
    });
    let refusal = daemon.refused(&["vm", "delete", "image"]);
    assert!(refusal.contains("is running"), "{refusal}");
    // The guest ignores the power button.
    let refusal = daemon.refused(&["vm", "stop", "image", "--timeout", "0"]);
    assert!(refusal.contains("--force"), "{refusal}");
    daemon.ok(&["vm", "stop", "image", "--force"]);
    assert_eq!(daemon.json(&["volume", "show", "fast/image"])["size"], 8 << 20);
    // The volume is kept, and another machine may use it.
    daemon.ok(&["vm", "delete", "image"]);
    assert_eq!(daemon.json(&["export", "list"]), serde_json::json!([]));
    daemon.ok(&["export", "create", "fast/image", "--nbd"]);
    let uri = format!("nbd+unix:///fast/image?socket={}", home.nbd_socket().display());
    let back = home.arg("back.raw");
    let copied =
        Command::new("qemu-img").args(["convert", "-f", "raw", "-O", "raw", &uri, &back]).status().unwrap();
    assert!(copied.success());
    let back = std::fs::read(&back).unwrap();
    assert!(
        back.len() == 8 << 20
            && back[..disk.len()] == disk
            && back[disk.len()..].iter().all(|byte| *byte == 0)
    );
    daemon.stop();
}
