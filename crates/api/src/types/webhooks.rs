//! S3: webhooks, the receivers of events of buckets.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A webhook: an URL that receives the events of the buckets whose rules name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Webhook {
    /// Name of the webhook.
    pub name: String,
    /// ARN by which the notification configurations of buckets name it.
    pub arn: String,
    /// Time of its creation.
    pub created: u64,
    /// URL that receives the events.
    pub url: String,
    /// True if requests carry a bearer token.
    pub has_token: bool,
    /// File with the certificates (PEM) of the authorities of its certificate; absent for those of
    /// the system.
    pub authorities: Option<String>,
    /// True if the URL may be plain HTTP to another host.
    pub allow_http: bool,
    /// True if its host may have a link-local address.
    pub allow_link_local: bool,
    /// Events of each pool that serves S3 and has had events for the webhook.
    pub outboxes: Vec<WebhookOutbox>,
}

/// The events of a pool for a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookOutbox {
    /// Name of the pool.
    pub pool: String,
    /// Number of events that wait for their delivery.
    pub pending: u64,
    /// Number of events that were dropped because the outbox was full.
    pub dropped: u64,
    /// Number of events that were delivered since S3 was started on the pool.
    pub delivered: u64,
    /// Number of attempts that failed since S3 was started on the pool.
    pub failed: u64,
    /// Reason why the last attempt failed; absent after a success.
    pub problem: Option<String>,
}

/// Request to create a webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWebhook {
    /// Name of the webhook: 1 to 64 letters, digits, hyphens, underscores and dots.
    pub name: String,
    /// URL that receives the events: `https://`, or `http://` for this host.
    pub url: String,
    /// Bearer token that requests carry: visible characters of ASCII.
    pub token: Option<String>,
    /// Absolute path of a file with the certificates (PEM) of the authorities of its certificate.
    pub authorities: Option<String>,
    /// True to permit plain HTTP to another host.
    #[serde(default)]
    pub allow_http: bool,
    /// True to permit a host with a link-local address, such as the metadata service of a cloud.
    #[serde(default)]
    pub allow_link_local: bool,
}

/// Request to change a webhook. Absent fields stay. Events that wait are delivered with the change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeWebhook {
    /// URL that receives the events.
    pub url: Option<String>,
    /// Bearer token that requests carry; empty for none.
    pub token: Option<String>,
    /// Absolute path of a file with the certificates of authorities; empty for those of the system.
    pub authorities: Option<String>,
}
