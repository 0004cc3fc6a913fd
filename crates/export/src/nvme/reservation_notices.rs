//! The events of reservations that a controller reports to its host.
//!
//! Always true: the events that wait for the host are limited. Used from several threads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use reactor::Handle;

use super::queue_control::{NvmeEvent, QueueControl, raise};
use crate::reservation::{ReservationNotice, ReservationObserver, VolumeReservations};

/// The most events that wait for a host.
const NOTICES: usize = 255;

/// The events of reservations that wait for the host of one controller, oldest first.
#[derive(Default)]
pub(super) struct ReservationNotices {
    state: Mutex<NoticeState>,
}

#[derive(Default)]
struct NoticeState {
    /// Counts all events.
    count: u64,
    waiting: VecDeque<WaitingNotice>,
    /// The events of each namespace that the host does not want, as in feature 82h.
    masks: BTreeMap<u32, u32>,
    /// The admin queue, to which events are reported.
    admin: Option<Handle<QueueControl>>,
    /// The namespaces whose events are reported.
    observers: BTreeMap<u32, Arc<NamespaceObserver>>,
}

/// An event that waits for its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitingNotice {
    /// The number of the event.
    pub(super) count: u64,
    pub(super) namespace: u32,
    pub(super) notice: ReservationNotice,
    /// Further events that wait.
    pub(super) further: u8,
}

/// Observes the reservations of a namespace for a controller.
struct NamespaceObserver {
    notices: Weak<ReservationNotices>,
    registrant: String,
    namespace: u32,
    volume: [u8; 16],
}

/// The bit of an event in feature 82h.
fn mask_of(notice: ReservationNotice) -> u32 {
    1 << match notice {
        ReservationNotice::RegistrationPreempted => 1,
        ReservationNotice::ReservationReleased => 2,
        ReservationNotice::ReservationPreempted => 3,
    }
}

impl ReservationNotices {
    fn lock(&self) -> MutexGuard<'_, NoticeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The events of a namespace that the host does not want.
    pub(super) fn mask(&self, namespace: u32) -> u32 {
        self.lock().masks.get(&namespace).copied().unwrap_or(0)
    }

    pub(super) fn set_mask(&self, namespace: u32, mask: u32) {
        self.lock().masks.insert(namespace, mask);
    }

    /// Adds an event. Returns false if the host does not want it.
    fn add(&self, namespace: u32, notice: ReservationNotice) -> bool {
        let mut state = self.lock();
        if state.masks.get(&namespace).is_some_and(|mask| mask & mask_of(notice) != 0) {
            return false;
        }
        state.count += 1;
        let count = state.count;
        if state.waiting.len() == NOTICES {
            state.waiting.pop_front();
        }
        state.waiting.push_back(WaitingNotice { count, namespace, notice, further: 0 });
        true
    }

    /// Returns the oldest event, and removes it if `takes` is set.
    pub(super) fn oldest(&self, takes: bool) -> Option<WaitingNotice> {
        let mut state = self.lock();
        let further = u8::try_from(state.waiting.len().saturating_sub(1)).unwrap_or(u8::MAX);
        let oldest = if takes { state.waiting.pop_front() } else { state.waiting.front().copied() };
        oldest.map(|oldest| WaitingNotice { further, ..oldest })
    }

    /// True if no event waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// Reports events to this admin queue.
    pub(super) fn report_to(&self, admin: Handle<QueueControl>) {
        self.lock().admin = Some(admin);
    }

    /// Reports the events of a namespace's volume that affect the host `registrant`.
    pub(super) fn observe(
        self: &Arc<Self>,
        registrant: &str,
        namespace: u32,
        volume: [u8; 16],
        reservations: &VolumeReservations,
    ) {
        let mut state = self.lock();
        if state.observers.get(&namespace).is_some_and(|observer| observer.volume == volume) {
            return;
        }
        let (notices, registrant) = (Arc::downgrade(self), registrant.to_owned());
        let observer = Arc::new(NamespaceObserver { notices, registrant, namespace, volume });
        state.observers.insert(namespace, observer.clone());
        drop(state);
        let observer: Arc<dyn ReservationObserver> = observer;
        reservations.observe(&observer);
    }
}

impl ReservationObserver for NamespaceObserver {
    fn registrant(&self) -> &str {
        &self.registrant
    }

    fn notice(&self, notice: ReservationNotice) {
        let Some(notices) = self.notices.upgrade() else { return };
        if notices.add(self.namespace, notice)
            && let Some(admin) = &notices.lock().admin
        {
            raise(admin, NvmeEvent::Reservation);
        }
    }
}
