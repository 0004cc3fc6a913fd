//! Volumes of the daemon of the same host, in a guest whose kernel has one more way to attach them
//! after each part. The daemon and the driver are killed below the load of a pod.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use csi::proto::csi::DeleteVolumeRequest;

use super::driver::{mounted, target, volume};
use super::gabion_guest::{GabionGuest, strip};
use super::harness::DaemonHome;
use super::network_guest::{INSIDE, Node, PROGRAMS, is_grown};

/// The name of this test, by which the guest runs it.
const TEST: &str = "local_guest::a_restart_of_the_daemon_fails_no_request_of_a_pod";
/// Kernel modules that the test loads.
const MODULES: [&str; 4] = ["loop", "nbd", "nvme_tcp", "ublk_drv"];

/// Shell functions of the guest. A step of the cluster, for one volume, is one of [`run_step`].
const FUNCTIONS: &str = r#"driver() {
  gabion csi --node --controller --node-id node-1 --endpoint unix:///tmp/csi-1.sock >> /tmp/csi.log 2>&1 &
  echo $! > /tmp/driver
}
cluster() {
  GABION_CSI_INSIDE_GUEST="$1 $2" csi-cluster --exact TEST --nocapture > /tmp/cluster-$1-$2 2>&1 ||
    { cat /tmp/cluster-$1-$2; tail -n 30 /tmp/csi.log; false; }
}
device() { sed -n "s|^\([^ ]*\) /tmp/pods/$1/pod/volume .*|\1|p" /proc/mounts; }
written() { read -r _ _ _ _ _ _ sectors _ < /sys/block/${1#/dev/}/stat; echo "$sectors"; }
start() {
  gabion serve --threads 2 >> /tmp/log 2>&1 &
  echo $! > /tmp/pid
  until gabion pool list --json 2> /dev/null | grep -q '"state": *"open"'; do
    [ -e /proc/$(cat /tmp/pid)/exe ] || return 1
    usleep 20000
  done
}
# A killed daemon that is still exiting holds its locks, and the next one ends at once.
again() { until start; do usleep 100000; done; }
ended() {
  tries=0
  until [ ! -e /proc/$1 ] || grep -q 'State:.Z' /proc/$1/status; do
    tries=$((tries + 1))
    if [ $tries -gt 900 ]; then
      cat /sys/class/nvme/*/state; dmesg | tail -n 30; tail -n 20 /tmp/log /tmp/csi.log
      return 1
    fi
    usleep 200000
  done
  wait $1
}
clean() { [ -z "$(ls -d /sys/class/nvme/* /sys/block/nbd*/backend /sys/block/loop*/loop/backing_file /dev/ublkb* 2> /dev/null)" ]; }
"#;

#[test]
fn a_restart_of_the_daemon_fails_no_request_of_a_pod() {
    if let Ok(step) = std::env::var(INSIDE) {
        return run_step(&step);
    }
    if !test_support::has_programs(&PROGRAMS) || !test_support::has_programs(&["strip", "losetup"]) {
        return;
    }
    let home = DaemonHome::new();
    let client = home.path("csi-cluster");
    strip(&std::env::current_exe().unwrap(), &client);
    let found = |name: &&str| test_support::find_program(name).unwrap();
    let mut programs: Vec<PathBuf> = PROGRAMS.iter().chain(&["losetup"]).map(found).collect();
    programs.push(client);
    let programs: Vec<&Path> = programs.iter().map(PathBuf::as_path).collect();
    let Some(mut inside) = GabionGuest::start_with(&home, &MODULES, "1536M", &programs) else { return };
    inside.define(&FUNCTIONS.replace("TEST", TEST));
    let guest = &mut inside;
    guest.sh(
        "rmmod ublk_drv && ifconfig lo 127.0.0.1 up && mkdir /pool && mount -t tmpfs none /pool && serve 0 &&
         gabion pool create fast --scheme 2+1 --files /pool --file-size 256M --count 3 > /tmp/made && driver",
    );

    guest.sh("insmod /modules/loop.ko");
    a_loop_device_fails_with_its_daemon(guest);
    for (module, device) in [("nbd", "/dev/nbd0"), ("nvme_tcp", "/dev/nvme0n1"), ("ublk_drv", "/dev/ublkb0")]
    {
        guest.sh(&format!("insmod /modules/{module}.ko && cluster create {module}"));
        assert_eq!(guest.sh(&format!("device {module}")), device);
        requests_wait_for_the_next_daemon(guest, module);
        guest.sh(&format!("cluster {} {module}", if module == "ublk_drv" { "try-to-grow" } else { "grow" }));
        a_volume_is_unmounted_without_a_daemon(guest, module);
        guest.sh(&format!("cluster delete {module} && clean"));
    }
    secrets_are_hidden(guest);
    guest.sh("[ \"$(gabion export list --quiet)\" = '' ] &&
         ! grep -e panicked -e violation -e DHHC /tmp/log /tmp/csi.log");
}

/// A pod whose device is a file of the daemon must be created again; flushed data is safe.
fn a_loop_device_fails_with_its_daemon(guest: &mut GabionGuest<'_>) {
    guest.sh("cluster create loop && case $(device loop) in /dev/loop*) ;; *) false; esac &&
         echo precious > /tmp/pods/loop/pod/volume/file && sync -f /tmp/pods/loop/pod/volume/file &&
         kill -9 $(cat /tmp/pid) && again && ! load /tmp/pods/loop/pod/volume/more '--bs=4k --size=1m --rw=write' > /tmp/out 2>&1 &&
         cluster failed loop && cluster remove loop && cluster mount loop &&
         [ $(cat /tmp/pods/loop/pod/volume/file) = precious ] && cluster check loop && cluster grow loop &&
         cluster remove loop && cluster delete loop && clean");
}

/// The driver is killed together with the daemon. Writes continue when both have been started
/// again.
/// The creation of a file may wait for the device, too, so the shell must not do it itself.
fn requests_wait_for_the_next_daemon(guest: &mut GabionGuest<'_>, name: &str) {
    guest.sh(&format!(
        "file=/tmp/pods/{name}/pod/volume/file; device=$(device {name}); before=$(written $device)
         load $file '--bs=4k --size=6m --rw=randwrite --rate=1m' & load=$!
         until [ $(written $device) -gt $((before + 2000)) ]; do usleep 10000; done
         kill -9 $(cat /tmp/pid) $(cat /tmp/driver) && kill -0 $load && {{ {{ echo precious > $file.2 && sync -f $file.2; }} & }} &&
         sync=$! && again && driver && ended $load && ended $sync && [ $(cat $file.2) = precious ] &&
         [ $(device {name}) = $device ] && echo 3 > /proc/sys/vm/drop_caches &&
         load $file '--bs=4k --size=6m --rw=read --verify_only=1' && cluster check {name}"
    ));
}

/// The unmount writes, so that it waits for the daemon. The driver must connect the disk meanwhile.
fn a_volume_is_unmounted_without_a_daemon(guest: &mut GabionGuest<'_>, name: &str) {
    guest.sh(&format!(
        "echo late > /tmp/pods/{name}/pod/volume/late && kill -9 $(cat /tmp/pid) && {{ cluster remove {name} & }} && remove=$! &&
         until ! grep -q /tmp/pods/{name}/pod /proc/mounts; do usleep 20000; done; again && ended $remove &&
         cluster mount {name} && [ $(cat /tmp/pods/{name}/pod/volume/late) = late ] && cluster grown {name} &&
         cluster remove {name}"
    ));
}

/// Programs of other users must not read the secrets of a connection.
fn secrets_are_hidden(guest: &mut GabionGuest<'_>) {
    let modes = guest
        .sh("rmmod ublk_drv && cluster create secret && stat -c %a /sys/class/nvme/nvme*/dhchap_*secret &&
         cluster remove secret && cluster delete secret && clean");
    assert_eq!(modes.lines().collect::<Vec<_>>(), ["600", "600"]);
}

/// Runs a step of the cluster, inside the guest.
fn run_step(step: &str) {
    let (step, name) = step.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut node = Node::connect(&runtime, 1, "node-1");
    let (of, id, at) = (mounted("ext4"), format!("fast/{name}"), Path::new("/tmp/pods").join(name));
    std::fs::create_dir_all(&at).unwrap();
    runtime.block_on(async {
        match step {
            "create" => {
                node.wait_until_served().await;
                node.controller.create_volume(volume(name, 64 << 20, &of)).await.unwrap();
                node.mount(&id, &at, &of, &HashMap::new()).await;
            }
            "mount" => node.mount(&id, &at, &of, &HashMap::new()).await,
            "check" => {
                node.wait_until_served().await;
                let condition = node.condition(&id, &at).await;
                assert!(!condition.abnormal, "{condition:?}");
            }
            "failed" => {
                let condition = node.condition(&id, &at).await;
                assert!(condition.abnormal && condition.message.contains("delete the pods"), "{condition:?}");
            }
            "grow" => node.grow(&id, &at).await,
            "try-to-grow" => {
                // ublk devices grow since Linux 6.16.
                if let Err(status) = node.try_to_grow(&id, &at).await {
                    assert!(status.message().contains("Linux 6.16"), "{status:?}");
                }
            }
            "grown" => assert!(is_grown(&at)),
            "remove" => {
                node.unmount(&id, &at).await;
                assert!(!target(&at).exists());
            }
            "delete" => {
                let request = DeleteVolumeRequest { volume_id: id, ..DeleteVolumeRequest::default() };
                node.controller.delete_volume(request).await.unwrap();
            }
            other => panic!("no step {other}"),
        }
    });
}
