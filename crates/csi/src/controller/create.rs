//! Creation of volumes: blank, from a snapshot, or from a volume.
//!
//! Always true: a repeated call completes the steps that an interrupted one left out, and leaves no
//! temporary snapshot.

use std::collections::HashMap;

use api::VolumeName;
use api::types::{CloneSnapshot, CreateVolume, ResizeVolume, Volume};
use tonic::Status;

use super::context::ControllerContext;
use super::size::SizeRange;
use crate::capability::{FileSystem, VolumeMode, VolumeUse};
use crate::daemon::snapshot_name;
use crate::names;
use crate::parameters::{CreateParameters, FS_TYPE};
use crate::proto::csi::volume_content_source::Type as SourceType;
use crate::proto::csi::{CreateVolumeRequest, CreateVolumeResponse, VolumeContentSource};
use crate::status::{invalid, of_daemon, required};

/// Size of a volume if the request demands none, in bytes.
const SIZE_DEFAULT: u64 = 1 << 30;

/// A checked request.
struct VolumeRequest {
    name: String,
    sizes: SizeRange,
    parameters: CreateParameters,
    file_system: Option<FileSystem>,
    source: Option<VolumeOrigin>,
}

/// The object whose contents a new volume gets.
enum VolumeOrigin {
    Snapshot(VolumeName),
    Volume(VolumeName),
}

impl VolumeOrigin {
    fn parse(source: &VolumeContentSource) -> Result<Self, Status> {
        match &source.r#type {
            Some(SourceType::Snapshot(snapshot)) => {
                Ok(Self::Snapshot(names::snapshot(&snapshot.snapshot_id)?))
            }
            Some(SourceType::Volume(volume)) => Ok(Self::Volume(names::volume(&volume.volume_id)?)),
            None => Err(invalid("volume_content_source", "must be 'snapshot' or 'volume'")),
        }
    }

    fn name(&self) -> &VolumeName {
        match self {
            Self::Snapshot(name) | Self::Volume(name) => name,
        }
    }

    /// Returns the snapshot from which the volume `name` is cloned.
    fn snapshot_for(&self, name: &str) -> VolumeName {
        match self {
            Self::Snapshot(snapshot) => snapshot.clone(),
            Self::Volume(volume) => snapshot_name(volume, &names::clone_snapshot(name)),
        }
    }
}

impl VolumeRequest {
    fn parse(request: &CreateVolumeRequest) -> Result<Self, Status> {
        let name = names::pool_name_for(required("name", &request.name)?);
        let uses = VolumeUse::parse_all(&request.volume_capabilities)?;
        let parameters = CreateParameters::parse(&request.parameters, &request.mutable_parameters)?;
        let sizes = SizeRange::parse(request.capacity_range.as_ref())?;
        let file_system = file_system(&uses, parameters.file_system)?;
        let source = request.volume_content_source.as_ref().map(VolumeOrigin::parse).transpose()?;
        if let (Some(pool), Some(source)) = (&parameters.pool, &source)
            && *pool != source.name().pool
        {
            let problem = format!("'{pool}' is not the pool of the source '{}'", source.name());
            return Err(invalid("pool", problem));
        }
        Ok(Self { name, sizes, parameters, file_system, source })
    }

    /// Returns the smallest size that the file system permits; 0 for raw block volumes.
    fn size_min(&self) -> u64 {
        self.file_system.map_or(0, FileSystem::size_min)
    }
}

/// Returns the file system of a volume; `None` for raw block volumes only.
fn file_system(uses: &[VolumeUse], parameter: Option<FileSystem>) -> Result<Option<FileSystem>, Status> {
    let mut chosen = None;
    for each in uses {
        let VolumeMode::Mounted { kind, .. } = &each.mode else { continue };
        if let (Some(one), Some(other)) = (*kind, chosen.or(parameter))
            && one != other
        {
            let problem = format!("'{}' contradicts '{}' of the capability", other.name(), one.name());
            return Err(invalid(FS_TYPE, problem));
        }
        chosen = Some(kind.or(chosen).or(parameter).unwrap_or(FileSystem::Xfs));
    }
    Ok(chosen)
}

impl ControllerContext {
    pub(super) async fn create_volume(
        &self,
        request: CreateVolumeRequest,
    ) -> Result<CreateVolumeResponse, Status> {
        let wanted = VolumeRequest::parse(&request)?;
        self.check_topology(request.accessibility_requirements.as_ref())?;
        let _lock = self.locks.lock(&wanted.name)?;
        let source = wanted.source.as_ref().map(VolumeOrigin::name);
        let _source_lock = source.map(|name| self.locks.lock(name.base())).transpose()?;
        let created = match self.find_by_name(&wanted).await? {
            Some(existing) => self.check_existing(&wanted, existing).await?,
            None => self.create_new(&wanted).await?,
        };
        let finished = self.finish(&wanted, created).await?;
        let context = wanted.file_system.map(|kind| (FS_TYPE.to_owned(), kind.name().to_owned()));
        let context: HashMap<_, _> = context.into_iter().collect();
        let volume = self.describe(&finished, context, request.volume_content_source);
        Ok(CreateVolumeResponse { volume: Some(volume) })
    }

