//! Futures that wait for a moment.
//!
//! Invariant: a dropped [`Sleep`] leaves no timer.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::timer::TimerKey;
use crate::{Instant, Reactor};

impl Reactor {
    /// Waits until `due`.
    pub fn sleep_until(&self, due: Instant) -> Sleep {
        Sleep { reactor: self.clone(), due, timer: None }
    }

    /// Waits for `length`.
    pub fn sleep(&self, length: Duration) -> Sleep {
        self.sleep_until(self.now() + length)
    }

    /// Waits for `length` without polling: the reactor sleeps meanwhile unless other work is ready.
    pub fn sleep_unpolled(&self, length: Duration) -> UnpolledSleep {
        self.unpolled_sleeps().set(self.unpolled_sleeps().get() + 1);
        UnpolledSleep { sleep: self.sleep(length) }
    }
}

/// The future of [`Reactor::sleep`]. Dropping it cancels the timer.
pub struct Sleep {
    reactor: Reactor,
    due: Instant,
    timer: Option<TimerKey>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.reactor.now() >= self.due {
            return Poll::Ready(());
        }
        let due = self.due;
        let mut timers = self.reactor.timers().borrow_mut();
        match self.timer {
            Some(key) => {
                let replaced = timers.change(key, context.waker());
                drop((timers, replaced));
            }
            None => {
                let key = timers.set(due, context.waker().clone());
                drop(timers);
                self.timer = Some(key);
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(key) = self.timer else { return };
        // Dropped after the borrow of the timers ends: a waker may be the last reference to a task
        // that itself sets timers.
        let waker = self.reactor.timers().borrow_mut().cancel(key);
        drop(waker);
    }
}

/// See [`Reactor::sleep_unpolled`].
pub struct UnpolledSleep {
    sleep: Sleep,
}

impl Future for UnpolledSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.sleep).poll(context)
    }
}

impl Drop for UnpolledSleep {
    fn drop(&mut self) {
        let unpolled_sleeps = self.sleep.reactor.unpolled_sleeps();
        unpolled_sleeps.set(unpolled_sleeps.get() - 1);
    }
}
