//! Metrics for Prometheus and other programs that read its formats.
//!
//! Owns the collection of values at each scrape; nothing is kept between scrapes except the
//! counters of engine and exports. docs/metrics.md lists the metrics. Must not know: HTTP.

mod drive_health;
mod family;
mod pools;
mod process;
mod volumes;
mod webhooks;

use std::sync::atomic::Ordering;

use prometheus_client::registry::Unit;
use reactor::Reactor;

use self::family::{MetricFamily, Samples};
use crate::error::{Error, ErrorKind, Result};
use crate::services::Services;

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    PrometheusText,
}

impl MetricsFormat {
    /// Returns the format that a client asks for with the header `Accept`.
    pub(crate) fn accepted(accept: &str) -> Self {
        let accepts_open =
            accept.split(',').any(|kind| kind.trim().starts_with("application/openmetrics-text"));
        if accepts_open { Self::OpenMetrics } else { Self::PrometheusText }
    }

    /// Returns the content type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::PrometheusText => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Returns all metrics.
///
/// # Errors
/// When the daemon is shutting down.
pub(crate) async fn render(services: &Services, format: MetricsFormat) -> Result<String> {
    let families = collect(services).await?;
    let text = match format {
        MetricsFormat::OpenMetrics => family::open_metrics(families),
        MetricsFormat::PrometheusText => family::prometheus_text(families),
    };
    text.map_err(|_| Error::new(ErrorKind::Internal, "cannot write the metrics"))
}

async fn collect(services: &Services) -> Result<Vec<MetricFamily>> {
    let shown = services.pools.list().await?;
    let mut volumes = Vec::new();
    for pool in services.pools.open_names() {
        // The volumes of a pool that was closed in the meantime, or whose catalogue is damaged, are
        // absent.
        volumes.extend(services.pools.volumes(&pool).await);
    }
    let mut all = daemon(services);
    all.push(reactors(services).await);
    all.extend(process::families());
    all.extend(pools::families(&shown));
    all.extend(drive_health::families(&shown));
    all.extend(volumes::of_volumes(&volumes));
    all.extend(webhooks::families(&services.objects.outboxes().await));
    all.extend(volumes::of_exports(&services.exports.list_with_io()));
    Ok(all)
}

fn daemon(services: &Services) -> Vec<MetricFamily> {
    let version = crate::version();
    let labels =
        vec![("version", version.version), ("api", version.api), ("format", version.format.to_string())];
    let one = |name, help, unit, value: f64| MetricFamily {
        name,
        help,
        unit,
        samples: Samples::Gauge(vec![(Vec::new(), value)]),
    };
    let ready = f64::from(u8::from(services.ready.load(Ordering::Relaxed)));
    #[allow(clippy::cast_precision_loss)]
    let reactors = services.reactors.all().len() as f64;
    vec![
        MetricFamily {
            name: "gabion_build",
            help: "Versions of the daemon, its API and its on-disk format",
            unit: None,
            samples: Samples::Info(vec![labels]),
        },
        one("gabion_ready", "1 once every pool was opened at start, or could not be opened", None, ready),
        one("gabion_reactors", "Number of reactor threads", None, reactors),
        one(
            "gabion_uptime",
            "Time since the start of the daemon",
            Some(Unit::Seconds),
            services.started.elapsed().as_secs_f64(),
        ),
    ]
}

/// Returns the time in which each reactor worked. A reactor that is shutting down is absent.
async fn reactors(services: &Services) -> MetricFamily {
    let mut samples = Vec::new();
    for (number, reactor) in services.reactors.all().iter().enumerate() {
        if let Ok(busy) = reactor.call(|| std::future::ready(Reactor::current().busy_time())).await {
            samples.push((vec![("reactor", number.to_string())], busy.as_secs_f64()));
        }
    }
    MetricFamily {
        name: "gabion_reactor_busy",
        help: "Time in which the reactor worked, without sleep and polls in vain",
        unit: Some(Unit::Seconds),
        samples: Samples::Counter(samples),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_sent_on_request() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(MetricsFormat::accepted(prometheus), MetricsFormat::OpenMetrics);
        for other in ["", "*/*", "text/plain;version=0.0.4"] {
            assert_eq!(MetricsFormat::accepted(other), MetricsFormat::PrometheusText);
        }
    }
}
