//! Publishing volumes on the network: each node gets a disk of its own, which only that node may
//! connect to.
//!
//! Always true: the daemon's exports are the only record. The end of an export disconnects its
//! node, so that a volume can move away from a node that does not answer.

use api::ErrorKind;
use api::VolumeName;
use api::types::{CreateExport, Export, NetworkOptions, Protocol};
use tonic::Status;

use super::context::ControllerContext;
use crate::capability::VolumeUse;
use crate::exports::{OWNER, deletion_of};
use crate::names;
use crate::network::{NetworkDisk, NodeIdentity, disk_name, is_disk, node_of};
use crate::proto::csi::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse,
};
use crate::status::{of_daemon, required};

/// The steps that lead to a published volume.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PublishStep {
    /// The disk of the node exists, as wanted.
    Keep(Box<Export>),
    /// The disk must be made.
    Create,
}

/// Decides how a volume becomes a disk of a node.
///
/// # Errors
/// `ALREADY_EXISTS` if the node has the volume in another access mode; `FAILED_PRECONDITION` if
/// another node has it, and the access mode permits one node.
fn decide(
    exports: &[Export],
    name: &VolumeName,
    node: &str,
    wanted: &VolumeUse,
) -> Result<PublishStep, Status> {
    let disk = disk_name(name, node);
    if let Some(own) = exports.iter().find(|export| export.network.target.as_ref() == Some(&disk)) {
        if (own.read_only, own.shared) == (wanted.read_only, wanted.shared) {
            return Ok(PublishStep::Keep(Box::new(own.clone())));
        }
        let problem = format!("volume '{name}' is published to node '{node}' with another access mode");
        return Err(Status::already_exists(problem));
    }
    let coexists = |other: &Export| (wanted.read_only && other.read_only) || (wanted.shared && other.shared);
    match exports.iter().filter(|export| is_disk(export)).find(|other| !coexists(other)) {
        Some(other) => {
            let nodes = nodes(std::slice::from_ref(other)).join(", ");
            let problem = format!("volume '{name}' is published to node '{nodes}'; detach it there first");
            Err(Status::failed_precondition(problem))
        }
        None => Ok(PublishStep::Create),
    }
}

/// Returns the nodes that may connect to the disks of the driver, by name.
pub(super) fn nodes(exports: &[Export]) -> Vec<String> {
    let hosts = exports.iter().filter(|export| is_disk(export)).flat_map(|export| &export.network.hosts);
    let mut nodes: Vec<String> = hosts.filter_map(|host| node_of(host)).map(str::to_owned).collect();
    nodes.sort_unstable();
    nodes
}

impl ControllerContext {
    pub(super) async fn publish_volume(
        &self,
        request: ControllerPublishVolumeRequest,
    ) -> Result<ControllerPublishVolumeResponse, Status> {
        let name = names::volume(required("volume_id", &request.volume_id)?)?;
        let node = required("node_id", &request.node_id)?;
        let wanted = VolumeUse::parse(request.volume_capability.as_ref())?;
        let _lock = self.locks.lock(name.base())?;
        self.daemon.get(&name).await?;
        let export = match decide(&self.disks_of(&name).await?, &name, node, &wanted)? {
            PublishStep::Keep(export) => *export,
            PublishStep::Create => {
                let network = NetworkOptions {
                    target: Some(disk_name(&name, node)),
                    hosts: vec![NodeIdentity::of(node).nqn],
                    ..NetworkOptions::default()
                };
                let request = CreateExport {
                    read_only: wanted.read_only,
                    shared: wanted.shared,
                    network,
                    owner: Some(OWNER.to_owned()),
                    ..CreateExport::new(name.pool.clone(), name.volume.clone(), Protocol::NvmeTcp)
                };
                self.daemon.client.create_export(&request).await.map_err(of_daemon)?
            }
        };
        Ok(ControllerPublishVolumeResponse { publish_context: NetworkDisk::of(&export)?.to_context() })
    }

