//! Formatting of results as text.

mod access;
mod bench;
mod bench_churn;
mod bench_disks;
mod bench_fairness;
mod bench_objects;
mod bench_rebuild;
mod bench_scale;
mod bench_snapshots;
mod cluster;
mod drive;
mod event;
mod export;
mod lab;
mod objects;
mod operation;
mod pool;
mod roles;
mod salvage;
mod scrub;
mod table;
mod time;
mod users;
mod vm;
mod volume;
mod webhooks;

use serde::Serialize;

pub(crate) use access::{audit, contexts, tokens};
pub(crate) use bench::{sample, sample_header};
pub(crate) use bench_churn::{churn, churn_header, churn_window};
pub(crate) use bench_disks::{line, line_header, shares};
pub(crate) use bench_fairness::fairness;
pub(crate) use bench_objects::{listing_result, object_results};
pub(crate) use bench_rebuild::rebuild_result;
pub(crate) use bench_scale::{map_cost, recovery};
pub(crate) use bench_snapshots::snapshots_result;
pub(crate) use cluster::{
    cluster_services, cluster_status, cluster_step, cluster_steps_done, configuration, discovery,
};
pub(crate) use drive::{check_report, drives, identified};
pub(crate) use event::{event, events};
pub(crate) use export::{created_export, exports};
pub(crate) use lab::{lab_models, labs};
pub(crate) use objects::{
    ObjectList, ObjectRow, access_keys, bucket, buckets, new_key, objects, s3_services,
};
pub(crate) use operation::{operation, operations};
pub(crate) use pool::{opening, pool_statuses, pools, rebuild, rebuild_settings};
pub(crate) use roles::{provider, providers, roles};
pub(crate) use salvage::{salvage_served, salvage_uris, salvaged, salvaged_image};
pub(crate) use scrub::{scrub, settings as scrub_settings};
pub(crate) use users::{user_groups, user_policies, users};
pub(crate) use vm::{
    Host, HostCpu, MachineStatus, host, machine, machine_created, machine_started, machines, templates,
};
pub(crate) use volume::{CopiedImage, image_exported, image_imported, qos, usages, volume, volumes};
pub(crate) use webhooks::{webhook, webhooks};

/// Returns the API's name of a state, with spaces for underscores.
pub(crate) fn word<T: Serialize>(state: &T) -> String {
    match serde_json::to_value(state) {
        Ok(serde_json::Value::String(word)) => word.replace('_', " "),
        _ => "?".into(),
    }
}

/// Formats a size; `-` if it is unknown.
fn size(bytes: Option<u64>) -> String {
    bytes.map_or("-".into(), |bytes| api::Size(bytes).to_string())
}
