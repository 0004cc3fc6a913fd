//! The parts of the target that all connections of one reactor share.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::limits::{IscsiLimits, UNSOLICITED_SESSIONS};
use super::target::IscsiTargets;
use crate::leases::Leases;
use crate::reservation::ReservationRegistry;
use crate::reserve::Reserve;
use crate::transport::Admission;
use crate::{Stop, VolumeSource};

/// The state that all connections of one reactor share.
pub(super) struct IscsiShared<S: VolumeSource> {
    pub(super) targets: Arc<IscsiTargets<S>>,
    pub(super) reservations: Arc<ReservationRegistry>,
    pub(super) limits: IscsiLimits,
    /// Memory of reads and of data that arrives with commands.
    pub(super) reserve: Reserve,
    /// Memory of requested data. Apart from the other one: a connection that waits for the other
    /// one receives nothing, and its writes hold their memory until their data was received.
    pub(super) window: Reserve,
    pub(super) admission: Rc<Admission>,
    pub(super) leases: Leases<S::Volume>,
    pub(super) stop: Stop,
    /// Sessions that may send data beyond that of the command without a request.
    unsolicited: Rc<Cell<usize>>,
}

impl<S: VolumeSource> IscsiShared<S> {
    pub(super) fn new(
        targets: Arc<IscsiTargets<S>>,
        reservations: Arc<ReservationRegistry>,
        limits: IscsiLimits,
    ) -> Self {
        Self {
            targets,
            reservations,
            reserve: Reserve::new(limits.shared_bytes),
            window: Reserve::new(limits.shared_bytes),
            admission: Admission::new(limits.connections),
            leases: Leases::default(),
            stop: Stop::default(),
            unsolicited: Rc::default(),
            limits,
        }
    }

    /// Permits one more session to send data without a request.
    pub(super) fn permit_unsolicited(&self) -> Option<UnsolicitedPermit> {
        let used = self.unsolicited.get();
        (used < UNSOLICITED_SESSIONS).then(|| {
            self.unsolicited.set(used + 1);
            UnsolicitedPermit(self.unsolicited.clone())
        })
    }
}

/// The permission of a session to send data without a request.
#[derive(Debug)]
pub(super) struct UnsolicitedPermit(Rc<Cell<usize>>);

impl Drop for UnsolicitedPermit {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