    /// Returns the volume of that name, in whatever pool an earlier call created it.
    async fn find_by_name(&self, wanted: &VolumeRequest) -> Result<Option<Volume>, Status> {
        for pool in self.daemon.open_pools().await? {
            let name = VolumeName { pool: pool.name, volume: wanted.name.clone() };
            if let Some(found) = self.daemon.find(&name).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Checks that an existing volume is that of the request, complete or not.
    async fn check_existing(&self, wanted: &VolumeRequest, existing: Volume) -> Result<Volume, Status> {
        let name = format!("{}/{}", existing.pool, existing.name);
        if existing.deleting {
            return Err(Status::aborted(format!("'{name}' is being deleted")));
        }
        let conflict = |problem: String| Err(Status::already_exists(format!("'{name}' exists {problem}")));
        if wanted.parameters.pool.as_ref().is_some_and(|pool| *pool != existing.pool) {
            return conflict("in another pool".to_owned());
        }
        let own = wanted.source.as_ref().map(|source| source.snapshot_for(&wanted.name).volume);
        if let Some(origin) = &existing.origin
            && own.as_ref() != Some(origin)
        {
            return conflict(format!("with other contents, those of '{origin}'"));
        }
        if wanted.sizes.accepts(existing.size) {
            return Ok(existing);
        }
        // An interrupted call may have left a clone with the size of its source.
        if let Some(source) = &wanted.source
            && wanted.sizes.exceeds(existing.size)
            && self.daemon.find(source.name()).await?.is_some_and(|source| source.size == existing.size)
        {
            return Ok(existing);
        }
        conflict(format!("with a size of {} bytes", existing.size))
    }

    async fn create_new(&self, wanted: &VolumeRequest) -> Result<Volume, Status> {
        let client = &self.daemon.client;
        let Some(source) = &wanted.source else {
            let pool = self.choose_pool(&wanted.parameters).await?;
            let request = CreateVolume {
                name: wanted.name.clone(),
                size: wanted.sizes.choose(wanted.size_min(), SIZE_DEFAULT)?,
                sector: None,
                thick: wanted.parameters.thick,
                shards: wanted.parameters.shards,
                data_pool: None,
            };
            return client.create_volume(&pool, &request).await.map_err(of_daemon);
        };
        let size = self.daemon.get(source.name()).await?.size;
        wanted.sizes.choose(size, size)?;
        let snapshot = source.snapshot_for(&wanted.name);
        if let (VolumeOrigin::Volume(volume), Some((_, name))) = (source, snapshot.snapshot()) {
            self.daemon.create_snapshot(volume, name).await?;
        }
        let request = CloneSnapshot { name: wanted.name.clone() };
        client.clone_snapshot(&snapshot, &request).await.map_err(of_daemon)
    }

    /// Performs the steps after the creation. They change nothing if they were performed.
    async fn finish(&self, wanted: &VolumeRequest, created: Volume) -> Result<Volume, Status> {
        let client = &self.daemon.client;
        let name = VolumeName { pool: created.pool.clone(), volume: created.name.clone() };
        let mut volume = created;
        if wanted.sizes.exceeds(volume.size) {
            let size = wanted.sizes.choose(volume.size, volume.size)?;
            volume = client
                .resize_volume(&name, &ResizeVolume { size, shrink: false })
                .await
                .map_err(of_daemon)?;
        }
        let mut qos = wanted.parameters.qos.apply(volume.qos);
        qos.thick |= wanted.parameters.thick;
        if qos != volume.qos {
            volume = client.set_volume_qos(&name, &qos).await.map_err(of_daemon)?;
        }
        if let Some(source @ VolumeOrigin::Volume(_)) = &wanted.source {
            self.daemon.delete(&source.snapshot_for(&wanted.name)).await?;
        }
        Ok(volume)
    }

    /// Returns the pool of a new volume: the named one, or that with the most free space.
    async fn choose_pool(&self, parameters: &CreateParameters) -> Result<String, Status> {
        let pools = self.daemon.open_pools().await?;
        let known: Vec<String> = pools.iter().map(|pool| pool.name.clone()).collect();
        let has_scheme =
            |pool: &api::types::Pool| parameters.scheme.is_none() || pool.scheme == parameters.scheme;
        if let Some(wanted) = &parameters.pool {
            let Some(pool) = pools.iter().find(|pool| pool.name == *wanted) else {
                return Err(invalid("pool", format!("no pool '{wanted}' is open; open pools: {known:?}")));
            };
            if !has_scheme(pool) {
                let (is, not) = (pool.scheme.as_deref(), parameters.scheme.as_deref());
                let problem =
                    format!("pool '{wanted}' has {}, not {}", is.unwrap_or("?"), not.unwrap_or("?"));
                return Err(invalid("scheme", problem));
            }
            return Ok(wanted.clone());
        }
        let free = |pool: &&api::types::Pool| pool.space.as_ref().map_or(0, |space| space.free);
        match (pools.iter().filter(|pool| has_scheme(pool)).max_by_key(free), &parameters.scheme) {
            (Some(pool), _) => Ok(pool.name.clone()),
            (None, Some(scheme)) if !pools.is_empty() => {
                Err(invalid("scheme", format!("no open pool has {scheme}; open pools: {known:?}")))
            }
            (None, _) => Err(Status::unavailable("no pool is open; 'gabion pool open' opens a pool")),
        }
    }
}
