//! The targets, their logical units and sessions.
//!
//! Always true: a target has at least one unit; a unit is visible to the initiators that its export
//! allows; an initiator port has one session with a target. Used from several threads. Must not
//! know messages.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::chap::ChapAccount;
use super::limits::SESSIONS;
use super::nexus::{Nexus, UnitAttentions};
use super::scsi::Sense;
use crate::reservation::VolumeReservations;

/// An exported volume.
pub(super) struct IscsiUnit<S> {
    pub(super) number: u16,
    pub(super) source: Arc<S>,
    pub(super) read_only: bool,
    /// The identity of the volume, which is the same after a restart or another export.
    pub(super) identity: [u8; 16],
    /// The initiators that may use it; all if empty.
    pub(super) hosts: Vec<String>,
    /// The credentials that initiators need.
    pub(super) account: Option<ChapAccount>,
    /// The addresses at which it is served.
    pub(super) listen: Vec<SocketAddr>,
    /// Counts the sessions that have the volume open, and identifies their leases.
    pub(super) leases: Arc<AtomicU64>,
    pub(super) reservations: Arc<VolumeReservations>,
    /// The initiator port that has reserved the unit by the RESERVE command.
    reserved: Mutex<Option<String>>,
    observers: Mutex<Vec<Weak<UnitAttentions>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The fixed properties of a unit.
pub(super) struct UnitOptions<S> {
    pub(super) number: u16,
    pub(super) source: Arc<S>,
    pub(super) read_only: bool,
    pub(super) identity: [u8; 16],
    pub(super) hosts: Vec<String>,
    pub(super) account: Option<ChapAccount>,
    pub(super) listen: Vec<SocketAddr>,
    pub(super) leases: Arc<AtomicU64>,
    pub(super) reservations: Arc<VolumeReservations>,
}

impl<S> IscsiUnit<S> {
    pub(super) fn new(options: UnitOptions<S>) -> Self {
        let UnitOptions { number, source, read_only, identity, hosts, account, listen, leases, reservations } =
            options;
        let (reserved, observers) = (Mutex::default(), Mutex::default());
        Self {
            number,
            source,
            read_only,
            identity,
            hosts,
            account,
            listen,
            leases,
            reservations,
            reserved,
            observers,
        }
    }

    fn allows_name(&self, initiator: &str) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|allowed| allowed == initiator)
    }

    fn allows(&self, initiator: &str, account: Option<&ChapAccount>) -> bool {
        self.allows_name(initiator) && (self.account.is_none() || self.account.as_ref() == account)
    }

    /// Reports attentions to a nexus from now on, until it is dropped.
    pub(super) fn observe(&self, attentions: &Arc<UnitAttentions>) {
        let mut observers = lock(&self.observers);
        observers.retain(|other| other.strong_count() > 0);
        observers.push(Arc::downgrade(attentions));
    }

    /// Raises a unit attention for all nexuses but that of `except`.
    pub(super) fn raise(&self, attention: Sense, except: Option<&str>) {
        let observers: Vec<_> = lock(&self.observers).iter().filter_map(Weak::upgrade).collect();
        for observer in observers.iter().filter(|observer| except != Some(observer.port())) {
            observer.raise(attention);
        }
    }

    /// Reserves the unit for a port. Returns false if another one has reserved it.
    pub(super) fn reserve(&self, port: &str) -> bool {
        let mut reserved = lock(&self.reserved);
        let is_free = reserved.as_deref().is_none_or(|holder| holder == port);
        if is_free {
            *reserved = Some(port.to_owned());
        }
        is_free
    }

    /// Ends the reservation of a port; of any port for `None`.
    pub(super) fn unreserve(&self, port: Option<&str>) {
        let mut reserved = lock(&self.reserved);
        if port.is_none() || reserved.as_deref() == port {
            *reserved = None;
        }
    }

    /// True if another port has reserved the unit.
    pub(super) fn is_reserved_by_another(&self, port: &str) -> bool {
        lock(&self.reserved).as_deref().is_some_and(|holder| holder != port)
    }
}

