//! S3 requests of a job.

use serde::{Deserialize, Serialize};

use super::Job;
use crate::objects::{ObjectSizes, RequestShares};

/// The S3 requests of a job. Each of `threads` times `depth` clients sends one request at a time,
/// on objects of its own. `block_bytes` is the size of the smallest object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectJob {
    /// Share of GETs, in percent of the requests.
    #[serde(default)]
    pub get: u8,
    /// Share of HEADs.
    #[serde(default)]
    pub stat: u8,
    /// Share of PUTs.
    #[serde(default)]
    pub put: u8,
    /// Share of DELETEs.
    #[serde(default)]
    pub delete: u8,
    /// Number of objects, at least one per client.
    pub count: u64,
    /// Bytes of the largest object; the sizes between are the doubles of `block_bytes`, each with
    /// the same number of objects.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// A GET reads the whole object in ranges of this length, all at the same time.
    #[serde(default)]
    pub range_bytes: Option<u64>,
    /// The program that sends the requests.
    #[serde(default)]
    pub generator: ObjectGenerator,
    /// A DELETE deletes the oldest object of the client, otherwise a random one.
    #[serde(default)]
    pub oldest_first: bool,
}

/// The program that sends S3 requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectGenerator {
    /// The generator of this program, which compares every byte.
    #[default]
    Own,
    /// MinIO's `warp`, for jobs with one object size and whole objects.
    Warp,
}

impl ObjectJob {
    /// Returns the shares of the requests.
    pub fn shares(&self) -> RequestShares {
        RequestShares([self.get, self.stat, self.put, self.delete])
    }

    /// Returns the sizes of the objects.
    pub fn sizes(&self, job: &Job) -> ObjectSizes {
        ObjectSizes::new(job.block_bytes, self.max_bytes.unwrap_or(job.block_bytes))
    }

    /// Returns the share of GETs among the requests with bodies, in percent.
    pub(super) fn read_percent(&self) -> u8 {
        let (get, put) = (u16::from(self.get), u16::from(self.put));
        u8::try_from((get * 100).checked_div(get + put).unwrap_or(0)).unwrap_or(100)
    }

    /// Returns the first problem.
    pub(super) fn problem(&self, job: &Job) -> Option<String> {
        let sum = u32::from(self.get) + u32::from(self.stat) + u32::from(self.put) + u32::from(self.delete);
        if sum != 100 {
            return Some(format!("the shares of its requests add up to {sum} %, not to 100 %"));
        }
        if self.get == 0 && self.put == 0 {
            return Some("it has neither GETs nor PUTs".into());
        }
        let reads = self.read_percent();
        if job.read_percent != reads || job.random {
            return Some(format!(
                "a job of objects needs read_percent = {reads}, the share of GETs among GETs and PUTs, and \
                 random = false"
            ));
        }
        if self.count == 0 || self.range_bytes == Some(0) {
            return Some("count and range_bytes must be at least 1".into());
        }
        let max = self.max_bytes.unwrap_or(job.block_bytes);
        if max < job.block_bytes || max > OBJECT_MAX {
            return Some(format!("max_bytes must be from block_bytes to {OBJECT_MAX}"));
        }
        (job.degraded || job.latency.is_some() || job.prepare.is_some())
            .then(|| "degraded, latency and prepare do not apply to objects".into())
    }
}

/// The largest object in bytes: a client holds it in memory.
const OBJECT_MAX: u64 = 1 << 30;
