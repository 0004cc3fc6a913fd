//! The delivery of the events of a store to webhooks.
//!
//! Always true: the events of a pool for a webhook are delivered in order, each at least once, and
//! are removed after their delivery; a webhook that does not answer delays its own events only, and
//! a bounded number of events is in memory. Must not know: how webhooks are configured.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use object::{Change, ObjectEvent, ObjectStore, VolumeStore};
use rustls::ClientConfig;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};

use super::table::{WebhookFile, WebhookRecord};
use crate::blocking::blocking;
use crate::error::Result;
use crate::objects::convert;
use crate::outbound::{client_config, post};

/// The events in memory for a webhook. A crash repeats the delivery of up to as many.
const BATCH: usize = 64;
/// The time between two looks for work without a signal, such as for a new webhook.
const POLL: Duration = Duration::from_secs(2);
/// The times between attempts after failures.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The deliveries of a pool for a webhook since the start.
#[derive(Clone, Debug, Default)]
pub(super) struct DeliveryCounts {
    pub(super) delivered: u64,
    pub(super) failed: u64,
    /// The reason why the last attempt failed.
    pub(super) problem: Option<String>,
}

type Counts = Arc<Mutex<BTreeMap<String, DeliveryCounts>>>;

/// The task that delivers the events of a store.
pub(crate) struct Delivery {
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
    counts: Counts,
}

impl Delivery {
    /// Starts the delivery of the events of a store.
    pub(in crate::objects) fn start(
        pool: &str,
        region: &str,
        store: Arc<VolumeStore>,
        webhooks: Arc<WebhookFile>,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let counts = Counts::default();
        let work = DeliveryWork {
            pool: pool.to_owned(),
            region: region.to_owned(),
            store,
            webhooks,
            counts: counts.clone(),
            stopped,
        };
        let task = Mutex::new(Some(tokio::spawn(work.run())));
        Self { stop, task, counts }
    }

    /// Stops the delivery, and waits until no task uses the store.
    pub(in crate::objects) async fn stop(&self) {
        self.stop.send_replace(true);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the delivery of events did not stop cleanly");
        }
    }

    /// Returns the deliveries for a webhook.
    pub(super) fn counts(&self, webhook: &str) -> DeliveryCounts {
        lock(&self.counts).get(webhook).cloned().unwrap_or_default()
    }
}

fn lock(counts: &Counts) -> MutexGuard<'_, BTreeMap<String, DeliveryCounts>> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
struct DeliveryWork {
    pool: String,
    region: String,
    store: Arc<VolumeStore>,
    webhooks: Arc<WebhookFile>,
    counts: Counts,
    stopped: watch::Receiver<bool>,
}

impl DeliveryWork {
    /// Runs a task for each webhook with events until the delivery is stopped.
    async fn run(mut self) {
        let mut signal = self.store.event_signal();
        let mut wakers: BTreeMap<String, Arc<Notify>> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        let mut is_open = true;
        loop {
            while let Some(ended) = tasks.try_join_next() {
                self.forget_task(&mut wakers, ended);
            }
            // The task of a deleted webhook ends when it is woken.
            wakers.iter().filter(|(name, _)| self.webhooks.get(name).is_none()).for_each(|(_, waker)| {
                waker.notify_one();
            });
            match self.targets().await {
                Ok(targets) => {
                    for target in targets {
                        let waker = wakers.entry(target.clone()).or_insert_with(|| {
                            let waker = Arc::new(Notify::new());
                            tasks.spawn(self.clone().deliver(target, waker.clone()));
                            waker
                        });
                        waker.notify_one();
                    }
                }
                Err(error) => tracing::warn!(pool = self.pool, %error, "the events cannot be read"),
            }
            tokio::select! {
                found = signal.wait(), if is_open => is_open = found,
                () = tokio::time::sleep(POLL) => {}
                _ = self.stopped.wait_for(|stopped| *stopped) => break,
            }
        }
        while let Some(ended) = tasks.join_next().await {
            self.forget_task(&mut wakers, ended);
        }
    }

    /// Removes the waker of a task that has ended, so that later events start another one.
    fn forget_task(
        &self,
        wakers: &mut BTreeMap<String, Arc<Notify>>,
        ended: std::result::Result<String, JoinError>,
    ) {
        match ended {
            Ok(target) => drop(wakers.remove(&target)),
            Err(error) => tracing::error!(pool = self.pool, %error, "the delivery of events has failed"),
        }
    }

