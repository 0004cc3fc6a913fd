//! `gabion bench objects`.
//!
//! Always true: a signal ends the measurement, and the bucket and the keys are deleted.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::client::Client;
use bench::lab::{Lab, LabError};
use bench::objects::{MIXES, Mix, ObjectBound, ObjectLoad, ObjectResult, ObjectSizes, SERVER};
use bench::observe::Watch;
use s3_client::{ListRequest, S3Client};

use super::lab::run_until_signal;
use super::measurement::Measurement;
use crate::cli::{Global, ObjectsArgs};
use crate::failure::ExitReason;
use crate::output;
use crate::transfer::connect;

const SETUP: &str = "\
objects: S3 requests to the daemon of this host, each acknowledged when it is durable. Bodies have a CRC-64/NVME
and an MD5 that the service verifies; every read is compared.";

/// Runs the benchmark and prints its results.
///
/// # Errors
/// If a request fails, an object has wrong contents, or the command is interrupted.
pub(crate) fn run(global: &Global, arguments: &ObjectsArgs) -> Result<ExitReason> {
    let (global, arguments) = (global.clone(), arguments.clone());
    run_until_signal(move |stop| run_until(&global, &arguments, stop))?
}

fn run_until(global: &Global, arguments: &ObjectsArgs, stop: &AtomicBool) -> Result<ExitReason> {
    super::with_daemon(global, async |ctx| {
        let measurement = Measurement::start(global, SETUP)?;
        let (client, key) = connect(&ctx.client, &arguments.pool).await?;
        let measured = measure_in_own_bucket(&ctx.client, &client, arguments, &measurement, stop).await;
        ctx.client.delete_key(&key).await?;
        let results = measured?;
        let wrong = results.iter().map(|one| one.wrong).sum();
        measurement.finish(&results, |results| output::object_results(results), wrong)
    })
}

async fn measure_in_own_bucket(
    daemon: &Client,
    client: &S3Client,
    arguments: &ObjectsArgs,
    measurement: &Measurement,
    stop: &AtomicBool,
) -> Result<Vec<ObjectResult>> {
    let bucket = own_bucket();
    client.create_bucket(&bucket).await?;
    let measured = measure(daemon, &bucket, arguments, measurement, stop).await;
    // Its objects are deleted after a failed measurement too.
    let removed = empty_bucket(client, &bucket).await;
    let results = measured?;
    removed.with_context(|| format!("removing bucket {bucket}"))?;
    Ok(results)
}

async fn measure(
    daemon: &Client,
    bucket: &str,
    arguments: &ObjectsArgs,
    measurement: &Measurement,
    stop: &AtomicBool,
) -> Result<Vec<ObjectResult>> {
    let lab = match &arguments.lab {
        Some(name) => Some(Lab::find(name)?.ok_or_else(|| LabError::Unknown(name.clone()))?),
        None => None,
    };
    let watch = Watch {
        processes: vec![(SERVER.into(), daemon.get_daemon().await?.pid)],
        drives: lab.iter().flat_map(Lab::devices).collect(),
        here: "load".into(),
    };
    let scheme = daemon.get_pool(&arguments.pool).await?.scheme.unwrap_or_default();
    let mixes = if arguments.mix.is_empty() { MIXES.to_vec() } else { arguments.mix.clone() };
    let mut results = Vec::new();
    for repeat in 1..=arguments.repeats {
        for mix in &mixes {
            measurement.set_step(&format!("{} {repeat} of {}", mix.name, arguments.repeats));
            let mut keys = Vec::new();
            let result = async {
                let mut clients = Vec::new();
                for _ in 0..arguments.threads {
                    let (client, key) = connect(daemon, &arguments.pool).await?;
                    clients.push(client);
                    keys.push(key);
                }
                Ok(bench::objects::run(&load(arguments, bucket, mix), &clients, &watch, stop)?)
            };
            let result: Result<_> = result.await;
            let mut deleted = Ok(());
            for key in keys {
                deleted = deleted.and(daemon.delete_key(&key).await);
            }
            let mut result = result?.context("interrupted")?;
            deleted?;
            result.mix = mix.name.to_owned();
            if let Some(lab) = &lab {
                let drives = u32::try_from(lab.devices().len()).unwrap_or(u32::MAX);
                result.bound = Some(ObjectBound::new(mix.shares, &lab.limits, &scheme, drives)?);
            }
            results.push(result);
        }
    }
    if results.is_empty() {
        bail!("nothing was measured");
    }
    Ok(results)
}

fn load(arguments: &ObjectsArgs, bucket: &str, mix: &Mix) -> ObjectLoad {
    ObjectLoad {
        bucket: bucket.into(),
        shares: mix.shares,
        sizes: ObjectSizes::new(arguments.size.0, arguments.size.0),
        range_bytes: None,
        oldest_first: false,
        objects: arguments.objects,
        clients: arguments.clients,
        warm_up: Duration::from_secs_f64(arguments.warm_up),
        run: Duration::from_secs_f64(arguments.seconds),
    }
}

/// Returns the name of a temporary bucket. It is random: S3 accepts the creation of a bucket that
/// its owner has already, and the objects of the bucket are deleted at the end.
pub(super) fn own_bucket() -> String {
    format!("bench-{}", uuid::Uuid::new_v4().simple())
}

/// Deletes the objects of a bucket and the bucket.
pub(super) async fn empty_bucket(client: &S3Client, bucket: &str) -> Result<()> {
    loop {
        let page = client.list(bucket, &ListRequest { limit: 1000, ..ListRequest::default() }).await?;
        let keys: Vec<String> = page.objects.into_iter().map(|object| object.key).collect();
        if keys.is_empty() {
            return Ok(client.delete_bucket(bucket).await?);
        }
        if let Some((key, reason)) = client.delete_objects(bucket, &keys).await?.first() {
            bail!("object '{key}' was not deleted: {reason}");
        }
    }
}
