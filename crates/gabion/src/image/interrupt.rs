//! Ctrl-C, noticed where work can be broken off and taken back.

use std::future::Future;

use anyhow::{Context, Result};
use api::{Error, ErrorKind};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask a command to end. From its making on they end nothing by themselves.
pub(crate) struct Interrupt {
    signals: [Signal; 3],
}

impl Interrupt {
    /// Notices signals from now on.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub(crate) fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("listening for signals");
        let (interrupt, terminate, hangup) =
            (SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup());
        Ok(Self { signals: [listen(interrupt)?, listen(terminate)?, listen(hangup)?] })
    }

    /// Waits for a signal.
    pub(crate) async fn wait(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }

    /// Does something, unless a signal came or comes: then it is dropped where it is.
    ///
    /// # Errors
    /// Its own; or that it was broken off.
    pub(crate) async fn or<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let [interrupt, terminate, hangup] = &mut self.signals;
        tokio::select! {
            // Signals first: one that came before is noticed, whatever the work is.
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
            done = work => return done,
        }
        Err(Error::new(ErrorKind::Io, "interrupted; what was begun is taken back").into())
    }
}
