//! The SnapshotMetadata service: allocated and changed ranges of snapshots, for backups.

use std::pin::Pin;

use api::VolumeName;
use api::types::{DiffQuery, DiffRange, Volume};
use futures_util::stream::{self, Stream};
use tonic::{Request, Response, Status};

use super::context::{ControllerContext, signed};
use crate::names;
use crate::proto::csi::snapshot_metadata_server::SnapshotMetadata;
use crate::proto::csi::{
    BlockMetadata, BlockMetadataType, GetMetadataAllocatedRequest, GetMetadataAllocatedResponse,
    GetMetadataDeltaRequest, GetMetadataDeltaResponse,
};
use crate::status::{invalid, of_daemon, required};

/// Ranges of one response if the request sets no limit.
const RESULTS_DEFAULT: usize = 1024;
/// Most ranges of one response, whose message must stay below 4 MiB.
const RESULTS_MAX: usize = 65_536;

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct MetadataService(pub(crate) ControllerContext);

/// A read of the ranges of a snapshot, part by part.
struct RangeScan {
    context: ControllerContext,
    target: VolumeName,
    /// The name of the snapshot to compare with, within the pool.
    base: Option<String>,
    /// The offset of the next part; `None` at the end.
    next: Option<u64>,
    /// Ranges of the last part that no response contains yet.
    ready: std::vec::IntoIter<DiffRange>,
    results: usize,
}

impl RangeScan {
    /// Returns the ranges of the next response; none at the end.
    async fn next_ranges(&mut self) -> Result<Option<Vec<BlockMetadata>>, Status> {
        let mut found = Vec::new();
        while found.len() < self.results {
            if let Some(range) = self.ready.next() {
                let DiffRange { offset, length, .. } = range;
                found.push(BlockMetadata { byte_offset: signed(offset), size_bytes: signed(length) });
                continue;
            }
            let Some(offset) = self.next else { break };
            let query = DiffQuery { from: self.base.clone(), offset };
            let part = self.context.daemon.client.get_volume_diff(&self.target, &query).await;
            let part = part.map_err(of_daemon)?;
            self.next = part.next;
            self.ready = part.ranges.into_iter();
        }
        Ok((!found.is_empty()).then_some(found))
    }
}

#[tonic::async_trait]
impl SnapshotMetadata for MetadataService {
    async fn get_metadata_allocated(
        &self,
        request: Request<GetMetadataAllocatedRequest>,
    ) -> Result<Response<Responses<GetMetadataAllocatedResponse>>, Status> {
        let request = request.into_inner();
        let target = names::snapshot(required("snapshot_id", &request.snapshot_id)?)?;
        let found = self.0.daemon.get(&target).await?;
        let scan = self.scan(&found, None, request.starting_offset, request.max_results)?;
        let volume_capacity_bytes = signed(found.size);
        let response = move |block_metadata| GetMetadataAllocatedResponse {
            block_metadata_type: BlockMetadataType::VariableLength.into(),
            volume_capacity_bytes,
            block_metadata,
        };
        Ok(Response::new(responses(scan, response)))
    }

    async fn get_metadata_delta(
        &self,
        request: Request<GetMetadataDeltaRequest>,
    ) -> Result<Response<Responses<GetMetadataDeltaResponse>>, Status> {
        let request = request.into_inner();
        let base = names::snapshot(required("base_snapshot_id", &request.base_snapshot_id)?)?;
        let target = names::snapshot(required("target_snapshot_id", &request.target_snapshot_id)?)?;
        if (&base.pool, base.base()) != (&target.pool, target.base()) {
            let problem = format!("'{base}' and '{target}' are snapshots of different volumes");
            return Err(invalid("base_snapshot_id", problem));
        }
        self.0.daemon.get(&base).await?;
        let found = self.0.daemon.get(&target).await?;
        let scan = self.scan(&found, Some(base.volume), request.starting_offset, request.max_results)?;
        let volume_capacity_bytes = signed(found.size);
        let response = move |block_metadata| GetMetadataDeltaResponse {
            block_metadata_type: BlockMetadataType::VariableLength.into(),
            volume_capacity_bytes,
            block_metadata,
        };
        Ok(Response::new(responses(scan, response)))
    }
}

impl MetadataService {
    /// Begins to read the ranges of a snapshot.
    ///
    /// # Errors
    /// `OUT_OF_RANGE` for an offset beyond its end, `INVALID_ARGUMENT` for a negative number.
    fn scan(&self, of: &Volume, base: Option<String>, offset: i64, max: i32) -> Result<RangeScan, Status> {
        let start = u64::try_from(offset).ok().filter(|offset| *offset < of.size);
        let Some(start) = start else {
            let problem = format!("starting_offset: {offset} is not within the {} bytes", of.size);
            return Err(Status::out_of_range(problem));
        };
        let Ok(max) = usize::try_from(max) else {
            return Err(invalid("max_results", format!("{max} is negative")));
        };
        Ok(RangeScan {
            context: self.0.clone(),
            target: VolumeName { pool: of.pool.clone(), volume: of.name.clone() },
            base,
            next: Some(start),
            ready: Vec::new().into_iter(),
            results: if max == 0 { RESULTS_DEFAULT } else { max.min(RESULTS_MAX) },
        })
    }
}

/// Returns the responses of a scan, each of which is read when the client is ready for it.
fn responses<T: Send + 'static>(
    scan: RangeScan,
    response: impl Fn(Vec<BlockMetadata>) -> T + Send + 'static,
) -> Responses<T> {
    Box::pin(stream::try_unfold((scan, response), |(mut scan, response)| async move {
        let ranges = scan.next_ranges().await?;
        Ok(ranges.map(|ranges| (response(ranges), (scan, response))))
    }))
}
