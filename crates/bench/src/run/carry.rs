//! What a case becomes on the places that a target has: who works where, how many, in which pieces. Pure.

use crate::bounds::Layout;
use crate::load::{Slice, Target};
use crate::suite::{Case, Engine, Job};
use crate::system::TargetExtent;
use crate::vhost;

/// One operation of filling.
const FILL_BLOCK: u64 = 1 << 20;
const FILL_DEPTH: u32 = 8;
/// Longest request of NBD that servers must take (NBD protocol, "Block size constraints").
const NBD_MAX: u64 = 32 << 20;
/// Instances begin at multiples of this.
const ALIGN: u64 = 1 << 20;

/// The case with an instance for each place at least, where places are drives by themselves, and what that changes: nobody would
/// use the others.
pub(super) fn on_all(case: &Case, layout: Option<Layout>, places: usize) -> (Case, Option<String>) {
    let mut case = case.clone();
    let places = u32::try_from(places).unwrap_or(u32::MAX);
    let apart = layout.is_some_and(|layout| layout.data == 1 && layout.parity == 0);
    if !apart || places <= case.instances {
        return (case, None);
    }
    let said = format!("{places} instances instead of {}: one for each drive", case.instances);
    case.instances = places;
    (case, Some(said))
}

/// The case as its targets can be asked for it, and what that changes.
pub(super) fn carried(case: &Case, slices: &[Slice]) -> (Case, Option<String>) {
    let mut case = case.clone();
    let limit = |slice: &Slice| match slice.target {
        Target::File(_) | Target::Machine { .. } => None,
        Target::Nbd(_) => Some((NBD_MAX, "NBD carries")),
        Target::Vhost(_) => Some((vhost::BLOCK_MAX, "a piece of memory in a machine's request has")),
    };
    let least = slices.iter().filter_map(limit).min();
    let Some((most, who)) = least.filter(|(most, _)| case.job.block_bytes > *most) else {
        return (case, None);
    };
    case.job.block_bytes = most;
    (case, Some(format!("in requests of {} MiB: {who} no more", most >> 20)))
}

/// What fills a volume.
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
    }
}

/// Gives each instance its part of the spots: whole ones while there are enough, else equal parts of them. `None` if a part
/// would be too small for anything.
pub(super) fn slices(
    spots: &[TargetExtent],
    instances: u32,
    instance_bytes: Option<u64>,
    job: &Job,
) -> Option<Vec<Slice>> {
    let (count, instances) = (spots.len(), instances as usize);
    let slice = |instance: usize| {
        let place = instance % count;
        let spot = spots.get(place)?;
        let sharing = (instances - place).div_ceil(count).max(1) as u64;
        let unit = ALIGN.max(job.block_bytes);
        let part = spot.bytes / sharing / unit * unit;
        let bytes = part.min(instance_bytes.map_or(u64::MAX, |bytes| bytes / unit * unit));
        let offset = (instance / count) as u64 * part;
        (bytes > 0).then(|| Slice { target: spot.target.clone(), offset, bytes })
    };
    if count == 0 { None } else { (0..instances).map(slice).collect() }
}
