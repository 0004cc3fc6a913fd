//! A nexus: the relation of one session to the target, as SCSI counts initiators, and the unit
//! attentions that it has at each logical unit.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reactor::Handle;

use super::chap::ChapAccount;
use super::control::SessionControl;
use super::scsi::Sense;
use super::tasks::TaskFilter;
use crate::context::call_object;
use crate::reservation::{ReservationNotice, ReservationObserver};

/// The most unit attentions that wait for a nexus at a unit.
const ATTENTIONS: usize = 16;

/// The relation of a session to the target. Used from several threads.
pub(super) struct Nexus {
    /// The name of the initiator.
    pub(super) initiator: String,
    /// The target's part of the session identifier.
    pub(super) handle: u16,
    /// The account by which the initiator was authenticated.
    pub(super) account: Option<ChapAccount>,
    /// The name of the initiator port, for reservations.
    pub(super) port: String,
    pub(super) control: Handle<SessionControl>,
}

/// The name of an initiator port: of the initiator, and of its session.
pub(super) fn port_name(initiator: &str, session: [u8; 6]) -> String {
    let digits: String = session.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("iscsi:{initiator},i,0x{digits}")
}

impl Nexus {
    /// Aborts tasks of the session, and waits until none of them is in execution.
    pub(super) async fn abort(&self, filter: TaskFilter) {
        let abort = move |control: Rc<SessionControl>| async move { control.abort(filter).await };
        // A session that has ended has no tasks.
        let _ = call_object(&self.control, abort).await;
    }

    /// Ends the session, whose connection is closed.
    pub(super) fn end(&self, reason: &'static str) {
        let control = self.control.clone();
        let end = move || {
            if let Some(control) = control.local() {
                control.end(reason);
            }
        };
        // A reactor that has shut down has closed its connections.
        let _ = self.control.remote().post(end);
    }
}

/// The unit attentions of one nexus at one unit, oldest first. Used from several threads.
pub(super) struct UnitAttentions {
    port: String,
    waiting: AtomicBool,
    queue: Mutex<VecDeque<Sense>>,
}

impl UnitAttentions {
    pub(super) fn new(port: String) -> Arc<Self> {
        Arc::new(Self { port, waiting: AtomicBool::new(false), queue: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Sense>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the initiator port.
    pub(super) fn port(&self) -> &str {
        &self.port
    }

    /// Adds an attention, unless it waits already.
    pub(super) fn raise(&self, attention: Sense) {
        let mut queue = self.lock();
        if !queue.contains(&attention) && queue.len() < ATTENTIONS {
            queue.push_back(attention);
            self.waiting.store(true, Ordering::Release);
        }
    }

    /// Takes the oldest attention.
    pub(super) fn take(&self) -> Option<Sense> {
        if !self.waiting.load(Ordering::Acquire) {
            return None;
        }
        let mut queue = self.lock();
        let oldest = queue.pop_front();
        self.waiting.store(!queue.is_empty(), Ordering::Release);
        oldest
    }
}

impl ReservationObserver for UnitAttentions {
    fn registrant(&self) -> &str {
        &self.port
    }

    fn notice(&self, notice: ReservationNotice) {
        self.raise(match notice {
            ReservationNotice::RegistrationPreempted => Sense::REGISTRATIONS_PREEMPTED,
            ReservationNotice::ReservationReleased => Sense::RESERVATIONS_RELEASED,
            ReservationNotice::ReservationPreempted => Sense::RESERVATIONS_PREEMPTED,
        });
    }
}
