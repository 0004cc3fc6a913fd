//! Interruption of commands by signals, at points where their changes can be rolled back.

use std::future::Future;

use anyhow::{Context, Result};
use api::{Error, ErrorKind};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Handlers of SIGINT, SIGTERM and SIGHUP, which no longer end the process directly.
pub(crate) struct Interrupt {
    signals: [Signal; 3],
}

impl Interrupt {
    /// Installs the handlers.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub(crate) fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("installing signal handlers");
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

    /// Runs a future until it completes or a signal arrives; a signal drops the future.
    ///
    /// # Errors
    /// The error of the future, or an error for the interruption.
    pub(crate) async fn or<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let [interrupt, terminate, hangup] = &mut self.signals;
        tokio::select! {
            // Signals first, so that an earlier one is noticed in any case.
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
            done = work => return done,
        }
        Err(Error::new(ErrorKind::Io, "interrupted; all changes were rolled back").into())
    }
}
