//! Arguments of `gabion webhook`.

use std::path::PathBuf;

use clap::Subcommand;

use super::roles::path_or_empty;

/// Manage the webhooks of S3, which receive the events of buckets
///
/// A bucket sends events to a webhook when its notification configuration (the operation
/// PutBucketNotificationConfiguration of S3) names the ARN of the webhook,
/// arn:gabion:sqs::NAME:webhook.
#[derive(Subcommand, Debug)]
pub(crate) enum WebhookCommand {
    /// Create a webhook
    ///
    /// The daemon sends each event in a POST request, until the receiver answers with a status of
    /// success. The events of a pool are sent in order.
    #[command(after_long_help = "\
Examples:
  gabion webhook create thumbnails --url https://thumbnails.example.org/events
  gabion webhook create index --url http://127.0.0.1:8080/ --token-file /etc/gabion/index.token")]
    Create {
        /// Name of the webhook
        #[arg(value_name = "WEBHOOK")]
        name: String,
        /// URL that receives the events: HTTPS, or HTTP for this host
        #[arg(long, value_name = "URL")]
        url: String,
        /// File with the bearer token that requests carry; the daemon stores the token encrypted
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// File on the daemon's host with the certificates (PEM) of the authorities of its
        /// certificate [default: those of the system]
        #[arg(long, value_name = "FILE")]
        authorities: Option<PathBuf>,
        /// Permit HTTP to another host: events and token are not encrypted
        #[arg(long)]
        allow_http: bool,
        /// Permit a host with a link-local address, such as the metadata service of a cloud
        #[arg(long)]
        allow_link_local: bool,
    },
    /// List the webhooks, and the events that wait for them
    List,
    /// Show a webhook, and the events of each pool that wait for it
    Show {
        /// Name of the webhook
        #[arg(value_name = "WEBHOOK")]
        name: String,
    },
    /// Change a webhook. Events that wait are delivered with the change
    Set {
        /// Name of the webhook
        #[arg(value_name = "WEBHOOK")]
        name: String,
        /// URL that receives the events
        #[arg(long, value_name = "URL")]
        url: Option<String>,
        /// File with the bearer token; '' for none
        #[arg(long, value_name = "FILE", value_parser = path_or_empty())]
        token_file: Option<PathBuf>,
        /// File with the certificates of authorities; '' for those of the system
        #[arg(long, value_name = "FILE", value_parser = path_or_empty())]
        authorities: Option<PathBuf>,
    },
    /// Delete a webhook that no bucket names, and the events that wait for it
    Delete {
        /// Name of the webhook
        #[arg(value_name = "WEBHOOK")]
        name: String,
    },
}
