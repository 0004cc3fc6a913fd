//! Tests of the SMART cache, of `smartctl` and of the kernel's counters.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;

/// The interesting part of the output for an NVMe drive.
fn nvme() -> serde_json::Value {
    json!({
        "model_name": "KCD8XPUG1T92", "serial_number": "X1", "smart_status": {"passed": true},
        "nvme_smart_health_information_log": {"percentage_used": 3, "media_errors": 0},
        "temperature": {"current": 41}, "power_on_time": {"hours": 12_034}
    })
}

#[test]
fn reports_of_all_kinds_of_drives_are_understood() {
    let report = |output: serde_json::Value| smart::report(output.to_string().as_bytes(), 7);
    let of_nvme = report(nvme()).unwrap();
    assert_eq!((of_nvme.passed, of_nvme.wear_percent, of_nvme.temperature), (Some(true), Some(3), Some(41)));
    assert_eq!((of_nvme.media_errors, of_nvme.power_on_hours, of_nvme.time), (Some(0), Some(12_034), 7));
    assert_eq!((of_nvme.model.as_deref(), of_nvme.serial.as_deref()), (Some("KCD8XPUG1T92"), Some("X1")));

    let attribute = |id: u64, name: &str, value: u64, raw: u64| json!({"id": id, "name": name, "value": value, "raw": {"value": raw}});
    let table = [
        attribute(177, "Wear_Leveling_Count", 88, 120),
        attribute(198, "Offline_Uncorrectable", 100, 5),
        attribute(187, "Reported_Uncorrect", 99, 2),
    ];
    let of_ata = report(json!({"smart_status": {"passed": false}, "ata_smart_attributes": {"table": table}}));
    let of_ata = of_ata.unwrap();
    assert_eq!((of_ata.passed, of_ata.wear_percent, of_ata.media_errors), (Some(false), Some(12), Some(2)));

    let of_scsi = report(json!({
        "scsi_percentage_used_endurance_indicator": 9,
        "scsi_error_counter_log": {"read": {"total_uncorrected_errors": 1}, "write": {"total_uncorrected_errors": 2}}
    }));
    let of_scsi = of_scsi.unwrap();
    assert_eq!((of_scsi.wear_percent, of_scsi.media_errors, of_scsi.passed), (Some(9), Some(3), None));

    // A device without SMART, such as a loop device, and output of something else.
    assert_eq!(report(json!({"device": {"name": "/dev/loop0"}, "model_name": "x"})), None);
    assert_eq!(smart::report(b"not JSON", 7), None);
}

#[tokio::test]
async fn a_program_that_fails_or_hangs_is_no_report() {
    let directory = tempfile::tempdir().unwrap();
    let smartctl = |name: &str, script: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Smartctl::new(path, Duration::from_secs(10))
    };
    let drive = Path::new("/dev/null");
    // The status reports old errors of a drive that is in order otherwise.
    let healthy = smartctl("healthy", &format!("[ \"$6\" = /dev/null ] && echo '{}'; exit 64", nvme()));
    assert_eq!(healthy.read(drive).await.unwrap().wear_percent, Some(3));
    assert_eq!(smartctl("standby", "exit 2").read(drive).await, None);
    assert_eq!(Smartctl::new("no-such-program-here", Duration::from_secs(10)).read(drive).await, None);
    let hanging = Smartctl { limit: Duration::from_millis(50), ..smartctl("hanging", "exec sleep 600") };
    assert_eq!(hanging.read(drive).await, None);
}

#[test]
fn the_cache_keeps_a_report_while_the_drive_is_in_standby() {
    let cache = SmartCache::default();
    let (drive, other) = (PathBuf::from("/dev/a"), PathBuf::from("/dev/b"));
    let start = Instant::now();
    let both = [drive.clone(), other.clone()];
    assert_eq!(cache.due(&both, start), both);
    let report = SmartReport { wear_percent: Some(1), ..SmartReport::default() };
    cache.store(drive.clone(), Some(report.clone()), start);
    cache.store(other.clone(), None, start);
    assert_eq!(cache.due(&both, start), Vec::<PathBuf>::new());
    assert_eq!((cache.get(&drive), cache.get(&other)), (Some(report.clone()), None));

    let later = start + REPORT_INTERVAL;
    assert_eq!(cache.due(&both, later), both);
    cache.store(drive.clone(), None, later);
    assert_eq!(cache.get(&drive), Some(report));
    cache.store(drive.clone(), None, start + REPORT_MAX_AGE);
    assert_eq!(cache.get(&drive), None);

    // A drive that left and returned is read again.
    assert_eq!(cache.due(&both[1..], later), [other]);
    assert_eq!(cache.due(&both[..1], later), [drive]);
}

#[test]
fn counters_of_all_kernels_are_parsed() {
    let long = "  10 1 80 4  20 2 160 6  3 99 120  5 0 40 7  8 9\n";
    let io = counters::parse(long).unwrap();
    let requests = |count, bytes, millis| api::types::DriveRequests { count, bytes, millis };
    assert_eq!((io.read, io.write), (requests(10, 40_960, 4), requests(20, 81_920, 6)));
    assert_eq!((io.discard, io.flush, io.busy_millis), (requests(5, 20_480, 7), requests(8, 0, 9), 99));
    let short = counters::parse("10 1 80 4 20 2 160 6 3 99 120").unwrap();
    assert_eq!((short.write, short.flush), (io.write, requests(0, 0, 0)));
    assert_eq!(counters::parse("10 1 80"), None);
    assert_eq!(counters::parse(""), None);
}

#[test]
fn files_have_no_device() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(device_of(directory.path()), None);
    assert_eq!(device_of(Path::new("/no/such/drive")), None);
}
