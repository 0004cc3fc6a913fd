//! The hosts, OSDs and pools in the status of a cluster, from the responses of its monitors. Pure
//! functions.

use std::collections::{BTreeMap, BTreeSet};

use api::types::{ClusterHost, ClusterOsd, ClusterPool, ClusterProblem};
use serde_json::Value;

use crate::model::ClusterModel;

/// Returns true if the OSD runs.
fn is_up(osd: &ClusterOsd) -> bool {
    osd.state == "up" || osd.state.starts_with("up,")
}

/// Returns the hosts of the model, followed by other hosts with OSDs.
pub(crate) fn hosts(model: &ClusterModel, quorum: &[String], osds: &[ClusterOsd]) -> Vec<ClusterHost> {
    let mut hosts: Vec<ClusterHost> = Vec::new();
    for host in &model.hosts {
        hosts.push(ClusterHost {
            name: host.name.clone(),
            roles: host.roles.iter().cloned().collect(),
            address: host.public_address.map(|address| address.to_string()),
            in_quorum: host.has("mon").then(|| quorum.contains(&host.name)),
            osds: 0,
            osds_up: 0,
        });
    }
    for osd in osds {
        if !hosts.iter().any(|host| host.name == osd.host) {
            hosts.push(ClusterHost {
                name: osd.host.clone(),
                roles: vec!["storage".into()],
                address: None,
                in_quorum: None,
                osds: 0,
                osds_up: 0,
            });
        }
        if let Some(host) = hosts.iter_mut().find(|host| host.name == osd.host) {
            host.osds += 1;
            host.osds_up += u64::from(is_up(osd));
        }
    }
    hosts
}

/// Returns a problem for each drive of databases or write-ahead logs all of whose OSDs are down.
pub(crate) fn separate_problems(cluster: &str, osds: &[ClusterOsd]) -> Vec<ClusterProblem> {
    let mut users: BTreeMap<(&str, &str), Vec<&ClusterOsd>> = BTreeMap::new();
    for osd in osds {
        let drives: BTreeSet<&String> = osd.db.iter().chain(&osd.wal).collect();
        for drive in drives {
            users.entry((&osd.host, drive)).or_default().push(osd);
        }
    }
    let down = users.into_iter().filter(|(_, osds)| !osds.iter().any(|osd| is_up(osd)));
    let problem = |((host, drive), osds): ((&str, &str), Vec<&ClusterOsd>)| {
        let names: Vec<String> = osds.iter().map(|osd| format!("osd.{}", osd.id)).collect();
        ClusterProblem {
            check: None,
            message: format!(
                "all OSDs with a database or write-ahead log on {drive} of host '{host}' are down: {}",
                names.join(", ")
            ),
            consequence: "if this drive has failed, these OSDs are lost; their data has fewer copies \
                          until other OSDs have made new ones"
                .into(),
            action: format!(
                "examine the drive; restart the OSDs with 'gabion cluster deploy {cluster}', or remove \
                 them after a failure: 'gabion cluster remove {cluster} {host}:{drive}'"
            ),
        }
    };
    down.map(problem).collect()
}

/// Returns the pools from the responses to `osd pool ls detail` and `df`, with the data and parity
/// parts of each erasure code profile.
pub(crate) fn pools(list: &Value, usage: &Value, profiles: &BTreeMap<String, String>) -> Vec<ClusterPool> {
    let figures: Vec<&Value> = usage.get("pools").and_then(Value::as_array).into_iter().flatten().collect();
    let pool = |pool: &Value| {
        let name = pool.get("pool_name").and_then(Value::as_str)?;
        let stats = figures.iter().find(|one| one.get("name").and_then(Value::as_str) == Some(name));
        let number = |key: &str| stats.and_then(|one| one.get("stats")?.get(key)?.as_u64()).unwrap_or(0);
        let applications = pool.get("application_metadata").and_then(Value::as_object);
        Some(ClusterPool {
            name: name.to_owned(),
            applications: applications.into_iter().flatten().map(|(name, _)| name.clone()).collect(),
            protection: protection(pool, profiles),
            placement_groups: pool.get("pg_num").and_then(Value::as_u64).unwrap_or(0),
            objects: number("objects"),
            stored: number("stored"),
            used: number("bytes_used"),
            available: number("max_avail"),
        })
    };
    list.as_array().into_iter().flatten().filter_map(pool).collect()
}

