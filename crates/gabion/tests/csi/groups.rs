//! Groups of snapshots, and the allocated and changed ranges of snapshots.

use std::os::unix::fs::FileExt;

use csi::proto::csi::{
    BlockMetadata, CreateVolumeGroupSnapshotRequest, DeleteSnapshotRequest, DeleteVolumeGroupSnapshotRequest,
    GetMetadataAllocatedRequest, GetMetadataDeltaRequest, GetVolumeGroupSnapshotRequest, VolumeGroupSnapshot,
};
use tonic::{Code, Status};

use super::driver::{CleanUp, Driver, block, is_possible, mounted, volume};
use super::harness::{Daemon, DaemonHome};

const MIB: i64 = 1 << 20;

fn start<'a>(home: &'a DaemonHome) -> (CleanUp, Daemon<'a>, Driver) {
    let clean = CleanUp(home.path(""));
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["volume", "delete", "fast/vm01", "--yes"]);
    (clean, daemon, Driver::start(home))
}

fn create(driver: &mut Driver, name: &str, volumes: &[&str]) -> Result<VolumeGroupSnapshot, Status> {
    let request = CreateVolumeGroupSnapshotRequest {
        name: name.to_owned(),
        source_volume_ids: volumes.iter().map(|id| (*id).to_owned()).collect(),
        ..CreateVolumeGroupSnapshotRequest::default()
    };
    let created = driver.runtime.block_on(driver.groups.create_volume_group_snapshot(request))?;
    Ok(created.into_inner().group_snapshot.unwrap())
}

fn get(driver: &mut Driver, id: &str, snapshots: &[&str]) -> Result<VolumeGroupSnapshot, Status> {
    let request = GetVolumeGroupSnapshotRequest {
        group_snapshot_id: id.to_owned(),
        snapshot_ids: snapshots.iter().map(|id| (*id).to_owned()).collect(),
        ..GetVolumeGroupSnapshotRequest::default()
    };
    let found = driver.runtime.block_on(driver.groups.get_volume_group_snapshot(request))?;
    Ok(found.into_inner().group_snapshot.unwrap())
}

fn delete(driver: &mut Driver, id: &str, snapshots: &[&str]) -> Result<(), Status> {
    let request = DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: id.to_owned(),
        snapshot_ids: snapshots.iter().map(|id| (*id).to_owned()).collect(),
        ..DeleteVolumeGroupSnapshotRequest::default()
    };
    driver.runtime.block_on(driver.groups.delete_volume_group_snapshot(request)).map(drop)
}

#[test]
fn a_group_of_snapshots_lives_and_dies_together() {
    if !is_possible() {
        return;
    }
    let home = DaemonHome::new();
    let (_clean, daemon, mut driver) = start(&home);
    let of = mounted("ext4");
    for name in ["a", "b", "c"] {
        driver.create(volume(name, 16 * MIB, &of));
    }
    let group = create(&mut driver, "groupsnapshot-1", &["fast/b", "fast/a"]).unwrap();
    let id = group.group_snapshot_id.clone();
    let members: Vec<&str> = group.snapshots.iter().map(|of| of.snapshot_id.as_str()).collect();
    let expected = ["fast/a@csi-group-groupsnapshot-1", "fast/b@csi-group-groupsnapshot-1"];
    assert_eq!((id.as_str(), &members[..]), ("fast@csi-group-groupsnapshot-1", &expected[..]));
    assert!(group.ready_to_use && group.snapshots.iter().all(|of| of.group_snapshot_id == id));
    // Repeated calls find the group.
    assert_eq!(create(&mut driver, "groupsnapshot-1", &["fast/a", "fast/b"]).unwrap(), group);
    assert_eq!(get(&mut driver, &id, &expected).unwrap(), group);
    let code = |result: Result<VolumeGroupSnapshot, Status>| result.unwrap_err().code();
    assert_eq!(code(create(&mut driver, "groupsnapshot-1", &["fast/a", "fast/c"])), Code::AlreadyExists);
    assert_eq!(code(create(&mut driver, "g", &["fast/a", "fast/a"])), Code::InvalidArgument);
    assert_eq!(code(create(&mut driver, "g", &["fast/a", "fast/none"])), Code::NotFound);
    assert_eq!(code(create(&mut driver, "g", &["fast/a", "slow/a"])), Code::FailedPrecondition);
    assert_eq!(code(get(&mut driver, "fast@csi-group-none", &[])), Code::NotFound);
    assert_eq!(code(get(&mut driver, &id, &expected[..1])), Code::InvalidArgument);
    // One of them cannot be deleted alone.
    let request =
        DeleteSnapshotRequest { snapshot_id: expected[0].into(), ..DeleteSnapshotRequest::default() };
    let alone = driver.runtime.block_on(driver.controller.delete_snapshot(request)).unwrap_err();
    assert_eq!(alone.code(), Code::InvalidArgument);
    let foreign = delete(&mut driver, &id, &["fast/a@other"]).unwrap_err();
    assert_eq!(foreign.code(), Code::InvalidArgument);
    // A deletion that was interrupted after the first snapshot continues.
    daemon.ok(&["volume", "delete", expected[0], "--yes"]);
    for _ in 0..2 {
        delete(&mut driver, &id, &expected).unwrap();
    }
    assert_eq!(
        daemon.ok(&["volume", "list", "fast", "--snapshots", "--quiet"]).trim(),
        "fast/a\nfast/b\nfast/c"
    );
}

