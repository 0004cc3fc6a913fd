//! Snapshots of volumes.

use api::VolumeName;
use api::types::{CreateSnapshot, Volume};
use tonic::Status;

use super::context::{ControllerContext, id, signed};
use super::page::page;
use crate::names::{self, GroupName};
use crate::proto::csi::list_snapshots_response::Entry;
use crate::proto::csi::{
    CreateSnapshotRequest, CreateSnapshotResponse, GetSnapshotRequest, GetSnapshotResponse,
    ListSnapshotsRequest, ListSnapshotsResponse, Snapshot,
};
use crate::status::{invalid, of_daemon, required};

/// Returns the description of a snapshot.
pub(super) fn describe(snapshot: &Volume) -> Snapshot {
    let source = snapshot.name.split_once('@').map_or(snapshot.name.as_str(), |(volume, _)| volume);
    let creation_time = prost_types::Timestamp { seconds: signed(snapshot.created), nanos: 0 };
    let name = VolumeName { pool: snapshot.pool.clone(), volume: snapshot.name.clone() };
    Snapshot {
        size_bytes: signed(snapshot.size),
        snapshot_id: id(snapshot),
        source_volume_id: format!("{}/{source}", snapshot.pool),
        creation_time: Some(creation_time),
        ready_to_use: true,
        group_snapshot_id: GroupName::of(&name).map_or_else(String::new, |group| group.id()),
    }
}

impl ControllerContext {
    pub(super) async fn create_snapshot(
        &self,
        request: CreateSnapshotRequest,
    ) -> Result<CreateSnapshotResponse, Status> {
        let source = required("source_volume_id", &request.source_volume_id)?;
        let name = names::pool_name_for(required("name", &request.name)?);
        if let Some(parameter) = request.parameters.keys().find(|key| !key.starts_with("csi.storage.k8s.io/"))
        {
            return Err(invalid(parameter, "unknown parameter; snapshots have none"));
        }
        let source = names::volume(source)?;
        let _lock = self.locks.lock(source.base())?;
        let _name_lock = self.locks.lock(&format!("@{name}"))?;
        let snapshot = match self.find_snapshot(&name).await? {
            Some(existing)
                if existing.pool == source.pool && existing.name == format!("{}@{name}", source.volume) =>
            {
                existing
            }
            Some(existing) => {
                let problem = format!("snapshot '{name}' exists, of '{}/{}'", existing.pool, existing.name);
                return Err(Status::already_exists(problem));
            }
            None => {
                self.daemon.get(&source).await?;
                let request = CreateSnapshot { name };
                self.daemon.client.create_snapshot(&source, &request).await.map_err(of_daemon)?
            }
        };
        Ok(CreateSnapshotResponse { snapshot: Some(describe(&snapshot)) })
    }

    /// Returns the snapshot of that name of any volume, because the cluster's names are unique.
    async fn find_snapshot(&self, name: &str) -> Result<Option<Volume>, Status> {
        for pool in self.daemon.open_pools().await? {
            let volumes = self.daemon.volumes(&pool.name).await?;
            let has_name = |volume: &Volume| volume.name.split_once('@').is_some_and(|(_, own)| own == name);
            if let Some(found) = volumes.into_iter().find(has_name) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    pub(super) async fn get_snapshot(
        &self,
        request: GetSnapshotRequest,
    ) -> Result<GetSnapshotResponse, Status> {
        let name = names::snapshot(required("snapshot_id", &request.snapshot_id)?)?;
        let snapshot = self.daemon.get(&name).await?;
        Ok(GetSnapshotResponse { snapshot: Some(describe(&snapshot)) })
    }

    pub(super) async fn list_snapshots(
        &self,
        request: ListSnapshotsRequest,
    ) -> Result<ListSnapshotsResponse, Status> {
        let found = self.selected_snapshots(&request).await?;
        let entries = found.iter().map(|snapshot| (id(snapshot), snapshot)).collect();
        let (taken, next_token) = page(entries, &request.starting_token, request.max_entries)?;
        let entry = |snapshot: &Volume| Entry { snapshot: Some(describe(snapshot)) };
        Ok(ListSnapshotsResponse { entries: taken.into_iter().map(entry).collect(), next_token })
    }

    /// Returns the snapshots that a request selects, in the order of their ids. A snapshot or
    /// volume that does not exist selects none.
    async fn selected_snapshots(&self, request: &ListSnapshotsRequest) -> Result<Vec<Volume>, Status> {
        let of_source = |snapshot: &VolumeName| {
            request.source_volume_id.is_empty()
                || request.source_volume_id == format!("{}/{}", snapshot.pool, snapshot.base())
        };
        if !request.snapshot_id.is_empty() {
            let Ok(name) = names::snapshot(&request.snapshot_id) else { return Ok(Vec::new()) };
            let found = self.daemon.find(&name).await?.filter(|found| !found.deleting && of_source(&name));
            return Ok(found.into_iter().collect());
        }
        let mut found = Vec::new();
        for pool in self.daemon.open_pools().await? {
            let volumes = self.daemon.volumes(&pool.name).await?.into_iter();
            found.extend(volumes.filter(|volume| {
                let name = VolumeName { pool: volume.pool.clone(), volume: volume.name.clone() };
                volume.snapshot && of_source(&name)
            }));
        }
        found.sort_by_key(id);
        Ok(found)
    }
}
