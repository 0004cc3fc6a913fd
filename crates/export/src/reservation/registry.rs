//! The reservations of all volumes of a daemon, and their storage.
//!
//! Changes are made by one thread, because storing one blocks. Checks of commands read the table
//! directly; without a reservation they are one load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};

use futures_channel::oneshot;

use super::table::{
    AccessKind, AffectedHosts, HeldReservation, Registrant, ReservationChange, ReservationFailure,
    ReservationTable, ReservationType,
};

/// The storage of reservations, which survives a restart of the daemon.
pub trait ReservationStore: Send + Sync {
    /// Returns what was last stored for a volume.
    fn load(&self, volume: [u8; 16]) -> Option<StoredReservations>;

    /// Stores the reservations of a volume durably; `None` removes them. May block.
    ///
    /// # Errors
    /// A message for the log. The previous state is in force then.
    fn store(&self, volume: [u8; 16], reservations: Option<&StoredReservations>) -> Result<(), String>;
}

/// The reservations of a volume as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredReservations {
    /// Counts changes of the registrants.
    pub generation: u32,
    /// The registrants: name, and key.
    pub registrants: Vec<(String, u64)>,
    /// The reservation: type, numbered from 1 as NVMe does, and holder.
    pub held: Option<(u8, String)>,
}

/// The reservations of all volumes.
pub struct ReservationRegistry {
    store: Option<Arc<dyn ReservationStore>>,
    volumes: Mutex<BTreeMap<[u8; 16], Arc<VolumeReservations>>>,
    jobs: mpsc::Sender<ChangeJob>,
}

/// A change that the thread makes.
struct ChangeJob {
    volume: Arc<VolumeReservations>,
    host: String,
    change: ReservationChange,
    reply: oneshot::Sender<Result<AffectedHosts, ReservationFailure>>,
}

/// An event of a reservation that is reported to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReservationNotice {
    /// The host's registration was removed by another host.
    RegistrationPreempted,
    /// A reservation that the host shared was released.
    ReservationReleased,
    /// All registrations and reservations were removed.
    ReservationPreempted,
}

/// A host that is notified of events.
pub(crate) trait ReservationObserver: Send + Sync {
    /// The name as a registrant.
    fn registrant(&self) -> &str;

    /// Notes an event.
    fn notice(&self, notice: ReservationNotice);
}

/// The reservations of one volume. Used from several threads.
pub(crate) struct VolumeReservations {
    volume: [u8; 16],
    store: Option<Arc<dyn ReservationStore>>,
    /// A reservation is held.
    is_held: AtomicBool,
    table: Mutex<ReservationTable>,
    observers: Mutex<Vec<Weak<dyn ReservationObserver>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReservationRegistry {
    /// A registry with this storage; without storage, reservations end with the process.
    pub fn new(store: Option<Arc<dyn ReservationStore>>) -> Arc<Self> {
        let (jobs, receiver) = mpsc::channel::<ChangeJob>();
        let serve = move || {
            for ChangeJob { volume, host, change, reply } in receiver {
                // The host may be gone.
                let _ = reply.send(volume.change(&host, change));
            }
        };
        let started = std::thread::Builder::new().name("reservations".into()).spawn(serve);
        if let Err(error) = started {
            tracing::error!(%error, "cannot start the thread of reservations; changes will fail");
        }
        Arc::new(Self { store, volumes: Mutex::default(), jobs })
    }

    /// The reservations of a volume.
    pub(crate) fn of_volume(&self, volume: [u8; 16]) -> Arc<VolumeReservations> {
        let mut volumes = lock(&self.volumes);
        let create = || Arc::new(VolumeReservations::load(volume, self.store.clone()));
        volumes.entry(volume).or_insert_with(create).clone()
    }

    /// Makes a change for a host. Returns the other hosts that it affects.
    ///
    /// # Errors
    /// See [`ReservationFailure`].
    pub(crate) async fn change(
        &self,
        volume: &Arc<VolumeReservations>,
        host: &str,
        change: ReservationChange,
    ) -> Result<AffectedHosts, ReservationFailure> {
        let (reply, result) = oneshot::channel();
        let job = ChangeJob { volume: volume.clone(), host: host.to_owned(), change, reply };
        self.jobs.send(job).map_err(|_| ReservationFailure::NotStored)?;
        result.await.unwrap_or(Err(ReservationFailure::NotStored))
    }
}

impl VolumeReservations {
    fn load(volume: [u8; 16], store: Option<Arc<dyn ReservationStore>>) -> Self {
        let table = store.as_ref().and_then(|store| store.load(volume)).map(from_stored).unwrap_or_default();
        let is_held = AtomicBool::new(table.held.is_some());
        Self { volume, store, is_held, table: Mutex::new(table), observers: Mutex::default() }
    }

