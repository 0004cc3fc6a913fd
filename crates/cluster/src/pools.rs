//! Pools of a cluster: their redundancy, as `replicated:3` or `ec:2+2`, and whether an existing one
//! has it. Pure functions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::ClusterModel;

/// The pool of the images that are volumes.
pub(crate) const VOLUMES_POOL: &str = "rbd";
/// The pool of the data of volumes, if it is another one.
pub(crate) const VOLUMES_DATA_POOL: &str = "rbd-data";
/// The type of erasure-coded pools in the monitors' lists.
const ERASURE_TYPE: u64 = 3;

/// The redundancy of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Redundancy {
    /// This many copies on different hosts.
    Replicated(usize),
    /// `data` and `parity` parts on different hosts.
    Erasure {
        /// Number of parts with data.
        data: usize,
        /// Number of parts that may be lost.
        parity: usize,
    },
}

impl FromStr for Redundancy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<usize>().ok().filter(|number| (1..=32).contains(number));
        let parsed = match text.split_once(':') {
            Some(("replicated", copies)) => number(copies).map(Self::Replicated),
            Some(("ec", parts)) => parts.split_once('+').and_then(|(data, parity)| {
                Some(Self::Erasure { data: number(data).filter(|data| *data >= 2)?, parity: number(parity)? })
            }),
            _ => None,
        };
        parsed.ok_or_else(|| {
            format!("'{text}' is neither 'replicated:COPIES' nor 'ec:DATA+PARITY', as in ec:2+2")
        })
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicated(copies) => write!(f, "replicated:{copies}"),
            Self::Erasure { data, parity } => write!(f, "ec:{data}+{parity}"),
        }
    }
}

impl Redundancy {
    /// Number of hosts that store a part of each object.
    pub(crate) fn hosts(self) -> usize {
        match self {
            Self::Replicated(copies) => copies,
            Self::Erasure { data, parity } => data + parity,
        }
    }

    /// Name of the erasure code profile.
    pub(crate) fn profile(self) -> Option<String> {
        match self {
            Self::Replicated(_) => None,
            Self::Erasure { data, parity } => Some(format!("gabion-{data}-{parity}")),
        }
    }

    /// Returns true if a pool of the monitors' list has this redundancy.
    pub(crate) fn matches(self, pool: &Value) -> bool {
        let number = |key: &str| pool.get(key).and_then(Value::as_u64);
        let size = number("size") == u64::try_from(self.hosts()).ok();
        let erasure = number("type") == Some(ERASURE_TYPE);
        let profile = pool.get("erasure_code_profile").and_then(Value::as_str);
        match self.profile() {
            None => !erasure && size,
            Some(own) => erasure && size && profile == Some(own.as_str()),
        }
    }
}

/// A pool to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Name.
    pub name: String,
    /// Redundancy.
    pub redundancy: Redundancy,
    /// The application that Ceph records for it: `rbd`, `cephfs`, `rgw` or another name.
    pub application: String,
}

impl FromStr for PoolSpec {
    type Err = String;

    /// Parses `NAME=REDUNDANCY` and an optional `,APPLICATION`.
    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, rest)) = text.split_once('=') else {
            return Err(format!("'{text}' is not NAME=REDUNDANCY, as in backup=ec:2+2"));
        };
        let is_word = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        let (redundancy, application) = rest.split_once(',').unwrap_or((rest, "rados"));
        if !is_word(name) || !is_word(application) {
            return Err(format!("'{text}' has an invalid name: use letters, digits, '-', '_' and '.'"));
        }
        Ok(Self { name: name.into(), redundancy: redundancy.parse()?, application: application.into() })
    }
}

/// Returns the violations of pools that the storage hosts of a cluster cannot hold.
pub(crate) fn check(model: &ClusterModel, pools: &[PoolSpec]) -> Vec<String> {
    let hosts = model.with_role("storage").count();
    let mut problems = Vec::new();
    for pool in pools {
        let needed = pool.redundancy.hosts();
        if needed > hosts {
            problems.push(format!(
                "pool '{}' with {} needs {needed} storage hosts, and the cluster has {hosts}",
                pool.name, pool.redundancy
            ));
        }
        if matches!(pool.redundancy, Redundancy::Replicated(1)) && !model.development {
            problems.push(format!("pool '{}' with one copy loses data with any drive", pool.name));
        }
        if pools.iter().filter(|other| other.name == pool.name).count() > 1 {
            problems.push(format!("pool '{}' is named twice", pool.name));
        }
    }
    problems.dedup();
    problems
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::ModelHost;

    #[test]
    fn redundancy_is_parsed_and_printed() {
        for text in ["replicated:3", "ec:2+2", "ec:8+3"] {
            assert_eq!(text.parse::<Redundancy>().unwrap().to_string(), text);
        }
        for text in ["", "ec", "ec:1+1", "ec:2+0", "ec:2", "replicated:0", "replicated:x", "mirror:2"] {
            assert!(text.parse::<Redundancy>().is_err(), "{text}");
        }
        let pool: PoolSpec = "backup=ec:2+2,rgw".parse().unwrap();
        assert_eq!((pool.name.as_str(), pool.application.as_str()), ("backup", "rgw"));
        for text in ["backup", "=ec:2+2", "a b=ec:2+2", "backup=ec:2+2,"] {
            assert!(text.parse::<PoolSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_existing_pool_must_have_the_redundancy() {
        let replicated = serde_json::json!({"type": 1, "size": 3, "erasure_code_profile": ""});
        let erasure = serde_json::json!({"type": 3, "size": 4, "erasure_code_profile": "gabion-2-2"});
        assert!(Redundancy::Replicated(3).matches(&replicated));
        assert!(!Redundancy::Replicated(2).matches(&replicated));
        assert!(!Redundancy::Replicated(4).matches(&erasure));
        assert!(Redundancy::Erasure { data: 2, parity: 2 }.matches(&erasure));
        assert!(!Redundancy::Erasure { data: 3, parity: 1 }.matches(&erasure));
    }

    #[test]
    fn pools_that_the_hosts_cannot_hold_are_all_reported() {
        let host = |name: &str| ModelHost {
            name: name.into(),
            roles: BTreeSet::from(["storage".to_owned()]),
            ..ModelHost::default()
        };
        let model = ClusterModel { hosts: vec![host("a"), host("b"), host("c")], ..ClusterModel::default() };
        let pools: Vec<PoolSpec> =
            ["a=ec:2+2", "b=replicated:3", "c=replicated:1"].map(|text| text.parse().unwrap()).into();
        let problems = check(&model, &pools);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("needs 4 storage hosts") && problems[1].contains("one copy"));
    }
}
