//! A driver process, and calls of it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use csi::proto::csi::controller_client::ControllerClient;
use csi::proto::csi::group_controller_client::GroupControllerClient;
use csi::proto::csi::identity_client::IdentityClient;
use csi::proto::csi::node_client::NodeClient;
use csi::proto::csi::snapshot_metadata_client::SnapshotMetadataClient;
use csi::proto::csi::volume_capability::access_mode::Mode;
use csi::proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use csi::proto::csi::volume_content_source::{SnapshotSource, Type as SourceType, VolumeSource};
use csi::proto::csi::{
    CapacityRange, CreateVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, ProbeRequest, VolumeCapability,
    VolumeContentSource,
};
use loop_device::LoopDevice;
use tokio::runtime::Runtime;
use tonic::transport::Channel;

use super::harness::{DEADLINE, DaemonHome};

/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Returns true if the tests of this file's requirements must run.
pub(crate) fn is_possible() -> bool {
    test_support::has_fuse()
        && test_support::has_loop()
        && test_support::has_programs(&["losetup", "mkfs.xfs", "mkfs.ext4", "blkid", "mount"])
}

/// A driver that serves both services; killed on drop.
pub(crate) struct Driver {
    child: Child,
    pub(crate) runtime: Runtime,
    pub(crate) controller: ControllerClient<Channel>,
    pub(crate) node: NodeClient<Channel>,
    pub(crate) groups: GroupControllerClient<Channel>,
    pub(crate) metadata: SnapshotMetadataClient<Channel>,
}

/// Starts the process of a driver.
pub(crate) fn start_process(home: &DaemonHome, more: &[&str]) -> Child {
    let endpoint = format!("unix://{}", home.arg("csi.sock"));
    let mut serve = home.client(&["csi", "--node", "--controller", "--endpoint", &endpoint]);
    serve
        .args(more)
        .args(["--node-id", "node-1"])
        .env("GABION_LOG_LEVEL", "debug")
        .env("GABION_LOG_FORMAT", "json");
    let log = std::fs::File::options().create(true).append(true).open(home.path("csi.log")).unwrap();
    serve.stdin(Stdio::null()).stderr(log).spawn().unwrap()
}

impl Driver {
    /// Starts a driver and waits until it serves.
    pub(crate) fn start(home: &DaemonHome) -> Self {
        Self::start_with(home, &[])
    }

    /// Starts a driver with additional arguments.
    pub(crate) fn start_with(home: &DaemonHome, more: &[&str]) -> Self {
        let child = start_process(home, more);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let uri = format!("unix:{}", home.arg("csi.sock"));
        let channel = {
            let _entered = runtime.enter();
            tonic::transport::Endpoint::try_from(uri).unwrap().connect_lazy()
        };
        let driver = Self {
            child,
            runtime,
            controller: ControllerClient::new(channel.clone()),
            node: NodeClient::new(channel.clone()),
            groups: GroupControllerClient::new(channel.clone()),
            metadata: SnapshotMetadataClient::new(channel.clone()),
        };
        let mut identity = IdentityClient::new(channel);
        let started = Instant::now();
        loop {
            let probed = driver.runtime.block_on(identity.probe(ProbeRequest {}));
            if probed.is_ok_and(|response| response.into_inner().ready == Some(true)) {
                return driver;
            }
            assert!(started.elapsed() < DEADLINE, "{}", log(home));
            std::thread::sleep(RETRY_PAUSE);
        }
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Replaces a killed process. The clients connect again.
    pub(crate) fn restart(&mut self, home: &DaemonHome) {
        self.kill();
        self.child = start_process(home, &[]);
    }

    pub(crate) fn create(&mut self, request: CreateVolumeRequest) -> String {
        let created = self.runtime.block_on(self.controller.create_volume(request)).unwrap();
        created.into_inner().volume.unwrap().volume_id
    }

    /// Stages and publishes a volume at directories of `at`.
    pub(crate) fn mount(&mut self, id: &str, at: &Path, of: &VolumeCapability) -> PathBuf {
        self.runtime.block_on(self.node.node_stage_volume(stage(id, at, of))).unwrap();
        self.runtime.block_on(self.node.node_publish_volume(publish(id, at, of))).unwrap();
        target(at)
    }

    pub(crate) fn unmount(&mut self, id: &str, at: &Path) {
        // A process that another test is starting may have inherited an open file for a moment.
        let started = Instant::now();
        while let Err(status) = self.runtime.block_on(self.node.node_unpublish_volume(unpublish(id, at))) {
            assert!(status.message().contains("busy") && started.elapsed() < DEADLINE, "{status:?}");
            std::thread::sleep(RETRY_PAUSE);
        }
        self.runtime.block_on(self.node.node_unstage_volume(unstage(id, at))).unwrap();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the log of the driver.
pub(crate) fn log(home: &DaemonHome) -> String {
    std::fs::read_to_string(home.path("csi.log")).unwrap_or_default()
}

fn capability(access: AccessType, mode: Mode) -> VolumeCapability {
    VolumeCapability { access_type: Some(access), access_mode: Some(AccessMode { mode: mode.into() }) }
}

pub(crate) fn mounted(fs_type: &str) -> VolumeCapability {
    let mount = MountVolume { fs_type: fs_type.to_owned(), ..MountVolume::default() };
    capability(AccessType::Mount(mount), Mode::SingleNodeWriter)
}

pub(crate) fn block() -> VolumeCapability {
    capability(AccessType::Block(BlockVolume {}), Mode::MultiNodeMultiWriter)
}

pub(crate) fn volume(name: &str, size: i64, of: &VolumeCapability) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: size, limit_bytes: 0 }),
        volume_capabilities: vec![of.clone()],
        parameters: HashMap::from([("pool".to_owned(), "fast".to_owned())]),
        ..CreateVolumeRequest::default()
    }
}