/// Returns all ranges of a stream of responses, and the number of responses.
fn allocated(driver: &mut Driver, request: GetMetadataAllocatedRequest) -> (Vec<(i64, i64)>, usize) {
    let mut ranges = Vec::new();
    let mut responses = 0;
    driver.runtime.block_on(async {
        let mut stream = driver.metadata.get_metadata_allocated(request).await.unwrap().into_inner();
        while let Some(response) = stream.message().await.unwrap() {
            assert_eq!(response.volume_capacity_bytes, 64 * MIB);
            ranges.extend(response.block_metadata.iter().map(pair));
            responses += 1;
        }
    });
    (ranges, responses)
}

fn pair(of: &BlockMetadata) -> (i64, i64) {
    (of.byte_offset, of.size_bytes)
}

fn changed(driver: &mut Driver, base: &str, target: &str, start: i64) -> Result<Vec<(i64, i64)>, Status> {
    let request = GetMetadataDeltaRequest {
        base_snapshot_id: base.to_owned(),
        target_snapshot_id: target.to_owned(),
        starting_offset: start,
        ..GetMetadataDeltaRequest::default()
    };
    driver.runtime.block_on(async {
        let mut stream = driver.metadata.get_metadata_delta(request).await?.into_inner();
        let mut ranges = Vec::new();
        while let Some(response) = stream.message().await? {
            ranges.extend(response.block_metadata.iter().map(pair));
        }
        Ok(ranges)
    })
}

#[test]
fn backups_find_the_allocated_and_changed_ranges() {
    if !is_possible() {
        return;
    }
    let home = DaemonHome::new();
    let (_clean, daemon, mut driver) = start(&home);
    let of = block();
    let id = driver.create(volume("disk", 64 * MIB, &of));
    driver.create(volume("other", 64 * MIB, &of));
    let device = driver.mount(&id, &home.path("one"), &of);
    let write = |offset: i64, bytes: &[u8]| {
        let file = std::fs::File::options().write(true).open(&device).unwrap();
        file.write_all_at(bytes, offset as u64).unwrap();
        file.sync_all().unwrap();
    };
    write(0, &[1; 4096]);
    write(20 * MIB, &[1; 65_536]);
    write(40 * MIB, &[1; 8192]);
    daemon.ok(&["volume", "snapshot", "fast/disk@one", "fast/other@one"]);
    write(20 * MIB, &[2; 4096]);
    write(50 * MIB, &[2; 4096]);
    // Zeros are a change, too.
    write(40 * MIB, &[0; 4096]);
    daemon.ok(&["volume", "snapshot", "fast/disk@two"]);
    let request = GetMetadataAllocatedRequest {
        snapshot_id: "fast/disk@one".into(),
        ..GetMetadataAllocatedRequest::default()
    };
    let first = vec![(0, 4096), (20 * MIB, 65_536), (40 * MIB, 8192)];
    assert_eq!(allocated(&mut driver, request.clone()), (first.clone(), 1));
    let by_one = GetMetadataAllocatedRequest { max_results: 1, ..request.clone() };
    assert_eq!(allocated(&mut driver, by_one), (first.clone(), 3));
    let later = GetMetadataAllocatedRequest { starting_offset: 30 * MIB, ..request.clone() };
    assert_eq!(allocated(&mut driver, later).0, first[2..]);
    let delta = vec![(20 * MIB, 4096), (40 * MIB, 4096), (50 * MIB, 4096)];
    assert_eq!(changed(&mut driver, "fast/disk@one", "fast/disk@two", 0).unwrap(), delta);
    assert_eq!(changed(&mut driver, "fast/disk@one", "fast/disk@two", 45 * MIB).unwrap(), delta[2..]);
    for (base, target, start, code) in [
        ("fast/other@one", "fast/disk@two", 0, Code::InvalidArgument),
        ("", "fast/disk@two", 0, Code::InvalidArgument),
        ("fast/disk@none", "fast/disk@two", 0, Code::NotFound),
        ("fast/disk@one", "fast/disk@two", 64 * MIB, Code::OutOfRange),
    ] {
        let refused = changed(&mut driver, base, target, start).unwrap_err();
        assert_eq!(refused.code(), code, "{base} {target} {start}");
    }
    driver.unmount(&id, &home.path("one"));
}
