//! The figures of a load.

use serde::Serialize;

use super::ObjectOperation;
use super::client::OperationLatencies;
use super::counters::ObjectCounters;
use super::plan::{ObjectLoad, RequestShares};
use crate::bounds::{Layout, SchemeError};
use crate::lab::DriveLimits;
use crate::observe::Observation;

/// The kind of the measured service in observations.
pub const SERVER: &str = "server";

/// The result of one run of a load.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectResult {
    /// Name of the mix; empty until the caller sets it.
    pub mix: String,
    /// Mean bytes of the objects.
    pub object_bytes: u64,
    /// The number of objects.
    pub objects: u64,
    /// The number of clients.
    pub clients: u32,
    /// The measured time in seconds.
    pub seconds: f64,
    /// The figures of each operation of the mix.
    pub operations: Vec<OperationFigures>,
    /// The upper bound that the drives impose, if their rates are known.
    pub bound: Option<ObjectBound>,
    /// Processors that the server used; absent if its process is not known.
    pub server_cpus: Option<f64>,
    /// Processor seconds of the server per GB of bodies.
    pub server_cpu_s_per_gb: Option<f64>,
    /// Processor time of the server per operation in microseconds.
    pub server_cpu_us: Option<f64>,
    /// Objects with other contents or another length than the written ones.
    pub wrong: u64,
    /// Processors, drives and disturbances.
    pub observation: Observation,
}

/// The figures of one operation, over all clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationFigures {
    /// The operation.
    pub operation: &'static str,
    /// The number of operations.
    pub count: u64,
    /// Operations per second.
    pub per_s: f64,
    /// Bytes of bodies per second.
    pub bytes_per_s: f64,
    /// The mean latency in microseconds.
    pub mean_us: f64,
    /// Latencies in microseconds within which 50, 99 and 99.9 % of the operations completed.
    pub quantiles_us: [f64; 3],
}

/// An upper bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectBound {
    /// Bytes of bodies per second.
    pub bytes_per_s: f64,
    /// The computation.
    pub formula: String,
}

impl ObjectBound {
    /// Returns the bound of drives with these limits: reads take their whole rate, and writes the
    /// share of it that is not parity. The mix uses both at the same time.
    ///
    /// # Errors
    /// For an invalid scheme.
    pub fn new(
        shares: RequestShares,
        limits: &DriveLimits,
        scheme: &str,
        drives: u32,
    ) -> Result<Self, SchemeError> {
        let layout = Layout::parse(scheme, drives, 1)?;
        let (data, width) = (f64::from(layout.data), f64::from(layout.data + layout.parity));
        let (gets, puts) =
            (f64::from(shares.share(ObjectOperation::Get)), f64::from(shares.share(ObjectOperation::Put)));
        let bodies = (gets + puts).max(1.0);
        let reads = float(limits.read_bps) * f64::from(drives);
        let writes = float(limits.write_bps) * f64::from(drives) * data / width;
        let of = |rate: f64, share: f64| if share > 0.0 { rate * bodies / share } else { f64::INFINITY };
        let (by_reads, by_writes) = (of(reads, gets), of(writes, puts));
        let mb = |rate: f64| rate / 1e6;
        let formula = format!(
            "GET: {drives} x {:.1} MB/s; PUT: {drives} x {:.1} MB/s x {}/{}",
            mb(float(limits.read_bps)),
            mb(float(limits.write_bps)),
            layout.data,
            layout.data + layout.parity
        );
        Ok(Self { bytes_per_s: by_reads.min(by_writes), formula })
    }
}

impl ObjectResult {
    pub(super) fn new(load: &ObjectLoad, counters: &ObjectCounters, observation: Observation) -> Self {
        let seconds = counters.elapsed.as_secs_f64().max(1e-9);
        let all = ObjectOperation::ALL.iter().zip(&counters.measured);
        let all = all.filter(|(_, one)| !one.latencies.is_empty());
        let operations: Vec<_> = all.map(|(operation, one)| figures(*operation, one, seconds)).collect();
        let bytes_per_s: f64 = operations.iter().map(|one| one.bytes_per_s).sum();
        let server_cpus = observation.cpu.get(SERVER).copied();
        let per_gb = |cpus: f64| cpus / (bytes_per_s / 1e9);
        let per_s: f64 = operations.iter().map(|one| one.per_s).sum();
        Self {
            mix: String::new(),
            object_bytes: load.sizes.mean(),
            objects: load.objects,
            clients: load.clients,
            seconds,
            operations,
            bound: None,
            server_cpus,
            server_cpu_s_per_gb: server_cpus.filter(|_| bytes_per_s > 0.0).map(per_gb),
            server_cpu_us: server_cpus.filter(|_| per_s > 0.0).map(|cpus| cpus * 1e6 / per_s),
            wrong: counters.wrong,
            observation,
        }
    }

    /// Returns bytes of bodies per second of an operation; 0 if there were none.
    pub fn bytes_per_s(&self, operation: ObjectOperation) -> f64 {
        let found = self.operations.iter().find(|one| one.operation == operation.name());
        found.map_or(0.0, |one| one.bytes_per_s)
    }

    /// Returns the mean latencies of reads and writes of the drives in milliseconds, and their
    /// utilisation in percent; `None` without observed drives.
    pub fn drives(&self) -> Option<[f64; 3]> {
        self.observation.drive_means()
    }
}

fn figures(operation: ObjectOperation, measured: &OperationLatencies, seconds: f64) -> OperationFigures {
    let latencies = &measured.latencies;
    let quantile = |share: f64| float(latencies.value_at_quantile(share)) / 1e3;
    OperationFigures {
        operation: operation.name(),
        count: latencies.len(),
        per_s: float(latencies.len()) / seconds,
        bytes_per_s: float(measured.bytes) / seconds,
        mean_us: latencies.mean() / 1e3,
        quantiles_us: [quantile(0.5), quantile(0.99), quantile(0.999)],
    }
}

/// Converts a count for the computation of rates.
#[allow(clippy::cast_precision_loss)]
fn float(value: u64) -> f64 {
    value as f64
}
