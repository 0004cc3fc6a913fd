//! A controller: the association of a host with a subsystem, over an admin queue and I/O queues.
//!
//! Always true: a queue id is used by one connection; when the controller has ended, all its queues
//! are being closed and none can be added.
//!
//! The queues of a controller run on several reactors. Must not know messages or volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reactor::Handle;

use super::host_secrets::HostSecrets;
use super::limits::{QUEUE_ENTRIES, QUEUES};
use super::queue_control::{NvmeEvent, QueueControl, raise};
use super::registrant::registrant_name;
use super::reservation_notices::ReservationNotices;

/// The version of the specification: 1.4.
pub(super) const VERSION: u32 = 0x0001_0400;

/// Properties (registers) of a controller.
mod property {
    pub(super) const CAPABILITIES: u32 = 0x00;
    pub(super) const VERSION: u32 = 0x08;
    pub(super) const CONFIGURATION: u32 = 0x14;
    pub(super) const STATUS: u32 = 0x1c;
}

/// The bit of the configuration that enables the controller.
const ENABLE: u32 = 1;
/// The bits of the configuration that shut the controller down.
const SHUTDOWN: u32 = 3 << 14;

/// The identity of a host, as it sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NvmeHost {
    pub(super) name: String,
    pub(super) id: [u8; 16],
}

/// A controller. Used from several threads.
pub(super) struct Controller {
    pub(super) id: u16,
    pub(super) host: NvmeHost,
    /// The name of the host as a registrant.
    pub(super) registrant: String,
    pub(super) notices: Arc<ReservationNotices>,
    /// The secrets that the host needs.
    pub(super) secrets: HostSecrets,
    configuration: AtomicU32,
    /// Keep alive time in ms; 0 for none.
    keep_alive: AtomicU32,
    /// A command arrived since the last check of the keep alive timer.
    active: AtomicBool,
    events: AtomicU32,
    queue_count: AtomicU16,
    queues: Mutex<ConnectedQueues>,
    changed: Mutex<BTreeSet<u32>>,
    /// The generation of the target that the host has seen in its discovery log; 0 for none.
    discovered: AtomicU64,
}

#[derive(Default)]
struct ConnectedQueues {
    ended: bool,
    all: BTreeMap<u16, Handle<QueueControl>>,
}

/// A queue cannot be added to its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueRefusal {
    /// The id is in use or too large.
    Id,
    /// The controller is not enabled, or has ended.
    NotReady,
}

/// The result of setting a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PropertyChange {
    Accepted,
    /// The controller was disabled: its I/O queues are closed.
    Reset,
    Refused,
}

impl Controller {
    pub(super) fn new(id: u16, host: NvmeHost, keep_alive: u32, secrets: HostSecrets) -> Self {
        Self {
            id,
            registrant: registrant_name(host.id),
            host,
            notices: Arc::default(),
            secrets,
            configuration: AtomicU32::new(0),
            keep_alive: AtomicU32::new(keep_alive),
            active: AtomicBool::new(true),
            events: AtomicU32::new(0),
            queue_count: AtomicU16::new(QUEUES),
            queues: Mutex::default(),
            changed: Mutex::default(),
            discovered: AtomicU64::new(0),
        }
    }

