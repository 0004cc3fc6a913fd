//! Growth of a job's rate with instances or queue depth, and the point of saturation.
//!
//! Pure functions. The knee is the first point with 90 % of the highest rate: more load gains at
//! most the last tenth and costs latency.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Finding;

/// Share of the highest rate that defines the knee.
const KNEE: f64 = 0.9;
/// Minimum points of a curve.
const POINTS_MIN: usize = 3;

/// The varied parameter of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Along {
    /// Concurrent instances.
    Instances,
    /// Queue depth per thread.
    Depth,
}

/// A job under growing load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// The target.
    pub target: String,
    /// The job and its fixed parameters.
    pub job: String,
    /// The varied parameter.
    pub along: Along,
    /// True if the rates are bytes per second, false for operations per second.
    pub bandwidth: bool,
    /// The points, in order of load.
    pub points: Vec<Point>,
    /// The load at the knee; `None` if the rate still grows at the last point.
    pub knee: Option<u32>,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The load.
    pub load: u32,
    /// Operations or bytes per second.
    pub rate: f64,
    /// Mean latency in microseconds, of reads if there are any.
    pub mean_us: f64,
    /// 99.95th percentile of the same latency, in microseconds.
    pub p9995_us: f64,
}

/// Returns all curves with at least three points.
pub(super) fn curves(cases: &[Finding]) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for along in [Along::Instances, Along::Depth] {
        // Grouped by target, job and fixed parameters, in the order of the results.
        let mut places: BTreeMap<(String, String, u32), usize> = BTreeMap::new();
        for finding in cases {
            let (load, same, title) = match along {
                Along::Instances => (finding.instances, finding.job.depth, "depth"),
                Along::Depth => (finding.job.depth, finding.instances, "instances"),
            };
            let key = (finding.target.clone(), finding.job.name.clone(), same);
            let place = *places.entry(key).or_insert_with(|| {
                curves.push(Curve {
                    target: finding.target.clone(),
                    job: format!("{}, {title} {same}", finding.job.name),
                    along,
                    bandwidth: finding.job.is_bandwidth(),
                    points: Vec::new(),
                    knee: None,
                });
                curves.len() - 1
            });
            let side = finding.series.sides.first();
            let point = Point {
                load,
                rate: finding.series.rate,
                mean_us: side.map_or(0.0, |side| side.mean_us),
                p9995_us: side.map_or(0.0, |side| side.p9995_us),
            };
            if let Some(curve) = curves.get_mut(place)
                && !curve.points.iter().any(|other| other.load == load)
            {
                curve.points.push(point);
            }
        }
    }
    curves.retain(|curve| curve.points.len() >= POINTS_MIN);
    for curve in &mut curves {
        curve.points.sort_by_key(|point| point.load);
        curve.knee = knee(&curve.points);
    }
    curves
}

/// Returns the load of the first point with 90 % of the highest rate, unless it is the last point.
pub(super) fn knee(points: &[Point]) -> Option<u32> {
    let highest = points.iter().map(|point| point.rate).fold(0.0, f64::max);
    let first = points.iter().find(|point| point.rate >= KNEE * highest)?;
    (highest > 0.0 && points.last() != Some(first)).then_some(first.load)
}
