//! The pool of a target, and the size of what a run creates in it.

use ::cluster::Workspace;
use anyhow::{Context, Result, bail};
use api::Size;
use api::types::ClusterPool;
use bench::system::Requirements;

/// Default size of a volume, file or set of objects in bytes.
const DEFAULT_BYTES: u64 = 4 << 30;
/// Largest share of a pool's available space that a run uses by default, in percent.
const DEFAULT_SHARE: u64 = 50;
/// Largest share that a run uses at all, in percent: a full cluster refuses the writes of everyone.
const SHARE_MAX: u64 = 80;
const MIB: u64 = 1 << 20;

/// Returns the first of the named pools that exists.
///
/// # Errors
/// If there is none, or the cluster does not answer.
pub(super) fn find(workspace: &Workspace, names: &[&str]) -> Result<ClusterPool> {
    let pools = ::cluster::status(workspace)?.pools;
    let found = names.iter().find_map(|name| pools.iter().find(|pool| pool.name == *name).cloned());
    let cluster = workspace.name();
    found.with_context(|| {
        format!(
            "cluster '{cluster}' has no pool '{}': 'gabion cluster services {cluster} --pool' creates one",
            names.first().copied().unwrap_or_default()
        )
    })
}

/// The number of volumes, files or sets of objects that share the space of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sharing {
    /// The number within one target.
    pub(super) count: u32,
    /// Targets that exist at the same time.
    pub(super) targets: u32,
}

impl Sharing {
    pub(super) fn new(requirements: &Requirements<'_>) -> Self {
        Self { count: requirements.instances.max(1), targets: requirements.concurrent_targets.max(1) }
    }

    /// Returns the part of each in a percentage of the available space. Pools of a cluster share
    /// its drives, so targets on several pools share them too.
    fn part(self, pool: &ClusterPool, percent: u64) -> u64 {
        pool.available / 100 * percent / u64::from(self.count) / u64::from(self.targets)
    }
}

/// Returns the bytes of each volume: `wanted`, or else the default or a part of the space, and not
/// more than `most`.
///
/// # Errors
/// If they do not fit in the pool.
pub(super) fn size(
    pool: &ClusterPool,
    sharing: Sharing,
    wanted: Option<u64>,
    most: Option<u64>,
) -> Result<u64> {
    let part = |percent: u64| sharing.part(pool, percent);
    let most = most.unwrap_or(u64::MAX);
    let bytes = wanted.unwrap_or_else(|| DEFAULT_BYTES.min(part(DEFAULT_SHARE))).min(most) / MIB * MIB;
    if bytes == 0 || bytes > part(SHARE_MAX) {
        let targets = match sharing.targets {
            1 => String::new(),
            targets => format!(" for each of {targets} targets"),
        };
        bail!(
            "{} x {}{targets} do not fit in {SHARE_MAX} % of the {} that pool '{}' has available: give a smaller size=",
            sharing.count,
            Size(bytes.max(MIB)),
            Size(pool.available),
            pool.name
        );
    }
    Ok(bytes)
}

/// Returns the bytes that each load may write beside its objects of `bytes`.
pub(super) fn write_max(pool: &ClusterPool, sharing: Sharing, bytes: u64) -> u64 {
    sharing.part(pool, SHARE_MAX).saturating_sub(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_never_fills_the_cluster() {
        let pool = |available: u64| ClusterPool {
            name: "rbd".into(),
            applications: Vec::new(),
            protection: "3 copies".into(),
            placement_groups: 1,
            objects: 0,
            stored: 0,
            used: 0,
            available,
        };
        let alone = |count: u32| Sharing { count, targets: 1 };
        let large = pool(1 << 40);
        assert_eq!(size(&large, alone(16), None, None).unwrap(), DEFAULT_BYTES);
        assert_eq!(size(&large, alone(16), None, Some(96 << 20)).unwrap(), 96 << 20);
        assert_eq!(size(&large, alone(2), Some(10 << 30), None).unwrap(), 10 << 30);
        let small = pool(1000 << 20);
        assert_eq!(size(&small, alone(4), None, None).unwrap(), 125 << 20, "a part of half of the space");
        assert_eq!(size(&small, alone(4), Some(199 << 20), None).unwrap(), 199 << 20);
        let error = size(&small, alone(4), Some(201 << 20), None).unwrap_err().to_string();
        assert!(error.contains("4 x 201 MiB do not fit") && error.contains("'rbd'"), "{error}");
        assert!(size(&pool(0), alone(1), None, None).is_err());
        assert_eq!(write_max(&small, alone(4), 124 << 20), 76 << 20);
        // Two targets fill the cluster together.
        let two = Sharing { count: 4, targets: 2 };
        assert_eq!(size(&small, two, None, None).unwrap(), 62 << 20);
        let error = size(&small, two, Some(199 << 20), None).unwrap_err().to_string();
        assert!(error.contains("4 x 199 MiB for each of 2 targets"), "{error}");
        assert_eq!(write_max(&small, two, 90 << 20), 10 << 20);
    }
}
