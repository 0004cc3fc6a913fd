//! The daemon as the driver uses it: calls of the API with statuses as errors.

use std::collections::HashSet;

use api::client::Client;
use api::types::{Pool, PoolState, Volume};
use api::{ErrorKind, VolumeName};
use tonic::Status;

use crate::names;
use crate::status::of_daemon;

/// The daemon of this node.
#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    /// Client of its API.
    pub(crate) client: Client,
}

impl Daemon {
    /// Returns the open pools, by name.
    ///
    /// # Errors
    /// If the daemon fails.
    pub(crate) async fn open_pools(&self) -> Result<Vec<Pool>, Status> {
        let mut pools = self.client.list_pools().await.map_err(of_daemon)?;
        pools.retain(|pool| pool.state == PoolState::Open);
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(pools)
    }

    /// Returns a volume or snapshot; `None` if its pool has none of that name.
    ///
    /// # Errors
    /// If the daemon fails, or has no such pool.
    pub(crate) async fn find(&self, name: &VolumeName) -> Result<Option<Volume>, Status> {
        match self.client.find_volume(name).await {
            Ok(found) => Ok(found.filter(|volume| volume.retained_by == 0)),
            // No object can have an invalid name.
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(Status::failed_precondition(format!("{error}; open the pool of the volume first")))
            }
            Err(error) => Err(of_daemon(error)),
        }
    }

    /// Returns a volume or snapshot that must exist.
    ///
    /// # Errors
    /// `NOT_FOUND` if it does not exist or is being deleted; if the daemon fails.
    pub(crate) async fn get(&self, name: &VolumeName) -> Result<Volume, Status> {
        let found = self.find(name).await?.filter(|volume| !volume.deleting);
        found.ok_or_else(|| Status::not_found(format!("'{name}' does not exist")))
    }

    /// Returns the volumes and snapshots of a pool that are not deleted, by name, without the
    /// temporary snapshots of the driver.
    ///
    /// # Errors
    /// If the daemon fails.
    pub(crate) async fn volumes(&self, pool: &str) -> Result<Vec<Volume>, Status> {
        let mut volumes = self.client.list_volumes(pool).await.map_err(of_daemon)?;
        let is_temporary = |volume: &Volume| {
            volume.name.split_once('@').is_some_and(|(_, snapshot)| names::is_temporary(snapshot))
        };
        volumes.retain(|volume| volume.retained_by == 0 && !volume.deleting && !is_temporary(volume));
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(volumes)
    }

    /// Returns the names of the snapshots of a volume that are not deleted: temporary ones of the
    /// driver, and others.
    ///
    /// # Errors
    /// If the daemon fails.
    pub(crate) async fn snapshots_of(&self, name: &VolumeName) -> Result<SnapshotNames, Status> {
        let mut found = SnapshotNames::default();
        for volume in self.client.list_volumes(&name.pool).await.map_err(of_daemon)? {
            let Some((base, snapshot)) = volume.name.split_once('@') else { continue };
            if base != name.volume || volume.retained_by > 0 || volume.deleting {
                continue;
            }
            let kind = if names::is_temporary(snapshot) { &mut found.temporary } else { &mut found.lasting };
            kind.insert(snapshot.to_owned());
        }
        Ok(found)
    }

    /// Deletes a volume or snapshot, and waits until its space is free. Does nothing if it does not
    /// exist.
    ///
    /// # Errors
    /// If it is in use, or the daemon fails.
    pub(crate) async fn delete(&self, name: &VolumeName) -> Result<(), Status> {
        let deleted = match self.client.delete_volume(name).await {
            Ok(operation) => self.client.wait(operation, |_| ()).await.map(drop),
            Err(error) => Err(error),
        };
        match deleted {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(of_daemon(error)),
            _ => Ok(()),
        }
    }

    /// Creates a snapshot of a volume. Does nothing if it exists.
    ///
    /// # Errors
    /// If the pool is full, or the daemon fails.
    pub(crate) async fn create_snapshot(&self, volume: &VolumeName, name: &str) -> Result<(), Status> {
        let request = api::types::CreateSnapshot { name: name.to_owned() };
        match self.client.create_snapshot(volume, &request).await {
            Err(error) if error.kind() != ErrorKind::Exists => Err(of_daemon(error)),
            _ => Ok(()),
        }
    }
}

/// Names of the snapshots of a volume, without the volume's name.
#[derive(Debug, Default)]
pub(crate) struct SnapshotNames {
    /// Snapshots that the driver needs for a short time.
    pub(crate) temporary: HashSet<String>,
    /// All others.
    pub(crate) lasting: HashSet<String>,
}

/// Returns the name of a snapshot of a volume.
pub(crate) fn snapshot_name(volume: &VolumeName, snapshot: &str) -> VolumeName {
    VolumeName { pool: volume.pool.clone(), volume: format!("{}@{snapshot}", volume.volume) }
}
