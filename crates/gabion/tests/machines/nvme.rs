//! NVMe/TCP with the initiator of Linux, in a guest that runs the daemon. A file system on the disk
//! survives kills and restarts of the daemon; `nvme` discovers the disks.

use super::gabion_guest::GabionGuest;
use super::harness::DaemonHome;

/// Additional shell functions. The kernel's own interface connects, as `nvme connect` does.
const NVME_FUNCTIONS: &str = r#"nqn=nqn.2014-08.org.example:db
host=nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555
connect() {
  echo -n "transport=tcp,traddr=$1,trsvcid=4420,nqn=$nqn,hostnqn=$host,hostid=${host##*:},reconnect_delay=1$2" > /dev/nvme-fabrics
}
second_address() { ifconfig lo:1 127.0.0.2 netmask 255.255.255.255 up; }
live() { cat /sys/class/nvme/*/state 2> /dev/null | grep -c live || true; }
written() { read -r _ _ _ _ _ _ sectors _ < /sys/block/nvme0n1/stat; echo "$sectors"; }
disconnect() { for each in /sys/class/nvme/*/delete_controller; do echo 1 > $each; done; }"#;

/// Secrets that `nvme gen-dhchap-key` has printed; the second one with `--hmac=2`.
const HOST_SECRET: &str = "DHHC-1:00:nR2ru2ZHCXqG3XAyaz0/+gB089FRFL0o838kvct0gfv9vUN3:";
const CONTROLLER_SECRET: &str =
    "DHHC-1:02:IxTl16N0lf/MJtvczU2MMsG+I1M5B73zk87LplvAcS4qEhYTDZgw7IXaL9eLMCAIxQ8/0Q==:";

