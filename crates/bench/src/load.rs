//! A load on a target and its result, independent of the program that runs it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::pods::Kubectl;
use crate::result::{Direction, ReadWrite};
use crate::suite::Job;

/// A target of I/O.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// An NBD export, by URI.
    Nbd(String),
    /// A file or block device.
    File(PathBuf),
    /// A vhost-user-blk socket.
    Vhost(PathBuf),
    /// A device in a running virtual machine.
    Machine {
        /// The socket of the guest's agent.
        agent: PathBuf,
        /// The device in the guest.
        device: String,
    },
    /// A file or device in a pod of a Kubernetes cluster.
    Pod {
        /// The way to the cluster.
        kubectl: Kubectl,
        /// The name of the pod.
        pod: String,
        /// The file or device in the pod.
        file: String,
    },
    /// An S3 service.
    S3(S3Endpoint),
    /// Objects of a pool of a Ceph cluster.
    Rados(RadosTarget),
}

/// A pool of a Ceph cluster, as `rados bench` uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RadosTarget {
    /// The configuration of the cluster, with its monitors.
    pub conf: PathBuf,
    /// The user.
    pub user: String,
    /// The file with the user's key.
    pub keyring: PathBuf,
    /// The pool.
    pub pool: String,
    /// The namespace of the objects within the pool.
    pub namespace: String,
    /// Most bytes that a measured write adds, after which it ends: a full pool refuses the writes
    /// of everyone.
    pub write_max: u64,
}

/// The address and the keys of an S3 service.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct S3Endpoint {
    /// The address, as `http://HOST:PORT`.
    pub url: String,
    /// The region of signatures.
    pub region: String,
    /// The access key.
    pub access_key: String,
    /// The secret key, which is never stored.
    #[serde(skip)]
    pub secret_key: String,
}

impl fmt::Debug for S3Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Endpoint").field("url", &self.url).finish_non_exhaustive()
    }
}

/// The part of a target that one instance uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The target.
    pub target: Target,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Slice {
    /// Returns the distance between the starting offsets of a sequential job's threads, and the
    /// bytes that each thread covers; `None` if all threads start at the same offset.
    pub fn thread_offsets(&self, job: &Job) -> Option<(u64, u64)> {
        let percent = job.offset_increment_percent.filter(|_| !job.random)?;
        // A percentage of the slice, in whole blocks.
        let step = self.bytes / 100 * u64::from(percent) / job.block_bytes * job.block_bytes;
        // A thread with a later starting offset ends at the end of the slice.
        let last = u64::from(job.threads.saturating_sub(1)) * step;
        Some((step, self.bytes.saturating_sub(last).max(job.block_bytes)))
    }
}

/// A load.
#[derive(Clone, Debug)]
pub struct Load<'a> {
    /// The job that each instance runs.
    pub job: &'a Job,
    /// One slice per instance.
    pub slices: &'a [Slice],
    /// A duration, or one pass over the slices.
    pub length: Length,
    /// The name of the per-second log; `None` disables it.
    pub log: Option<&'a str>,
    /// True if every block was written by loads of this kind, so that reads can be verified.
    pub stamped: bool,
}

/// The length of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// A duration after a ramp-up.
    Seconds {
        /// Ramp-up in seconds, not measured.
        ramp: f64,
        /// Measured seconds.
        run: f64,
    },
    /// One pass of each instance over its slice.
    Once,
}

/// The output of a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The version of the runner.
    pub version: String,
    /// The result of each instance, in order.
    pub instances: Vec<ReadWrite>,
}

impl Output {
    /// Returns the merged result of all instances.
    pub fn merged(&self) -> ReadWrite {
        let mut all = ReadWrite::default();
        self.instances.iter().for_each(|instance| all.merge(instance));
        all
    }
}

/// Operations within one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// End of the interval, in seconds from the start of the measurement.
    pub at: f64,
    /// Reads per second.
    pub read: f64,
    /// Writes per second.
    pub write: f64,
}

/// The result of a finished load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadResult {
    /// The output.
    pub output: Output,
    /// Requests of S3 without a body, by name.
    pub others: BTreeMap<String, Direction>,
    /// Per-second results, if requested.
    pub seconds: Vec<Second>,
    /// The time at which the load ended, if the result arrived later, as from a guest.
    pub ended: Option<Instant>,
}
