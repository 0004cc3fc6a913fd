//! The signal of new events, from the commits of a store to the task that delivers them.

use std::sync::{Mutex, PoisonError};

use futures_channel::mpsc;

/// Wakes the task that delivers the events of a store.
#[derive(Debug)]
pub struct EventSignal {
    receiver: mpsc::Receiver<()>,
}

impl EventSignal {
    /// Waits until events were stored after the last call. Returns false when the store is closed.
    pub async fn wait(&mut self) -> bool {
        self.receiver.recv().await.is_ok()
    }
}

/// Sends the signal, once a task waits for it.
#[derive(Debug, Default)]
pub(crate) struct EventSignalSender {
    sender: Mutex<Option<mpsc::Sender<()>>>,
}

impl EventSignalSender {
    /// Returns the receiver of later signals. It replaces an earlier one.
    pub(crate) fn connect(&self) -> EventSignal {
        // Each sender has one place more: a signal waits for a receiver that is not there yet.
        let (sender, receiver) = mpsc::channel(0);
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        EventSignal { receiver }
    }

    /// Sends a signal. One that was not received yet stands for the new events too.
    pub(crate) fn send(&self) {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let has_left =
            |sender: &mut mpsc::Sender<()>| sender.try_send(()).is_err_and(|error| error.is_disconnected());
        if sender.as_mut().is_some_and(has_left) {
            *sender = None;
        }
    }
}