/// A target.
pub(super) struct IscsiTarget<S> {
    pub(super) name: String,
    /// Counts changes of the units.
    generation: AtomicU64,
    state: Mutex<TargetState<S>>,
}

struct TargetState<S> {
    units: BTreeMap<u16, Arc<IscsiUnit<S>>>,
    sessions: Vec<Arc<Nexus>>,
    /// Sessions that have ended, and whose commands may still be in execution.
    ending: Vec<Arc<Nexus>>,
}

impl<S> IscsiTarget<S> {
    fn new(name: String) -> Self {
        let state = TargetState { units: BTreeMap::new(), sessions: Vec::new(), ending: Vec::new() };
        Self { name, generation: AtomicU64::new(1), state: Mutex::new(state) }
    }

    /// Changes whenever a unit is added or removed.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// A unit, if the initiator may use it.
    pub(super) fn unit(&self, number: u16, nexus: &Nexus) -> Option<Arc<IscsiUnit<S>>> {
        let is_allowed = |unit: &&Arc<IscsiUnit<S>>| unit.allows(&nexus.initiator, nexus.account.as_ref());
        lock(&self.state).units.get(&number).filter(is_allowed).cloned()
    }

    /// True if the unit of this number is the one that `leases` identifies.
    pub(super) fn unit_is(&self, number: u16, leases: &Arc<AtomicU64>) -> bool {
        lock(&self.state).units.get(&number).is_some_and(|unit| Arc::ptr_eq(&unit.leases, leases))
    }

    /// The units, in the order of their numbers.
    pub(super) fn all_units(&self) -> Vec<Arc<IscsiUnit<S>>> {
        lock(&self.state).units.values().cloned().collect()
    }

    /// The units that an initiator may use, in the order of their numbers.
    pub(super) fn units(&self, nexus: &Nexus) -> Vec<Arc<IscsiUnit<S>>> {
        let all = self.all_units().into_iter();
        all.filter(|unit| unit.allows(&nexus.initiator, nexus.account.as_ref())).collect()
    }

    /// True if a unit is served at `address`, to any initiator.
    pub(super) fn has_listener(&self, address: SocketAddr) -> bool {
        self.all_units().iter().any(|unit| unit.listen.contains(&address))
    }

    /// The units that an initiator of this name may use at `address`, if it is authenticated.
    pub(super) fn units_of_name(&self, initiator: &str, address: SocketAddr) -> Vec<Arc<IscsiUnit<S>>> {
        let all = self.all_units().into_iter();
        all.filter(|unit| unit.allows_name(initiator) && unit.listen.contains(&address)).collect()
    }

