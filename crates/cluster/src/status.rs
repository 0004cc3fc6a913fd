//! The status of a cluster: health, problems with their consequences, and the state of each drive.

use std::collections::BTreeMap;

use api::types::{ClusterHealth, ClusterOsd, ClusterPool, ClusterProblem, ClusterStatus};
use serde_json::{Value, json};

use crate::model::ClusterModel;
use crate::perform::Deployment;
use crate::stages::load_deployment;
use crate::status_details;
use crate::workspace::Workspace;
use ceph::{Error, ErrorKind, RadosClient, Result};

/// Returns the status of a cluster. A cluster without an answer has the health `Unreachable`.
///
/// # Errors
/// `NotFound` before `configure`, or without the client library; `Io`.
pub fn status(workspace: &Workspace) -> Result<ClusterStatus> {
    let deployment = load_deployment(workspace)?;
    match query(&deployment) {
        Ok(status) => Ok(status),
        Err(error) if error.kind() == ErrorKind::Unreachable => Ok(unreachable_status(&deployment, &error)),
        Err(error) => Err(error),
    }
}

fn empty_status(name: &str, model: &ClusterModel) -> ClusterStatus {
    ClusterStatus {
        name: name.to_owned(),
        fsid: model.fsid.clone(),
        adopted: model.adopted,
        health: ClusterHealth::Unreachable,
        problems: Vec::new(),
        replicas: model.replicas() as u64,
        monitors_in_quorum: Vec::new(),
        monitors: model.with_role("mon").map(|host| host.name.clone()).collect(),
        manager: None,
        capacity: 0,
        free: 0,
        stored: 0,
        placement_groups: BTreeMap::new(),
        read_bytes: 0,
        write_bytes: 0,
        recovery_bytes: 0,
        pools: Vec::new(),
        hosts: status_details::hosts(model, &[], &[]),
        osds: Vec::new(),
    }
}

fn unreachable_status(deployment: &Deployment, error: &Error) -> ClusterStatus {
    let problem = ClusterProblem {
        check: None,
        message: error.to_string(),
        consequence: "no data can be read or written until most monitors run; stored data is not affected"
            .into(),
        action: format!("start the daemons with 'gabion cluster deploy {}'", deployment.cluster),
    };
    ClusterStatus { problems: vec![problem], ..empty_status(&deployment.cluster, &deployment.model) }
}

fn query(deployment: &Deployment) -> Result<ClusterStatus> {
    let client = deployment.client()?;
    let command = |prefix: &str| json!({"prefix": prefix, "format": "json"});
    let status = client.monitor_json(&command("status"))?;
    let health = client.monitor_json(&json!({"prefix": "health", "detail": "detail", "format": "json"}))?;
    let tree = client.monitor_json(&command("osd tree"))?;
    // Without a manager there are no figures of drives.
    let usage = client.manager_json(&command("osd df")).unwrap_or(Value::Null);
    let count = |path: &str| status.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    let names = status.get("quorum_names").and_then(Value::as_array).into_iter().flatten();
    let monitors_in_quorum: Vec<String> = names.filter_map(Value::as_str).map(str::to_owned).collect();
    let osds = osds(deployment, &tree, &usage)?;
    let mut result = ClusterStatus {
        problems: problems(&deployment.cluster, &health),
        hosts: status_details::hosts(&deployment.model, &monitors_in_quorum, &osds),
        monitors_in_quorum,
        manager: manager(&client.monitor_json(&command("mgr dump"))?),
        capacity: count("/pgmap/bytes_total"),
        free: count("/pgmap/bytes_avail"),
        stored: count("/pgmap/data_bytes"),
        read_bytes: count("/pgmap/read_bytes_sec"),
        write_bytes: count("/pgmap/write_bytes_sec"),
        recovery_bytes: count("/pgmap/recovering_bytes_per_sec"),
        pools: pools(&client)?,
        osds,
        ..empty_status(&deployment.cluster, &deployment.model)
    };
    for entry in status.pointer("/pgmap/pgs_by_state").and_then(Value::as_array).into_iter().flatten() {
        if let (Some(state), Some(count)) =
            (entry.get("state_name").and_then(Value::as_str), entry.get("count").and_then(Value::as_u64))
        {
            result.placement_groups.insert(state.to_owned(), count);
        }
    }
    result.health = overall(&health, &result.problems);
    let separate = status_details::separate_problems(&result.name, &result.osds);
    result.problems.extend(separate);
    add_missing_monitors(&mut result);
    Ok(result)
}

