//! Volumes that nodes use over NVMe/TCP, with the kernel's initiator in a guest. The program of
//! this test is the cluster inside the guest, too: the drivers' sockets are there.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use csi::proto::csi::controller_client::ControllerClient;
use csi::proto::csi::node_client::NodeClient;
use csi::proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerPublishVolumeRequest,
    ControllerUnpublishVolumeRequest, NodeExpandVolumeRequest, NodeGetInfoRequest, NodeGetVolumeStatsRequest,
    NodeStageVolumeRequest, VolumeCapability, VolumeCondition,
};
use tokio::runtime::Runtime;
use tonic::transport::Channel;

use super::driver::{block, mounted, publish, stage, target, unpublish, unstage, volume};
use super::gabion_guest::{GabionGuest, strip};
use super::harness::{DEADLINE, DaemonHome};

/// Set inside the guest.
pub(crate) const INSIDE: &str = "GABION_CSI_INSIDE_GUEST";
/// The name of this test, by which the guest runs it.
const TEST: &str = "network_guest::nodes_use_disks_of_their_kernel";
/// Programs of the host for file systems that are mounted again.
pub(crate) const PROGRAMS: [&str; 2] = ["fsck.ext4", "dumpe2fs"];

#[test]
fn nodes_use_disks_of_their_kernel() {
    if std::env::var_os(INSIDE).is_some() {
        return cluster();
    }
    if !test_support::has_programs(&PROGRAMS) || !test_support::has_program("strip") {
        return;
    }
    let home = DaemonHome::new();
    let client = home.path("csi-cluster");
    strip(&std::env::current_exe().unwrap(), &client);
    let mut programs = PROGRAMS.map(|name| test_support::find_program(name).unwrap()).to_vec();
    programs.push(client);
    let programs: Vec<&Path> = programs.iter().map(|path| path.as_path()).collect();
    let Some(mut guest) = GabionGuest::start_with(&home, &["nvme_tcp"], "1536M", &programs) else { return };
    guest.sh("insmod /modules/nvme_tcp.ko && ifconfig lo 127.0.0.1 up && [ -c /dev/nvme-fabrics ] &&
         mkdir /pool && mount -t tmpfs none /pool && export GABION_NVME_LISTEN=127.0.0.1:4420 && serve 0 &&
         gabion pool create fast --scheme 2+1 --files /pool --file-size 256M --count 3 > /tmp/made");
    for node in 1..=2 {
        guest.sh(&format!(
            "gabion csi --node --controller --attach nvme-tcp --node-id node-{node} \
             --endpoint unix:///tmp/csi-{node}.sock >> /tmp/csi.log 2>&1 &
             until [ -S /tmp/csi-{node}.sock ]; do usleep 20000; done"
        ));
    }
    let printed = guest.sh(&format!(
        "{INSIDE}=1 csi-cluster --exact {TEST} --nocapture > /tmp/cluster 2>&1 || {{ cat /tmp/cluster /tmp/csi.log; false; }};
         cat /tmp/cluster"
    ));
    assert!(printed.contains("1 passed"), "{printed}");
    // Nothing is left.
    guest.sh("[ -z \"$(ls /sys/class/nvme)\" ] && [ \"$(gabion export list --quiet)\" = '' ]");
}

/// A node of the cluster, with its driver.
pub(crate) struct Node {
    name: &'static str,
    pub(crate) node: NodeClient<Channel>,
    pub(crate) controller: ControllerClient<Channel>,
}

impl Node {
    pub(crate) fn connect(runtime: &Runtime, number: u32, name: &'static str) -> Self {
        let _entered = runtime.enter();
        let uri = format!("unix:/tmp/csi-{number}.sock");
        let channel = tonic::transport::Endpoint::try_from(uri).unwrap().connect_lazy();
        Self { name, node: NodeClient::new(channel.clone()), controller: ControllerClient::new(channel) }
    }

    async fn attach(&mut self, id: &str, of: &VolumeCapability) -> HashMap<String, String> {
        let request = ControllerPublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: self.name.to_owned(),
            volume_capability: Some(of.clone()),
            ..ControllerPublishVolumeRequest::default()
        };
        self.controller.controller_publish_volume(request).await.unwrap().into_inner().publish_context
    }

    async fn detach(&mut self, id: &str) {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: self.name.to_owned(),
            ..ControllerUnpublishVolumeRequest::default()
        };
        self.controller.controller_unpublish_volume(request).await.unwrap();
    }

    /// Repeats each call, as a cluster may.
    pub(crate) async fn mount(
        &mut self,
        id: &str,
        at: &Path,
        of: &VolumeCapability,
        context: &HashMap<String, String>,
    ) {
        let staged = NodeStageVolumeRequest { publish_context: context.clone(), ..stage(id, at, of) };
        for _ in 0..2 {
            self.node.node_stage_volume(staged.clone()).await.unwrap();
        }
        for _ in 0..2 {
            self.node.node_publish_volume(publish(id, at, of)).await.unwrap();
        }
    }

    pub(crate) async fn unmount(&mut self, id: &str, at: &Path) {
        for _ in 0..2 {
            self.node.node_unpublish_volume(unpublish(id, at)).await.unwrap();
        }
        for _ in 0..2 {
            self.node.node_unstage_volume(unstage(id, at)).await.unwrap();
        }
    }
}

