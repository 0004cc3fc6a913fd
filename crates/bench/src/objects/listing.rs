//! Listings of a large bucket: its first page, a page at a random place, one level of a tree, and
//! all keys.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use futures_util::stream::{FuturesUnordered, TryStreamExt};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use s3_client::{Checksum, ListPage, ListRequest, Result, S3Client, S3Error};
use serde::Serialize;

use super::client::OperationLatencies;
use super::result::SERVER;
use crate::observe::{Observation, Observer, Watch};

/// Keys of a page, as many as S3 permits.
const PAGE: usize = 1000;
/// Keys with the same prefix up to the delimiter.
const GROUP: u64 = 1000;
/// Number of requests for each kind of page.
const SAMPLES: usize = 50;

/// The listings to measure.
#[derive(Clone, Debug)]
pub struct ListingPlan {
    /// An empty bucket, or one with the keys.
    pub bucket: String,
    /// Number of keys.
    pub keys: u64,
    /// True if the bucket has the keys.
    pub is_filled: bool,
    /// Clients that create the keys.
    pub clients: u32,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct ListingResult {
    /// Number of keys.
    pub keys: u64,
    /// Seconds in which the objects, of one byte each, were put; `None` if the bucket had them.
    pub put_seconds: Option<f64>,
    /// Latencies of the first page in milliseconds: median, 99 %, longest.
    pub first_page_ms: [f64; 3],
    /// Latencies of a page after a random key.
    pub random_page_ms: [f64; 3],
    /// Latencies of a page of groups by the delimiter, each with 1,000 keys.
    pub groups_page_ms: [f64; 3],
    /// Seconds of the listing of all keys, page after page.
    pub list_seconds: f64,
    /// Number of pages of it.
    pub pages: u64,
    /// Processor seconds of the server during it; `None` if its process is not known.
    pub server_cpu_s: Option<f64>,
    /// Keys that were missing, unexpected or out of order.
    pub wrong: u64,
    /// Processors and disturbances during the listing of all keys.
    pub observation: Observation,
}

fn key(number: u64) -> String {
    format!("{:06}/{:09}", number / GROUP, number)
}

/// Puts the keys and measures the listings. `progress` gets the number of keys that exist, then the
/// number of listed keys. Returns `None` if `stop` was set.
///
/// # Errors
/// The first error of a request.
pub async fn measure_listing(
    plan: &ListingPlan,
    client: &S3Client,
    watch: &Watch,
    stop: &AtomicBool,
    progress: impl Fn(&str, u64),
) -> Result<Option<ListingResult>> {
    let is_stopped = || stop.load(Ordering::Relaxed);
    let started = Instant::now();
    let next = AtomicU64::new(if plan.is_filled { plan.keys } else { 0 });
    let fill = |_| async {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= plan.keys || is_stopped() {
                return Ok::<(), S3Error>(());
            }
            let body = bytes_of(number);
            let checksum = Checksum::of(&body);
            client.put_object(&plan.bucket, &key(number), body.into(), &checksum).await?;
            if number.is_multiple_of(GROUP) {
                progress("putting", number);
            }
        }
    };
    let filling: FuturesUnordered<_> = (0..plan.clients).map(fill).collect();
    filling.try_collect::<()>().await?;
    let put_seconds = (!plan.is_filled).then(|| started.elapsed().as_secs_f64());
    let mut random = SmallRng::seed_from_u64(plan.keys);
    let list = async |after: &str, delimiter: &str| {
        let request = ListRequest { after, delimiter, limit: PAGE, ..ListRequest::default() };
        client.list(&plan.bucket, &request).await
    };
    let mut wrong = 0;
    let mut pages: [OperationLatencies; 3] = std::array::from_fn(|_| OperationLatencies::new());
    for _ in 0..SAMPLES {
        if is_stopped() {
            return Ok(None);
        }
        let after = random.random_range(0..plan.keys.max(1));
        let kinds = [(None, ""), (Some(after), ""), (None, "/")];
        for ((after, delimiter), latencies) in kinds.into_iter().zip(&mut pages) {
            let after_key = after.map(key).unwrap_or_default();
            let started = Instant::now();
            let page = list(&after_key, delimiter).await?;
            let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            // The histogram grows as needed.
            let _ = latencies.latencies.record(nanos);
            wrong += match delimiter {
                "" => wrong_keys(&page, after.map_or(0, |after| after + 1), plan.keys),
                _ => wrong_groups(&page, plan.keys),
            };
        }
    }
    let observer = Observer::start(watch.clone());
    let started = Instant::now();
    let (mut token, mut listed, mut count) = (None, 0, 0);
    loop {
        if is_stopped() {
            return Ok(None);
        }
        let request = ListRequest { limit: PAGE, token: token.as_deref(), ..ListRequest::default() };
        let page = client.list(&plan.bucket, &request).await?;
        wrong += wrong_keys(&page, listed, plan.keys);
        listed += page.objects.len() as u64;
        count += 1;
        progress("listing", listed);
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    let list_seconds = started.elapsed().as_secs_f64();
    let observation = observer.finish(list_seconds, None);
    let [first, at_random, groups] = pages.each_ref().map(milliseconds);
    Ok(Some(ListingResult {
        keys: plan.keys,
        put_seconds,
        first_page_ms: first,
        random_page_ms: at_random,
        groups_page_ms: groups,
        list_seconds,
        pages: count,
        server_cpu_s: observation.cpu.get(SERVER).map(|cpus| cpus * observation.seconds),
        wrong: wrong + plan.keys.abs_diff(listed),
        observation,
    }))
}

fn bytes_of(number: u64) -> Vec<u8> {
    number.to_le_bytes().into_iter().take(1).collect()
}

/// Returns the number of keys of a page that are not those from `from` on.
fn wrong_keys(page: &ListPage, from: u64, keys: u64) -> u64 {
    let expected = (keys - from.min(keys)).min(PAGE as u64);
    let differs =
        |(number, object): &(u64, &s3_client::ListedObject)| object.key != key(*number) || object.size != 1;
    let wrong = (from..).zip(&page.objects).filter(differs).count() as u64;
    wrong + expected.abs_diff(page.objects.len() as u64)
}

/// Returns the number of groups of the first page that are not the first groups.
fn wrong_groups(page: &ListPage, keys: u64) -> u64 {
    let expected = keys.div_ceil(GROUP).min(PAGE as u64);
    let differs = |(number, prefix): &(u64, &String)| **prefix != format!("{number:06}/");
    let wrong = (0..).zip(&page.prefixes).filter(differs).count() as u64;
    wrong + expected.abs_diff(page.prefixes.len() as u64)
}

/// Returns the median, the 99th percentile and the longest latency in milliseconds.
#[allow(clippy::cast_precision_loss)]
fn milliseconds(one: &OperationLatencies) -> [f64; 3] {
    [0.5, 0.99, 1.0].map(|share| one.latencies.value_at_quantile(share) as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use s3_client::ListedObject;

    use super::*;

    #[test]
    fn missing_and_unordered_keys_are_counted() {
        let object = |number: u64| ListedObject {
            key: key(number),
            size: 1,
            etag: String::new(),
            modified: String::new(),
        };
        let page = |numbers: &[u64]| ListPage {
            objects: numbers.iter().map(|number| object(*number)).collect(),
            ..ListPage::default()
        };
        assert_eq!(wrong_keys(&page(&[3, 4, 5]), 3, 6), 0);
        assert_eq!(wrong_keys(&page(&[3, 5, 4]), 3, 6), 2);
        assert_eq!(wrong_keys(&page(&[3, 4]), 3, 6), 1);
        let groups = |prefixes: &[&str]| ListPage {
            prefixes: prefixes.iter().map(|prefix| (*prefix).to_owned()).collect(),
            ..ListPage::default()
        };
        assert_eq!(wrong_groups(&groups(&["000000/", "000001/"]), GROUP + 1), 0);
        assert_eq!(wrong_groups(&groups(&["000001/"]), GROUP + 1), 2);
    }
}