#[test]
fn a_file_system_on_an_nvme_disk_survives_kills_of_the_daemon() {
    let home = DaemonHome::new();
    let Some(mut inside) = GabionGuest::start(&home, &["nvme_tcp"], "1536M") else { return };
    inside.define(NVME_FUNCTIONS);
    let guest = &mut inside;
    guest.sh("insmod /modules/nvme_tcp.ko && [ -c /dev/nvme-fabrics ] &&
         ifconfig lo 127.0.0.1 netmask 255.255.255.255 up && second_address &&
         mkdir /pool && mount -t tmpfs none /pool && serve 0 &&
         gabion pool create fast --scheme 2+1 --files /pool --file-size 256M --count 3 > /tmp/made &&
         gabion volume create fast/db --size 192M > /tmp/made");
    a_disk_is_connected(guest);
    an_idle_disk_stays_connected(guest);
    guest.sh("mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt &&
         load /mnt/first '--bs=4k --size=4m --rw=randwrite' &&
         load /mnt/long '--bs=1m --size=16m --rw=write'");
    the_daemon_is_killed_under_load(guest);
    an_address_is_lost_under_load(guest);
    a_path_fails_over(guest);
    the_disk_grows(guest);
    guest.sh("echo 3 > /proc/sys/vm/drop_caches; umount /mnt && mount /dev/nvme0n1 /mnt &&
         load /mnt/first '--bs=4k --size=4m --rw=read --verify_only=1' &&
         load /mnt/long '--bs=1m --size=16m --rw=read --verify_only=1' &&
         load /mnt/killed '--bs=4k --size=6m --rw=read --verify_only=1' && umount /mnt && disconnect");
    digests_are_verified(guest);
    the_host_authenticates_itself(guest);
    guest.sh("! grep -e panicked -e violation /tmp/log");
}

fn a_disk_is_connected(guest: &mut GabionGuest<'_>) {
    let printed = guest.sh(
        "gabion export create fast/db --nvme-tcp --listen 127.0.0.1,127.0.0.2 --subsystem $nqn --host $host",
    );
    assert!(
        printed.contains("nvme connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.2014-08.org.example:db"),
        "{printed}"
    );
    guest.sh("connect 127.0.0.1 && connect 127.0.0.2");
    guest.until("live", "2");
    guest.until("[ ! -b /dev/nvme0n1 ] || echo found", "found");
    let facts = guest.sh(
        "cd /sys/block/nvme0n1; cat size ro queue/fua queue/logical_block_size queue/physical_block_size
         [ $(cat queue/discard_max_bytes) -gt 1000000 ] && [ $(cat queue/write_zeroes_max_bytes) -gt 0 ] &&
         [ $(cat queue/max_hw_sectors_kb) = 1024 ]",
    );
    assert_eq!(facts.lines().collect::<Vec<_>>(), ["393216", "0", "1", "512", "4096"]);
}

/// Keep alive messages are the only ones for 12 s, or for `GABION_NVME_IDLE_SECONDS`: longer than
/// two keep alive intervals of the host. A host that connects again gets another controller.
fn an_idle_disk_stays_connected(guest: &mut GabionGuest<'_>) {
    const CONTROLLERS: &str = "cat /sys/class/nvme/*/cntlid";
    let before = guest.sh(CONTROLLERS);
    assert_eq!(before.lines().count(), 2, "{before}");
    let seconds = std::env::var("GABION_NVME_IDLE_SECONDS").map_or(12, |text| text.parse::<u64>().unwrap());
    for _ in 0..seconds.div_ceil(12) {
        guest.sh("sleep 12");
    }
    assert_eq!(guest.sh(CONTROLLERS), before);
    guest.sh("[ $(live) = 2 ] && ! dmesg | grep -i 'nvme.*\\(keep\\|reconnect\\|timeout\\)' &&
         dd if=/dev/nvme0n1 of=/dev/null bs=4k count=1 iflag=direct");
}

fn the_daemon_is_killed_under_load(guest: &mut GabionGuest<'_>) {
    // Requests wait while there is no daemon, and the host repeats them to the next one.
    guest.sh("before=$(written); load /mnt/killed '--bs=4k --size=6m --rw=randwrite --rate=1m' & load=$!
         until [ $(written) -gt $((before + 2000)) ]; do usleep 10000; done
         kill -9 $(cat /tmp/pid) && kill -0 $load && echo precious > /mnt/precious && { sync -f /mnt & } && sync=$! &&
         serve 1 && wait $load && wait $sync && [ $(cat /mnt/precious) = precious ]");
    guest.until("live", "2");
}

/// Both paths carry requests. The other path repeats the requests in flight to the lost address,
/// after the keep alive timer of 5 s; the path returns with the address.
fn an_address_is_lost_under_load(guest: &mut GabionGuest<'_>) {
    guest.sh("policy=/sys/class/nvme-subsystem/nvme-subsys0/iopolicy
         echo round-robin > $policy && [ $(cat $policy) = round-robin ]");
    guest.sh("before=$(written); load /mnt/cut '--bs=4k --size=12m --rw=randwrite --rate=1m' & load=$!
         until [ $(written) -gt $((before + 2000)) ]; do kill -0 $load || exit 1; usleep 10000; done
         ifconfig lo:1 down && wait $load");
    guest.until("live", "1");
    guest.sh("load /mnt/cut '--bs=4k --size=12m --rw=read --verify_only=1' && second_address");
    guest.until("live", "2");
}

fn a_path_fails_over(guest: &mut GabionGuest<'_>) {
    guest.sh("set -- /sys/class/nvme/nvme*/delete_controller; echo 1 > $1; [ $(live) = 1 ] &&
         load /mnt/first '--bs=4k --size=4m --rw=read --verify_only=1'");
}

fn the_disk_grows(guest: &mut GabionGuest<'_>) {
    guest.sh("gabion volume resize fast/db --size 256M > /tmp/made");
    guest.until("cat /sys/block/nvme0n1/size", "524288");
}

fn digests_are_verified(guest: &mut GabionGuest<'_>) {
    guest.sh("connect 127.0.0.1 ,hdr_digest,data_digest");
    guest.until("[ ! -b /dev/nvme0n1 ] || echo found", "found");
    guest.sh("load /dev/nvme0n1 '--bs=64k --size=8m --rw=randwrite' &&
         load /dev/nvme0n1 '--bs=64k --size=8m --rw=read --verify_only=1' && disconnect");
}

/// Both directions, without a secret, and with a wrong one.
fn the_host_authenticates_itself(guest: &mut GabionGuest<'_>) {
    let (host, controller) = (HOST_SECRET, CONTROLLER_SECRET);
    guest.sh(&format!(
        "echo '{host}' > /tmp/host.secret && echo '{controller}' > /tmp/controller.secret &&
         gabion export delete fast/db > /tmp/made &&
         gabion export create fast/db --nvme-tcp --listen 127.0.0.1 --subsystem $nqn --host $host \\
             --secret /tmp/host.secret --controller-secret /tmp/controller.secret > /tmp/made &&
         gabion --json export list > /tmp/exports && ! grep -q DHHC /tmp/exports"
    ));
    for wrong in [String::new(), format!(",dhchap_secret={controller}")] {
        guest.sh(&format!("! connect 127.0.0.1 {wrong} 2> /tmp/refused && [ $(live) = 0 ]"));
    }
    for right in
        [format!(",dhchap_secret={host}"), format!(",dhchap_secret={host},dhchap_ctrl_secret={controller}")]
    {
        guest.sh(&format!("dmesg -c > /tmp/before; connect 127.0.0.1 {right}"));
        guest.until("[ ! -b /dev/nvme0n1 ] || echo found", "found");
        guest.sh("dmesg | grep 'authenticated with hash .* dhgroup ffdhe3072'");
        guest.sh("load /dev/nvme0n1 '--bs=64k --size=8m --rw=randwrite' &&
             load /dev/nvme0n1 '--bs=64k --size=8m --rw=read --verify_only=1' && disconnect");
    }
}

/// Shell functions for `nvme`.
const DISCOVERY_FUNCTIONS: &str = r#"discover() { nvme discover -t tcp -a 127.0.0.1 -q "$1" -I ${1##*:} $2; }
connect_all() { nvme connect-all -t tcp -a 127.0.0.1 -q $host -I ${host##*:}; }
other=nqn.2014-08.org.nvmexpress:uuid:99999999-2222-3333-4444-555555555555
names() { cat /sys/class/nvme/*/subsysnqn; }"#;

#[test]
fn a_linux_host_discovers_the_disks_that_it_may_use() {
    if !test_support::has_program("nvme") {
        return;
    }
    let (home, nvme) = (DaemonHome::new(), test_support::find_program("nvme").unwrap());
    let Some(mut inside) = GabionGuest::start_with(&home, &["nvme_tcp"], "1536M", &[&nvme]) else { return };
    inside.define(NVME_FUNCTIONS);
    inside.define(DISCOVERY_FUNCTIONS);
    let guest = &mut inside;
    guest.sh("insmod /modules/nvme_tcp.ko && ifconfig lo 127.0.0.1 up && [ -c /dev/nvme-fabrics ] &&
         mkdir /pool && mount -t tmpfs none /pool && serve 0 &&
         gabion pool create fast --scheme 2+1 --files /pool --file-size 256M --count 3 > /tmp/made &&
         gabion volume create fast/db --size 64M > /tmp/made &&
         gabion volume create fast/web --size 64M > /tmp/made &&
         gabion export create fast/db --nvme-tcp --listen 127.0.0.1 --subsystem $nqn --host $host > /tmp/made");
    // At the usual port, which is open since the export exists.
    let listed = guest.sh("discover $host");
    assert!(listed.contains("subnqn:  nqn.2014-08.org.example:db"), "{listed}");
    assert!(listed.contains("trsvcid: 4420") && listed.contains("trsvcid: 8009"), "{listed}");
    let listed = guest.sh("discover $other");
    assert!(listed.contains("trsvcid: 8009") && !listed.contains("example:db"), "{listed}");
    guest.sh("connect_all");
    guest.until("ls /dev/nvme*n1 2> /dev/null | wc -l", "1");
    a_host_learns_of_another_disk(guest);
    guest.sh("disconnect");
    guest.sh("! grep -e panicked -e violation /tmp/log");
}

/// A persistent connection to the discovery service reports the change.
fn a_host_learns_of_another_disk(guest: &mut GabionGuest<'_>) {
    guest.sh("discover $host --persistent > /tmp/discovered && names | grep -q discovery &&
         { uevent sh -c 'echo \"event: $NVME_AEN\" >> /tmp/events' & } &&
         gabion export create fast/web --nvme-tcp --listen 127.0.0.1 --subsystem ${nqn%db}web --host $host > /tmp/made");
    guest.until("cat /tmp/events", "event: 0x70f002");
    // Connects the subsystem that is not connected yet.
    guest.sh("connect_all || true");
    guest.until("names", "example:web");
    guest.until("ls /dev/nvme*n1 2> /dev/null | wc -l", "2");
}
