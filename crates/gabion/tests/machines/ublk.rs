//! ublk devices, in a guest that runs the daemon. A file system on a device survives kills and
//! restarts of the daemon.

use super::gabion_guest::GabionGuest;
use super::harness::DaemonHome;

/// Additional shell functions.
const WORDS: &str = r#"link=/run/gabion/ublk/fast/db
written() { read -r _ _ _ _ _ _ sectors _ < /sys/block/ublkb0/stat; echo "$sectors"; }
stored() { gabion volume show fast/db --json | sed -n 's/.*"stored": *\([0-9]*\).*/\1/p'; }"#;

#[test]
fn a_file_system_on_a_ublk_device_survives_kills_of_the_daemon() {
    let home = DaemonHome::new();
    let Some(mut inside) = GabionGuest::start(&home, &["ublk_drv"], "1536M") else { return };
    inside.define(WORDS);
    let guest = &mut inside;
    guest.sh("mkdir /pool /then && mount -t tmpfs none /pool && serve 0 &&
         gabion pool create fast --scheme 2+1 --files /pool --file-size 256M --count 3 > /tmp/made &&
         gabion volume create fast/db --size 192M > /tmp/made");
    a_kernel_without_ublk_is_reported(guest);
    a_device_is_created(guest);
    guest.sh(
        "mkfs.ext4 -q /dev/ublkb0 && mount $link /mnt && load /mnt/first '--bs=4k --size=4m --rw=randwrite'",
    );
    the_daemon_is_killed_under_load(guest);
    a_mounted_device_is_kept(guest);
    the_daemon_is_restarted(guest);
    a_snapshot_is_read_only(guest);
    trim_frees_space(guest);
    guest.sh("echo 3 > /proc/sys/vm/drop_caches; umount /mnt && mount $link /mnt &&
         load /mnt/killed '--bs=4k --size=6m --rw=read --verify_only=1' && umount /mnt &&
         gabion export delete fast/db > /tmp/made && [ ! -e /dev/ublkb0 ] && [ ! -L $link ]");
    stale_devices_are_deleted(guest);
    guest.sh("! grep panicked /tmp/log");
}

/// Few commands, as each takes time on the serial line.
fn a_kernel_without_ublk_is_reported(guest: &mut GabionGuest<'_>) {
    let refusal = guest.sh(
        "rmmod ublk_drv && refused gabion export create fast/db --ublk; gabion export list; insmod /modules/ublk_drv.ko",
    );
    assert!(refusal.contains("no ublk") && refusal.contains("modprobe ublk_drv"), "{refusal}");
    assert!(refusal.contains("--fuse") && refusal.contains("no exports"), "{refusal}");
}

fn a_device_is_created(guest: &mut GabionGuest<'_>) {
    let made = guest.sh("gabion export create fast/db --ublk; cd /sys/block/ublkb0
         cat size ro queue/fua queue/write_cache queue/logical_block_size queue/physical_block_size
         ls mq | wc -l; [ $(cat queue/discard_max_bytes) -gt 1000000 ]");
    let expected =
        ["/run/gabion/ublk/fast/db", "/dev/ublkb0", "393216", "0", "1", "write back", "512", "4096", "2"];
    assert_eq!(made.lines().collect::<Vec<_>>(), expected);
}

fn the_daemon_is_killed_under_load(guest: &mut GabionGuest<'_>) {
    // Requests wait while there is no daemon, and the next one completes them. The load takes six
    // seconds, of which the daemon runs one or two.
    guest.sh(
        "before=$(written); load /mnt/killed '--bs=4k --size=6m --rw=randwrite --rate=1m' & load=$!
         until [ $(written) -gt $((before + 2000)) ]; do usleep 10000; done
         kill -9 $(cat /tmp/pid) && kill -0 $load && echo precious > /mnt/precious && { sync -f /mnt & } && sync=$! &&
         serve 1 && wait $load && wait $sync && [ $(cat /mnt/precious) = precious ]",
    );
    let log = guest.sh("load /mnt/killed '--bs=4k --size=6m --rw=read --verify_only=1' && cat /tmp/log");
    assert!(log.contains("recovered a device of an earlier daemon"), "{log}");
}

fn a_mounted_device_is_kept(guest: &mut GabionGuest<'_>) {
    let said = guest.sh(
        "refused gabion export delete fast/db; refused gabion pool close fast
         gabion volume resize fast/db --size 256M > /tmp/made
         echo sectors: $(cat /sys/block/ublkb0/size) told: $(grep -c 'cannot resize a ublk device' /tmp/log)",
    );
    assert!(said.contains("in use as /dev/ublkb0") && said.contains("--force"), "{said}");
    assert!(said.contains("exported") && !said.contains("that was not refused"), "{said}");
    // The size changes if the kernel supports it; otherwise the daemon reports that.
    assert!(said.contains("sectors: 524288 told: 0") || said.contains("sectors: 393216 told: 1"), "{said}");
}

fn the_daemon_is_restarted(guest: &mut GabionGuest<'_>) {
    guest.sh("kill $(cat /tmp/pid); while kill -0 $(cat /tmp/pid) 2> /dev/null; do usleep 10000; done
         [ -e /dev/ublkb0 ] && grep -q ' /mnt ' /proc/mounts && serve 1 &&
         load /mnt/first '--bs=4k --size=4m --rw=read --verify_only=1'");
}

fn a_snapshot_is_read_only(guest: &mut GabionGuest<'_>) {
    guest.sh(
        "sync -f /mnt && gabion volume snapshot fast/db@then > /tmp/made &&
         gabion export create fast/db@then --ublk > /tmp/made && [ $(cat /sys/block/ublkb1/ro) = 1 ] &&
         mount -o ro,noload $link@then /then && [ $(cat /then/precious) = precious ] && umount /then &&
         gabion export delete fast/db@then > /tmp/made && gabion volume delete fast/db@then --yes > /tmp/made",
    );
}

fn trim_frees_space(guest: &mut GabionGuest<'_>) {
    let stored = guest.sh("stored; rm /mnt/first && sync -f /mnt && fstrim /mnt && stored");
    let stored: Vec<u64> = stored.lines().map(|line| line.parse().unwrap()).collect();
    // The whole file, except for later writes of the file system.
    assert!(stored[0] - stored[1] >= 3 << 20, "{stored:?}");
}

/// A kill between creation and registration of a device, or between deregistration and deletion.
fn stale_devices_are_deleted(guest: &mut GabionGuest<'_>) {
    let log = guest.sh(
        "gabion export create fast/db --ublk > /tmp/made && kill -9 $(cat /tmp/pid) && [ -e /dev/ublkb0 ] &&
         rm /var/lib/gabion/state.json && serve 0 && [ ! -e /dev/ublkb0 ] && cat /tmp/log",
    );
    assert!(log.contains("deleting a device that cannot be recovered"), "{log}");
}
