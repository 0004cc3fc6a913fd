//! Limits of the file descriptors and memory that all clients of a network protocol may use.
//!
//! Every host that reaches a TCP address can be a client. Invariant: with all limits reached,
//! enough descriptors remain for drives, pools and the API, and enough memory for the host.

use export::iscsi::IscsiLimits;
use export::nbd::Limits;
use export::nvme::NvmeLimits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// NBD connections use at most 1/`DESCRIPTORS_SHARE` of the daemon's file descriptors.
const DESCRIPTORS_SHARE: u64 = 2;
/// The fixed memory of all connections is at most 1/`CONNECTIONS_SHARE` of the host's memory.
const CONNECTIONS_SHARE: u64 = 4;
/// The payload memory of all connections is at most 1/`PAYLOAD_SHARE` of the host's memory.
const PAYLOAD_SHARE: u64 = 8;
/// Smallest number of connections per reactor, even on a small host.
const CONNECTIONS_MIN: u64 = 16;
/// Smallest shared payload memory per reactor in bytes, even on a small host.
const PAYLOAD_MIN: u64 = 64 << 20;

/// Raises the soft limit of file descriptors to the hard limit: the usual soft limit, 1024, exists
/// for programs that use select(2).
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(%error, "cannot raise the limit of file descriptors");
    }
}

/// Returns the NBD limits of each of `reactors` reactors.
pub(crate) fn nbd_limits(reactors: usize) -> Limits {
    // `None` means unlimited.
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let system = rustix::system::sysinfo();
    let memory = u64::from(system.mem_unit).saturating_mul(system.totalram as u64);
    limits_for(descriptors, memory, reactors)
}

/// Returns the NVMe/TCP limits of each of `reactors` reactors.
pub(crate) fn nvme_limits(reactors: usize) -> NvmeLimits {
    let (nbd, default) = (nbd_limits(reactors), NvmeLimits::default());
    NvmeLimits {
        connections: connections_of(&nbd, NvmeLimits::CONNECTION_BYTES).min(default.connections),
        shared_bytes: (nbd.shared_bytes / 2).min(default.shared_bytes),
        ..default
    }
}

/// Returns how many connections of `bytes` each have as much memory as those of NBD.
fn connections_of(nbd: &Limits, bytes: usize) -> usize {
    nbd.connections * Limits::CONNECTION_BYTES / bytes
}

/// Returns the iSCSI limits of each of `reactors` reactors.
pub(crate) fn iscsi_limits(reactors: usize) -> IscsiLimits {
    let (nbd, default) = (nbd_limits(reactors), IscsiLimits::default());
    IscsiLimits {
        connections: connections_of(&nbd, IscsiLimits::CONNECTION_BYTES).min(default.connections),
        shared_bytes: (nbd.shared_bytes / 2).min(default.shared_bytes),
        ..default
    }
}

fn limits_for(descriptors: u64, memory: u64, reactors: usize) -> Limits {
    let (reactors, default) = ((reactors as u64).max(1), Limits::default());
    let by_descriptors = descriptors / DESCRIPTORS_SHARE / reactors;
    let by_memory = memory / CONNECTIONS_SHARE / reactors / Limits::CONNECTION_BYTES as u64;
    let connections = by_descriptors.min(by_memory).max(CONNECTIONS_MIN);
    let shared_bytes = (memory / PAYLOAD_SHARE / reactors).max(PAYLOAD_MIN);
    let at_most = |number: u64, most: usize| usize::try_from(number).map_or(most, |number| number.min(most));
    Limits {
        connections: at_most(connections, default.connections),
        shared_bytes: at_most(shared_bytes, default.shared_bytes),
        ..default
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_hosts_get_less_than_the_default_limits() {
        let default = Limits::default();
        assert_eq!(limits_for(u64::MAX, 256 << 30, 16), default);
        let descriptors = limits_for(1024, 256 << 30, 4);
        assert_eq!((descriptors.connections, descriptors.shared_bytes), (128, default.shared_bytes));
        let memory = limits_for(1 << 20, 4 << 30, 2);
        assert_eq!((memory.connections, memory.shared_bytes), (256, 256 << 20));
        let nothing = limits_for(0, 0, 0);
        assert_eq!((nothing.connections, nothing.shared_bytes), (16, 64 << 20));
    }

    #[test]
    fn each_protocol_has_connections_of_its_own_size() {
        let own = |bytes: usize, most: usize| {
            let nbd = nbd_limits(2);
            (nbd.connections * Limits::CONNECTION_BYTES / bytes).min(most)
        };
        let (nvme, iscsi) = (NvmeLimits::default().connections, IscsiLimits::default().connections);
        assert_eq!(nvme_limits(2).connections, own(NvmeLimits::CONNECTION_BYTES, nvme));
        assert_eq!(iscsi_limits(2).connections, own(IscsiLimits::CONNECTION_BYTES, iscsi));
        // The number in docs/exports.md.
        assert_eq!(connections_of(&Limits::default(), NvmeLimits::CONNECTION_BYTES), 606);
        assert!(iscsi_limits(2).connections > nvme_limits(2).connections, "iSCSI has no TLS");
    }

    #[test]
    fn the_descriptor_limit_is_raised_to_the_hard_limit() {
        raise_descriptor_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
