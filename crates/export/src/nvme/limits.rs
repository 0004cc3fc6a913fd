//! The limits of the NVMe/TCP target, with units.

use std::time::Duration;

use crate::transport::{OWN_BYTES, TlsStream};

/// The most bytes of data of one command, as a power of two of pages of 4 KiB: 1 MiB. Hosts split
/// longer requests.
pub(super) const TRANSFER_PAGES_LOG: u8 = 8;
/// The same in bytes.
pub(super) const TRANSFER_MAX: u32 = 4096 << TRANSFER_PAGES_LOG;

/// The most bytes of data in the capsule of an I/O command: short writes need no further message.
pub(super) const CAPSULE_DATA: u32 = 16 << 10;
/// The most bytes of data in the capsule of an admin or fabrics command, as the specification
/// fixes it.
pub(super) const ADMIN_CAPSULE_DATA: u32 = 8 << 10;

/// The most commands of a queue until its host has authenticated itself.
pub(super) const AUTHENTICATION_COMMANDS: u32 = 16;

/// Entries of an I/O queue.
pub(super) const QUEUE_ENTRIES: u16 = 128;
/// The most I/O queues of a controller.
pub(super) const QUEUES: u16 = 128;
/// The most controllers of a subsystem.
pub(super) const CONTROLLERS: usize = 1024;
/// The most asynchronous event requests of a controller.
pub(super) const EVENT_REQUESTS: u8 = 4;
/// The most commands of a controller that are being aborted, except requests for events.
pub(super) const ABORTS: u8 = 4;
/// The largest id of a namespace.
pub(super) const NAMESPACES: u32 = 1024;

/// The most source ranges of a copy.
pub(super) const COPY_RANGES: usize = 128;
/// The most bytes of a copy.
pub(super) const COPY_MAX: u64 = 64 << 20;

/// Bytes that one connection transfers before it yields to others.
pub(super) const YIELD_BYTES: u32 = 256 << 10;
/// Replies with at least this many bytes of data go to the bulk queue.
pub(super) const BULK: u32 = 64 << 10;

/// The granularity of the keep alive timer, in units of 100 ms.
pub(super) const KEEP_ALIVE_UNITS: u16 = 10;

/// Limits on the memory and time that connections use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeLimits {
    /// Connections of one reactor. One host gets up to half of them.
    pub connections: usize,
    /// Bytes of payload in flight of one connection: reads and short writes. While the limit is
    /// reached, nothing is read from its socket.
    pub payload_bytes: usize,
    /// Bytes of long writes of one connection that the host has been asked to send.
    pub window_bytes: usize,
    /// Bytes of payload in flight of all connections of one reactor, in addition to 1 MiB of each
    /// connection; as many again for long writes.
    pub shared_bytes: usize,
    /// Time for opening a connection and its queue.
    pub handshake: Duration,
    /// Time without progress within a message, in either direction.
    pub stalled: Duration,
    /// Time without commands after which a discovery controller ends whose host has set no keep
    /// alive time.
    pub discovery_idle: Duration,
    /// Time for completing requests and sending their replies after a stop.
    pub drain: Duration,
}

impl NvmeLimits {
    /// Bytes that a connection holds of its own at most: payload, requested data, the receive chunk
    /// and the previous one, and a TLS session.
    pub const CONNECTION_BYTES: usize = 2 * OWN_BYTES + (1 << 20) + TlsStream::BYTES;
}

impl Default for NvmeLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            payload_bytes: 32 << 20,
            window_bytes: 32 << 20,
            shared_bytes: 512 << 20,
            handshake: Duration::from_secs(30),
            stalled: Duration::from_secs(60),
            // The example of the specification.
            discovery_idle: Duration::from_secs(120),
            drain: Duration::from_secs(10),
        }
    }
}
