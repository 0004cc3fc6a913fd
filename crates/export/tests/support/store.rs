//! A store of reservations in memory, which survives a restart of a frontend.

use std::collections::BTreeMap;
use std::sync::Mutex;

use export::{ReservationStore, StoredReservations};

/// A store in memory.
#[derive(Default)]
pub(crate) struct Store {
    stored: Mutex<BTreeMap<[u8; 16], StoredReservations>>,
    fails: Mutex<bool>,
}

impl ReservationStore for Store {
    fn load(&self, volume: [u8; 16]) -> Option<StoredReservations> {
        self.stored.lock().unwrap().get(&volume).cloned()
    }

    fn store(&self, volume: [u8; 16], reservations: Option<&StoredReservations>) -> Result<(), String> {
        if *self.fails.lock().unwrap() {
            return Err("the store is full".into());
        }
        let mut stored = self.stored.lock().unwrap();
        match reservations {
            Some(reservations) => stored.insert(volume, reservations.clone()),
            None => stored.remove(&volume),
        };
        Ok(())
    }
}

impl Store {
    /// Lets changes fail from now on, or succeed again.
    pub(crate) fn fail(&self, fails: bool) {
        *self.fails.lock().unwrap() = fails;
    }
}