    /// True if a host may access the volume.
    pub(crate) fn admits(&self, host: &str, access: AccessKind) -> bool {
        !self.is_held.load(Ordering::Acquire) || lock(&self.table).admits(host, access)
    }

    /// A copy of the table.
    pub(crate) fn table(&self) -> ReservationTable {
        lock(&self.table).clone()
    }

    /// Notifies a host of events from now on, until it is dropped.
    pub(crate) fn observe(&self, observer: &Arc<dyn ReservationObserver>) {
        let mut observers = lock(&self.observers);
        observers.retain(|other| other.strong_count() > 0);
        observers.push(Arc::downgrade(observer));
    }

    /// Makes a change. Blocks; called by one thread at a time.
    fn change(&self, host: &str, change: ReservationChange) -> Result<AffectedHosts, ReservationFailure> {
        let before = self.table();
        let mut after = before.clone();
        let affected = after.change(host, change)?;
        if before.persistent || after.persistent {
            self.persist(&after)?;
        }
        self.is_held.store(after.held.is_some(), Ordering::Release);
        *lock(&self.table) = after;
        self.notify(&affected);
        Ok(affected)
    }

    fn persist(&self, table: &ReservationTable) -> Result<(), ReservationFailure> {
        let Some(store) = &self.store else { return Ok(()) };
        let keeps = table.persistent && !table.registrants.is_empty();
        let stored = keeps.then(|| to_stored(table));
        store.store(self.volume, stored.as_ref()).map_err(|error| {
            tracing::error!(error, "cannot store a reservation");
            ReservationFailure::NotStored
        })
    }

    fn notify(&self, affected: &AffectedHosts) {
        let observers: Vec<_> = lock(&self.observers).iter().filter_map(Weak::upgrade).collect();
        for (names, notice) in [
            (&affected.unregistered, ReservationNotice::RegistrationPreempted),
            (&affected.released, ReservationNotice::ReservationReleased),
            (&affected.cleared, ReservationNotice::ReservationPreempted),
        ] {
            let is_named = |observer: &&Arc<dyn ReservationObserver>| {
                names.iter().any(|name| name == observer.registrant())
            };
            observers.iter().filter(is_named).for_each(|observer| observer.notice(notice));
        }
    }
}

fn to_stored(table: &ReservationTable) -> StoredReservations {
    let registrants = table.registrants.iter().map(|registrant| (registrant.name.clone(), registrant.key));
    StoredReservations {
        generation: table.generation,
        registrants: registrants.collect(),
        held: table.held.as_ref().map(|held| (held.kind.number(), held.holder.clone())),
    }
}

fn from_stored(stored: StoredReservations) -> ReservationTable {
    let StoredReservations { generation, registrants, held } = stored;
    let registrants = registrants.into_iter().map(|(name, key)| Registrant { name, key }).collect();
    let held = held.and_then(|(kind, holder)| {
        ReservationType::from_number(kind).map(|kind| HeldReservation { kind, holder })
    });
    ReservationTable { generation, persistent: true, registrants, held }
}
