//! SMART reports and the kernel's counters of block devices, with a fake `smartctl`.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::harness::{DaemonHome, until};
use super::metrics::{Parsed, scrape};
use super::mounts::LoopDevice;
use super::nbd::{Client, pattern};

/// Creates a `smartctl` that reports a drive at the end of its life for `device`, and nothing for
/// other drives. Returns the PATH with it.
pub(crate) fn fake_smartctl(home: &DaemonHome, device: &LoopDevice) -> String {
    let report = json!({
        "smart_status": {"passed": false}, "temperature": {"current": 71}, "power_on_time": {"hours": 2},
        "nvme_smart_health_information_log": {"percentage_used": 93, "media_errors": 4}
    });
    std::fs::create_dir(home.path("bin")).unwrap();
    let program = home.path("bin/smartctl");
    // Status 8 means that the drive predicts its failure.
    let script = format!("#!/bin/sh\n[ \"$6\" = {} ] || exit 2\necho '{report}'\nexit 8\n", device.0);
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", home.arg("bin"), std::env::var("PATH").unwrap())
}

#[test]
fn a_block_device_shows_its_smart_report_and_its_requests() {
    if !test_support::has_loop() || !test_support::has_program("losetup") {
        return;
    }
    let home = DaemonHome::new();
    let device = LoopDevice::attach(&home.file("d0", 64 << 20));
    let file = home.file("d1", 64 << 20);
    let mut serve = home.serve(&[]);
    serve.env("PATH", fake_smartctl(&home, &device));
    let daemon = home.start_by(serve);
    daemon.ok(&["pool", "create", "fast", "--scheme", "1+1", "--drives", &device.0, &file]);
    daemon.ok(&["volume", "create", "fast/vm01", "--size", "64M"]);
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    client.write(0, &pattern(1, 1 << 20)).unwrap();
    client.flush().unwrap();
    until("a SMART report", || !daemon.pool("fast")["drives"][0]["smart"].is_null());

    let pool = daemon.pool("fast");
    let (on_device, on_file) = (&pool["drives"][0], &pool["drives"][1]);
    assert_eq!(
        (&on_device["smart"]["wear_percent"], &on_device["smart"]["passed"]),
        (&json!(93), &json!(false))
    );
    assert!(on_device["io"]["write"]["bytes"].as_u64().unwrap() >= 1 << 20, "{on_device:#}");
    assert!(on_file["smart"].is_null() && on_file["io"].is_null(), "{on_file:#}");
    let problem = pool["problems"][0].to_string();
    assert!(
        problem.contains(&format!("drive 0 ({}) predicts its failure by SMART", device.0))
            && problem.contains("gabion drive replace fast 0 --with NEW_DRIVE"),
        "{pool:#}"
    );
    let list = daemon.ok(&["drive", "list", "fast"]);
    assert!(
        list.contains("online, SMART failed") && list.contains("93 %") && list.contains("71 °C"),
        "{list}"
    );

    let parsed = Parsed::strict(&scrape(&home));
    let of_drive = |name| parsed.one(name, &["drive=\"0\""]);
    assert_eq!(of_drive("gabion_drive_smart_passed"), 0.0);
    assert_eq!(of_drive("gabion_drive_wear_ratio"), 0.93);
    assert_eq!(of_drive("gabion_drive_temperature_celsius"), 71.0);
    assert_eq!(of_drive("gabion_drive_media_errors_total"), 4.0);
    assert_eq!(of_drive("gabion_drive_power_on_seconds"), 7200.0);
    let writes = ["drive=\"0\"", "operation=\"write\""];
    assert!(parsed.one("gabion_drive_transferred_bytes_total", &writes) >= f64::from(1 << 20));
    assert!(parsed.one("gabion_drive_operations_total", &writes) >= 1.0);
    drop(client);
    daemon.stop();
    drop(device);
}
