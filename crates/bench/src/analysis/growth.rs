//! How a job's rate grows with instances or with depth, and where more load no longer helps.
//!
//! Pure. The knee is the first point with nine tenths of the highest rate: whatever load comes after it buys at most the
//! last tenth, and is paid for with latency.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Finding;

/// Share of the highest rate at which more load no longer helps.
const KNEE: f64 = 0.9;
/// Points below which a line says nothing.
const POINTS_MIN: usize = 3;

/// What the load is made of more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Along {
    /// Instances side by side.
    Instances,
    /// Operations under way in each thread.
    Depth,
}

/// A job under growing load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// The target.
    pub target: String,
    /// The job, with what stays the same.
    pub job: String,
    /// What grows.
    pub along: Along,
    /// Rates are bytes a second, not operations.
    pub bandwidth: bool,
    /// Its points, least load first.
    pub points: Vec<Point>,
    /// Where more load no longer helps; nothing if the rate still grows at the last point.
    pub knee: Option<u32>,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// How much load.
    pub load: u32,
    /// Operations or bytes a second.
    pub rate: f64,
    /// Mean latency in microseconds, of reads if there are any.
    pub mean_us: f64,
    /// Latency that 99.95 % of operations keep, likewise.
    pub p9995_us: f64,
}

/// All curves with at least three points.
pub(super) fn curves(cases: &[Finding]) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for along in [Along::Instances, Along::Depth] {
        // By target, job and what stays the same, in the order of the results.
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

/// The first point with nine tenths of the highest rate, unless it is the last one.
pub(super) fn knee(points: &[Point]) -> Option<u32> {
    let highest = points.iter().map(|point| point.rate).fold(0.0, f64::max);
    let first = points.iter().find(|point| point.rate >= KNEE * highest)?;
    (highest > 0.0 && points.last() != Some(first)).then_some(first.load)
}
