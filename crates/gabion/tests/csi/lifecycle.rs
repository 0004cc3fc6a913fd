//! Volumes of containers from creation to deletion, with data.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use csi::proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerModifyVolumeRequest, CreateSnapshotRequest,
    DeleteSnapshotRequest, DeleteVolumeRequest, NodeExpandVolumeRequest, NodeGetVolumeStatsRequest,
};
use loop_device::LoopDevice;
use tonic::Code;

use super::driver::{
    CleanUp, Driver, block, from_snapshot, from_volume, is_possible, loops_below, mounted, mounts_below,
    publish, stage, target, unpublish, unstage, volume,
};
use super::harness::{DEADLINE, Daemon, DaemonHome};

const GIB: i64 = 1 << 30;

fn start<'a>(home: &'a DaemonHome) -> (CleanUp, Daemon<'a>, Driver) {
    let clean = CleanUp(home.path(""));
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["volume", "delete", "fast/vm01", "--yes"]);
    (clean, daemon, Driver::start(home))
}

fn write(path: &Path, text: &str) {
    let mut file = File::create(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.sync_all().unwrap();
}

fn delete(driver: &mut Driver, id: &str) {
    let request = DeleteVolumeRequest { volume_id: id.to_owned(), ..DeleteVolumeRequest::default() };
    // A repeated deletion succeeds, too.
    for _ in 0..2 {
        driver.runtime.block_on(driver.controller.delete_volume(request.clone())).unwrap();
    }
}

fn snapshot(driver: &mut Driver, id: &str, name: &str) -> String {
    let request = CreateSnapshotRequest {
        source_volume_id: id.to_owned(),
        name: name.to_owned(),
        ..CreateSnapshotRequest::default()
    };
    let created = driver.runtime.block_on(driver.controller.create_snapshot(request)).unwrap();
    created.into_inner().snapshot.unwrap().snapshot_id
}

#[test]
fn files_survive_snapshots_clones_and_growth() {
    if !is_possible() {
        return;
    }
    let home = DaemonHome::new();
    let (_clean, daemon, mut driver) = start(&home);
    for kind in ["xfs", "ext4"] {
        let of = mounted(kind);
        let id = driver.create(volume("pvc-1", GIB, &of));
        assert_eq!(id, "fast/pvc-1");
        assert_eq!(driver.create(volume("pvc-1", GIB, &of)), id);
        let at = home.path("one");
        // Repeated calls change nothing.
        driver.mount(&id, &at, &of);
        let files = driver.mount(&id, &at, &of);
        write(&files.join("file"), "first");
        let snapshot_id = snapshot(&mut driver, &id, "snapshot-1");
        assert_eq!(snapshot(&mut driver, &id, "snapshot-1"), snapshot_id);
        write(&files.join("file"), "second");
        let mut request = volume("pvc-2", 3 * GIB, &of);
        request.volume_content_source = from_snapshot(&snapshot_id);
        let restored = driver.create(request);
        let mut request = volume("pvc-3", GIB, &of);
        request.volume_content_source = from_volume(&id);
        let cloned = driver.create(request);
        for (id, name, content, least) in
            [(&restored, "two", "first", 2_u64), (&cloned, "three", "second", 0)]
        {
            let at = home.path(name);
            let files = driver.mount(id, &at, &of);
            assert_eq!(std::fs::read_to_string(files.join("file")).unwrap(), content);
            let size = rustix::fs::statvfs(&files).unwrap();
            assert!(size.f_blocks * size.f_frsize > least << 30, "{} blocks", size.f_blocks);
            driver.unmount(id, &at);
        }
        // The kernel lets only processes with CAP_SYS_RESOURCE grow a mounted ext4.
        if kind == "xfs" {
            grow(&mut driver, &id, &files, 5 * GIB);
        }
        let request = DeleteVolumeRequest { volume_id: id.clone(), ..DeleteVolumeRequest::default() };
        let refused = driver.runtime.block_on(driver.controller.delete_volume(request)).unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains("snapshot-1"), "{refused:?}");
        driver.unmount(&id, &at);
        let request = DeleteSnapshotRequest { snapshot_id, ..DeleteSnapshotRequest::default() };
        driver.runtime.block_on(driver.controller.delete_snapshot(request)).unwrap();
        for id in [&id, &restored, &cloned] {
            delete(&mut driver, id);
        }
    }
    assert_eq!(loops_below(&home.path("")), Vec::<String>::new());
    assert_eq!(mounts_below(&home.path("")), Vec::<String>::new());
    assert_eq!(daemon.ok(&["volume", "list", "fast", "--snapshots", "--quiet"]).trim(), "");
}