    fn queues(&self) -> MutexGuard<'_, ConnectedQueues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_enabled(&self) -> bool {
        self.configuration.load(Ordering::Acquire) & ENABLE != 0
    }

    /// Adds a queue.
    pub(super) fn add_queue(&self, id: u16, control: Handle<QueueControl>) -> Result<(), QueueRefusal> {
        let mut queues = self.queues();
        if queues.ended || id > 0 && !self.is_enabled() {
            return Err(QueueRefusal::NotReady);
        }
        if id > self.queue_count.load(Ordering::Relaxed) || queues.all.contains_key(&id) {
            return Err(QueueRefusal::Id);
        }
        if id == 0 {
            self.notices.report_to(control.clone());
        }
        queues.all.insert(id, control);
        Ok(())
    }

    /// Removes a queue whose connection has ended.
    pub(super) fn remove_queue(&self, id: u16) {
        self.queues().all.remove(&id);
    }

    /// True if the queue is connected, and the controller has not ended.
    pub(super) fn has_queue(&self, control: &Handle<QueueControl>) -> bool {
        let queues = self.queues();
        !queues.ended && queues.all.values().any(|queue| queue.is_same(control))
    }

    /// The queue of this id.
    pub(super) fn queue(&self, id: u16) -> Option<Handle<QueueControl>> {
        self.queues().all.get(&id).cloned()
    }

    /// The queues that are connected.
    pub(super) fn queue_handles(&self) -> Vec<Handle<QueueControl>> {
        self.queues().all.values().cloned().collect()
    }

    /// Closes the connections of all queues from `first` on.
    fn close_queues(&self, first: u16, reason: &'static str) {
        let handles: Vec<_> = self.queues().all.range(first..).map(|(_, handle)| handle.clone()).collect();
        for handle in handles {
            let control = handle.clone();
            let end = move || {
                if let Some(control) = control.local() {
                    control.end(reason);
                }
            };
            // A reactor that has shut down has closed its connections.
            let _ = handle.remote().post(end);
        }
    }

    /// Ends the controller: closes all its queues.
    pub(super) fn end(&self, reason: &'static str) {
        self.queues().ended = true;
        self.close_queues(0, reason);
    }

    /// Notes that a command arrived.
    pub(super) fn note_activity(&self) {
        if !self.active.load(Ordering::Relaxed) {
            self.active.store(true, Ordering::Relaxed);
        }
    }

    /// True if a command arrived since the last call.
    pub(super) fn take_activity(&self) -> bool {
        self.active.swap(false, Ordering::Relaxed)
    }

    /// Keep alive time in ms; 0 for none.
    pub(super) fn keep_alive(&self) -> u32 {
        self.keep_alive.load(Ordering::Relaxed)
    }

    pub(super) fn set_keep_alive(&self, time: u32) {
        self.keep_alive.store(time, Ordering::Relaxed);
    }

    /// Limits the number of I/O queues. Returns the accepted number.
    pub(super) fn set_queue_count(&self, count: u16) -> u16 {
        let count = count.clamp(1, QUEUES);
        self.queue_count.store(count, Ordering::Relaxed);
        count
    }

    pub(super) fn queue_count(&self) -> u16 {
        self.queue_count.load(Ordering::Relaxed)
    }

    /// The events that the host has enabled.
    pub(super) fn enabled_events(&self) -> u32 {
        self.events.load(Ordering::Relaxed)
    }

    pub(super) fn enable_events(&self, mask: u32) {
        self.events.store(mask, Ordering::Relaxed);
    }

    /// Reports an event to the host, if it has enabled it.
    pub(super) fn raise(&self, event: NvmeEvent) {
        if event.mask().is_some_and(|mask| self.enabled_events() & mask == 0) {
            return;
        }
        if let Some(admin) = self.queue(0) {
            raise(&admin, event);
        }
    }

    /// Notes that a namespace was added, removed or resized, and reports it.
    pub(super) fn namespace_changed(&self, namespace: u32) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace);
        self.raise(NvmeEvent::Namespace);
    }

    /// The namespaces that changed since the last call.
    pub(super) fn take_changed(&self) -> BTreeSet<u32> {
        std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The namespaces that changed since the last call of [`Controller::take_changed`].
    pub(super) fn changed(&self) -> BTreeSet<u32> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The generation of the target that the host has seen in its discovery log; 0 for none.
    pub(super) fn discovered_generation(&self) -> u64 {
        self.discovered.load(Ordering::Relaxed)
    }

    pub(super) fn set_discovered_generation(&self, generation: u64) {
        self.discovered.store(generation, Ordering::Relaxed);
    }

    /// The value of a property and whether it has 64 bits. `None` if there is no such property.
    pub(super) fn property(&self, offset: u32) -> Option<(u64, bool)> {
        match offset {
            property::CAPABILITIES => {
                let entries = u64::from(QUEUE_ENTRIES - 1);
                // Contiguous queues, 15 s until ready, the NVM command set.
                Some((entries | 1 << 16 | 30 << 24 | 1 << 37, true))
            }
            property::VERSION => Some((VERSION.into(), false)),
            property::CONFIGURATION => Some((self.configuration.load(Ordering::Acquire).into(), false)),
            property::STATUS => Some((self.status().into(), false)),
            _ => None,
        }
    }

    fn status(&self) -> u32 {
        let configuration = self.configuration.load(Ordering::Acquire);
        let ready = configuration & ENABLE;
        let shut_down = if configuration & SHUTDOWN != 0 { 2 << 2 } else { 0 };
        ready | shut_down
    }

    /// Sets a property.
    pub(super) fn set_property(&self, offset: u32, value: u64) -> PropertyChange {
        if offset != property::CONFIGURATION {
            return PropertyChange::Refused;
        }
        let value = (value & u64::from(u32::MAX)) as u32;
        /// The command set, the memory page size and the arbitration; only zeros are supported.
        const UNSUPPORTED: u32 = 7 << 4 | 15 << 7 | 7 << 11;
        if value & ENABLE != 0 && value & UNSUPPORTED != 0 {
            return PropertyChange::Refused;
        }
        let before = self.configuration.swap(value, Ordering::AcqRel);
        if before & ENABLE != 0 && value & ENABLE == 0 {
            self.close_queues(1, "the host reset the controller");
            return PropertyChange::Reset;
        }
        PropertyChange::Accepted
    }
}
