//! The registrants and the holder of one volume: pure rules over small state.
//!
//! Always true: a holder is a registrant; a volume without registrants has no reservation.

/// The most registrants of a volume.
const REGISTRANTS: usize = 1024;

/// The type of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservationType {
    /// The holder writes; all hosts read.
    WriteExclusive,
    /// The holder reads and writes.
    ExclusiveAccess,
    /// Registrants write; all hosts read.
    WriteExclusiveRegistrants,
    /// Registrants read and write.
    ExclusiveAccessRegistrants,
    /// As `WriteExclusiveRegistrants`, and every registrant is a holder.
    WriteExclusiveAll,
    /// As `ExclusiveAccessRegistrants`, and every registrant is a holder.
    ExclusiveAccessAll,
}

impl ReservationType {
    /// The type of this number, counted from 1 as NVMe does.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::WriteExclusive,
            2 => Self::ExclusiveAccess,
            3 => Self::WriteExclusiveRegistrants,
            4 => Self::ExclusiveAccessRegistrants,
            5 => Self::WriteExclusiveAll,
            6 => Self::ExclusiveAccessAll,
            _ => return None,
        })
    }

    /// The number of the type, as [`Self::from_number`].
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::WriteExclusive => 1,
            Self::ExclusiveAccess => 2,
            Self::WriteExclusiveRegistrants => 3,
            Self::ExclusiveAccessRegistrants => 4,
            Self::WriteExclusiveAll => 5,
            Self::ExclusiveAccessAll => 6,
        }
    }

    /// True if every registrant is a holder.
    pub(crate) fn is_held_by_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    fn admits_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    fn admits_readers(self) -> bool {
        matches!(self, Self::WriteExclusive | Self::WriteExclusiveRegistrants | Self::WriteExclusiveAll)
    }
}

/// The effect of a command on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Read,
    Write,
}

/// A host that has registered a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registrant {
    /// The name of the host or nexus, with its protocol.
    pub(crate) name: String,
    pub(crate) key: u64,
}

/// A reservation that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldReservation {
    pub(crate) kind: ReservationType,
    /// The holder; the host that made the reservation, if all registrants hold it.
    pub(crate) holder: String,
}

/// A change that a host asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservationChange {
    /// Registers `new`, replaces the key, or unregisters if `new` is 0. `current`: the key that the
    /// host must have, 0 for none; `None` to accept any.
    Register {
        current: Option<u64>,
        new: u64,
        persist: Option<bool>,
    },
    Reserve {
        key: u64,
        kind: ReservationType,
    },
    Release {
        key: u64,
        kind: ReservationType,
    },
    Clear {
        key: u64,
    },
    /// Removes the registrants with the key `victim`, and takes their reservation over.
    Preempt {
        key: u64,
        victim: u64,
        kind: ReservationType,
    },
}

/// The reason why a change is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservationFailure {
    /// The host has not registered this key, or another host holds a reservation.
    Conflict,
    /// A key is invalid.
    InvalidKey,
    /// The type differs from that of the reservation.
    InvalidRelease,
    /// There are too many registrants.
    TooMany,
    /// The change could not be stored.
    NotStored,
}

/// The hosts that a change affects beside the one that made it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AffectedHosts {
    /// Their registration was removed.
    pub(crate) unregistered: Vec<String>,
    /// Their reservation, which they shared, was released.
    pub(crate) released: Vec<String>,
    /// All registrations and reservations were removed.
    pub(crate) cleared: Vec<String>,
}

/// The registrants and the reservation of one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReservationTable {
    /// Counts changes of the registrants.
    pub(crate) generation: u32,
    /// The table survives a restart.
    pub(crate) persistent: bool,
    pub(crate) registrants: Vec<Registrant>,
    pub(crate) held: Option<HeldReservation>,
}

impl ReservationTable {
    /// The key of a host.
    pub(crate) fn key_of(&self, name: &str) -> Option<u64> {
        self.registrants.iter().find(|registrant| registrant.name == name).map(|registrant| registrant.key)
    }

    /// True if a host holds the reservation.
    pub(crate) fn is_holder(&self, name: &str) -> bool {
        self.held.as_ref().is_some_and(|held| match held.kind.is_held_by_all() {
            true => self.key_of(name).is_some(),
            false => held.holder == name,
        })
    }

    /// True if a host may access the volume.
    pub(crate) fn admits(&self, name: &str, access: AccessKind) -> bool {
        let Some(held) = &self.held else { return true };
        let is_admitted = held.kind.admits_registrants() && self.key_of(name).is_some();
        is_admitted || self.is_holder(name) || access == AccessKind::Read && held.kind.admits_readers()
    }

    /// Changes the table for a host. The table is undefined after a failure.
    ///
    /// # Errors
    /// See [`ReservationFailure`].
    pub(crate) fn change(
        &mut self,
        host: &str,
        change: ReservationChange,
    ) -> Result<AffectedHosts, ReservationFailure> {
        match change {
            ReservationChange::Register { current, new, persist } => {
                self.register(host, current, new, persist)
            }
            ReservationChange::Reserve { key, kind } => {
                self.check_key(host, key)?;
                self.reserve(host, kind)
            }
            ReservationChange::Release { key, kind } => {
                self.check_key(host, key)?;
                self.release(host, kind)
            }
            ReservationChange::Clear { key } => {
                self.check_key(host, key)?;
                Ok(self.clear(host))
            }
            ReservationChange::Preempt { key, victim, kind } => {
                self.check_key(host, key)?;
                self.preempt(host, victim, kind)
            }
        }
    }

