//! Metrics of volumes and exports.
//!
//! Invariant: the number of label values is bounded. If a pool has more volumes than
//! [`SERIES_MAX`], its volumes have no metrics of their own; if the daemon has more exports, the
//! requests of all exports of a pool are summed, with the labels `volume` and `export` empty.

use std::collections::BTreeMap;

use api::types::{Export, ExportState, Volume};
use prometheus_client::registry::Unit;

use super::family::{Distribution, Labels, MetricFamily, Samples};
use crate::exports::{BUCKETS, IoKind, IoSums, bucket_nanos};

/// Most volumes of a pool, and most exports, with metrics of their own.
pub(super) const SERIES_MAX: usize = 1000;

/// Sums of requests by kind, in the order of [`IoKind::ALL`].
type KindSums = [IoSums; 4];

#[allow(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
fn number(value: u64) -> f64 {
    value as f64
}

/// Returns the families of the volumes of all pools.
pub(super) fn of_volumes(pools: &[Vec<Volume>]) -> Vec<MetricFamily> {
    let shown = || pools.iter().filter(|volumes| volumes.len() <= SERIES_MAX).flatten();
    let labels = |volume: &Volume| vec![("pool", volume.pool.clone()), ("volume", volume.name.clone())];
    let one = |name, help, value: fn(&Volume) -> u64| {
        let volumes = shown().filter(|volume| !volume.snapshot);
        let samples = volumes.map(|volume| (labels(volume), number(value(volume)))).collect();
        MetricFamily { name, help, unit: Some(Unit::Bytes), samples: Samples::Gauge(samples) }
    };
    let snapshots = |volumes: &Vec<Volume>| {
        let pool = volumes.first()?.pool.clone();
        let count = volumes.iter().filter(|volume| volume.snapshot).count() as u64;
        Some((vec![("pool", pool)], number(count)))
    };
    vec![
        one("gabion_volume_size", "Size of the volume", |volume| volume.size),
        one("gabion_volume_stored", "Data written since the last snapshot of the volume", |volume| {
            volume.stored
        }),
        MetricFamily {
            name: "gabion_pool_snapshots",
            help: "Number of snapshots",
            unit: None,
            samples: Samples::Gauge(pools.iter().filter_map(snapshots).collect()),
        },
    ]
}

/// Returns the families of the exports.
pub(super) fn of_exports(exports: &[(Export, KindSums)]) -> Vec<MetricFamily> {
    let sums = by_labels(exports);
    let mut all = state(exports);
    let counter = |name, help, unit, value: fn(&IoSums) -> u64| {
        let samples = samples(&sums, |sums| number(value(sums)));
        MetricFamily { name, help, unit, samples: Samples::Counter(samples) }
    };
    all.push(counter("gabion_export_operations", "Requests of clients", None, |sums| sums.operations));
    all.push(counter("gabion_export_errors", "Requests of clients that failed", None, |sums| sums.errors));
    all.push(counter(
        "gabion_export_transferred",
        "Bytes of successful requests",
        Some(Unit::Bytes),
        |sums| sums.bytes,
    ));
    all.push(MetricFamily {
        name: "gabion_export_latency",
        help: "Latency of requests in the daemon; one of 16 requests is timed",
        unit: Some(Unit::Seconds),
        samples: Samples::Histogram(samples(&sums, distribution)),
    });
    all
}

fn state(exports: &[(Export, KindSums)]) -> Vec<MetricFamily> {
    if exports.len() > SERIES_MAX {
        return Vec::new();
    }
    let family = |name, help, value: fn(&Export) -> u64| {
        let sample = |(export, _): &(Export, KindSums)| (of_export(export), number(value(export)));
        let samples = Samples::Gauge(exports.iter().map(sample).collect());
        MetricFamily { name, help, unit: None, samples }
    };
    vec![
        family("gabion_export_active", "1 if clients can use the export", |export| {
            u64::from(export.state == ExportState::Active)
        }),
        family("gabion_export_connections", "Connected clients", |export| export.connections),
    ]
}

