//! `gabion bench listing`.

use anyhow::{Context, Result};
use api::client::Client;
use bench::objects::{ListingPlan, ListingResult, SERVER, measure_listing};
use bench::observe::Watch;
use s3_client::S3Client;

use super::bench_objects::empty_bucket;
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
/// If a request fails, or a page has wrong keys.
pub(crate) fn run(global: &Global, arguments: &ListingArgs) -> Result<ExitReason> {
    super::with_daemon(global, async |ctx| {
        let measurement = Measurement::start(global, SETUP)?;
        let own = || format!("bench-{}", std::process::id());
        let bucket = arguments.bucket.clone().unwrap_or_else(own);
        let (client, key) = connect(&ctx.client, &arguments.pool).await?;
        let measured = measure(&ctx.client, &client, &bucket, arguments, &measurement).await;
        let mut removed = Ok(());
        if arguments.bucket.is_none() {
            // Its objects are deleted after a failed measurement too.
            measurement.set_step("deleting the objects");
            removed = empty_bucket(&client, &bucket).await;
        }
        ctx.client.delete_key(&key).await?;
        let result = measured?;
        removed.with_context(|| format!("removing bucket {bucket}"))?;
        let wrong = result.wrong;
        measurement.finish(&result, output::listing_result, wrong)
    })
}

async fn measure(
    daemon: &Client,
    client: &S3Client,
    bucket: &str,
    arguments: &ListingArgs,
    measurement: &Measurement,
) -> Result<ListingResult> {
    let buckets = daemon.list_buckets(&arguments.pool).await?;
    let is_filled = arguments.bucket.is_some() && buckets.iter().any(|other| other.name == bucket);
    if !is_filled {
        client.create_bucket(bucket).await?;
    }
    let process = daemon.get_daemon().await?.pid;
    let watch = Watch { processes: vec![(SERVER.into(), process)], drives: Vec::new(), here: "load".into() };
    let (keys, clients) = (arguments.keys, arguments.clients);
    let plan = ListingPlan { bucket: bucket.into(), keys, is_filled, clients };
    let progress =
        |step: &str, keys: u64| measurement.set_step(&format!("{step}: {keys} of {} keys", plan.keys));
    Ok(measure_listing(&plan, client, &watch, progress).await?)
}
