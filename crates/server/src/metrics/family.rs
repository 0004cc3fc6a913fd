//! Metric families and their text forms.
//!
//! Owns the two exposition formats: OpenMetrics 1.0, and the older text format of Prometheus, in
//! which the names of counters and information metrics carry their suffix in the metadata too.
//! Must not know: pools, exports, and where values come from.

use std::fmt::Write;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

/// Labels of a sample: pairs of name and value.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A latency or size distribution.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Distribution {
    /// Sum of all values.
    pub(super) sum: f64,
    /// Upper bound and number of values of each bucket; the last bound is infinite.
    pub(super) buckets: Vec<(f64, u64)>,
}

/// The samples of a family, by type.
#[derive(Debug)]
pub(super) enum Samples {
    Gauge(Vec<(Labels, f64)>),
    Counter(Vec<(Labels, f64)>),
    Histogram(Vec<(Labels, Distribution)>),
    Info(Vec<Labels>),
}

/// A metric family.
#[derive(Debug)]
pub(super) struct MetricFamily {
    /// Name without unit and without the suffix of the type.
    pub(super) name: &'static str,
    /// Description.
    pub(super) help: &'static str,
    pub(super) unit: Option<Unit>,
    pub(super) samples: Samples,
}

impl MetricFamily {
    fn is_empty(&self) -> bool {
        match &self.samples {
            Samples::Gauge(samples) | Samples::Counter(samples) => samples.is_empty(),
            Samples::Histogram(samples) => samples.is_empty(),
            Samples::Info(samples) => samples.is_empty(),
        }
    }

    /// Returns the suffix that the older text format adds to the name in the metadata.
    fn suffix(&self) -> &'static str {
        match self.samples {
            Samples::Counter(_) => "_total",
            Samples::Info(_) => "_info",
            Samples::Gauge(_) | Samples::Histogram(_) => "",
        }
    }

    /// Returns the name with the unit.
    fn full_name(&self) -> String {
        match &self.unit {
            Some(unit) => format!("{}_{}", self.name, unit.as_str()),
            None => self.name.to_owned(),
        }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder) -> std::fmt::Result {
        let kind = match self.samples {
            Samples::Gauge(_) => MetricType::Gauge,
            Samples::Counter(_) => MetricType::Counter,
            Samples::Histogram(_) => MetricType::Histogram,
            Samples::Info(_) => MetricType::Info,
        };
        let mut metric = encoder.encode_descriptor(self.name, self.help, self.unit.as_ref(), kind)?;
        match &self.samples {
            Samples::Gauge(samples) => samples
                .iter()
                .try_for_each(|(labels, value)| metric.encode_family(labels)?.encode_gauge(value)),
            Samples::Counter(samples) => samples.iter().try_for_each(|(labels, value)| {
                metric.encode_family(labels)?.encode_counter::<NoLabelSet, f64, f64>(value, None)
            }),
            Samples::Histogram(samples) => samples.iter().try_for_each(|(labels, distribution)| {
                let count = distribution.buckets.iter().map(|(_, count)| *count).sum();
                let (sum, buckets) = (distribution.sum, &distribution.buckets);
                metric.encode_family(labels)?.encode_histogram::<NoLabelSet>(sum, count, buckets, None)
            }),
            Samples::Info(samples) => samples.iter().try_for_each(|labels| metric.encode_info(labels)),
        }
    }
}

/// All families of one scrape.
#[derive(Debug)]
struct FamilyCollector(Vec<MetricFamily>);

impl Collector for FamilyCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> std::fmt::Result {
        self.0.iter().filter(|family| !family.is_empty()).try_for_each(|family| family.encode(&mut encoder))
    }
}

/// Returns the families in the text format of OpenMetrics 1.0.
///
/// # Errors
/// Never: writing into a string does not fail.
pub(super) fn open_metrics(families: Vec<MetricFamily>) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(FamilyCollector(families)));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

/// Returns the families in the text format of Prometheus, version 0.0.4.
///
/// # Errors
/// As [`open_metrics`].
pub(super) fn prometheus_text(families: Vec<MetricFamily>) -> Result<String, std::fmt::Error> {
    let suffixes: Vec<(String, &str)> =
        families.iter().map(|family| (family.full_name(), family.suffix())).collect();
    let suffix = |name: &str| suffixes.iter().find(|(full, _)| full == name).map_or("", |(_, suffix)| suffix);
    let mut converted = String::new();
    for line in open_metrics(families)?.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), Some(help)) => {
                writeln!(converted, "# HELP {name}{} {help}", suffix(name))?;
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                // The older format has no type for information.
                let kind = if kind == "info" { "gauge" } else { kind };
                writeln!(converted, "# TYPE {name}{} {kind}", suffix(name))?;
            }
            (Some("#"), ..) => {}
            _ => writeln!(converted, "{line}")?,
        }
    }
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families() -> Vec<MetricFamily> {
        let family = |name, unit, samples| MetricFamily { name, help: "Some help", unit, samples };
        let buckets = vec![(0.5, 2), (f64::INFINITY, 1)];
        vec![
            family("a", Some(Unit::Bytes), Samples::Counter(vec![(vec![("x", "\"\\\n".into())], 3.0)])),
            family("b", None, Samples::Info(vec![vec![("version", "1".into())]])),
            family(
                "c",
                Some(Unit::Seconds),
                Samples::Histogram(vec![(Vec::new(), Distribution { sum: 9.5, buckets })]),
            ),
            family("empty", None, Samples::Gauge(Vec::new())),
        ]
    }

    #[test]
    fn open_metrics_has_units_suffixes_and_an_end() {
        let expected = "# HELP a_bytes Some help\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
            a_bytes_total{x=\"\\\"\\\\\\n\"} 3.0\n\
            # HELP b Some help\n# TYPE b info\nb_info{version=\"1\"} 1\n\
            # HELP c_seconds Some help\n# TYPE c_seconds histogram\n# UNIT c_seconds seconds\n\
            c_seconds_sum{} 9.5\nc_seconds_count{} 3\n\
            c_seconds_bucket{le=\"0.5\"} 2\nc_seconds_bucket{le=\"+Inf\"} 3\n# EOF\n";
        assert_eq!(open_metrics(families()).unwrap(), expected);
    }

    #[test]
    fn the_older_format_has_the_suffixes_in_the_metadata() {
        let text = prometheus_text(families()).unwrap();
        assert!(
            text.contains("# HELP a_bytes_total Some help\n# TYPE a_bytes_total counter\na_bytes_total{"),
            "{text}"
        );
        assert!(text.contains("# TYPE b_info gauge\nb_info{"), "{text}");
        assert!(!text.contains("UNIT") && !text.contains("EOF") && !text.contains("empty"), "{text}");
    }
}
