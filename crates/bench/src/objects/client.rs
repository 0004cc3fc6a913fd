//! One client of a load: it sends one request at a time, on objects of its own.

use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, TryStreamExt};
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use s3_client::{Checksum, Result, S3Client};

use super::content::Contents;
use super::{ObjectLoad, ObjectOperation};

/// The measured operations of one kind.
#[derive(Clone)]
pub(super) struct OperationLatencies {
    pub(super) latencies: Histogram<u64>,
    pub(super) bytes: u64,
}

impl OperationLatencies {
    /// Latencies in nanoseconds with three digits.
    #[allow(clippy::expect_used, reason = "three digits are valid")]
    pub(super) fn new() -> Self {
        Self { latencies: Histogram::new(3).expect("three digits"), bytes: 0 }
    }

    /// Adds those of another client.
    pub(super) fn add(&mut self, other: &Self) {
        // Both grow as needed.
        let _ = self.latencies.add(&other.latencies);
        self.bytes += other.bytes;
    }
}

/// A client with its objects.
pub(super) struct LoadClient<'a> {
    load: &'a ObjectLoad,
    contents: Contents,
    /// The number of the first object.
    first: u64,
    /// Versions of the objects, in the order of their writes; 0 for objects that do not exist.
    versions: Vec<u64>,
    last_version: u64,
    random: SmallRng,
    pub(super) measured: [OperationLatencies; 4],
    /// Objects with other contents or another length than the written ones.
    pub(super) wrong: u64,
}

impl<'a> LoadClient<'a> {
    pub(super) fn new(load: &'a ObjectLoad, contents: Contents, objects: Range<u64>) -> Self {
        let count = usize::try_from(objects.end - objects.start).unwrap_or(0).max(1);
        Self {
            load,
            contents,
            first: objects.start,
            versions: vec![0; count],
            last_version: 0,
            random: SmallRng::seed_from_u64(objects.start),
            measured: std::array::from_fn(|_| OperationLatencies::new()),
            wrong: 0,
        }
    }

    /// Puts all objects if the load reads them.
    pub(super) async fn prepare(&mut self, client: &S3Client, goes_on: impl Fn() -> bool) -> Result<()> {
        if self.load.shares.needs_objects() {
            for index in 0..self.versions.len() {
                if !goes_on() {
                    break;
                }
                self.put(client, index).await?;
            }
        }
        Ok(())
    }

    /// Runs one operation. Returns it with its latency and its bytes.
    pub(super) async fn step(&mut self, client: &S3Client) -> Result<(ObjectOperation, Duration, u64)> {
        let wanted = self.load.shares.pick(self.random.random_range(0..100));
        let start = self.random.random_range(0..self.versions.len());
        let is_put = wanted == ObjectOperation::Put;
        // The next object that exists, or for a put the next one that does not.
        let fits = |index: &usize| self.versions.get(*index).is_some_and(|version| (*version == 0) == is_put);
        let mut all = (start..self.versions.len()).chain(0..start).filter(fits);
        let found = if wanted == ObjectOperation::Delete && self.load.oldest_first {
            all.min_by_key(|index| self.version(*index))
        } else {
            all.next()
        };
        let (operation, index) = match found {
            Some(index) => (wanted, index),
            // All exist, and one is overwritten; or none does, and one is written.
            None => (ObjectOperation::Put, start),
        };
        let (elapsed, bytes) = match operation {
            ObjectOperation::Get => self.get(client, index).await?,
            ObjectOperation::Stat => self.stat(client, index).await?,
            ObjectOperation::Put => self.put(client, index).await?,
            ObjectOperation::Delete => self.delete(client, index).await?,
        };
        Ok((operation, elapsed, bytes))
    }

    /// Counts a measured operation.
    pub(super) fn record(&mut self, operation: ObjectOperation, elapsed: Duration, bytes: u64) {
        let measured = ObjectOperation::ALL.iter().position(|one| *one == operation);
        if let Some(measured) = measured.and_then(|index| self.measured.get_mut(index)) {
            let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
            // The histogram grows as needed.
            let _ = measured.latencies.record(nanos);
            measured.bytes += bytes;
        }
    }

