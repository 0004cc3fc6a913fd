//! Every limit of the protocol's server, with units.

use std::time::Duration;

/// The most bytes of one read or write. Advertised; what the specification asks servers to bear at least.
pub(super) const PAYLOAD_MAX: u32 = 32 << 20;

/// What clients are told to read and write best, in bytes, unless sectors are larger.
pub(super) const PREFERRED: u32 = 4096;

/// The most bytes of data of one handshake option. The longest that makes sense names an export and some metadata
/// contexts.
pub(super) const OPTION_MAX: u32 = 64 << 10;

/// The most options of one handshake. A client that looks at every export of a server sends a few for each.
pub(super) const OPTIONS_MAX: usize = 4096;

/// Bytes of a read or write that go through the volume at once. Longer ones are cut at multiples of it: the volume works
/// while the socket does, other replies get between, and memory comes in sizes that are used again. Smaller pieces cost
/// more than they gain: 1 MiB reads over a Unix socket are a tenth slower in pieces of 256 KiB.
pub(super) const PIECE: u32 = 1 << 20;

/// Bytes that the requests of one connection move at most before others get their turn.
pub(super) const UNBROKEN: u32 = 256 << 10;

/// Replies with at least this many bytes of data wait in a queue of their own.
pub(super) const BULK: u32 = 64 << 10;

/// Reads of at least this many bytes ask the volume for holes, and holes of at least this many bytes are told instead of
/// sent as zeros.
pub(super) const HOLE_MIN: u32 = 64 << 10;

/// The most descriptors in one answer to a block status request. Clients ask again from where the answer ended.
pub(super) const DESCRIPTORS_MAX: usize = 4096;

/// Bytes that the requests of a connection may read and write at once whatever other connections do.
pub(super) const OWN_BYTES: usize = 1 << 20;

/// What connections may cost, and how long they may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections that one [`super::Server`] serves at once; more are closed as soon as they are made.
    pub connections: usize,
    /// Requests of one connection that are worked on at once. While there are as many, nothing is read from its socket.
    pub requests: usize,
    /// Bytes that the requests of one connection that are worked on at once read and write. While there are as many,
    /// nothing is read from its socket. At least one request is always worked on.
    ///
    /// Memory that bytes were received into, and that the payload of a write keeps, counts as a whole. Besides these, a
    /// connection holds at most 512 KiB that it receives into, and as much of the message before.
    pub payload_bytes: usize,
    /// Bytes that the requests of all connections of one [`super::Server`] read and write at once, apart from 1 MiB that
    /// each connection always has. Who finds them used up waits, first come, first served.
    pub shared_bytes: usize,
    /// Time for a whole handshake.
    pub handshake: Duration,
    /// Time in which a message that was begun must go on, in either direction. A client that stops in the middle of a
    /// request, or does not read its replies, is given up after this time, or at most twice as much.
    pub stalled: Duration,
    /// Time in which requests are finished and their replies are sent, once the server was told to stop.
    pub drain: Duration,
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
