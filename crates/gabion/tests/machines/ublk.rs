//! Block devices by ublk, in a machine whose kernel has them: the daemon itself runs in the guest. A file system lives on a volume
//! while the daemon is killed, restarted and told what it may not do.

use std::process::Command;

use super::guest::Guest;
use super::harness::{Home, command, run};
use super::initramfs::System;

/// What it does with the daemon, as the guest's shell has it.
const WORDS: &str = r#"cat > /words <<'END'
link=/run/gabion/ublk/fast/db
serve() {
  gabion serve --threads 2 >> /tmp/log 2>&1 &
  echo $! > /tmp/pid
  until gabion pool list > /dev/null 2>&1 && [ "$(gabion pool list --json | grep -c '"state": *"open"')" -ge "$1" ]; do usleep 20000; done
}
written() { read -r _ _ _ _ _ _ sectors _ < /sys/block/ublkb0/stat; echo "$sectors"; }
stored() { gabion volume show fast/db --json | sed -n 's/.*"stored": *\([0-9]*\).*/\1/p'; }
refused() { "$@" 2>&1 && echo 'that was not refused'; true; }
load() {
  fio --name=$1 --filename=/mnt/$1 --bs=4k --direct=1 --ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --thread \
    --output-format=terse --output=/tmp/fio $2 || { cat /tmp/fio; false; }
}
END
"#;

struct Machines<'a>(&'a Home);

impl Drop for Machines<'_> {
    fn drop(&mut self) {
        let mut stop = command(&["vm", "stop", "host", "--force"]);
        stop.env("GABION_STATE_DIR", self.0.path("state")).env("GABION_SOCKET", self.0.socket());
        run(&mut stop);
    }
}

/// Runs words of the shell above, which must succeed.
#[track_caller]
fn say(guest: &mut Guest, words: &str) -> String {
    guest.run(&format!(". /words; {words}"))
}

#[test]
fn a_file_system_on_a_device_lives_through_the_death_of_the_daemon() {
    let home = Home::new();
    // Without what a debugger needs, which is most of it.
    let program = home.path("gabion");
    let stripped = Command::new("strip").arg("-o").arg(&program).arg(env!("CARGO_BIN_EXE_gabion")).status();
    assert!(stripped.unwrap().success());
    let Some(system) = System::make_with(&[&program]) else { return };
    if !system.modules.contains(&"ublk_drv".to_owned()) {
        eprintln!("this test does not apply: the distribution's kernel has no ublk");
        return;
    }
    let daemon = home.start();
    let _machines = Machines(&home);
    let (kernel, initramfs) = (system.kernel.to_str().unwrap(), system.initramfs.to_str().unwrap());
    let mut create = vec!["vm", "create", "host", "--kernel", kernel, "--initramfs", initramfs];
    create.extend(["--append", "console=ttyS0 quiet loglevel=2 random.trust_cpu=on"]);
    create.extend([
        "--cpus",
        "2",
        "--memory",
        "1536M",
        "--accelerator",
        "tcg",
        "--network",
        "none",
        "--start",
    ]);
    daemon.ok(&create);
    let mut guest = Guest::attach(&home, "host");
    guest.run(WORDS);
    say(
        &mut guest,
        "mkdir /pool /then && mount -t tmpfs none /pool && serve 0 &&
         gabion pool create fast --scheme 2+1 --files /pool --file-size 256M --count 3 > /tmp/made &&
         gabion volume create fast/db --size 192M > /tmp/made",
    );
    a_kernel_without_it_is_told_of(&mut guest);
    a_device_is_made(&mut guest);
    say(&mut guest, "mkfs.ext4 -q /dev/ublkb0 && mount $link /mnt && load first '--size=4m --rw=randwrite'");
    the_daemon_is_killed_under_load(&mut guest);
    what_is_mounted_stays(&mut guest);
    the_daemon_is_restarted(&mut guest);
    a_snapshot_is_only_read(&mut guest);
    space_is_given_back(&mut guest);
    say(
        &mut guest,
        "echo 3 > /proc/sys/vm/drop_caches; umount /mnt && mount $link /mnt &&
         load killed '--size=6m --rw=read --verify_only=1' && umount /mnt &&
         gabion export delete fast/db > /tmp/made && [ ! -e /dev/ublkb0 ] && [ ! -L $link ]",
    );
    what_nobody_wants_any_more_is_deleted(&mut guest);
    let log = guest.run("cat /tmp/log");
    assert!(!log.contains("panicked"), "{log}");
}

