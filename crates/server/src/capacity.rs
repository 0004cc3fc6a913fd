//! Shares of this host's descriptors and memory that NBD clients may take between them.
//!
//! Anybody who reaches a TCP address of NBD is a client. Always true: what all of them take at most leaves descriptors for
//! drives, pools and the API, and memory for the rest of the host.

use export::nbd::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Of the descriptors that the daemon may have, NBD connections take one in so many.
const DESCRIPTORS_SHARE: u64 = 2;
/// Of the host's memory, what connections hold by themselves takes one in so many.
const CONNECTIONS_SHARE: u64 = 4;
/// Of the host's memory, payload that connections share takes one in so many.
const PAYLOAD_SHARE: u64 = 8;
/// Connections of a reactor, however little there is.
const CONNECTIONS_MIN: u64 = 16;
/// Bytes of payload that the connections of a reactor share, however little there is.
const PAYLOAD_MIN: u64 = 64 << 20;

/// Lets the process have as many descriptors as the system's administrator allows: the usual limit, 1024, is for programs that
/// cannot count any further.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(%error, "the limit of descriptors stays as it is");
    }
}

/// What NBD connections of each of `reactors` may cost.
pub(crate) fn nbd_limits(reactors: usize) -> Limits {
    // Without a limit there are more than any number here.
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let system = rustix::system::sysinfo();
    let memory = u64::from(system.mem_unit).saturating_mul(system.totalram as u64);
    limits_for(descriptors, memory, reactors)
}

fn limits_for(descriptors: u64, memory: u64, reactors: usize) -> Limits {
    let (reactors, usual) = ((reactors as u64).max(1), Limits::default());
    let by_descriptors = descriptors / DESCRIPTORS_SHARE / reactors;
    let by_memory = memory / CONNECTIONS_SHARE / reactors / Limits::CONNECTION_BYTES as u64;
    let connections = by_descriptors.min(by_memory).max(CONNECTIONS_MIN);
    let shared_bytes = (memory / PAYLOAD_SHARE / reactors).max(PAYLOAD_MIN);
    let at_most = |number: u64, most: usize| usize::try_from(number).map_or(most, |number| number.min(most));
    Limits {
        connections: at_most(connections, usual.connections),
        shared_bytes: at_most(shared_bytes, usual.shared_bytes),
        ..usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_hosts_give_less_and_large_ones_what_is_usual() {
        let usual = Limits::default();
        assert_eq!(limits_for(u64::MAX, 256 << 30, 16), usual);
        let descriptors = limits_for(1024, 256 << 30, 4);
        assert_eq!((descriptors.connections, descriptors.shared_bytes), (128, usual.shared_bytes));
        let memory = limits_for(1 << 20, 4 << 30, 2);
        assert_eq!((memory.connections, memory.shared_bytes), (256, 256 << 20));
        let nothing = limits_for(0, 0, 0);
        assert_eq!((nothing.connections, nothing.shared_bytes), (16, 64 << 20));
    }

    #[test]
    fn as_many_descriptors_as_may_be_are_had() {
        raise_descriptor_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
