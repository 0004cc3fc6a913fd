//! Adapts a case to its targets: number of instances, slices and request size. Pure functions.

use crate::bounds::Layout;
use crate::load::{Slice, Target};
use crate::suite::{Case, Engine, Job};
use crate::system::TargetExtent;
use crate::vhost;

/// Bytes per operation when a volume is filled.
const FILL_BLOCK: u64 = 1 << 20;
const FILL_DEPTH: u32 = 8;
/// Maximum request size that NBD servers must support, in bytes (NBD protocol, "Block size
/// constraints").
const NBD_MAX: u64 = 32 << 20;
/// Alignment of the starting offsets of instances, in bytes.
const ALIGN: u64 = 1 << 20;

/// Raises the number of instances to one per target if the targets are independent drives, so that
/// every drive is used. Also returns a note about the change.
pub(super) fn use_all_drives(case: &Case, layout: Option<Layout>, places: usize) -> (Case, Option<String>) {
    let mut case = case.clone();
    let places = u32::try_from(places).unwrap_or(u32::MAX);
    let independent = layout.is_some_and(|layout| layout.data == 1 && layout.parity == 0);
    if !independent || places <= case.instances {
        return (case, None);
    }
    let note = format!("{places} instances instead of {}: one per drive", case.instances);
    case.instances = places;
    (case, Some(note))
}

/// Limits the request size to the maximum of the targets. Also returns a note about the change.
pub(super) fn limit_request_size(case: &Case, slices: &[Slice]) -> (Case, Option<String>) {
    let mut case = case.clone();
    let limit = |slice: &Slice| match slice.target {
        Target::File(_) | Target::Machine { .. } | Target::Pod { .. } | Target::S3(_) | Target::Rados(_) => {
            None
        }
        Target::Nbd(_) => Some((NBD_MAX, "the maximum of NBD")),
        Target::Vhost(_) => Some((vhost::BLOCK_MAX, "the maximum of vhost-user")),
    };
    let least = slices.iter().filter_map(limit).min();
    let Some((max, protocol)) = least.filter(|(max, _)| case.job.block_bytes > *max) else {
        return (case, None);
    };
    case.job.block_bytes = max;
    (case, Some(format!("in requests of {} MiB, {protocol}", max >> 20)))
}

/// Limits the number of objects to half of the capacity of the targets: replaced objects need space
/// until they are cleaned. Also returns a note about the change.
pub(super) fn limit_objects(case: &Case, slices: &[Slice]) -> (Case, Option<String>) {
    let mut case = case.clone();
    let Some(objects) = &case.job.objects else { return (case, None) };
    let clients = u64::from(case.instances) * u64::from(case.job.threads) * u64::from(case.job.depth);
    let capacity: u64 = slices.iter().map(|slice| slice.bytes / 2).sum();
    let most = (capacity / objects.sizes(&case.job).mean().max(1)).max(clients);
    if objects.count <= most {
        return (case, None);
    }
    let note = format!("{most} objects instead of {}: half of the capacity", objects.count);
    if let Some(objects) = &mut case.job.objects {
        objects.count = most;
    }
    (case, Some(note))
}

/// Returns the job that fills a volume.
pub(super) fn fill_job() -> Job {
    Job {
        name: "fill".into(),
        block_bytes: FILL_BLOCK,
        read_percent: 0,
        random: false,
        depth: FILL_DEPTH,
        depths: Vec::new(),
        threads: 1,
        degraded: false,
        profile: None,
        engine: Engine::Libaio,
        polled: false,
        fixed_buffers: false,
        registered_files: false,
        lfsr: false,
        offset_increment_percent: None,
        refill: true,
        latency: None,
        prepare: None,
        objects: None,
    }
}

/// Assigns a slice to each instance: whole targets while there are enough, otherwise equal parts of
/// them. `None` if a part would be too small.
pub(super) fn slices(
    extents: &[TargetExtent],
    instances: u32,
    instance_bytes: Option<u64>,
    job: &Job,
) -> Option<Vec<Slice>> {
    let (count, instances) = (extents.len(), instances as usize);
    let slice = |instance: usize| {
        let place = instance % count;
        let extent = extents.get(place)?;
        let sharing = (instances - place).div_ceil(count).max(1) as u64;
        let unit = ALIGN.max(job.block_bytes);
        let part = extent.bytes / sharing / unit * unit;
        let bytes = part.min(instance_bytes.map_or(u64::MAX, |bytes| bytes / unit * unit));
        let offset = (instance / count) as u64 * part;
        (bytes > 0).then(|| Slice { target: extent.target.clone(), offset, bytes })
    };
    if count == 0 { None } else { (0..instances).map(slice).collect() }
}
