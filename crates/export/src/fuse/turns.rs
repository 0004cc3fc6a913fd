//! Who may change a file's bytes now: any number who write whole sectors, or one who writes parts of some.
//!
//! Always true: who reads a sector to write part of it anew is alone from the reading to the writing; who waits to be alone
//! is not kept waiting by those who come later. Must not know what is changed.

use std::cell::Cell;

use reactor::WaitList;

/// See the module.
#[derive(Default)]
pub(super) struct Turns {
    /// Those who write whole sectors.
    beside: Cell<usize>,
    /// Somebody is alone.
    alone: Cell<bool>,
    /// Those who wait to be.
    waiting: Cell<usize>,
    changed: WaitList,
}

/// A turn, until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    alone: bool,
}

impl Turns {
    /// Waits for a turn beside others.
    pub(super) async fn beside(&self) -> Turn<'_> {
        self.changed.until(|| (!self.alone.get() && self.waiting.get() == 0).then_some(())).await;
        self.beside.set(self.beside.get() + 1);
        Turn { turns: self, alone: false }
    }

    /// Waits for a turn without others.
    pub(super) async fn alone(&self) -> Turn<'_> {
        let waiting = Waiting::new(self);
        self.changed.until(|| (!self.alone.get() && self.beside.get() == 0).then_some(())).await;
        self.alone.set(true);
        drop(waiting);
        Turn { turns: self, alone: true }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.alone {
            self.turns.alone.set(false);
        } else {
            self.turns.beside.set(self.turns.beside.get() - 1);
        }
        self.turns.changed.wake_all();
    }
}

/// Somebody who waits to be alone, and may give it up.
struct Waiting<'a>(&'a Turns);

impl<'a> Waiting<'a> {
    fn new(turns: &'a Turns) -> Self {
        turns.waiting.set(turns.waiting.get() + 1);
        Self(turns)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
        self.0.changed.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn now<T>(future: &mut std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn many_go_side_by_side_and_one_goes_alone() {
        let turns = Turns::default();
        let (mut first, mut second) = (pin!(turns.beside()), pin!(turns.beside()));
        let (first, second) = (now(&mut first).unwrap(), now(&mut second).unwrap());
        let mut alone = pin!(turns.alone());
        assert!(now(&mut alone).is_none());
        // Who comes later waits behind who waits to be alone.
        let mut later = pin!(turns.beside());
        assert!(now(&mut later).is_none());
        drop(first);
        assert!(now(&mut alone).is_none());
        drop(second);
        let alone = now(&mut alone).unwrap();
        let mut other = pin!(turns.alone());
        assert!(now(&mut later).is_none() && now(&mut other).is_none());
        drop(alone);
        let other = now(&mut other).unwrap();
        assert!(now(&mut later).is_none());
        drop(other);
        assert!(now(&mut later).is_some());
    }

    #[test]
    fn who_gives_up_holds_nobody_up() {
        let turns = Turns::default();
        let first = now(&mut pin!(turns.beside())).unwrap();
        {
            let mut alone = pin!(turns.alone());
            assert!(now(&mut alone).is_none());
        }
        assert!(now(&mut pin!(turns.beside())).is_some());
        drop(first);
        assert!(now(&mut pin!(turns.alone())).is_some());
    }
}
