//! `gabion bench listing`.
//!
//! Always true: a signal ends the measurement, and a temporary bucket and the key are deleted.

use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use api::client::Client;
use bench::objects::{ListingPlan, ListingResult, SERVER, measure_listing};
use bench::observe::Watch;
use s3_client::S3Client;

use super::bench_objects::{empty_bucket, own_bucket};
use super::lab::run_until_signal;
use super::measurement::Measurement;
use crate::cli::{Global, ListingArgs};
use crate::failure::ExitReason;
use crate::output;
use crate::transfer::connect;

const SETUP: &str = "\
listing: S3 requests to the daemon of this host, one at a time. Every page is compared with the keys that were put.";

/// Runs the benchmark and prints its result.
///
/// # Errors
/// If a request fails, a page has wrong keys, or the command is interrupted.
pub(crate) fn run(global: &Global, arguments: &ListingArgs) -> Result<ExitReason> {
    let (global, arguments) = (global.clone(), arguments.clone());
    run_until_signal(move |stop| run_until(&global, &arguments, stop))?
}

fn run_until(global: &Global, arguments: &ListingArgs, stop: &AtomicBool) -> Result<ExitReason> {
    super::with_daemon(global, async |ctx| {
        let measurement = Measurement::start(global, SETUP)?;
        let (client, key) = connect(&ctx.client, &arguments.pool).await?;
        let measured = measure_in_bucket(&ctx.client, &client, arguments, &measurement, stop).await;
        ctx.client.delete_key(&key).await?;
        let result = measured?;
        let wrong = result.wrong;
        measurement.finish(&result, output::listing_result, wrong)
    })
}

async fn measure_in_bucket(
    daemon: &Client,
    client: &S3Client,
    arguments: &ListingArgs,
    measurement: &Measurement,
    stop: &AtomicBool,
) -> Result<ListingResult> {
    let bucket = arguments.bucket.clone().unwrap_or_else(own_bucket);
    let is_filled = prepare_bucket(daemon, client, &bucket, arguments).await?;
    let measured = measure(daemon, client, (&bucket, is_filled), arguments, measurement, stop).await;
    let mut removed = Ok(());
    if arguments.bucket.is_none() {
        // Its objects are deleted after a failed measurement too.
        measurement.set_step("deleting the objects");
        removed = empty_bucket(client, &bucket).await;
    }
    let result = measured?;
    removed.with_context(|| format!("removing bucket {bucket}"))?;
    Ok(result)
}

/// Creates the bucket. Returns true if it has the keys of an earlier run.
async fn prepare_bucket(
    daemon: &Client,
    client: &S3Client,
    bucket: &str,
    arguments: &ListingArgs,
) -> Result<bool> {
    let buckets = daemon.list_buckets(&arguments.pool).await?;
    match buckets.iter().find(|other| arguments.bucket.is_some() && other.name == bucket) {
        Some(filled) if filled.objects == arguments.keys => Ok(true),
        Some(filled) => bail!(
            "bucket '{bucket}' has {} objects instead of {}: delete it, or choose another bucket or --keys",
            filled.objects,
            arguments.keys
        ),
        None => {
            client.create_bucket(bucket).await?;
            Ok(false)
        }
    }
}

async fn measure(
    daemon: &Client,
    client: &S3Client,
    (bucket, is_filled): (&str, bool),
    arguments: &ListingArgs,
    measurement: &Measurement,
    stop: &AtomicBool,
) -> Result<ListingResult> {
    let process = daemon.get_daemon().await?.pid;
    let watch = Watch { processes: vec![(SERVER.into(), process)], drives: Vec::new(), here: "load".into() };
    let (keys, clients) = (arguments.keys, arguments.clients);
    let plan = ListingPlan { bucket: bucket.into(), keys, is_filled, clients };
    let progress =
        |step: &str, keys: u64| measurement.set_step(&format!("{step}: {keys} of {} keys", plan.keys));
    measure_listing(&plan, client, &watch, stop, progress).await?.context("interrupted")
}
