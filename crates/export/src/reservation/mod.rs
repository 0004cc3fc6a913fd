//! Persistent reservations of volumes, as SCSI (SPC-4) and NVMe define them.
//!
//! Owns the registrants and the holder of each volume. The two protocols share one table for each
//! volume, so that a reservation of one excludes the hosts of the other.
//!
//! Always true: a change that its host asked to persist is stored before the host gets an answer.
//! Must not know messages of protocols.

mod registry;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use registry::{ReservationNotice, ReservationObserver, VolumeReservations};
pub use registry::{ReservationRegistry, ReservationStore, StoredReservations};
pub(crate) use table::{AccessKind, ReservationChange, ReservationFailure, ReservationType};