fn of_export(export: &Export) -> Labels {
    let Export { pool, volume, id, protocol, .. } = export;
    let pairs = [("pool", pool), ("volume", volume), ("export", id)];
    let mut labels: Labels = pairs.into_iter().map(|(name, value)| (name, value.clone())).collect();
    labels.push(("protocol", protocol.to_string()));
    labels
}

/// Returns the sums by the labels under which they are shown.
fn by_labels(exports: &[(Export, KindSums)]) -> BTreeMap<Labels, KindSums> {
    let mut all: BTreeMap<Labels, KindSums> = BTreeMap::new();
    for (export, sums) in exports {
        let mut labels = of_export(export);
        if exports.len() > SERIES_MAX {
            let is_shared = |name: &str| ["volume", "export"].contains(&name);
            labels.iter_mut().filter(|(name, _)| is_shared(name)).for_each(|(_, value)| value.clear());
        }
        all.entry(labels).or_default().iter_mut().zip(sums).for_each(|(sum, own)| sum.add(own));
    }
    all
}

/// Returns a sample for each kind of request.
fn samples<T>(sums: &BTreeMap<Labels, KindSums>, value: impl Fn(&IoSums) -> T) -> Vec<(Labels, T)> {
    let with_kind = |labels: &Labels, kind: IoKind| {
        [labels.clone(), vec![("operation", kind.name().to_owned())]].concat()
    };
    let mut all = Vec::new();
    for (labels, sums) in sums {
        let of_kinds = IoKind::ALL.into_iter().zip(sums);
        all.extend(of_kinds.map(|(kind, sums)| (with_kind(labels, kind), value(sums))));
    }
    all
}

fn distribution(sums: &IoSums) -> Distribution {
    let bound = |bucket| bucket_nanos(bucket).map_or(f64::INFINITY, |nanos| number(nanos) / 1e9);
    let buckets = (0..BUCKETS).zip(sums.buckets).map(|(bucket, count)| (bound(bucket), count)).collect();
    Distribution { sum: number(sums.nanos) / 1e9, buckets }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::types::Protocol;

    fn export(number: usize) -> (Export, KindSums) {
        let export = Export {
            id: "nbd".into(),
            name: String::new(),
            pool: "fast".into(),
            volume: format!("v{number}"),
            protocol: Protocol::Nbd,
            read_only: false,
            shared: false,
            owner: None,
            state: ExportState::Active,
            reason: None,
            uris: Vec::new(),
            queues: None,
            reactors: Vec::new(),
            network: api::types::NetworkOptions::default(),
            connections: 1,
            used_by: Vec::new(),
        };
        let sums = IoSums { operations: 2, ..IoSums::default() };
        (export, [sums; 4])
    }

    fn operations(count: usize) -> Vec<(Labels, f64)> {
        let exports: Vec<_> = (0..count).map(export).collect();
        let families = of_exports(&exports);
        let family = families.into_iter().find(|family| family.name == "gabion_export_operations").unwrap();
        match family.samples {
            Samples::Counter(samples) => samples,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn many_exports_share_series() {
        assert_eq!(operations(SERIES_MAX).len(), 4 * SERIES_MAX);
        let shared = operations(SERIES_MAX + 1);
        assert_eq!(shared.len(), 4);
        assert_eq!(shared[0].1, 2.0 * (SERIES_MAX + 1) as f64);
        assert!(shared[0].0.contains(&("volume", String::new())), "{shared:?}");
    }

    #[test]
    fn distributions_are_in_seconds_and_end_with_infinity() {
        let mut sums = IoSums { nanos: 1_500_000_000, ..IoSums::default() };
        sums.buckets[1] = 7;
        let distribution = distribution(&sums);
        assert_eq!((distribution.sum, distribution.buckets[1]), (1.5, (0.000_016_384, 7)));
        assert!(distribution.buckets[BUCKETS - 1].0.is_infinite());
    }
}
