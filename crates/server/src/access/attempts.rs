//! The limit on failed attempts to authenticate, for each sender.
//!
//! Invariants: the memory is bounded; a sender delays only itself. Senders with IPv6 are the
//! networks of 64 bits, because a host has all addresses of one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};

/// Failed attempts without a delay.
const UNDELAYED_ATTEMPTS: u32 = 5;
/// Longest delay.
const DELAY_MAX: Duration = Duration::from_secs(60);
/// Time without failed attempts after which a sender is forgotten.
const MEMORY: Duration = Duration::from_secs(600);
/// Most senders that are remembered; beyond it, the sender with the oldest failure is evicted.
const SENDERS_MAX: usize = 10_000;

struct Failures {
    count: u32,
    last: Instant,
}

impl Failures {
    /// Returns the time from the last failure until the next attempt is accepted.
    fn delay(&self) -> Duration {
        match self.count.checked_sub(UNDELAYED_ATTEMPTS) {
            None => Duration::ZERO,
            Some(more) => Duration::from_secs(1 << more.min(6)).min(DELAY_MAX),
        }
    }
}

/// The failed attempts of each sender.
#[derive(Default)]
pub(super) struct AttemptLimiter(Mutex<BTreeMap<u128, Failures>>);

/// Returns the number of a sender: its IPv4 address, or its IPv6 network of 64 bits.
pub(crate) fn sender_key(sender: IpAddr) -> u128 {
    match sender.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits() & !u128::from(u64::MAX),
    }
}

impl AttemptLimiter {
    /// Refuses an attempt that comes too early after failed ones.
    ///
    /// # Errors
    /// `TooManyAttempts` with the time to wait.
    pub(super) fn check(&self, sender: IpAddr, now: Instant) -> Result<()> {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(failed) = failures.get(&sender_key(sender)) else { return Ok(()) };
        let wait = (failed.last + failed.delay()).saturating_duration_since(now);
        if wait.is_zero() {
            return Ok(());
        }
        let message = format!("{} failed attempts to authenticate from {sender}", failed.count);
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Err(Error::new(ErrorKind::TooManyAttempts, message).hint(format!("try again in {seconds} s")))
    }

    /// Notes a failed attempt.
    pub(super) fn failed(&self, sender: IpAddr, now: Instant) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = sender_key(sender);
        if failures.len() >= SENDERS_MAX && !failures.contains_key(&key) {
            failures.retain(|_, failed| now.saturating_duration_since(failed.last) < MEMORY);
        }
        if failures.len() >= SENDERS_MAX && !failures.contains_key(&key) {
            let oldest = failures.iter().min_by_key(|(_, failed)| failed.last).map(|(key, _)| *key);
            oldest.map(|key| failures.remove(&key));
        }
        let failed = failures.entry(key).or_insert(Failures { count: 0, last: now });
        if now.saturating_duration_since(failed.last) >= MEMORY {
            failed.count = 0;
        }
        failed.count = failed.count.saturating_add(1);
        failed.last = now;
        tracing::warn!(%sender, failures = failed.count, "failed attempt to authenticate");
    }

    /// Forgets the failed attempts of a sender that has authenticated.
    pub(super) fn succeeded(&self, sender: IpAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&sender_key(sender));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_delay_their_sender_only() {
        let (limiter, start) = (AttemptLimiter::default(), Instant::now());
        let (bad, good): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        for _ in 0..UNDELAYED_ATTEMPTS {
            limiter.check(bad, start).unwrap();
            limiter.failed(bad, start);
        }
        assert_eq!(limiter.check(bad, start).unwrap_err().kind(), ErrorKind::TooManyAttempts);
        limiter.check(good, start).unwrap();
        limiter.check(bad, start + Duration::from_secs(1)).unwrap();
        for _ in 0..1000 {
            limiter.failed(bad, start);
        }
        let error = limiter.check(bad, start + Duration::from_millis(59_500)).unwrap_err();
        assert_eq!(error.hint_text(), Some("try again in 1 s"));
        limiter.check(bad, start + DELAY_MAX).unwrap();
        limiter.succeeded(bad);
        limiter.check(bad, start).unwrap();
    }

    #[test]
    fn a_network_is_one_sender_and_memory_is_bounded() {
        let (limiter, now) = (AttemptLimiter::default(), Instant::now());
        for last in 0..8 {
            limiter.failed(format!("2001:db8::{last}").parse().unwrap(), now);
        }
        assert!(limiter.check("2001:db8::ffff".parse().unwrap(), now).is_err());
        assert!(limiter.check("2001:db8:0:1::1".parse().unwrap(), now).is_ok());
        for number in 0..2 * SENDERS_MAX as u32 {
            limiter.failed(IpAddr::V4(number.into()), now + Duration::from_millis(1));
        }
        assert_eq!(limiter.0.lock().unwrap().len(), SENDERS_MAX);
    }
}
