//! The pool of a target, and the size of what a run creates in it.

use ::cluster::Workspace;
use anyhow::{Context, Result, bail};
use api::Size;
use api::types::ClusterPool;

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

/// Returns the bytes of each of `count` volumes: `wanted`, or else the default or what fits, and
/// not more than `most`.
///
/// # Errors
/// If they do not fit in the pool.
pub(super) fn size(pool: &ClusterPool, count: u32, wanted: Option<u64>, most: Option<u64>) -> Result<u64> {
    let count = u64::from(count.max(1));
    let part = |percent: u64| pool.available / 100 * percent / count;
    let most = most.unwrap_or(u64::MAX);
    let bytes = wanted.unwrap_or_else(|| DEFAULT_BYTES.min(part(DEFAULT_SHARE))).min(most) / MIB * MIB;
    if bytes == 0 || bytes > part(SHARE_MAX) {
        bail!(
            "{count} x {} do not fit in {SHARE_MAX} % of the {} that pool '{}' has available: give a smaller size=",
            Size(bytes.max(MIB)),
            Size(pool.available),
            pool.name
        );
    }
    Ok(bytes)
}

/// Returns the bytes that each of `count` loads may write beside its objects of `bytes`.
pub(super) fn write_max(pool: &ClusterPool, count: u32, bytes: u64) -> u64 {
    (pool.available / 100 * SHARE_MAX / u64::from(count.max(1))).saturating_sub(bytes)
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
        let large = pool(1 << 40);
        assert_eq!(size(&large, 16, None, None).unwrap(), DEFAULT_BYTES);
        assert_eq!(size(&large, 16, None, Some(96 << 20)).unwrap(), 96 << 20);
        assert_eq!(size(&large, 2, Some(10 << 30), None).unwrap(), 10 << 30);
        let small = pool(1000 << 20);
        assert_eq!(size(&small, 4, None, None).unwrap(), 125 << 20, "a part of half of the space");
        assert_eq!(size(&small, 4, Some(199 << 20), None).unwrap(), 199 << 20);
        let error = size(&small, 4, Some(201 << 20), None).unwrap_err().to_string();
        assert!(error.contains("4 x 201 MiB") && error.contains("'rbd'"), "{error}");
        assert!(size(&pool(0), 1, None, None).is_err());
        assert_eq!(write_max(&small, 4, 124 << 20), 76 << 20);
    }
}