pub(crate) fn from_snapshot(snapshot_id: &str) -> Option<VolumeContentSource> {
    let source = SnapshotSource { snapshot_id: snapshot_id.to_owned() };
    Some(VolumeContentSource { r#type: Some(SourceType::Snapshot(source)) })
}

pub(crate) fn from_volume(volume_id: &str) -> Option<VolumeContentSource> {
    let source = VolumeSource { volume_id: volume_id.to_owned() };
    Some(VolumeContentSource { r#type: Some(SourceType::Volume(source)) })
}

fn staging(at: &Path) -> String {
    at.join("staging").to_str().unwrap().to_owned()
}

pub(crate) fn target(at: &Path) -> PathBuf {
    at.join("pod/volume")
}

pub(crate) fn stage(id: &str, at: &Path, of: &VolumeCapability) -> NodeStageVolumeRequest {
    std::fs::create_dir_all(at.join("pod")).unwrap();
    NodeStageVolumeRequest {
        volume_id: id.to_owned(),
        staging_target_path: staging(at),
        volume_capability: Some(of.clone()),
        ..NodeStageVolumeRequest::default()
    }
}

pub(crate) fn publish(id: &str, at: &Path, of: &VolumeCapability) -> NodePublishVolumeRequest {
    NodePublishVolumeRequest {
        volume_id: id.to_owned(),
        staging_target_path: staging(at),
        target_path: target(at).to_str().unwrap().to_owned(),
        volume_capability: Some(of.clone()),
        ..NodePublishVolumeRequest::default()
    }
}

pub(crate) fn unpublish(id: &str, at: &Path) -> NodeUnpublishVolumeRequest {
    NodeUnpublishVolumeRequest {
        volume_id: id.to_owned(),
        target_path: target(at).to_str().unwrap().to_owned(),
    }
}

pub(crate) fn unstage(id: &str, at: &Path) -> NodeUnstageVolumeRequest {
    NodeUnstageVolumeRequest { volume_id: id.to_owned(), staging_target_path: staging(at) }
}

/// Removes the mounts and loop devices below a directory if the test fails.
pub(crate) struct CleanUp(pub(crate) PathBuf);

/// Returns the mount points below a directory, the newest first.
pub(crate) fn mounts_below(directory: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let paths = table.lines().filter_map(|line| line.split(' ').nth(4));
    let below = paths.filter(|path| Path::new(path).starts_with(directory)).map(str::to_owned);
    let mut below: Vec<_> = below.collect();
    below.reverse();
    below
}

/// Returns the loop devices of files below a directory.
pub(crate) fn loops_below(directory: &Path) -> Vec<String> {
    let prefix = directory.to_str().unwrap();
    loops().into_iter().filter(|line| line.contains(prefix)).collect()
}

/// Returns the loop devices of files whose mount is gone: the kernel shows no path for them.
pub(crate) fn loops_without_file() -> Vec<String> {
    loops().into_iter().filter(|line| line.split_whitespace().nth(1) == Some("/")).collect()
}

/// Returns all loop devices, each with its file.
fn loops() -> Vec<String> {
    let listed =
        Command::new("losetup").args(["--list", "--noheadings", "--output", "NAME,BACK-FILE"]).output();
    String::from_utf8(listed.unwrap().stdout).unwrap().lines().map(str::to_owned).collect()
}

impl Drop for CleanUp {
    fn drop(&mut self) {
        for line in loops_below(&self.0) {
            // By its file: another test may have the name of a device that was detached meanwhile.
            let file = line.split_whitespace().nth(1).unwrap_or_default();
            for device in LoopDevice::all_of(Path::new(file)).unwrap_or_default() {
                let _ = device.detach();
            }
        }
        for path in mounts_below(&self.0) {
            let _ = Command::new("umount").arg("-l").arg(path).output();
        }
    }
}
