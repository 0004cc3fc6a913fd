//! A drive with a few, then many unreadable sectors (scsi_debug), in a guest that runs the daemon.

use super::gabion_guest::GabionGuest;
use super::harness::DaemonHome;

const WORDS: &str = r#"of=/sys/module/scsi_debug/parameters
# From which sector of the drive on, and how many, cannot be read.
unreadable() {
  echo $1 > $of/medium_error_start; echo $2 > $of/medium_error_count
  echo 2 > /sys/bus/pseudo/drivers/scsi_debug/opts
}
everything() { load /dev/ublkb0 "--bs=256k --size=96m $1"; }"#;

#[test]
fn a_drive_is_retired_after_many_unreadable_sectors_only() {
    let home = DaemonHome::new();
    let Some(mut inside) = GabionGuest::start(&home, &["ublk_drv", "scsi_debug", "sd_mod"], "1536M") else {
        return;
    };
    inside.define(WORDS);
    let guest = &mut inside;
    guest.sh(
        "insmod /modules/scsi_debug.ko dev_size_mb=128 delay=0 lbpu=1 && until [ -b /dev/sda ]; do usleep 10000; done
         mkdir /pool && mount -t tmpfs none /pool && truncate -s 128M /pool/a /pool/b /pool/c && serve 0 &&
         gabion pool create fast --scheme 2+1 --drives /pool/a /dev/sda /pool/b /pool/c --yes > /tmp/made &&
         gabion volume create fast/db --size 96M > /tmp/made && gabion export create fast/db --ublk > /tmp/made",
    );
    guest.sh("everything --rw=write");
    few_unreadable_sectors_are_repaired(guest);
    many_unreadable_sectors_retire_the_drive(guest);
    let checked = guest
        .sh("gabion export delete fast/db > /tmp/made && gabion pool close fast > /tmp/made &&
         gabion check /pool/a /pool/b /pool/c");
    assert!(checked.contains("sound"), "{checked}");
    // One line for each zone, not for each of thousands of reads.
    let lines =
        guest.sh("! grep panicked /tmp/log && wc -l < /tmp/log && grep -c 'reads of a zone fail' /tmp/log");
    let lines: Vec<u32> = lines.lines().map(|line| line.parse().unwrap()).collect();
    assert!(lines[0] < 500 && (3..100).contains(&lines[1]), "{lines:?}");
}

/// Eight sectors of a written zone, which only a scrub is certain to read.
fn few_unreadable_sectors_are_repaired(guest: &mut GabionGuest<'_>) {
    let scrubbed = guest
        .sh("unreadable 20480 8; gabion pool scrub fast --wait && everything '--rw=read --verify_only=1'");
    assert!(scrubbed.contains("1 damaged block, all rewritten"), "{scrubbed}");
    let status = guest.sh("gabion pool status fast; gabion drive list fast");
    assert!(status.contains("pool 'fast': healthy") && !status.contains("failing"), "{status}");
    assert!(status.contains("unreadable"), "{status}");
}

fn many_unreadable_sectors_retire_the_drive(guest: &mut GabionGuest<'_>) {
    guest.sh(
        "unreadable 16384 131072; gabion pool scrub fast > /tmp/made; everything '--rw=read --verify_only=1'",
    );
    let drives = guest.until("gabion drive list fast", "removed");
    let status = guest.until("gabion pool status fast; true", "pool 'fast': healthy");
    let events = guest.sh("gabion pool events fast");
    assert!(
        events.contains("is failing") && events.contains("its data was migrated"),
        "{drives} {status} {events}"
    );
    guest.sh("echo 3 > /proc/sys/vm/drop_caches; everything '--rw=read --verify_only=1'");
}