/// Returns the name of a pool's erasure code profile; `None` for a pool of copies.
pub(crate) fn profile(pool: &Value) -> Option<&str> {
    pool.get("erasure_code_profile").and_then(Value::as_str).filter(|profile| !profile.is_empty())
}

fn protection(pool: &Value, profiles: &BTreeMap<String, String>) -> String {
    let size = pool.get("size").and_then(Value::as_u64).unwrap_or(0);
    match profile(pool) {
        Some(profile) => profiles.get(profile).cloned().unwrap_or_else(|| format!("{size} parts")),
        None if size == 1 => "1 copy".into(),
        None => format!("{size} copies"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::ModelHost;

    fn osd(id: u64, host: &str, state: &str) -> ClusterOsd {
        let (host, state) = (host.into(), state.into());
        ClusterOsd { id, host, drive: None, db: None, wal: None, state, bytes: 0, used: 0 }
    }

    #[test]
    fn hosts_have_their_monitors_and_osds() {
        let host = |name: &str, roles: &[&str]| ModelHost {
            name: name.into(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            ..ModelHost::default()
        };
        let model = ClusterModel {
            hosts: vec![host("a", &["mon", "storage"]), host("b", &["mon"]), host("c", &["storage"])],
            ..ClusterModel::default()
        };
        let osds = [osd(0, "a", "up"), osd(1, "a", "down"), osd(2, "d", "up"), osd(3, "c", "down, out")];
        let hosts = hosts(&model, &["a".to_owned()], &osds);
        let seen: Vec<_> =
            hosts.iter().map(|host| (host.name.as_str(), host.in_quorum, host.osds, host.osds_up)).collect();
        let expected =
            [("a", Some(true), 2, 1), ("b", Some(false), 0, 0), ("c", None, 1, 0), ("d", None, 1, 1)];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_drive_of_databases_without_an_osd_that_runs_is_a_problem() {
        let on = |id, host: &str, state: &str, db: &str, wal: Option<&str>| ClusterOsd {
            db: Some(db.into()),
            wal: wal.map(Into::into),
            ..osd(id, host, state)
        };
        let osds = [
            osd(0, "a", "down"),
            on(1, "a", "down", "/dev/fast", Some("/dev/fast")),
            on(2, "a", "down, out", "/dev/fast", None),
            on(3, "b", "down", "/dev/fast", None),
            on(4, "b", "up", "/dev/fast", Some("/dev/log")),
        ];
        let problems = separate_problems("prod", &osds);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].message.contains("/dev/fast of host 'a' are down: osd.1, osd.2"), "{problems:?}");
        assert!(problems[0].action.contains("gabion cluster remove prod a:/dev/fast"), "{problems:?}");
        assert!(separate_problems("prod", &osds[4..]).is_empty());
    }

    #[test]
    fn pools_have_their_protection_and_usage() {
        let list = json!([
            {"pool_name": "rbd", "type": 1, "size": 3, "pg_num": 16, "erasure_code_profile": "",
             "application_metadata": {"rbd": {}}},
            {"pool_name": "backup", "type": 3, "size": 4, "pg_num": 8, "erasure_code_profile": "gabion-2-2",
             "application_metadata": {}},
            {"pool_name": "other", "type": 3, "size": 5, "erasure_code_profile": "theirs"},
        ]);
        let usage = json!({"pools": [{"name": "rbd", "stats":
            {"stored": 10, "bytes_used": 30, "max_avail": 100, "objects": 2}}]});
        let profiles = BTreeMap::from([("gabion-2-2".to_owned(), "2+2".to_owned())]);
        let pools = pools(&list, &usage, &profiles);
        assert_eq!(pools[0].applications, ["rbd"]);
        assert_eq!((pools[0].stored, pools[0].used, pools[0].available, pools[0].objects), (10, 30, 100, 2));
        let protection: Vec<&str> = pools.iter().map(|pool| pool.protection.as_str()).collect();
        assert_eq!(protection, ["3 copies", "2+2", "5 parts"]);
        assert_eq!(pools[1].stored, 0, "without figures");
    }
}