/// How long the test takes is mostly how many commands there are: each goes over a serial line.
fn a_kernel_without_it_is_told_of(guest: &mut Guest) {
    let refusal = say(
        guest,
        "rmmod ublk_drv && refused gabion export create fast/db --ublk; gabion export list; insmod /modules/ublk_drv.ko",
    );
    assert!(refusal.contains("no ublk") && refusal.contains("modprobe ublk_drv"), "{refusal}");
    assert!(refusal.contains("--fuse") && refusal.contains("no exports"), "{refusal}");
}

fn a_device_is_made(guest: &mut Guest) {
    let made = say(
        guest,
        "gabion export create fast/db --ublk; cd /sys/block/ublkb0
         cat size ro queue/fua queue/write_cache queue/logical_block_size queue/physical_block_size
         ls mq | wc -l; [ $(cat queue/discard_max_bytes) -gt 1000000 ]",
    );
    let expected =
        ["/run/gabion/ublk/fast/db", "/dev/ublkb0", "393216", "0", "1", "write back", "512", "4096", "2"];
    assert_eq!(made.lines().collect::<Vec<_>>(), expected);
}

fn the_daemon_is_killed_under_load(guest: &mut Guest) {
    // What is asked while there is no daemon waits, and is done by the next. The load takes six seconds, of which the daemon sees one or two.
    say(
        guest,
        "before=$(written); load killed '--size=6m --rw=randwrite --rate=1m' & load=$!
         until [ $(written) -gt $((before + 2000)) ]; do usleep 10000; done
         kill -9 $(cat /tmp/pid) && kill -0 $load && echo precious > /mnt/precious && { sync -f /mnt & } && sync=$! &&
         serve 1 && wait $load && wait $sync && [ $(cat /mnt/precious) = precious ]",
    );
    let log = say(guest, "load killed '--size=6m --rw=read --verify_only=1' && cat /tmp/log");
    assert!(log.contains("is served again"), "{log}");
}

fn what_is_mounted_stays(guest: &mut Guest) {
    let said = say(
        guest,
        "refused gabion export delete fast/db; refused gabion pool close fast
         gabion volume resize fast/db --size 256M > /tmp/made
         echo sectors: $(cat /sys/block/ublkb0/size) told: $(grep -c 'cannot change a device' /tmp/log)",
    );
    assert!(said.contains("in use as /dev/ublkb0") && said.contains("--force"), "{said}");
    assert!(said.contains("exported") && !said.contains("that was not refused"), "{said}");
    // As the kernel can, or said that it cannot.
    assert!(said.contains("sectors: 524288 told: 0") || said.contains("sectors: 393216 told: 1"), "{said}");
}

fn the_daemon_is_restarted(guest: &mut Guest) {
    say(
        guest,
        "kill $(cat /tmp/pid); while kill -0 $(cat /tmp/pid) 2> /dev/null; do usleep 10000; done
         [ -e /dev/ublkb0 ] && grep -q ' /mnt ' /proc/mounts && serve 1 &&
         load first '--size=4m --rw=read --verify_only=1'",
    );
}

fn a_snapshot_is_only_read(guest: &mut Guest) {
    say(
        guest,
        "sync -f /mnt && gabion volume snapshot fast/db@then > /tmp/made &&
         gabion export create fast/db@then --ublk > /tmp/made && [ $(cat /sys/block/ublkb1/ro) = 1 ] &&
         mount -o ro,noload $link@then /then && [ $(cat /then/precious) = precious ] && umount /then &&
         gabion export delete fast/db@then > /tmp/made && gabion volume delete fast/db@then --yes > /tmp/made",
    );
}

fn space_is_given_back(guest: &mut Guest) {
    let stored = say(guest, "stored; rm /mnt/first && sync -f /mnt && fstrim /mnt && stored");
    let stored: Vec<u64> = stored.lines().map(|line| line.parse().unwrap()).collect();
    // All of the file, but for what the file system has written meanwhile.
    assert!(stored[0] - stored[1] >= 3 << 20, "{stored:?}");
}

/// A daemon that was killed between making a device and remembering it, or between forgetting one and deleting it.
fn what_nobody_wants_any_more_is_deleted(guest: &mut Guest) {
    let log = say(
        guest,
        "gabion export create fast/db --ublk > /tmp/made && kill -9 $(cat /tmp/pid) && [ -e /dev/ublkb0 ] &&
         rm /var/lib/gabion/state.json && serve 0 && [ ! -e /dev/ublkb0 ] && cat /tmp/log",
    );
    assert!(log.contains("that nobody can take over is deleted"), "{log}");
}
