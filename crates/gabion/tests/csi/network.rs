//! The Controller service for volumes that nodes reach by NVMe/TCP.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};

use csi::proto::csi::controller_service_capability::Type;
use csi::proto::csi::controller_service_capability::rpc::Type as Rpc;
use csi::proto::csi::{
    ControllerGetCapabilitiesRequest, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
    DeleteVolumeRequest, ListVolumesRequest, NodeGetInfoRequest, VolumeCapability,
};
use tonic::{Code, Status};

use super::driver::{Driver, block, is_possible, mounted, stage, volume};
use super::harness::DaemonHome;

/// Returns an address that no process listens on.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn publish(
    driver: &mut Driver,
    id: &str,
    node: &str,
    of: &VolumeCapability,
) -> Result<HashMap<String, String>, Status> {
    let request = ControllerPublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id: node.to_owned(),
        volume_capability: Some(of.clone()),
        ..ControllerPublishVolumeRequest::default()
    };
    let published = driver.runtime.block_on(driver.controller.controller_publish_volume(request))?;
    Ok(published.into_inner().publish_context)
}

fn unpublish(driver: &mut Driver, id: &str, node: &str) {
    let request = ControllerUnpublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id: node.to_owned(),
        ..ControllerUnpublishVolumeRequest::default()
    };
    driver.runtime.block_on(driver.controller.controller_unpublish_volume(request)).unwrap();
}

#[test]
fn each_node_gets_a_disk_that_only_it_may_use() {
    if !is_possible() {
        return;
    }
    let home = DaemonHome::new();
    let address = free_address().to_string();
    let daemon = home.start_with(&["--nvme-listen", &address]);
    daemon.make_pool();
    let mut driver = Driver::start_with(&home, &["--attach", "nvme-tcp"]);
    let capabilities = driver
        .runtime
        .block_on(driver.controller.controller_get_capabilities(ControllerGetCapabilitiesRequest {}));
    let offered = capabilities.unwrap().into_inner().capabilities.into_iter();
    let offered: Vec<Rpc> = offered.filter_map(|of| of.r#type.map(|Type::Rpc(rpc)| rpc.r#type())).collect();
    assert!(offered.contains(&Rpc::PublishUnpublishVolume), "{offered:?}");
    let info =
        driver.runtime.block_on(driver.node.node_get_info(NodeGetInfoRequest {})).unwrap().into_inner();
    assert_eq!(info.accessible_topology, None);

    let one_node = mounted("ext4");
    let id = driver.create(volume("disk", 16 << 20, &one_node));
    let context = publish(&mut driver, &id, "node-1", &one_node).unwrap();
    assert_eq!(context["addresses"], address);
    assert_eq!(publish(&mut driver, &id, "node-1", &one_node).unwrap(), context);
    let exports = daemon.ok(&["export", "list", "--json"]);
    assert!(
        exports.contains(&context["nqn"]) && exports.contains("nqn.2014-08.io.gabion:node:node-1"),
        "{exports}"
    );
    let second = publish(&mut driver, &id, "node-2", &one_node).unwrap_err();
    assert_eq!(second.code(), Code::FailedPrecondition);
    assert!(second.message().contains("'node-1'"), "{second}");
    // A volume in use by a node cannot be deleted.
    let request = DeleteVolumeRequest { volume_id: id.clone(), ..DeleteVolumeRequest::default() };
    let in_use = driver.runtime.block_on(driver.controller.delete_volume(request)).unwrap_err();
    assert_eq!(in_use.code(), Code::FailedPrecondition);
    for _ in 0..2 {
        unpublish(&mut driver, &id, "node-1");
    }
    assert_ne!(publish(&mut driver, &id, "node-2", &one_node).unwrap()["nqn"], context["nqn"]);

    // During the live migration of a machine, two nodes use a raw block volume.
    let of_machine = block();
    let shared = driver.create(volume("machine", 16 << 20, &of_machine));
    let from = publish(&mut driver, &shared, "node-1", &of_machine).unwrap();
    let to = publish(&mut driver, &shared, "node-2", &of_machine).unwrap();
    assert_ne!(from["nqn"], to["nqn"]);
    let listed =
        driver.runtime.block_on(driver.controller.list_volumes(ListVolumesRequest::default())).unwrap();
    let published: Vec<_> = listed
        .into_inner()
        .entries
        .into_iter()
        .map(|entry| (entry.volume.unwrap().volume_id, entry.status.unwrap().published_node_ids))
        .collect();
    assert!(published.contains(&(shared.clone(), vec!["node-1".into(), "node-2".into()])), "{published:?}");
    // Without a node, the call removes the disks of all nodes.
    unpublish(&mut driver, &shared, "");
    assert!(!daemon.ok(&["export", "list", "--json"]).contains(&to["nqn"]));

    // The node refuses a volume that was not published to it.
    let request = stage(&id, &home.path("one"), &one_node);
    let unpublished = driver.runtime.block_on(driver.node.node_stage_volume(request)).unwrap_err();
    assert_eq!(unpublished.code(), Code::InvalidArgument);
    assert!(unpublished.message().contains("publish_context"), "{unpublished}");
}
