//! Formatting of webhooks of S3.

use api::types::{Webhook, WebhookOutbox};

use super::table::table;

fn sum(webhook: &Webhook, value: fn(&WebhookOutbox) -> u64) -> String {
    webhook.outboxes.iter().map(value).sum::<u64>().to_string()
}

fn state(webhook: &Webhook) -> &'static str {
    match webhook.outboxes.iter().any(|outbox| outbox.problem.is_some()) {
        true => "failing",
        false => "active",
    }
}

/// Formats webhooks as a table.
pub(crate) fn webhooks(webhooks: &[Webhook]) -> String {
    if webhooks.is_empty() {
        return "no webhooks; 'gabion webhook create NAME --url URL' creates one".into();
    }
    let row = |webhook: &Webhook| {
        vec![
            webhook.name.clone(),
            webhook.url.clone(),
            sum(webhook, |outbox| outbox.pending),
            sum(webhook, |outbox| outbox.dropped),
            state(webhook).to_owned(),
        ]
    };
    table(&["WEBHOOK", "URL", ">PENDING", ">DROPPED", "STATE"], webhooks.iter().map(row))
}

/// Formats a webhook with the events of each pool.
pub(crate) fn webhook(webhook: &Webhook) -> String {
    let mut lines = vec![
        format!("webhook     {}", webhook.name),
        format!("arn         {}", webhook.arn),
        format!("url         {}", webhook.url),
        format!("token       {}", if webhook.has_token { "yes" } else { "no" }),
    ];
    if let Some(file) = &webhook.authorities {
        lines.push(format!("authorities {file}"));
    }
    for outbox in &webhook.outboxes {
        let WebhookOutbox { pool, pending, dropped, delivered, failed, problem } = outbox;
        lines.push(format!("pool {pool}: {pending} pending, {dropped} dropped, {delivered} delivered"));
        if let Some(problem) = problem {
            lines.push(format!("  failing: {problem} ({failed} failed attempts since S3 was started)"));
        }
    }
    lines.join("\n")
}