/// Grows a volume in use, and checks its file system.
fn grow(driver: &mut Driver, id: &str, files: &Path, size: i64) {
    let range = Some(CapacityRange { required_bytes: size, limit_bytes: 0 });
    let request = ControllerExpandVolumeRequest {
        volume_id: id.to_owned(),
        capacity_range: range,
        ..ControllerExpandVolumeRequest::default()
    };
    let grown = driver.runtime.block_on(driver.controller.controller_expand_volume(request)).unwrap();
    assert!(grown.into_inner().node_expansion_required);
    let volume_path = files.to_str().unwrap().to_owned();
    let request = NodeExpandVolumeRequest {
        volume_id: id.to_owned(),
        volume_path: volume_path.clone(),
        ..NodeExpandVolumeRequest::default()
    };
    driver.runtime.block_on(driver.node.node_expand_volume(request)).unwrap();
    let request = NodeGetVolumeStatsRequest { volume_id: id.to_owned(), volume_path, ..Default::default() };
    let stats = driver.runtime.block_on(driver.node.node_get_volume_stats(request)).unwrap().into_inner();
    assert!(stats.usage[0].total > size * 9 / 10, "{stats:?}");
    assert!(!stats.volume_condition.unwrap().abnormal);
}

#[test]
fn data_is_never_formatted() {
    if !is_possible() {
        return;
    }
    let home = DaemonHome::new();
    let (_clean, daemon, mut driver) = start(&home);
    let id = driver.create(volume("raw", GIB, &block()));
    let at = home.path("one");
    let device = driver.mount(&id, &at, &block());
    let data = [7; 4096];
    let file = File::options().read(true).write(true).open(&device).unwrap();
    file.write_all_at(&data, 900 << 20).unwrap();
    file.sync_all().unwrap();
    drop(file);
    driver.unmount(&id, &at);
    // No signature, but data.
    let refused = driver.runtime.block_on(driver.node.node_stage_volume(stage(&id, &at, &mounted("xfs"))));
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("4096 bytes of unknown data"), "{refused:?}");
    let device = driver.mount(&id, &at, &block());
    let mut read = [0; 4096];
    File::open(&device).unwrap().read_exact_at(&mut read, 900 << 20).unwrap();
    assert_eq!(read, data);
    driver.unmount(&id, &at);

    // The file system of another kind.
    let other = driver.create(volume("ext4", GIB, &mounted("ext4")));
    let files = driver.mount(&other, &at, &mounted("ext4"));
    write(&files.join("file"), "kept");
    driver.unmount(&other, &at);
    let refused = driver.runtime.block_on(driver.node.node_stage_volume(stage(&other, &at, &mounted("xfs"))));
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("ext4"), "{refused:?}");
    let files = driver.mount(&other, &at, &mounted("ext4"));
    assert_eq!(std::fs::read_to_string(files.join("file")).unwrap(), "kept");
    driver.unmount(&other, &at);

    // Formatting that was interrupted: the snapshot of the blank volume is left, and half a file
    // system.
    let third = driver.create(volume("third", GIB, &mounted("xfs")));
    daemon.ok(&["volume", "snapshot", "fast/third@csi-tmp-format"]);
    let device = driver.mount(&third, &at, &block());
    let file = File::options().write(true).open(&device).unwrap();
    file.write_all_at(b"XFSB", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    driver.unmount(&third, &at);
    let files = driver.mount(&third, &at, &mounted("xfs"));
    write(&files.join("file"), "kept");
    driver.unmount(&third, &at);
    let files = driver.mount(&third, &at, &mounted("xfs"));
    assert_eq!(std::fs::read_to_string(files.join("file")).unwrap(), "kept");
    driver.unmount(&third, &at);
    for id in [&id, &other, &third] {
        delete(&mut driver, id);
    }
    assert_eq!(daemon.ok(&["volume", "list", "fast", "--snapshots", "--quiet"]).trim(), "");
}

