//! Lists of volumes, single volumes, and the capacity of pools.

use std::collections::HashMap;

use api::types::{Export, Pool, Volume};
use tonic::Status;

use super::context::{ControllerContext, condition, id, signed};
use super::page::page;
use super::publish::nodes;
use crate::capability::VolumeUse;
use crate::names;
use crate::options::AttachMode;
use crate::parameters::CreateParameters;
use crate::proto::csi::list_volumes_response::{Entry, VolumeStatus as ListedStatus};
use crate::proto::csi::validate_volume_capabilities_response::Confirmed;
use crate::proto::csi::{
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, GetCapacityRequest, GetCapacityResponse,
    ListVolumesRequest, ListVolumesResponse, ValidateVolumeCapabilitiesRequest,
    ValidateVolumeCapabilitiesResponse, controller_get_volume_response,
};
use crate::status::{of_daemon, required};

impl ControllerContext {
    pub(super) async fn list_volumes(
        &self,
        request: ListVolumesRequest,
    ) -> Result<ListVolumesResponse, Status> {
        let mut found: Vec<(String, (Volume, usize))> = Vec::new();
        let pools = self.daemon.open_pools().await?;
        for (index, pool) in pools.iter().enumerate() {
            let volumes = self.daemon.volumes(&pool.name).await?;
            let volumes = volumes.into_iter().filter(|volume| !volume.snapshot);
            found.extend(volumes.map(|volume| (id(&volume), (volume, index))));
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        let (taken, next_token) = page(found, &request.starting_token, request.max_entries)?;
        let exports = match self.attach {
            AttachMode::Local => Vec::new(),
            AttachMode::NvmeTcp => self.daemon.client.list_exports().await.map_err(of_daemon)?,
        };
        let mut by_volume: HashMap<(&str, &str), Vec<Export>> = HashMap::new();
        for export in &exports {
            by_volume.entry((export.pool.as_str(), export.volume.as_str())).or_default().push(export.clone());
        }
        let published = |volume: &Volume| {
            by_volume.get(&(volume.pool.as_str(), volume.name.as_str())).map_or_else(Vec::new, |of| nodes(of))
        };
        let entry = |(volume, pool): (Volume, usize)| Entry {
            volume: Some(self.describe(&volume, HashMap::new(), None)),
            status: Some(ListedStatus {
                published_node_ids: published(&volume),
                volume_condition: pools.get(pool).map(|pool| condition(pool, &volume.name)),
            }),
        };
        Ok(ListVolumesResponse { entries: taken.into_iter().map(entry).collect(), next_token })
    }

    pub(super) async fn get_volume(
        &self,
        request: ControllerGetVolumeRequest,
    ) -> Result<ControllerGetVolumeResponse, Status> {
        let name = names::volume(required("volume_id", &request.volume_id)?)?;
        let volume = self.daemon.get(&name).await?;
        let pools = self.daemon.open_pools().await?;
        let pool = pools.iter().find(|pool| pool.name == name.pool);
        let exports = match self.attach {
            AttachMode::Local => Vec::new(),
            AttachMode::NvmeTcp => self.disks_of(&name).await?,
        };
        let status = controller_get_volume_response::VolumeStatus {
            published_node_ids: nodes(&exports),
            volume_condition: pool.map(|pool| condition(pool, &volume.name)),
        };
        let volume = Some(self.describe(&volume, HashMap::new(), None));
        Ok(ControllerGetVolumeResponse { volume, status: Some(status) })
    }

    pub(super) async fn validate(
        &self,
        request: ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
        let id = required("volume_id", &request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("volume_capabilities: is required"));
        }
        self.daemon.get(&names::volume(id)?).await?;
        let checked = VolumeUse::parse_all(&request.volume_capabilities)
            .and_then(|_| CreateParameters::parse(&request.parameters, &request.mutable_parameters));
        let (confirmed, message) = match checked {
            Ok(_) => {
                let confirmed = Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    mutable_parameters: request.mutable_parameters,
                };
                (Some(confirmed), String::new())
            }
            Err(status) => (None, status.message().to_owned()),
        };
        Ok(ValidateVolumeCapabilitiesResponse { confirmed, message })
    }

    /// Returns the space for one more volume: that of the pool with the most free space among those
    /// that the parameters permit. A thin volume may be larger.
    pub(super) async fn get_capacity(
        &self,
        request: GetCapacityRequest,
    ) -> Result<GetCapacityResponse, Status> {
        // An invalid parameter is refused when a volume is created, in an event of the claim. An
        // error here would stop the scheduler, which reports a lack of space.
        let parameters = CreateParameters::parse(&request.parameters, &HashMap::new()).unwrap_or_default();
        let reached = request.accessible_topology.as_ref().is_none_or(|topology| self.reaches(topology));
        let is_permitted = |pool: &&Pool| {
            parameters.pool.as_ref().is_none_or(|name| *name == pool.name)
                && (parameters.scheme.is_none() || pool.scheme == parameters.scheme)
        };
        let pools = if reached { self.daemon.open_pools().await? } else { Vec::new() };
        let free = |pool: &Pool| pool.space.as_ref().map_or(0, |space| space.free);
        let largest = pools.iter().filter(is_permitted).map(free).max().unwrap_or(0);
        Ok(GetCapacityResponse {
            available_capacity: signed(largest),
            maximum_volume_size: None,
            minimum_volume_size: None,
        })
    }
}
