//! The GroupController service: snapshots of several volumes of one pool at one point in time.
//!
//! The snapshots of a group have the same name, by which each call finds them again. The daemon
//! takes all of them or none, so that only the deletion of a group can be interrupted.

use std::collections::BTreeSet;

use api::VolumeName;
use api::types::{CreateSnapshots, Volume};
use tonic::{Request, Response, Status};

use super::context::{ControllerContext, id};
use super::snapshots::describe;
use crate::calls::run;
use crate::daemon::snapshot_name;
use crate::locks::VolumeLock;
use crate::names::{self, GroupName};
use crate::proto::csi::group_controller_server::GroupController;
use crate::proto::csi::group_controller_service_capability::rpc::Type as Rpc;
use crate::proto::csi::group_controller_service_capability::{self, Type};
use crate::proto::csi::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse, DeleteVolumeGroupSnapshotRequest,
    DeleteVolumeGroupSnapshotResponse, GetVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotResponse,
    GroupControllerGetCapabilitiesRequest, GroupControllerGetCapabilitiesResponse,
    GroupControllerServiceCapability, VolumeGroupSnapshot,
};
use crate::status::{invalid, of_daemon, required};

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct GroupService(pub(crate) ControllerContext);

#[tonic::async_trait]
impl GroupController for GroupService {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<GroupControllerGetCapabilitiesRequest>,
    ) -> Result<Response<GroupControllerGetCapabilitiesResponse>, Status> {
        let r#type = Rpc::CreateDeleteGetVolumeGroupSnapshot.into();
        let rpc = Type::Rpc(group_controller_service_capability::Rpc { r#type });
        let capabilities = vec![GroupControllerServiceCapability { r#type: Some(rpc) }];
        Ok(Response::new(GroupControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<CreateVolumeGroupSnapshotRequest>,
    ) -> Result<Response<CreateVolumeGroupSnapshotResponse>, Status> {
        let (context, request) = (self.0.clone(), request.into_inner());
        let object = request.name.clone();
        run("create_volume_group_snapshot", object, async move { context.create_group(request).await }).await
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<DeleteVolumeGroupSnapshotRequest>,
    ) -> Result<Response<DeleteVolumeGroupSnapshotResponse>, Status> {
        let (context, request) = (self.0.clone(), request.into_inner());
        let object = request.group_snapshot_id.clone();
        run("delete_volume_group_snapshot", object, async move { context.delete_group(request).await }).await
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<GetVolumeGroupSnapshotRequest>,
    ) -> Result<Response<GetVolumeGroupSnapshotResponse>, Status> {
        let (context, request) = (self.0.clone(), request.into_inner());
        let object = request.group_snapshot_id.clone();
        run("get_volume_group_snapshot", object, async move { context.get_group(request).await }).await
    }
}

impl ControllerContext {
    async fn create_group(
        &self,
        request: CreateVolumeGroupSnapshotRequest,
    ) -> Result<CreateVolumeGroupSnapshotResponse, Status> {
        let snapshot = names::group_snapshot(required("name", &request.name)?);
        if let Some(parameter) = request.parameters.keys().find(|key| !key.starts_with("csi.storage.k8s.io/"))
        {
            return Err(invalid(parameter, "unknown parameter; group snapshots have none"));
        }
        let sources = sources(&request.source_volume_ids)?;
        let pool = one_pool(&sources)?;
        let _locks = self.lock_group(&snapshot, sources.iter().map(VolumeName::base))?;
        let group = GroupName { pool: pool.to_owned(), snapshot: snapshot.clone() };
        for other in self.daemon.open_pools().await? {
            let of = GroupName { pool: other.name, snapshot: snapshot.clone() };
            let members = self.members_in_pool(&of).await?;
            if members.is_empty() {
                continue;
            }
            let has_sources = members.iter().map(source_of).eq(sources.iter().map(|of| of.volume.as_str()));
            if of != group || !has_sources {
                let problem = format!("group '{}' exists, of other volumes", of.id());
                return Err(Status::already_exists(problem));
            }
            return Ok(CreateVolumeGroupSnapshotResponse {
                group_snapshot: Some(describe_group(&group, &members)),
            });
        }
        for source in &sources {
            self.daemon.get(source).await?;
        }
        let snapshots = sources.iter().map(|of| snapshot_name(of, &snapshot).volume).collect();
        let created = self.daemon.client.create_snapshots(pool, &CreateSnapshots { snapshots }).await;
        let created = created.map_err(of_daemon)?;
        Ok(CreateVolumeGroupSnapshotResponse { group_snapshot: Some(describe_group(&group, &created)) })
    }

    async fn delete_group(
        &self,
        request: DeleteVolumeGroupSnapshotRequest,
    ) -> Result<DeleteVolumeGroupSnapshotResponse, Status> {
        let id = required("group_snapshot_id", &request.group_snapshot_id)?;
        let Ok(group) = GroupName::parse(id) else { return Ok(DeleteVolumeGroupSnapshotResponse {}) };
        let _name_lock = self.lock_group(&group.snapshot, std::iter::empty())?;
        let members = self.members(&group).await?;
        check_members(&group, &members, &request.snapshot_ids)?;
        let volumes = members.iter().map(|member| self.locks.lock(source_of(member)));
        let _locks = volumes.collect::<Result<Vec<VolumeLock>, Status>>()?;
        for member in &members {
            let name = VolumeName { pool: member.pool.clone(), volume: member.name.clone() };
            self.daemon.delete(&name).await?;
        }
        Ok(DeleteVolumeGroupSnapshotResponse {})
    }

    async fn get_group(
        &self,
        request: GetVolumeGroupSnapshotRequest,
    ) -> Result<GetVolumeGroupSnapshotResponse, Status> {
        let group = GroupName::parse(required("group_snapshot_id", &request.group_snapshot_id)?)?;
        let members = self.members(&group).await?;
        if members.is_empty() {
            return Err(Status::not_found(format!("group '{}' does not exist", group.id())));
        }
        check_members(&group, &members, &request.snapshot_ids)?;
        Ok(GetVolumeGroupSnapshotResponse { group_snapshot: Some(describe_group(&group, &members)) })
    }

    /// Locks the name of a group and its volumes.
    ///
    /// # Errors
    /// `ABORTED` while another call has one of the locks.
    fn lock_group<'a>(
        &self,
        snapshot: &str,
        volumes: impl Iterator<Item = &'a str>,
    ) -> Result<Vec<VolumeLock>, Status> {
        let mut locks = vec![self.locks.lock(&format!("@{snapshot}"))?];
        for volume in volumes {
            locks.push(self.locks.lock(volume)?);
        }
        Ok(locks)
    }

    /// Returns the snapshots of a group, in the order of their volumes; none if the pool is not
    /// open.
    async fn members(&self, group: &GroupName) -> Result<Vec<Volume>, Status> {
        let pools = self.daemon.open_pools().await?;
        if !pools.iter().any(|pool| pool.name == group.pool) {
            return Ok(Vec::new());
        }
        self.members_in_pool(group).await
    }

    /// Returns the snapshots of a group whose pool is open, in the order of their volumes.
    async fn members_in_pool(&self, group: &GroupName) -> Result<Vec<Volume>, Status> {
        let mut found = self.daemon.volumes(&group.pool).await?;
        found.retain(|of| of.name.split_once('@').is_some_and(|(_, own)| own == group.snapshot));
        found.sort_by(|a, b| source_of(a).cmp(source_of(b)));
        Ok(found)
    }
}

/// Returns the volumes of a request, in order.
///
/// # Errors
/// `INVALID_ARGUMENT` if there are none, or one occurs twice; `NOT_FOUND` for the id of no volume.
fn sources(ids: &[String]) -> Result<Vec<VolumeName>, Status> {
    const FIELD: &str = "source_volume_ids";
    if ids.is_empty() {
        return Err(invalid(FIELD, "is required"));
    }
    let distinct: BTreeSet<&String> = ids.iter().collect();
    if distinct.len() < ids.len() {
        return Err(invalid(FIELD, "a volume occurs twice"));
    }
    distinct.into_iter().map(|id| names::volume(id)).collect()
}

/// Returns the pool of all volumes.
///
/// # Errors
/// `FAILED_PRECONDITION` if they are in several pools, as the specification prescribes for volumes
/// that have no common point in time.
fn one_pool(sources: &[VolumeName]) -> Result<&str, Status> {
    let pool = sources.first().map_or("", |source| source.pool.as_str());
    match sources.iter().find(|source| source.pool != pool) {
        None => Ok(pool),
        Some(other) => Err(Status::failed_precondition(format!(
            "'{other}' is not in pool '{pool}': the volumes of a group must be in one pool"
        ))),
    }
}

/// Checks the snapshots that a request names. Snapshots that an interrupted deletion removed may
/// be among them.
///
/// # Errors
/// `INVALID_ARGUMENT` if one belongs to another group, or one of the group is missing.
fn check_members(group: &GroupName, members: &[Volume], ids: &[String]) -> Result<(), Status> {
    const FIELD: &str = "snapshot_ids";
    for each in ids {
        let name = names::snapshot(each).map_err(|_| invalid(FIELD, format!("'{each}' is no snapshot")))?;
        if GroupName::of(&name).as_ref() != Some(group) {
            return Err(invalid(FIELD, format!("'{each}' does not belong to the group '{}'", group.id())));
        }
    }
    match members.iter().map(id).find(|member| !ids.is_empty() && !ids.contains(member)) {
        None => Ok(()),
        Some(missing) => Err(invalid(FIELD, format!("'{missing}' of the group '{}' is missing", group.id()))),
    }
}

fn source_of(snapshot: &Volume) -> &str {
    snapshot.name.split_once('@').map_or(snapshot.name.as_str(), |(volume, _)| volume)
}

fn describe_group(group: &GroupName, members: &[Volume]) -> VolumeGroupSnapshot {
    let snapshots: Vec<_> = members.iter().map(describe).collect();
    let creation_time = snapshots.first().and_then(|first| first.creation_time);
    VolumeGroupSnapshot { group_snapshot_id: group.id(), snapshots, creation_time, ready_to_use: true }
}