/// The driver neither uses nor deletes an export that it did not make, and others do not delete
/// those of the driver.
#[test]
fn exports_belong_to_those_who_made_them() {
    if !is_possible() {
        return;
    }
    let home = DaemonHome::new();
    let (_clean, daemon, mut driver) = start(&home);
    let (at, of) = (home.path("one"), mounted("xfs"));
    let id = driver.create(volume("pvc-1", GIB, &of));
    daemon.ok(&["export", "create", &id, "--fuse"]);
    let refused = driver.runtime.block_on(driver.node.node_stage_volume(stage(&id, &at, &of))).unwrap_err();
    assert!(refused.message().contains("is exported already"), "{refused:?}");
    driver.runtime.block_on(driver.node.node_unstage_volume(unstage(&id, &at))).unwrap();
    assert_eq!(daemon.json(&["export", "list"]).as_array().unwrap().len(), 1);
    daemon.ok(&["export", "delete", &id]);
    driver.mount(&id, &at, &of);
    assert_eq!(daemon.json(&["export", "list"])[0]["owner"], "gabion csi");
    assert!(daemon.ok(&["export", "list"]).contains("managed by gabion csi"));
    let refused = daemon.refused(&["export", "delete", &id]);
    assert!(refused.contains("is managed by gabion csi"), "{refused}");
    driver.unmount(&id, &at);
    assert_eq!(daemon.json(&["export", "list"]).as_array().unwrap().len(), 0);
    delete(&mut driver, &id);
}

#[test]
fn limits_and_access_modes_are_applied() {
    if !is_possible() {
        return;
    }
    let home = DaemonHome::new();
    let (_clean, daemon, mut driver) = start(&home);
    let mut request = volume("limited", GIB, &mounted("xfs"));
    request.parameters.insert("iops".to_owned(), "500".to_owned());
    let id = driver.create(request);
    let shown = daemon.json(&["volume", "show", "fast/limited"]);
    assert_eq!(shown["qos"]["iops"], 500, "{shown}");
    let request = ControllerModifyVolumeRequest {
        volume_id: id.clone(),
        mutable_parameters: [("iops".to_owned(), "none".to_owned()), ("weight".to_owned(), "300".to_owned())]
            .into(),
        ..Default::default()
    };
    driver.runtime.block_on(driver.controller.controller_modify_volume(request)).unwrap();
    let shown = daemon.json(&["volume", "show", "fast/limited"]);
    assert_eq!((&shown["qos"]["iops"], &shown["qos"]["weight"]), (&serde_json::Value::Null, &300.into()));

    let mut request = volume("other", GIB, &mounted("xfs"));
    request.parameters.insert("poool".to_owned(), "fast".to_owned());
    let refused = driver.runtime.block_on(driver.controller.create_volume(request)).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().starts_with("poool: "), "{refused:?}");

    // One container only.
    let mut alone = mounted("xfs");
    let mode = csi::proto::csi::volume_capability::access_mode::Mode::SingleNodeSingleWriter;
    alone.access_mode = Some(csi::proto::csi::volume_capability::AccessMode { mode: mode.into() });
    let at = home.path("one");
    driver.mount(&id, &at, &alone);
    let mut second = publish(&id, &at, &alone);
    second.target_path = target(&at).with_file_name("second").to_str().unwrap().to_owned();
    let refused = driver.runtime.block_on(driver.node.node_publish_volume(second)).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    driver.unmount(&id, &at);
    delete(&mut driver, &id);
}

