//! Persistent reservations of volumes in the daemon's state.

use std::sync::Arc;

use export::{ReservationStore, StoredReservations};

use crate::state::{ReservationRecord, State};

/// The reservations in the state file of the daemon.
pub(super) struct StoredInState(pub(super) Arc<State>);

/// The key of a volume in the state file.
fn key_of(volume: [u8; 16]) -> String {
    volume.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl ReservationStore for StoredInState {
    fn load(&self, volume: [u8; 16]) -> Option<StoredReservations> {
        let record = self.0.get().reservations.remove(&key_of(volume))?;
        let ReservationRecord { generation, registrants, held } = record;
        Some(StoredReservations { generation, registrants, held })
    }

    fn store(&self, volume: [u8; 16], reservations: Option<&StoredReservations>) -> Result<(), String> {
        let record = reservations.cloned().map(|stored| {
            let StoredReservations { generation, registrants, held } = stored;
            ReservationRecord { generation, registrants, held }
        });
        let change = |state: &mut crate::state::PersistentState| match record {
            Some(record) => drop(state.reservations.insert(key_of(volume), record)),
            None => drop(state.reservations.remove(&key_of(volume))),
        };
        self.0.update(change).map_err(|error| error.to_string())
    }
}
