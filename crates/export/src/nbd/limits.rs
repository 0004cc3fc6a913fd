//! The limits of the NBD server, with units.

use std::time::Duration;

use crate::transport::OWN_BYTES;

/// The most bytes of one read or write: advertised, and the minimum that the specification
/// recommends.
pub(super) const PAYLOAD_MAX: u32 = 32 << 20;

/// The preferred block size that is advertised, in bytes, unless sectors are larger.
pub(super) const PREFERRED: u32 = 4096;

/// The most bytes of data of one handshake option: enough for the name of an export and some
/// metadata contexts.
pub(super) const OPTION_MAX: u32 = 64 << 10;

/// The most options of one handshake: enough for a client that inspects every export of a server.
pub(super) const OPTIONS_MAX: usize = 4096;

/// The unit in which long reads and writes are passed to the volume, in bytes: the volume and the
/// socket work concurrently, other replies are interleaved, and buffers have sizes that are
/// recycled. Smaller units cost more than they gain: 1 MiB reads over a Unix socket are 10 % slower
/// in units of 256 KiB.
pub(super) const UNIT: u32 = 1 << 20;

/// Bytes that one connection transfers before it yields to others.
pub(super) const YIELD_BYTES: u32 = 256 << 10;

/// Replies with at least this many bytes of data go to the bulk queue.
pub(super) const BULK: u32 = 64 << 10;

/// Reads of at least this many bytes look for holes; holes of at least this many bytes are reported
/// instead of sent as zeros.
pub(super) const HOLE_MIN: u32 = 64 << 10;

/// The most descriptors in one block status reply. Clients continue from its end.
pub(super) const DESCRIPTORS_MAX: usize = 4096;

/// Limits on the memory and time that connections use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of one [`super::NbdServer`]. One in eight of these slots is reserved for local
    /// clients, and clients over TCP from one host get up to half of the slots. A connection
    /// without a free slot displaces the oldest connection that is still in its handshake, or is
    /// closed.
    pub connections: usize,
    /// Requests in flight of one connection. While the limit is reached, nothing is read from its
    /// socket.
    pub requests: usize,
    /// Bytes of payload in flight of one connection. While the limit is reached, nothing is read
    /// from its socket. One request is always allowed.
    ///
    /// A receive chunk that the payload of a write holds counts as a whole. In addition, a
    /// connection holds up to 512 KiB of receive memory, and as much of the previous message.
    pub payload_bytes: usize,
    /// Bytes of payload in flight of all connections of one [`super::NbdServer`], in addition to 1
    /// MiB of each connection. Further requests wait in order.
    pub shared_bytes: usize,
    /// Time for the whole handshake.
    pub handshake: Duration,
    /// Time without progress within a message, in either direction. A client that stalls within a
    /// request or does not read its replies is disconnected after one to two times this time.
    pub stalled: Duration,
    /// Time for completing requests and sending their replies after a stop.
    pub drain: Duration,
}

impl Limits {
    /// Bytes that a connection holds of its own at most: payload, the receive chunk and the
    /// previous one.
    pub const CONNECTION_BYTES: usize = OWN_BYTES + (1 << 20);
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            requests: 128,
            payload_bytes: 64 << 20,
            shared_bytes: 1 << 30,
            handshake: Duration::from_secs(30),
            stalled: Duration::from_secs(300),
            drain: Duration::from_secs(10),
        }
    }
}