impl Node {
    /// Waits until the driver serves.
    pub(crate) async fn wait_until_served(&mut self) {
        let started = Instant::now();
        while let Err(status) = self.node.node_get_info(NodeGetInfoRequest {}).await {
            assert!(started.elapsed() < DEADLINE, "{status:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn condition(&mut self, id: &str, at: &Path) -> VolumeCondition {
        let request = NodeGetVolumeStatsRequest {
            volume_id: id.to_owned(),
            volume_path: target(at).to_str().unwrap().to_owned(),
            ..NodeGetVolumeStatsRequest::default()
        };
        let stats = self.node.node_get_volume_stats(request).await.unwrap().into_inner();
        stats.volume_condition.unwrap()
    }

    /// Doubles a mounted volume of 64 MiB.
    pub(crate) async fn grow(&mut self, id: &str, at: &Path) {
        self.try_to_grow(id, at).await.unwrap();
        assert!(is_grown(at));
    }

    /// Doubles a volume of 64 MiB. Returns the error of the node.
    pub(crate) async fn try_to_grow(&mut self, id: &str, at: &Path) -> Result<(), tonic::Status> {
        let range = Some(CapacityRange { required_bytes: 128 << 20, limit_bytes: 0 });
        let grow = ControllerExpandVolumeRequest {
            volume_id: id.to_owned(),
            capacity_range: range,
            ..ControllerExpandVolumeRequest::default()
        };
        self.controller.controller_expand_volume(grow).await.unwrap();
        let grow = NodeExpandVolumeRequest {
            volume_id: id.to_owned(),
            volume_path: target(at).to_str().unwrap().to_owned(),
            capacity_range: range,
            ..NodeExpandVolumeRequest::default()
        };
        self.node.node_expand_volume(grow).await.map(drop)
    }
}

/// Returns true if a file system has more than 96 MiB.
pub(crate) fn is_grown(at: &Path) -> bool {
    let found = rustix::fs::statvfs(target(at)).unwrap();
    found.f_blocks * found.f_frsize > 96 << 20
}

/// The calls of a cluster, inside the guest.
fn cluster() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut one, mut two) = (Node::connect(&runtime, 1, "node-1"), Node::connect(&runtime, 2, "node-2"));
    runtime.block_on(async {
        a_file_system_moves_to_another_node(&mut one, &mut two).await;
        two_nodes_have_a_raw_block_volume(&mut one, &mut two).await;
    });
}

async fn a_file_system_moves_to_another_node(one: &mut Node, two: &mut Node) {
    let of = mounted("ext4");
    let created = one.controller.create_volume(volume("files", 64 << 20, &of)).await.unwrap().into_inner();
    let (id, at) = (created.volume.unwrap().volume_id, Path::new("/tmp/one"));
    let context = one.attach(&id, &of).await;
    one.mount(&id, at, &of, &context).await;
    let file = target(at).join("file");
    std::fs::write(&file, "precious").unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    let condition = one.condition(&id, at).await;
    assert!(!condition.abnormal && condition.message.contains("1 of 1 paths"), "{condition:?}");
    one.grow(&id, at).await;

    one.unmount(&id, at).await;
    one.detach(&id).await;
    let context = two.attach(&id, &of).await;
    let at = Path::new("/tmp/two");
    two.mount(&id, at, &of, &context).await;
    assert_eq!(std::fs::read_to_string(target(at).join("file")).unwrap(), "precious");
    two.unmount(&id, at).await;
    two.detach(&id).await;
}

/// As for the live migration of a machine. One kernel connects to one of the two disks at a time,
/// because they have the same identity.
async fn two_nodes_have_a_raw_block_volume(one: &mut Node, two: &mut Node) {
    let of = block();
    let created = one.controller.create_volume(volume("machine", 64 << 20, &of)).await.unwrap().into_inner();
    let (id, at) = (created.volume.unwrap().volume_id, Path::new("/tmp/three"));
    let (of_one, of_two) = (one.attach(&id, &of).await, two.attach(&id, &of).await);
    one.mount(&id, at, &of, &of_one).await;
    let device = File::options().write(true).open(target(at)).unwrap();
    device.write_all_at(&[7; 8192], 4096).unwrap();
    device.sync_all().unwrap();
    drop(device);
    one.unmount(&id, at).await;
    two.mount(&id, at, &of, &of_two).await;
    one.detach(&id).await;
    let mut bytes = [0; 8192];
    File::open(target(at)).unwrap().read_exact_at(&mut bytes, 4096).unwrap();
    assert_eq!(bytes, [7; 8192]);
    two.unmount(&id, at).await;
    two.detach(&id).await;
}