    /// Removes the disk of a node, or those of all nodes. Does nothing if there is none.
    pub(super) async fn unpublish_volume(
        &self,
        request: ControllerUnpublishVolumeRequest,
    ) -> Result<ControllerUnpublishVolumeResponse, Status> {
        let id = required("volume_id", &request.volume_id)?;
        let Ok(name) = names::volume(id) else { return Ok(ControllerUnpublishVolumeResponse {}) };
        let _lock = self.locks.lock(name.base())?;
        let disk = disk_name(&name, &request.node_id);
        for export in self.disks_of(&name).await? {
            let is_of_node = request.node_id.is_empty() || export.network.target.as_ref() == Some(&disk);
            if !is_disk(&export) || !is_of_node {
                continue;
            }
            match self.daemon.client.delete_export(&name, &deletion_of(&export)).await {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(of_daemon(error)),
                _ => {}
            }
        }
        Ok(ControllerUnpublishVolumeResponse {})
    }

    /// Returns the network disks of a volume.
    pub(super) async fn disks_of(&self, name: &VolumeName) -> Result<Vec<Export>, Status> {
        let mut exports = self.daemon.client.list_exports().await.map_err(of_daemon)?;
        exports.retain(|export| {
            let is_of_others = export.owner.as_deref().is_some_and(|owner| owner != OWNER);
            let is_of_volume = export.pool == name.pool && export.volume == name.volume;
            export.protocol == Protocol::NvmeTcp && is_of_volume && !is_of_others
        });
        Ok(exports)
    }
}

#[cfg(test)]
mod tests {
    use api::types::ExportState;
    use tonic::Code;

    use super::*;
    use crate::capability::VolumeMode;

    fn name() -> VolumeName {
        VolumeName { pool: "fast".into(), volume: "a".into() }
    }

    fn disk(node: &str, read_only: bool, shared: bool) -> Export {
        let hosts = vec![NodeIdentity::of(node).nqn];
        let network =
            NetworkOptions { target: Some(disk_name(&name(), node)), hosts, ..NetworkOptions::default() };
        Export {
            id: "nvme-tcp".into(),
            name: "fast/a".into(),
            pool: "fast".into(),
            volume: "a".into(),
            protocol: Protocol::NvmeTcp,
            read_only,
            shared,
            owner: None,
            state: ExportState::Active,
            reason: None,
            uris: vec!["nvme+tcp://10.0.0.1:4420/nqn.x".into()],
            queues: None,
            reactors: Vec::new(),
            network,
            connections: 0,
            used_by: Vec::new(),
        }
    }

    fn wanted(read_only: bool, shared: bool) -> VolumeUse {
        VolumeUse { mode: VolumeMode::Block, read_only, shared, single_container: false }
    }

    #[test]
    fn a_volume_has_one_node_unless_its_access_mode_permits_more() {
        let (write, read, shared) = ((false, false), (true, false), (false, true));
        let use_of = |(read_only, shared): (bool, bool)| wanted(read_only, shared);
        let disk_of = |node: &str, (read_only, shared): (bool, bool)| disk(node, read_only, shared);
        for (other, mode, code) in [
            (write, write, Some(Code::FailedPrecondition)),
            (write, read, Some(Code::FailedPrecondition)),
            (write, shared, Some(Code::FailedPrecondition)),
            (read, write, Some(Code::FailedPrecondition)),
            (read, read, None),
            (shared, shared, None),
            (shared, read, Some(Code::FailedPrecondition)),
        ] {
            let decided = decide(&[disk_of("node-2", other)], &name(), "node-1", &use_of(mode));
            match code {
                None => assert_eq!(decided.unwrap(), PublishStep::Create, "{other:?} {mode:?}"),
                Some(code) => {
                    let refused = decided.unwrap_err();
                    assert_eq!(refused.code(), code, "{other:?} {mode:?}");
                    assert!(refused.message().contains("'node-2'"), "{refused}");
                }
            }
        }
    }

    #[test]
    fn a_repeated_call_keeps_the_disk_of_the_node() {
        let own = disk("node-1", false, true);
        let all = [disk("node-2", false, true), own.clone()];
        assert_eq!(
            decide(&all, &name(), "node-1", &wanted(false, true)).unwrap(),
            PublishStep::Keep(Box::new(own))
        );
        let other_mode = decide(&all, &name(), "node-1", &wanted(true, false)).unwrap_err();
        assert_eq!(other_mode.code(), Code::AlreadyExists);
        assert_eq!(nodes(&all), ["node-1", "node-2"]);
    }
}
