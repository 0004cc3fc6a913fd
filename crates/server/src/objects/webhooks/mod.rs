//! Webhooks: the receivers of the events of buckets, and the delivery to them.
//!
//! Always true: the deletion of a webhook is refused while a bucket of a running service names it.
//! Events of a rule that is set at the same moment, or on a pool that is closed, wait without a
//! receiver, up to the bound of an outbox. Must not know: how events are stored.

mod delivery;
mod table;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::types::{ChangeWebhook, CreateWebhook, Webhook, WebhookOutbox};
use object::{Change, ObjectStore, OutboxInfo};
use s3::EventTargets;

use super::{ObjectServices, RunningService, convert};
use crate::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::objects::users::missing;
pub(super) use delivery::Delivery;
pub(crate) use table::WebhookFile;

impl EventTargets for WebhookFile {
    fn has_target(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

/// The outbox of a webhook on a pool, with the deliveries from it.
pub(crate) struct NamedOutbox {
    pub(crate) webhook: String,
    pub(crate) outbox: WebhookOutbox,
}

/// Returns the outboxes of a running service, also those of webhooks that do not exist.
fn outboxes_of(pool: &str, running: &RunningService) -> Result<Vec<NamedOutbox>> {
    let describe = |info: OutboxInfo| {
        let counts = running.delivery.counts(&info.target);
        let outbox = WebhookOutbox {
            pool: pool.to_owned(),
            pending: info.pending,
            dropped: info.dropped,
            delivered: counts.delivered,
            failed: counts.failed,
            problem: counts.problem,
        };
        NamedOutbox { webhook: info.target, outbox }
    };
    Ok(running.store.outboxes().map_err(convert)?.into_iter().map(describe).collect())
}

impl ObjectServices {
    fn running(&self) -> Vec<(String, Arc<RunningService>)> {
        let services = self.lock();
        let running = services.iter().filter_map(|(pool, entry)| Some((pool, entry.running.as_ref().ok()?)));
        running.map(|(pool, running)| (pool.clone(), running.clone())).collect()
    }

    /// Returns the outboxes of all running services. One that cannot be read is absent.
    pub(crate) async fn outboxes(&self) -> Vec<NamedOutbox> {
        let running = self.running();
        let read = blocking(move || {
            let mut outboxes = Vec::new();
            for (pool, running) in &running {
                match outboxes_of(pool, running) {
                    Ok(found) => outboxes.extend(found),
                    Err(error) => tracing::warn!(pool, %error, "the events cannot be read"),
                }
            }
            outboxes
        });
        read.await.unwrap_or_default()
    }

    /// Returns the webhooks by name.
    pub(crate) async fn webhooks(&self) -> Vec<Webhook> {
        let outboxes = self.outboxes().await;
        let webhooks = self.webhooks.all();
        let describe = |(name, record): (&String, &Arc<table::WebhookRecord>)| Webhook {
            name: name.clone(),
            arn: s3::target_arn(name),
            created: record.created(),
            url: record.url.to_string(),
            has_token: record.token.is_some(),
            authorities: record.authorities().map(str::to_owned),
            allow_http: record.allows_http(),
            allow_link_local: record.allows_link_local(),
            outboxes: outboxes
                .iter()
                .filter(|named| named.webhook == *name)
                .map(|named| named.outbox.clone())
                .collect(),
        };
        webhooks.iter().map(describe).collect()
    }

    /// Returns a webhook.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) async fn webhook(&self, name: &str) -> Result<Webhook> {
        let found = self.webhooks().await.into_iter().find(|webhook| webhook.name == name);
        found.ok_or_else(|| missing("webhook", name))
    }

    /// Creates a webhook.
    ///
    /// # Errors
    /// `Invalid`, `Exists`; when a file cannot be written.
    pub(crate) async fn create_webhook(&self, request: CreateWebhook) -> Result<Webhook> {
        let (webhooks, name) = (self.webhooks.clone(), request.name.clone());
        blocking(move || webhooks.create(request)).await??;
        self.webhook(&name).await
    }

    /// Changes a webhook.
    ///
    /// # Errors
    /// `Invalid`, `NotFound`; when a file cannot be written.
    pub(crate) async fn change_webhook(&self, name: &str, request: ChangeWebhook) -> Result<Webhook> {
        let (webhooks, changed) = (self.webhooks.clone(), name.to_owned());
        blocking(move || webhooks.change(&changed, request)).await??;
        self.webhook(name).await
    }

    /// Deletes a webhook that no bucket names, and its events.
    ///
    /// # Errors
    /// `NotFound`, `Busy`; when the file cannot be written.
    pub(crate) async fn delete_webhook(&self, name: &str) -> Result<()> {
        let _changing = self.changing.lock().await;
        self.webhooks.get(name).ok_or_else(|| missing("webhook", name))?;
        let (running, webhooks, target) = (self.running(), self.webhooks.clone(), name.to_owned());
        blocking(move || {
            for (pool, running) in &running {
                if let Some(bucket) = buckets_of(&*running.store, &target)?.first() {
                    let message = format!("bucket '{pool}/{bucket}' sends events to webhook '{target}'");
                    return Err(Error::new(ErrorKind::Busy, message).hint(format!(
                        "remove its rules first: 'aws s3api put-bucket-notification-configuration \
                             --bucket {bucket} --notification-configuration {{}}'"
                    )));
                }
            }
            webhooks.delete(&target)?;
            for (_, running) in &running {
                let delete = Change::DeleteOutbox { target: target.clone() };
                running.store.commit(delete).wait().map_err(convert)?;
            }
            Ok(())
        })
        .await?
    }
}

/// Returns the buckets whose rules name a target.
fn buckets_of(store: &dyn ObjectStore, target: &str) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for bucket in store.buckets().map_err(convert)? {
        let rules = store.event_rules(&bucket.name).map_err(convert)?;
        if rules.iter().any(|rule| rule.target == target) {
            found.insert(bucket.name);
        }
    }
    Ok(found)
}
