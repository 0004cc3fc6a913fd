//! Metrics of the events of buckets that wait for webhooks.

use super::family::{Labels, MetricFamily, Samples};
use crate::objects::NamedOutbox;

/// Returns the metrics of outboxes.
pub(super) fn families(outboxes: &[NamedOutbox]) -> Vec<MetricFamily> {
    #[allow(clippy::cast_precision_loss)]
    let values = |value: fn(&NamedOutbox) -> u64| -> Vec<(Labels, f64)> {
        let labels = |named: &NamedOutbox| {
            vec![("pool", named.outbox.pool.clone()), ("webhook", named.webhook.clone())]
        };
        outboxes.iter().map(|named| (labels(named), value(named) as f64)).collect()
    };
    let family = |name, help, samples| MetricFamily { name, help, unit: None, samples };
    vec![
        family(
            "gabion_webhook_pending_events",
            "Events that wait for their delivery",
            Samples::Gauge(values(|named| named.outbox.pending)),
        ),
        family(
            "gabion_webhook_dropped_events",
            "Events that were dropped because too many waited",
            Samples::Counter(values(|named| named.outbox.dropped)),
        ),
        family(
            "gabion_webhook_delivered_events",
            "Delivered events since S3 was started on the pool",
            Samples::Counter(values(|named| named.outbox.delivered)),
        ),
        family(
            "gabion_webhook_failed_requests",
            "Attempts of deliveries that failed since S3 was started on the pool",
            Samples::Counter(values(|named| named.outbox.failed)),
        ),
    ]
}