    fn key(&self, index: usize) -> (u64, String) {
        let number = self.first + index as u64;
        (number, format!("{number:010}"))
    }

    fn version(&self, index: usize) -> u64 {
        self.versions.get(index).copied().unwrap_or(0)
    }

    fn set_version(&mut self, index: usize, version: u64) {
        if let Some(slot) = self.versions.get_mut(index) {
            *slot = version;
        }
    }

    /// Returns the size in bytes of a version.
    fn size(&self, number: u64, version: u64) -> usize {
        usize::try_from(self.load.sizes.of(number, version)).unwrap_or(usize::MAX)
    }

    async fn put(&mut self, client: &S3Client, index: usize) -> Result<(Duration, u64)> {
        self.last_version += 1;
        let ((number, key), version) = (self.key(index), self.last_version);
        let size = self.size(number, version);
        let body = self.contents.make(number, version, size);
        let checksum = Checksum::of(&body);
        let started = Instant::now();
        client.put_object(&self.load.bucket, &key, body.into(), &checksum).await?;
        let elapsed = started.elapsed();
        self.set_version(index, version);
        Ok((elapsed, size as u64))
    }

    async fn get(&mut self, client: &S3Client, index: usize) -> Result<(Duration, u64)> {
        let ((number, key), version) = (self.key(index), self.version(index));
        let size = self.size(number, version) as u64;
        let read = RangeRead { client, bucket: &self.load.bucket, key: &key, contents: &self.contents };
        let started = Instant::now();
        let (is_right, length) = match self.load.range_bytes {
            None => read.compare(number, version, None).await?,
            Some(each) => {
                let starts = (0..size.div_ceil(each)).map(|part| part * each);
                let ranges = starts.map(|start| Some(start..(start + each).min(size)));
                let reads: FuturesUnordered<_> =
                    ranges.map(|range| read.compare(number, version, range)).collect();
                let add = |(all, sum), (right, length)| std::future::ready(Ok((all & right, sum + length)));
                reads.try_fold((true, 0), add).await?
            }
        };
        let elapsed = started.elapsed();
        self.wrong += u64::from(!is_right || length != size);
        Ok((elapsed, length))
    }

    async fn stat(&mut self, client: &S3Client, index: usize) -> Result<(Duration, u64)> {
        let ((number, key), version) = (self.key(index), self.version(index));
        let started = Instant::now();
        let head = client.head_object(&self.load.bucket, &key).await?;
        let elapsed = started.elapsed();
        self.wrong += u64::from(head.length != self.size(number, version) as u64);
        Ok((elapsed, 0))
    }

    async fn delete(&mut self, client: &S3Client, index: usize) -> Result<(Duration, u64)> {
        let started = Instant::now();
        client.delete_object(&self.load.bucket, &self.key(index).1).await?;
        let elapsed = started.elapsed();
        self.set_version(index, 0);
        Ok((elapsed, 0))
    }
}

/// A GET of an object or of a range of it.
struct RangeRead<'a> {
    client: &'a S3Client,
    bucket: &'a str,
    key: &'a str,
    contents: &'a Contents,
}

impl RangeRead<'_> {
    /// Reads and compares the bytes. Returns whether they are right, and their number.
    async fn compare(&self, number: u64, version: u64, range: Option<Range<u64>>) -> Result<(bool, u64)> {
        let start = range.as_ref().map_or(0, |range| range.start);
        let mut download = self.client.get_object(self.bucket, self.key, range, None).await?;
        let (mut offset, mut is_right) = (usize::try_from(start).unwrap_or(usize::MAX), true);
        let mut length = 0;
        while let Some(bytes) = download.next().await? {
            is_right &= self.contents.matches(number, version, offset, &bytes);
            offset += bytes.len();
            length += bytes.len() as u64;
        }
        Ok((is_right, length))
    }
}
