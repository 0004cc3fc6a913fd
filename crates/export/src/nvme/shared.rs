//! The parts of the target that all connections of one reactor share.

use std::rc::Rc;
use std::sync::Arc;

use super::limits::NvmeLimits;
use super::target::NvmeTarget;
use crate::leases::Leases;
use crate::reservation::ReservationRegistry;
use crate::reserve::Reserve;
use crate::transport::Admission;
use crate::{Stop, VolumeSource};

/// The state that all connections of one reactor share.
pub(super) struct ServerShared<S: VolumeSource> {
    pub(super) target: Arc<NvmeTarget<S>>,
    pub(super) reservations: Arc<ReservationRegistry>,
    pub(super) limits: NvmeLimits,
    /// Memory of reads and short writes.
    pub(super) reserve: Reserve,
    /// Memory of long writes. Apart from the other one: a connection that waits for the other one
    /// receives nothing, and its long writes hold their memory until their data was received.
    pub(super) window: Reserve,
    pub(super) admission: Rc<Admission>,
    pub(super) leases: Leases<S::Volume>,
    pub(super) stop: Stop,
}

impl<S: VolumeSource> ServerShared<S> {
    pub(super) fn new(
        target: Arc<NvmeTarget<S>>,
        reservations: Arc<ReservationRegistry>,
        limits: NvmeLimits,
    ) -> Self {
        Self {
            target,
            reservations,
            reserve: Reserve::new(limits.shared_bytes),
            window: Reserve::new(limits.shared_bytes),
            admission: Admission::new(limits.connections),
            leases: Leases::default(),
            stop: Stop::default(),
            limits,
        }
    }
}