/// The kubelet restricts the device of a container that only reads.
#[test]
fn a_raw_block_volume_is_also_published_read_only() {
    if !is_possible() {
        return;
    }
    let home = DaemonHome::new();
    let (_clean, _daemon, mut driver) = start(&home);
    let (of, at) = (block(), home.path("pods"));
    let id = driver.create(volume("read", GIB, &of));
    driver.mount(&id, &at, &of);
    let mut second = publish(&id, &at, &of);
    second.target_path = target(&at).with_file_name("second").to_str().unwrap().to_owned();
    second.readonly = true;
    // Twice: the call is idempotent.
    for _ in 0..2 {
        driver.runtime.block_on(driver.node.node_publish_volume(second.clone())).unwrap();
    }
    let mut unpublish = unpublish(&id, &at);
    unpublish.target_path = second.target_path;
    driver.runtime.block_on(driver.node.node_unpublish_volume(unpublish)).unwrap();
    driver.unmount(&id, &at);
    delete(&mut driver, &id);
}

/// The node of a raw block volume does not hold its loop device open. If a person or a daemon has
/// detached the device, another process may have it when the volume is unstaged.
#[test]
fn the_loop_device_of_another_file_is_not_detached() {
    if !is_possible() {
        return;
    }
    let home = DaemonHome::new();
    let (_clean, daemon, mut driver) = start(&home);
    let of = block();
    let id = driver.create(volume("raw", GIB, &of));
    let at = home.path("pods");
    let other = home.path("other");
    std::fs::File::create(&other).unwrap().set_len(1 << 20).unwrap();
    let losetup = |arguments: &[&str]| Command::new("losetup").args(arguments).status().unwrap().success();
    let started = Instant::now();
    loop {
        driver.runtime.block_on(driver.node.node_stage_volume(stage(&id, &at, &of))).unwrap();
        let device = loops_below(&home.path("")).remove(0).split_whitespace().next().unwrap().to_owned();
        assert!(losetup(&["--detach", &device]));
        let is_taken = losetup(&[&device, other.to_str().unwrap()]);
        driver.runtime.block_on(driver.node.node_unstage_volume(unstage(&id, &at))).unwrap();
        if is_taken {
            break;
        }
        // A device of another test has the name.
        assert!(started.elapsed() < DEADLINE);
    }
    assert_eq!(daemon.ok(&["export", "list", "--quiet"]), "");
    assert_eq!(LoopDevice::all_of(&other).unwrap().len(), 1);
    delete(&mut driver, &id);
}

/// Exports that share a volume can coexist, so the daemon does not refuse a second one.
#[test]
fn a_stage_that_was_interrupted_makes_no_second_export() {
    if !is_possible() {
        return;
    }
    let home = DaemonHome::new();
    let (_clean, daemon, mut driver) = start(&home);
    let of = block();
    let id = driver.create(volume("shared", GIB, &of));
    let at = home.path("pods");
    let exports = || daemon.ok(&["export", "list", "--quiet"]).lines().count();
    for _ in 0..2 {
        driver.runtime.block_on(driver.node.node_stage_volume(stage(&id, &at, &of))).unwrap();
        assert_eq!((exports(), loops_below(&home.path("")).len()), (1, 1));
        // The driver was killed between the loop device and the mount.
        let device = at.join("staging/device");
        rustix::mount::unmount(&device, rustix::mount::UnmountFlags::empty()).unwrap();
    }
    driver.runtime.block_on(driver.node.node_unstage_volume(unstage(&id, &at))).unwrap();
    assert_eq!((exports(), loops_below(&home.path(""))), (0, Vec::new()));
    delete(&mut driver, &id);
}