fn pools(client: &RadosClient) -> Result<Vec<ClusterPool>> {
    let list =
        client.monitor_json(&json!({"prefix": "osd pool ls", "detail": "detail", "format": "json"}))?;
    let usage = client.monitor_json(&json!({"prefix": "df", "format": "json"}))?;
    let mut profiles = BTreeMap::new();
    for name in list.as_array().into_iter().flatten().filter_map(status_details::profile) {
        let command = json!({"prefix": "osd erasure-code-profile get", "name": name, "format": "json"});
        // The pool may have been deleted meanwhile, and its profile with it.
        let Ok(profile) = client.monitor_json(&command) else { continue };
        let part = |key: &str| profile.get(key).and_then(Value::as_str);
        if let (Some(data), Some(parity)) = (part("k"), part("m")) {
            profiles.insert(name.to_owned(), format!("{data}+{parity}"));
        }
    }
    Ok(status_details::pools(&list, &usage, &profiles))
}

/// Adds monitors outside of the quorum, which Ceph's checks report only after a while.
fn add_missing_monitors(status: &mut ClusterStatus) {
    let is_missing = |name: &&String| !status.monitors_in_quorum.contains(name);
    let missing: Vec<&str> = status.monitors.iter().filter(is_missing).map(String::as_str).collect();
    let is_known = status.problems.iter().any(|problem| problem.check.as_deref() == Some("MON_DOWN"));
    if missing.is_empty() || is_known {
        return;
    }
    let (consequence, action) = consequence_and_action("MON_DOWN", &status.name);
    let message = format!("monitors outside of the quorum: {}", missing.join(", "));
    let check = Some("MON_DOWN".to_owned());
    status.problems.push(ClusterProblem { check, message, consequence: consequence.into(), action });
    if status.health == ClusterHealth::Healthy {
        status.health = ClusterHealth::Degraded;
    }
}

