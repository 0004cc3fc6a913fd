//! Loads of S3 requests as jobs of a suite.
//!
//! Always true: a load uses a bucket of its own and removes it, whatever the result.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use s3_client::{Address, Credentials, ListRequest, S3Client, S3Error};

use super::client::OperationLatencies;
use super::counters::ObjectCounters;
use super::load::execute;
use super::load_error::ObjectLoadError;
use super::plan::ObjectLoad;
use super::{ObjectOperation, warp};
use crate::load::{Length, Load, LoadResult, Output, S3Endpoint, Target};
use crate::result::{Direction, ReadWrite};
use crate::suite::ObjectGenerator;

/// Returns a client of a service.
fn connect(endpoint: &S3Endpoint) -> Result<S3Client, ObjectLoadError> {
    let address = Address::parse(&endpoint.url).map_err(|source| failed(endpoint, source))?;
    let credentials = Credentials::new(endpoint.access_key.clone(), endpoint.secret_key.clone());
    Ok(S3Client::new(address, endpoint.region.clone(), credentials))
}

fn failed(endpoint: &S3Endpoint, source: S3Error) -> ObjectLoadError {
    ObjectLoadError::Request { address: endpoint.url.clone(), source }
}

/// Runs a job on the S3 service of its first slice.
///
/// # Errors
/// The first error of a request; objects with wrong contents.
pub(crate) fn run_load(
    load: &Load<'_>,
    folder: &Path,
    name: &str,
    stop: &AtomicBool,
    on_start: impl FnOnce(u32),
) -> Result<LoadResult, ObjectLoadError> {
    let job = load.job;
    let missing = || ObjectLoadError::NoService(job.name.clone());
    let Some(Target::S3(endpoint)) = load.slices.first().map(|slice| &slice.target) else {
        return Err(missing());
    };
    let Some(objects) = &job.objects else { return Err(missing()) };
    let (ramp, run) = match load.length {
        Length::Seconds { ramp, run } => (ramp, run),
        Length::Once => return Err(missing()),
    };
    let instances = u32::try_from(load.slices.len()).unwrap_or(u32::MAX);
    let plan = ObjectLoad {
        bucket: format!("gabion-bench-{:016x}", rand::random::<u64>()),
        shares: objects.shares(),
        sizes: objects.sizes(job),
        range_bytes: objects.range_bytes,
        oldest_first: objects.oldest_first,
        objects: objects.count,
        clients: job.threads * job.depth * instances,
        warm_up: Duration::from_secs_f64(ramp),
        run: Duration::from_secs_f64(run),
    };
    let bucket = LoadBucket { endpoint, name: &plan.bucket };
    bucket.create()?;
    if objects.generator == ObjectGenerator::Warp && warp::supports(&plan) {
        let measured = warp::run(&plan, endpoint, (folder, name), stop, on_start);
        let removed = bucket.remove();
        return measured.and_then(|result| removed.map(|()| result));
    }
    let threads = job.threads * instances;
    let clients = (0..threads).map(|_| connect(endpoint)).collect::<Result<Vec<_>, _>>()?;
    let measured = execute(&plan, &clients, stop, || (), |(), _| ());
    let removed = bucket.remove();
    let (counters, ()) = measured.map_err(|source| failed(endpoint, source))?;
    if stop.load(Ordering::Relaxed) {
        return Err(ObjectLoadError::Interrupted);
    }
    removed?;
    if counters.wrong > 0 {
        return Err(ObjectLoadError::Wrong { address: endpoint.url.clone(), count: counters.wrong });
    }
    if counters.measured.iter().all(|one| one.latencies.is_empty()) {
        return Err(ObjectLoadError::Silent { address: endpoint.url.clone(), seconds: run });
    }
    Ok(result(&counters))
}

/// The bucket of a load.
struct LoadBucket<'a> {
    endpoint: &'a S3Endpoint,
    name: &'a str,
}

impl LoadBucket<'_> {
    fn block_on<T>(
        &self,
        work: impl AsyncFnOnce(S3Client) -> s3_client::Result<T>,
    ) -> Result<T, ObjectLoadError> {
        let client = connect(self.endpoint)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| S3Error::Invalid(format!("no async runtime: {error}")));
        let done = runtime.and_then(|runtime| runtime.block_on(work(client)));
        done.map_err(|source| failed(self.endpoint, source))
    }

    fn create(&self) -> Result<(), ObjectLoadError> {
        self.block_on(async |client| client.create_bucket(self.name).await)
    }

    /// Deletes the objects and the bucket.
    fn remove(&self) -> Result<(), ObjectLoadError> {
        let left = self.block_on(async |client| {
            loop {
                let request = ListRequest { limit: 1000, ..ListRequest::default() };
                let page = match client.list(self.name, &request).await {
                    // `warp` may have removed it.
                    Err(error) if error.code() == Some("NoSuchBucket") => return Ok(None),
                    page => page?,
                };
                let keys: Vec<String> = page.objects.into_iter().map(|object| object.key).collect();
                if keys.is_empty() {
                    return client.delete_bucket(self.name).await.map(|()| None);
                }
                let mut left = client.delete_objects(self.name, &keys).await?.into_iter();
                if let Some(first) = left.next() {
                    return Ok(Some(first));
                }
            }
        })?;
        let Some((key, reason)) = left else { return Ok(()) };
        let (address, bucket) = (self.endpoint.url.clone(), self.name.to_owned());
        Err(ObjectLoadError::Left { address, bucket, key, reason })
    }
}

/// Returns the measurements as a result of a job: GETs as reads, PUTs as writes.
fn result(counters: &ObjectCounters) -> LoadResult {
    let seconds = counters.elapsed.as_secs_f64().max(1e-9);
    let mut sides = counters.measured.iter().map(|one| direction(one, seconds));
    let mut next = || sides.next().flatten();
    let (get, stat, put, delete) = (next(), next(), next(), next());
    let named = |operation: ObjectOperation, side: Option<Direction>| {
        side.map(|side| (operation.name().to_owned(), side))
    };
    let others = [named(ObjectOperation::Stat, stat), named(ObjectOperation::Delete, delete)];
    LoadResult {
        output: Output {
            version: format!("gabion {}, every byte compared", env!("CARGO_PKG_VERSION")),
            instances: vec![ReadWrite { read: get, write: put }],
        },
        others: others.into_iter().flatten().collect(),
        seconds: counters.seconds.clone(),
        ended: Some(counters.ended),
    }
}

#[allow(clippy::cast_precision_loss)]
fn direction(one: &OperationLatencies, seconds: f64) -> Option<Direction> {
    let count = one.latencies.len();
    (count > 0).then(|| Direction {
        iops: count as f64 / seconds,
        bytes_per_s: one.bytes as f64 / seconds,
        ios: count,
        mean_us: one.latencies.mean() / 1e3,
        latencies: one
            .latencies
            .iter_recorded()
            .map(|value| (value.value_iterated_to(), value.count_since_last_iteration()))
            .collect(),
    })
}