    fn check_key(&self, host: &str, key: u64) -> Result<(), ReservationFailure> {
        match self.key_of(host) == Some(key) {
            true => Ok(()),
            false => Err(ReservationFailure::Conflict),
        }
    }

    /// The names of all registrants but `host`.
    fn others(&self, host: &str) -> Vec<String> {
        let names = self.registrants.iter().map(|registrant| &registrant.name);
        names.filter(|name| *name != host).cloned().collect()
    }

    fn register(
        &mut self,
        host: &str,
        current: Option<u64>,
        new: u64,
        persist: Option<bool>,
    ) -> Result<AffectedHosts, ReservationFailure> {
        let registered = self.key_of(host);
        if current.is_some_and(|current| current != registered.unwrap_or(0)) {
            return Err(ReservationFailure::Conflict);
        }
        if new == 0 && registered.is_none() {
            self.persistent = persist.unwrap_or(self.persistent);
            return Ok(AffectedHosts::default());
        }
        if registered.is_none() && self.registrants.len() >= REGISTRANTS {
            return Err(ReservationFailure::TooMany);
        }
        self.generation = self.generation.wrapping_add(1);
        self.persistent = persist.unwrap_or(self.persistent);
        if new == 0 {
            return Ok(self.unregister(host));
        }
        match self.registrants.iter_mut().find(|registrant| registrant.name == host) {
            Some(registrant) => registrant.key = new,
            None => self.registrants.push(Registrant { name: host.to_owned(), key: new }),
        }
        Ok(AffectedHosts::default())
    }

    fn unregister(&mut self, host: &str) -> AffectedHosts {
        let was_holder = self.is_holder(host);
        self.registrants.retain(|registrant| registrant.name != host);
        let mut affected = AffectedHosts::default();
        let Some(held) = self.held.as_mut().filter(|_| was_holder) else { return affected };
        if held.kind.is_held_by_all()
            && let Some(other) = self.registrants.first()
        {
            held.holder.clone_from(&other.name);
            return affected;
        }
        if held.kind.admits_registrants() {
            affected.released = self.others(host);
        }
        self.held = None;
        affected
    }

    fn reserve(&mut self, host: &str, kind: ReservationType) -> Result<AffectedHosts, ReservationFailure> {
        match &self.held {
            Some(held) if held.kind != kind || !self.is_holder(host) => Err(ReservationFailure::Conflict),
            Some(_) => Ok(AffectedHosts::default()),
            None => {
                self.held = Some(HeldReservation { kind, holder: host.to_owned() });
                Ok(AffectedHosts::default())
            }
        }
    }

    fn release(&mut self, host: &str, kind: ReservationType) -> Result<AffectedHosts, ReservationFailure> {
        let mut affected = AffectedHosts::default();
        if !self.is_holder(host) {
            return Ok(affected);
        }
        if self.held.as_ref().is_some_and(|held| held.kind != kind) {
            return Err(ReservationFailure::InvalidRelease);
        }
        self.held = None;
        if kind.admits_registrants() {
            affected.released = self.others(host);
        }
        Ok(affected)
    }

    fn clear(&mut self, host: &str) -> AffectedHosts {
        let affected = AffectedHosts { cleared: self.others(host), ..AffectedHosts::default() };
        self.generation = self.generation.wrapping_add(1);
        self.registrants.clear();
        self.held = None;
        affected
    }

    fn preempt(
        &mut self,
        host: &str,
        victim: u64,
        kind: ReservationType,
    ) -> Result<AffectedHosts, ReservationFailure> {
        let held = self.held.clone();
        let is_of_all = held.as_ref().is_some_and(|held| held.kind.is_held_by_all());
        if victim == 0 && !is_of_all {
            return Err(ReservationFailure::InvalidKey);
        }
        let holder_key = held.as_ref().and_then(|held| self.key_of(&held.holder));
        let takes_over = if is_of_all { victim == 0 } else { holder_key == Some(victim) };
        let is_removed =
            |registrant: &Registrant| registrant.name != host && (registrant.key == victim || victim == 0);
        let removed = self.registrants.iter().filter(|registrant| is_removed(registrant));
        let removed: Vec<String> = removed.map(|registrant| registrant.name.clone()).collect();
        let is_known = self.registrants.iter().any(|registrant| registrant.key == victim);
        if victim != 0 && !is_known {
            return Err(ReservationFailure::Conflict);
        }
        self.generation = self.generation.wrapping_add(1);
        self.registrants.retain(|registrant| !is_removed(registrant));
        let mut affected = AffectedHosts { unregistered: removed, ..AffectedHosts::default() };
        if takes_over {
            if held.is_some_and(|held| held.kind != kind) {
                affected.released = self.others(host);
            }
            self.held = Some(HeldReservation { kind, holder: host.to_owned() });
        } else if let Some(held) = &mut self.held
            && is_of_all
            && affected.unregistered.contains(&held.holder)
        {
            host.clone_into(&mut held.holder);
        }
        Ok(affected)
    }
}