fn manager(dump: &Value) -> Option<String> {
    let name = dump.get("active_name").and_then(Value::as_str)?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Health checks that mean unavailable or damaged data.
const FAILURES: [&str; 5] = ["PG_AVAILABILITY", "PG_DAMAGED", "OSD_FULL", "POOL_FULL", "OBJECT_UNFOUND"];

fn overall(health: &Value, problems: &[ClusterProblem]) -> ClusterHealth {
    let failed =
        |problem: &ClusterProblem| problem.check.as_deref().is_some_and(|check| FAILURES.contains(&check));
    match health.get("status").and_then(Value::as_str) {
        Some("HEALTH_OK") => ClusterHealth::Healthy,
        Some("HEALTH_ERR") => ClusterHealth::Failed,
        _ if problems.iter().any(failed) => ClusterHealth::Failed,
        _ => ClusterHealth::Degraded,
    }
}

fn problems(cluster: &str, health: &Value) -> Vec<ClusterProblem> {
    let checks = health.get("checks").and_then(Value::as_object).into_iter().flatten();
    let problem = |(name, check): (&String, &Value)| {
        let summary = check.pointer("/summary/message").and_then(Value::as_str).unwrap_or(name);
        let details = check.get("detail").and_then(Value::as_array).into_iter().flatten();
        let details: Vec<&str> =
            details.filter_map(|detail| detail.get("message").and_then(Value::as_str)).take(4).collect();
        let message = if details.is_empty() {
            summary.to_owned()
        } else {
            format!("{summary}: {}", details.join("; "))
        };
        let (consequence, action) = consequence_and_action(name, cluster);
        ClusterProblem { check: Some(name.clone()), message, consequence: consequence.into(), action }
    };
    checks.map(problem).collect()
}

/// Returns the consequence of a health check for data, and an action.
fn consequence_and_action(check: &str, cluster: &str) -> (&'static str, String) {
    let deploy = || format!("restart stopped daemons with 'gabion cluster deploy {cluster}'");
    let replace = || {
        format!(
            "restart it with 'gabion cluster deploy {cluster}', or replace a failed drive: 'gabion cluster remove {cluster} DRIVE'"
        )
    };
    match check {
        "MON_DOWN" => ("none while most monitors run: one more failure may stop all access", deploy()),
        "MGR_DOWN" => ("none: data is served; statistics and background work are suspended", deploy()),
        "OSD_DOWN" | "OSD_HOST_DOWN" | "OSD_ROOT_DOWN" => {
            ("its data has fewer copies; after 10 minutes the other drives make new ones", replace())
        }
        "PG_DEGRADED" => (
            "some data has fewer copies than configured and is being copied",
            "wait for the recovery, or return the missing drives".into(),
        ),
        "PG_AVAILABILITY" => ("requests for some data wait until more of its copies are present", deploy()),
        "PG_DAMAGED" | "OSD_SCRUB_ERRORS" => (
            "some copies disagree or cannot be read",
            "repair with 'ceph pg repair' for the listed placement groups".into(),
        ),
        "OBJECT_UNFOUND" => ("the newest version of some data is on no running drive", replace()),
        "OSD_FULL" | "POOL_FULL" => ("writes are refused", "add drives, or delete images".into()),
        "OSD_NEARFULL" | "POOL_NEARFULL" | "OSD_BACKFILLFULL" => {
            ("none yet: writes are refused when a drive is full", "add drives, or delete images".into())
        }
        "MON_CLOCK_SKEW" => {
            ("monitors may lose their quorum", "synchronise the clocks of the monitors' hosts".into())
        }
        "SLOW_OPS" => {
            ("some requests take longer than 30 s", "look for a failing drive or a congested network".into())
        }
        "MON_DISK_LOW" | "MON_DISK_CRIT" => (
            "none yet: a monitor stops when its file system is full",
            "free space on the monitors' hosts".into(),
        ),
        "TOO_FEW_OSDS" => ("new data cannot have all copies", "add storage hosts to the policy".into()),
        _ => ("see the message", format!("search for '{check}' in Ceph's documentation of health checks")),
    }
}

fn osds(deployment: &Deployment, tree: &Value, usage: &Value) -> Result<Vec<ClusterOsd>> {
    let drives = drives_by_uuid(deployment)?;
    let nodes: Vec<&Value> = tree.get("nodes").and_then(Value::as_array).into_iter().flatten().collect();
    let mut list = Vec::new();
    for host in nodes.iter().filter(|node| node.get("type").and_then(Value::as_str) == Some("host")) {
        let name = host.get("name").and_then(Value::as_str).unwrap_or("?");
        let children = host.get("children").and_then(Value::as_array).into_iter().flatten();
        for id in children.filter_map(Value::as_u64) {
            let find = |list: &[&Value]| {
                list.iter().find(|node| node.get("id").and_then(Value::as_u64) == Some(id)).copied().cloned()
            };
            let node = find(&nodes).unwrap_or(Value::Null);
            let figures: Vec<&Value> =
                usage.get("nodes").and_then(Value::as_array).into_iter().flatten().collect();
            let figures = find(&figures).unwrap_or(Value::Null);
            let bytes =
                |key: &str| figures.get(key).and_then(Value::as_u64).unwrap_or(0).saturating_mul(1024);
            let up = node.get("status").and_then(Value::as_str).unwrap_or("unknown");
            let is_out = node.get("reweight").and_then(Value::as_f64) == Some(0.0);
            let drive = drives.get(&id).cloned();
            let member = deployment.model.hosts.iter().find(|host| host.name == name);
            let placement = member.zip(drive.as_ref()).and_then(|(host, drive)| host.osds.get(drive));
            list.push(ClusterOsd {
                id,
                host: name.to_owned(),
                drive,
                db: placement.and_then(|osd| osd.db.clone()),
                wal: placement.and_then(|osd| osd.wal.clone()),
                state: if is_out { format!("{up}, out") } else { up.to_owned() },
                bytes: bytes("kb"),
                used: bytes("kb_used"),
            });
        }
    }
    list.sort_by_key(|osd| osd.id);
    Ok(list)
}

/// Returns the drives of this cluster's OSDs, by number.
pub(crate) fn drives_by_uuid(deployment: &Deployment) -> Result<BTreeMap<u64, String>> {
    let map = deployment.client()?.monitor_json(&json!({"prefix": "osd dump", "format": "json"}))?;
    let mut drives = BTreeMap::new();
    for osd in map.get("osds").and_then(Value::as_array).into_iter().flatten() {
        let uuid = osd.get("uuid").and_then(Value::as_str).unwrap_or_default();
        let own = deployment.secrets.osds.iter().find(|(_, identity)| identity.uuid == uuid);
        if let (Some(id), Some((key, _))) = (osd.get("osd").and_then(Value::as_u64), own) {
            let drive = key.split_once(':').map_or(key.as_str(), |(_, drive)| drive);
            drives.insert(id, drive.to_owned());
        }
    }
    Ok(drives)
}