    /// The addresses at which an initiator finds the target.
    pub(super) fn addresses(&self, initiator: &str) -> Vec<SocketAddr> {
        let units = self.all_units();
        let visible = units.iter().filter(|unit| unit.allows_name(initiator));
        let mut all: Vec<_> = visible.flat_map(|unit| unit.listen.clone()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Adds a session. Ends an earlier one of the same initiator port. Returns the earlier sessions
    /// of this port whose commands may be in execution; `None` if there are too many sessions, or
    /// the last unit was removed.
    pub(super) fn add_session(&self, nexus: &Arc<Nexus>) -> Option<Vec<Arc<Nexus>>> {
        let mut state = lock(&self.state);
        if state.units.is_empty() {
            return None;
        }
        let same = state.sessions.iter().position(|other| other.port == nexus.port);
        if let Some(same) = same {
            let replaced = state.sessions.swap_remove(same);
            replaced.end("the initiator has opened the session again");
            state.ending.push(replaced);
        }
        if state.sessions.len() >= SESSIONS {
            return None;
        }
        state.sessions.push(nexus.clone());
        Some(state.ending.iter().filter(|other| other.port == nexus.port).cloned().collect())
    }

    /// Ends a session, and its reservations by the RESERVE command. Commands may still be in
    /// execution, until [`Self::forget_session`].
    pub(super) fn end_session(&self, nexus: &Arc<Nexus>) {
        let mut state = lock(&self.state);
        let current = state.sessions.iter().position(|other| Arc::ptr_eq(other, nexus));
        let Some(current) = current else { return };
        let ended = state.sessions.swap_remove(current);
        state.ending.push(ended);
        drop(state);
        self.all_units().iter().for_each(|unit| unit.unreserve(Some(&nexus.port)));
    }

    /// Removes a session that has ended, and has no command in execution.
    pub(super) fn forget_session(&self, nexus: &Arc<Nexus>) {
        lock(&self.state).ending.retain(|other| !Arc::ptr_eq(other, nexus));
    }

    /// The sessions.
    pub(super) fn sessions(&self) -> Vec<Arc<Nexus>> {
        lock(&self.state).sessions.clone()
    }

    /// The sessions, and those that have ended and may have commands in execution.
    pub(super) fn sessions_with_tasks(&self) -> Vec<Arc<Nexus>> {
        let state = lock(&self.state);
        state.sessions.iter().chain(&state.ending).cloned().collect()
    }
}

/// The targets by name.
pub(super) struct IscsiTargets<S> {
    targets: Mutex<BTreeMap<String, Arc<IscsiTarget<S>>>>,
    next_handle: AtomicU16,
}

impl<S> Default for IscsiTargets<S> {
    fn default() -> Self {
        Self { targets: Mutex::default(), next_handle: AtomicU16::new(1) }
    }
}

impl<S> IscsiTargets<S> {
    /// The target of this name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<IscsiTarget<S>>> {
        lock(&self.targets).get(name).cloned()
    }

    /// The targets in the order of their names.
    pub(super) fn all(&self) -> Vec<Arc<IscsiTarget<S>>> {
        lock(&self.targets).values().cloned().collect()
    }

    /// The target's part of the identifier of a new session: not 0.
    pub(super) fn new_handle(&self) -> u16 {
        self.next_handle.fetch_add(1, Ordering::Relaxed).max(1)
    }

    /// True if a target of this name has this unit.
    pub(super) fn has(&self, name: &str, unit: u16) -> bool {
        self.find(name).is_some_and(|target| lock(&target.state).units.contains_key(&unit))
    }

    /// Adds a unit to a target, which is created if necessary. `None` if the number is taken.
    pub(super) fn add(&self, name: &str, unit: IscsiUnit<S>) -> Option<Arc<IscsiTarget<S>>> {
        let mut all = lock(&self.targets);
        let target =
            all.entry(name.to_owned()).or_insert_with(|| Arc::new(IscsiTarget::new(name.to_owned())));
        let mut state = lock(&target.state);
        if state.units.contains_key(&unit.number) {
            return None;
        }
        state.units.insert(unit.number, Arc::new(unit));
        drop(state);
        let target = target.clone();
        drop(all);
        changed(&target);
        Some(target)
    }

    /// Removes a unit. Ends the sessions of a target that has no other one.
    pub(super) fn remove(&self, name: &str, unit: u16) {
        let mut all = lock(&self.targets);
        let Some(target) = all.get(name).cloned() else { return };
        let mut state = lock(&target.state);
        state.units.remove(&unit);
        let is_empty = state.units.is_empty();
        drop(state);
        if is_empty {
            all.remove(name);
        }
        drop(all);
        changed(&target);
        if is_empty {
            target.sessions().iter().for_each(|nexus| nexus.end("the export was removed"));
        }
    }
}

fn changed<S>(target: &IscsiTarget<S>) {
    target.generation.fetch_add(1, Ordering::AcqRel);
    for unit in target.all_units() {
        unit.raise(Sense::UNITS_CHANGED, None);
    }
}