    /// Returns the webhooks that have events.
    async fn targets(&self) -> Result<Vec<String>> {
        let store = self.store.clone();
        let outboxes = blocking(move || store.outboxes()).await?.map_err(convert)?;
        let with_events = outboxes.into_iter().filter(|outbox| outbox.pending > 0);
        Ok(with_events.map(|outbox| outbox.target).filter(|name| self.webhooks.get(name).is_some()).collect())
    }

    /// Delivers the events for a webhook, whenever it is woken, until the webhook is deleted.
    /// Returns its name.
    async fn deliver(mut self, target: String, waker: Arc<Notify>) -> String {
        let mut retry = RETRY_MIN;
        let mut settings: Option<(String, Arc<ClientConfig>)> = None;
        loop {
            if self.webhooks.get(&target).is_none() {
                return target;
            }
            let wait = match self.deliver_batch(&target, &mut settings).await {
                Ok(0) => None,
                Ok(_) => {
                    retry = RETRY_MIN;
                    Some(Duration::ZERO)
                }
                Err(reason) => {
                    self.note_failure(&target, reason);
                    let wait = retry;
                    retry = (retry * 2).min(RETRY_MAX);
                    Some(wait)
                }
            };
            let pause = async {
                match wait {
                    None => waker.notified().await,
                    Some(wait) => tokio::time::sleep(wait).await,
                }
            };
            tokio::select! {
                () = pause => {}
                _ = self.stopped.wait_for(|stopped| *stopped) => return target,
            }
        }
    }

    /// Delivers some events in order, and removes them from the outbox. Returns their number.
    async fn deliver_batch(
        &self,
        target: &str,
        settings: &mut Option<(String, Arc<ClientConfig>)>,
    ) -> std::result::Result<usize, String> {
        let Some(webhook) = self.webhooks.get(target) else { return Ok(0) };
        let (store, name) = (self.store.clone(), target.to_owned());
        let read = blocking(move || store.events(&name, BATCH)).await.map_err(|error| error.to_string())?;
        let events = read.map_err(|error| error.to_string())?;
        if events.is_empty() {
            return Ok(0);
        }
        let tls = match settings {
            Some((id, tls)) if *id == webhook.id() => tls.clone(),
            _ => {
                let authorities = webhook.authorities().map(str::to_owned);
                let read = blocking(move || client_config(authorities.as_deref().map(std::path::Path::new)));
                let tls = read.await.map_err(|error| error.to_string())??;
                *settings = Some((webhook.id().to_owned(), tls.clone()));
                tls
            }
        };
        let (mut delivered, mut failure) = (0, None);
        let (mut through, mut stopped) = (0, self.stopped.clone());
        for event in &events {
            let sent = tokio::select! {
                sent = self.send(&webhook, &tls, event) => sent,
                // The event stays in the outbox.
                _ = stopped.wait_for(|stopped| *stopped) => break,
            };
            match sent {
                Ok(()) => {
                    delivered += 1;
                    through = event.number;
                }
                Err(reason) => {
                    failure = Some(reason);
                    break;
                }
            }
        }
        if delivered > 0 {
            self.note_success(target, delivered);
            let change = Change::AcknowledgeEvents { target: target.to_owned(), through };
            self.store.commit(change).await.map_err(|error| error.to_string())?;
        }
        match failure {
            Some(reason) => Err(reason),
            None => Ok(events.len()),
        }
    }

    async fn send(
        &self,
        webhook: &WebhookRecord,
        tls: &Arc<ClientConfig>,
        event: &ObjectEvent,
    ) -> std::result::Result<(), String> {
        let document = s3::event_message(event, &self.region).to_string();
        let token = webhook.token.as_deref();
        post(&webhook.url, tls, token, Bytes::from(document), webhook.allows_link_local()).await
    }

    fn note_success(&self, target: &str, delivered: u64) {
        let mut counts = lock(&self.counts);
        let counts = counts.entry(target.to_owned()).or_default();
        counts.delivered += delivered;
        if counts.problem.take().is_some() {
            tracing::info!(pool = self.pool, webhook = target, "events are delivered again");
        }
    }

    fn note_failure(&self, target: &str, reason: String) {
        let mut counts = lock(&self.counts);
        let counts = counts.entry(target.to_owned()).or_default();
        counts.failed += 1;
        if counts.problem.as_ref() != Some(&reason) {
            tracing::warn!(pool = self.pool, webhook = target, reason, "events cannot be delivered");
        }
        counts.problem = Some(reason);
    }
}
