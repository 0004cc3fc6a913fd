//! The limits of the iSCSI target, with units.

use std::time::Duration;

use crate::transport::OWN_BYTES;

/// The most bytes of data of one command.
pub(super) const TRANSFER_MAX: u32 = 8 << 20;
/// The most bytes of data of one message that the target receives.
pub(super) const SEGMENT_MAX: u32 = 256 << 10;
/// The most bytes of data that one R2T requests.
pub(super) const BURST_MAX: u32 = 1 << 20;
/// The most bytes of data of a command that an initiator sends without a request.
pub(super) const FIRST_BURST_MAX: u32 = 64 << 10;
/// The smallest value of a length that initiators may declare.
pub(super) const LENGTH_MIN: u32 = 512;

/// Commands of a session that the target accepts at once.
pub(super) const COMMANDS: u32 = 128;
/// Further commands for immediate delivery, which no window limits.
pub(super) const IMMEDIATE_COMMANDS: usize = 16;
/// Sessions of one reactor that may send data beyond that of the command without a request. The
/// memory for it is set aside, because the target cannot delay it.
pub(super) const UNSOLICITED_SESSIONS: usize = 64;
/// The most sessions of a target.
pub(super) const SESSIONS: usize = 1024;
/// The largest number of a logical unit.
pub(super) const UNITS: u16 = 255;

/// Bytes that one connection transfers before it yields to others.
pub(super) const YIELD_BYTES: u32 = 256 << 10;
/// The most bytes of memory that a command uses beside its data.
pub(super) const SCRATCH: u64 = 256 << 10;

/// Limits on the memory and time that connections use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IscsiLimits {
    /// Connections of one reactor. One host gets up to half of them.
    pub connections: usize,
    /// Bytes of payload in flight of one connection: reads and data that arrives with commands.
    /// While the limit is reached, nothing is read from its socket.
    pub payload_bytes: usize,
    /// Bytes of writes of one connection that the initiator has been asked to send.
    pub window_bytes: usize,
    /// Bytes of payload in flight of all connections of one reactor, in addition to 1 MiB of each
    /// connection; as many again for requested data.
    pub shared_bytes: usize,
    /// Time for the login.
    pub login: Duration,
    /// Time without progress within a message, in either direction.
    pub stalled: Duration,
    /// Time without a message after which the initiator is asked for one, and again until the
    /// connection is closed.
    pub silent: Duration,
    /// Time for completing requests and sending their replies after a stop.
    pub drain: Duration,
}

impl IscsiLimits {
    /// Bytes that a connection holds of its own at most: payload, requested data, the receive chunk
    /// and the previous one.
    pub const CONNECTION_BYTES: usize = 2 * OWN_BYTES + (1 << 20);
}

impl Default for IscsiLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            payload_bytes: 32 << 20,
            window_bytes: 32 << 20,
            shared_bytes: 512 << 20,
            login: Duration::from_secs(30),
            stalled: Duration::from_secs(60),
            silent: Duration::from_secs(30),
            drain: Duration::from_secs(10),
        }
    }
}
