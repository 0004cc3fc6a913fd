//! A drive whose sectors cannot be read any more, first a few and then many: the kernel's own (scsi_debug), in a machine in which the
//! daemon runs.

use super::harness::Home;
use super::inside::Inside;

const WORDS: &str = r#"of=/sys/module/scsi_debug/parameters
# From which sector of the drive on, and how many, cannot be read.
unreadable() {
  echo $1 > $of/medium_error_start; echo $2 > $of/medium_error_count
  echo 2 > /sys/bus/pseudo/drivers/scsi_debug/opts
}
everything() { load /dev/ublkb0 "--bs=256k --size=96m $1"; }"#;

#[test]
fn a_drive_is_kept_while_few_of_its_sectors_fail_and_emptied_when_many_do() {
    let home = Home::new();
    let Some(mut inside) = Inside::start(&home, &["ublk_drv", "scsi_debug", "sd_mod"], "1536M") else {
        return;
    };
    inside.define(WORDS);
    let guest = &mut inside;
    guest.say(
        "insmod /modules/scsi_debug.ko dev_size_mb=128 delay=0 lbpu=1 && until [ -b /dev/sda ]; do usleep 10000; done
         mkdir /pool && mount -t tmpfs none /pool && truncate -s 128M /pool/a /pool/b /pool/c && serve 0 &&
         gabion pool create fast --scheme 2+1 --drives /pool/a /dev/sda /pool/b /pool/c --yes > /tmp/made &&
         gabion volume create fast/db --size 96M > /tmp/made && gabion export create fast/db --ublk > /tmp/made",
    );
    guest.say("everything --rw=write");
    few_sectors_cost_nothing(guest);
    many_sectors_cost_the_drive(guest);
    let checked = guest.say(
        "gabion export delete fast/db > /tmp/made && gabion pool close fast > /tmp/made &&
         gabion check /pool/a /pool/b /pool/c",
    );
    assert!(checked.contains("sound"), "{checked}");
    let log = guest.say("cat /tmp/log");
    assert!(!log.contains("panicked"), "{log}");
}

/// Eight sectors of a zone that was written, which only a scrub is certain to read.
fn few_sectors_cost_nothing(guest: &mut Inside<'_>) {
    let scrubbed = guest
        .say("unreadable 20480 8; gabion pool scrub fast --wait && everything '--rw=read --verify_only=1'");
    assert!(scrubbed.contains("1 damaged block, all rewritten"), "{scrubbed}");
    let status = guest.say("gabion pool status fast; gabion drive list fast");
    assert!(status.contains("pool 'fast': healthy") && !status.contains("failing"), "{status}");
    assert!(status.contains("unreadable"), "{status}");
}

fn many_sectors_cost_the_drive(guest: &mut Inside<'_>) {
    guest.say(
        "unreadable 16384 131072; gabion pool scrub fast > /tmp/made; everything '--rw=read --verify_only=1'",
    );
    let drives = guest.until("gabion drive list fast", "removed");
    let status = guest.until("gabion pool status fast; true", "pool 'fast': healthy");
    let events = guest.say("gabion pool events fast");
    assert!(
        events.contains("is failing") && events.contains("its data was migrated"),
        "{drives} {status} {events}"
    );
    guest.say("echo 3 > /proc/sys/vm/drop_caches; everything '--rw=read --verify_only=1'");
}
