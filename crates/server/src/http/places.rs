//! The places for connections of remote clients.
//!
//! Invariants: the number of connections is bounded; one sender cannot occupy all places; a
//! connection without any transfer ends after a bounded time. Senders with IPv6 are the networks of
//! 64 bits.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::access::sender_key;

/// Most connections of all remote clients, those in the handshake included.
pub(super) const CONNECTIONS_MAX: usize = 1000;
/// Most connections of one sender.
const SENDER_MAX: usize = 600;
/// Longest time without a transfer. Longer than any response that clients wait for.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(150);

/// The connections of each sender.
#[derive(Debug, Default)]
pub(super) struct SenderPlaces(Mutex<BTreeMap<u128, usize>>);

impl SenderPlaces {
    /// Takes a place for a connection; `None` if the sender has too many.
    pub(super) fn take(self: &Arc<Self>, sender: IpAddr) -> Option<SenderPlace> {
        let key = sender_key(sender);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key).or_default();
        if *count >= SENDER_MAX {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(SenderPlace { places: self.clone(), key })
    }
}

/// The place of one connection, free again when it is dropped.
#[derive(Debug)]
pub(super) struct SenderPlace {
    places: Arc<SenderPlaces>,
    key: u128,
}

impl Drop for SenderPlace {
    fn drop(&mut self) {
        let mut counts = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

/// The time limit of a connection without transfers.
pub(super) struct IdleLimit {
    most: Duration,
    time: Pin<Box<Sleep>>,
}

impl IdleLimit {
    /// Returns a limit that begins now. Needs a tokio runtime.
    pub(super) fn start(most: Duration) -> Self {
        Self { most, time: Box::pin(tokio::time::sleep(most)) }
    }

    /// Passes the result of a transfer on. A transfer restarts the time; a wait beyond it fails.
    pub(super) fn check<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.time.as_mut().reset(Instant::now() + self.most);
            return result;
        }
        self.time.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sender_cannot_occupy_all_places() {
        let places = Arc::new(SenderPlaces::default());
        let sender = "10.0.0.1".parse().unwrap();
        let mut taken: Vec<_> = (0..SENDER_MAX).map(|_| places.take(sender).unwrap()).collect();
        assert!(places.take(sender).is_none());
        assert!(places.take("10.0.0.2".parse().unwrap()).is_some());
        taken.pop();
        taken.push(places.take(sender).unwrap());
        assert!(places.take(sender).is_none());
        drop(taken);
        assert!(places.0.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_connection_without_transfers_ends() {
        let mut limit = IdleLimit::start(Duration::from_millis(5));
        let before = limit.time.deadline();
        let ready = std::future::poll_fn(|cx| limit.check(cx, Poll::Ready(Ok(7))));
        assert_eq!(ready.await.unwrap(), 7);
        assert!(limit.time.deadline() > before);
        let stalled: io::Result<()> = std::future::poll_fn(|cx| limit.check(cx, Poll::Pending)).await;
        assert_eq!(stalled.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
