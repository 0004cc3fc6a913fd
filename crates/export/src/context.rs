//! The parts of a daemon that frontends run on: its reactors, and the users that it admits.
//!
//! Owns the placement of queues on reactors. Queues go to the reactors that own the volume's
//! blocks, unless the configuration of the export names others, so that requests need no message to
//! another reactor.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_channel::oneshot;
pub(crate) use reactor::call_object;
use reactor::{Access, Backend, Platform, Remote};

use crate::{ExportConfig, ExportError, ExportErrorKind, NetworkConfig, VolumeSource};

/// The parts of a daemon that frontends use. A clone is another handle on the same.
#[derive(Clone)]
pub struct FrontendContext {
    /// The reactors that serve exports.
    pub reactors: ReactorSet,
    /// The users that may reach sockets, files and devices.
    pub access: Access,
}

/// The reactors of a daemon. A clone is another handle on the same.
#[derive(Clone)]
pub struct ReactorSet {
    remotes: Arc<[Remote]>,
    backend: Backend,
    platform: fn() -> Rc<Platform>,
    next: Arc<AtomicUsize>,
}

impl ReactorSet {
    /// A set of at least one reactor. `platform` returns the platform of the reactor of the calling
    /// thread.
    ///
    /// # Panics
    /// If there is no reactor.
    pub fn new(remotes: &[Remote], backend: Backend, platform: fn() -> Rc<Platform>) -> Self {
        assert!(!remotes.is_empty(), "frontends need a reactor");
        Self { remotes: remotes.into(), backend, platform, next: Arc::default() }
    }

    /// All reactors.
    pub fn all(&self) -> &[Remote] {
        &self.remotes
    }

    /// The I/O backend of the reactors.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The platform of the reactor of this thread.
    pub fn platform(&self) -> Rc<Platform> {
        (self.platform)()
    }

    /// The function that returns the platform of a reactor, to be called on its thread.
    pub(crate) fn platform_of_thread(&self) -> fn() -> Rc<Platform> {
        self.platform
    }

    /// All reactors, starting with another one at each call.
    fn rotated(&self) -> Vec<Remote> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let mut remotes = self.remotes.to_vec();
        remotes.rotate_left(turn % self.remotes.len());
        remotes
    }

    /// The reactors that an export's options name.
    ///
    /// # Errors
    /// `Invalid` if one does not exist.
    pub(crate) fn configured(&self, config: &ExportConfig) -> Result<Vec<Remote>, ExportError> {
        let find = |index: &u32| {
            self.remotes.get(*index as usize).cloned().ok_or_else(|| {
                let message = format!("there is no reactor {index}: the daemon runs {}", self.remotes.len());
                ExportError::new(ExportErrorKind::Invalid, message)
                    .hint("reactors are numbered from 0; the daemon's --threads and --cores set their number")
            })
        };
        config.reactors.iter().map(find).collect()
    }

    /// The reactors that serve an export's queues, in turn; at least one.
    ///
    /// # Errors
    /// As [`ReactorSet::configured`].
    pub(crate) fn place<S: VolumeSource>(
        &self,
        config: &ExportConfig,
        source: &S,
    ) -> Result<Vec<Remote>, ExportError> {
        let configured = self.configured(config)?;
        if !configured.is_empty() {
            return Ok(configured);
        }
        let own = source.reactors();
        // A volume on all reactors prefers none: exports start at different ones.
        Ok(if own.is_empty() || own.len() >= self.remotes.len() { self.rotated() } else { own })
    }

    /// The first of [`ReactorSet::place`].
    pub(crate) fn place_one<S: VolumeSource>(
        &self,
        config: &ExportConfig,
        source: &S,
    ) -> Result<Remote, ExportError> {
        match self.place(config, source)?.into_iter().next() {
            Some(remote) => Ok(remote),
            None => unreachable!("a set has at least one reactor"),
        }
    }
}

/// Checks the number of queues of an export.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check_queue_count(config: &ExportConfig, max: u16) -> Result<(), ExportError> {
    match config.queues {
        Some(queues) if !(1..=max).contains(&queues) => Err(ExportError::new(
            ExportErrorKind::Invalid,
            format!("an export has 1 to {max} queues, not {queues}"),
        )),
        _ => Ok(()),
    }
}

/// Refuses options for queues where the protocol has none.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check_no_queues(config: &ExportConfig) -> Result<(), ExportError> {
    if config.queues.is_none() && config.reactors.is_empty() {
        return Ok(());
    }
    Err(ExportError::new(ExportErrorKind::Invalid, "only exports over vhost-user and ublk have queues"))
}

/// Refuses options of network disks where the protocol has none: an export must not start without
/// the restrictions that it was given.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check_no_network(config: &ExportConfig) -> Result<(), ExportError> {
    let NetworkConfig { listen, target, unit, hosts, chap, dhchap, tls_key } = &config.network;
    let given = [
        ("addresses", !listen.is_empty()),
        ("name of a subsystem or target", target.is_some()),
        ("namespace id or logical unit number", unit.is_some()),
        ("list of hosts", !hosts.is_empty()),
        ("CHAP account", chap.is_some()),
        ("secret for DH-HMAC-CHAP", dhchap.is_some()),
        ("TLS key", tls_key.is_some()),
    ];
    let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
    let message = format!("the export has the option '{option}', which its protocol does not have");
    Err(ExportError::new(ExportErrorKind::Invalid, message)
        .hint("only exports over NVMe/TCP and iSCSI have options of network disks"))
}

/// Runs `work`, which may block, on a thread of its own. The work is finished even if the future is
/// dropped.
///
/// # Errors
/// When there is no thread, or the work panics.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ExportError> {
    let (sender, receiver) = oneshot::channel();
    // The receiver is gone if the caller has given up.
    let run = move || drop(sender.send(work()));
    let builder = std::thread::Builder::new().name("export-control".into());
    let failed = |message: String| ExportError::new(ExportErrorKind::Internal, message);
    builder.spawn(run).map_err(|error| failed(format!("cannot start a thread: {error}")))?;
    receiver.await.map_err(|_| failed("a bug in the daemon ended this: see its log".into()))
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
