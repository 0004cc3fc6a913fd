//! Admission control: which connections a server accepts, and which handshakes it aborts to make
//! room.
//!
//! Any host that reaches a TCP address can connect without a password. Always true: the number of
//! connections is limited; connections over TCP leave some of the slots to local clients, and
//! connections of one host leave half of the slots to other hosts; a connection that uses an export
//! is never closed to make room. A client with a quick handshake is therefore admitted in a flood
//! of idle connections, unless several hosts use exports with as many connections as there are
//! slots.
//!
//! Must not know: protocol messages.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::time::Duration;

use reactor::{Instant, Notify, Peer, Reactor};
use slab::Slab;

/// One in this many slots is reserved for local clients.
const LOCAL_SHARE: usize = 8;
/// The period in which up to [`LINES`] are logged.
const WINDOW: Duration = Duration::from_secs(10);
/// Log lines per [`WINDOW`] about connections that never used an export.
const LINES: u32 = 20;

/// The connections of a server.
pub(crate) struct Admission {
    most: usize,
    entries: RefCell<Slab<AdmissionEntry>>,
    /// Slots of connections in their handshake that may be displaced, by serial number: oldest
    /// first.
    handshakes: RefCell<BTreeMap<u64, usize>>,
    /// Serial number of the next connection.
    serial: Cell<u64>,
    /// Counted connections: all, and those over TCP.
    all: Cell<usize>,
    remote: Cell<usize>,
    /// Counted connections of each host.
    hosts: RefCell<HashMap<IpAddr, usize>>,
    quota: Cell<Quota>,
}

struct AdmissionEntry {
    host: Option<IpAddr>,
    /// Notified to close the connection.
    displaced: Rc<Notify>,
    /// The connection is being closed, and no longer counted.
    is_displaced: bool,
}

/// A connection's slot, until this is dropped.
pub(crate) struct AdmittedConnection {
    admission: Rc<Admission>,
    serial: u64,
    place: usize,
    displaced: Rc<Notify>,
}

/// The recent log lines.
#[derive(Clone, Copy, Default)]
struct Quota {
    since: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

impl Admission {
    /// Creates an admission control with `most` slots.
    pub(crate) fn new(most: usize) -> Rc<Self> {
        Rc::new(Self {
            most,
            entries: RefCell::default(),
            handshakes: RefCell::default(),
            serial: Cell::new(0),
            all: Cell::new(0),
            remote: Cell::new(0),
            hosts: RefCell::default(),
            quota: Cell::default(),
        })
    }

    /// Admits a new connection: to a free slot, or to the slot of the oldest connection that is
    /// still in its handshake. Returns `None` if there is neither.
    pub(crate) fn admit(self: &Rc<Self>, peer: Peer) -> Option<AdmittedConnection> {
        let host = host_of(peer);
        if host.is_some_and(|host| self.of_host(host) >= (self.most / 2).max(1)) {
            self.displace(|entry| entry.host == host)?;
        }
        if host.is_some() && self.remote.get() >= self.most - self.most / LOCAL_SHARE {
            self.displace(|entry| entry.host.is_some())?;
        }
        if self.all.get() >= self.most {
            self.displace(|entry| entry.host.is_some()).or_else(|| self.displace(|_| true))?;
        }
        Some(self.enter(host))
    }

    fn of_host(&self, host: IpAddr) -> usize {
        self.hosts.borrow().get(&host).copied().unwrap_or(0)
    }

    fn enter(self: &Rc<Self>, host: Option<IpAddr>) -> AdmittedConnection {
        let serial = self.serial.get();
        self.serial.set(serial + 1);
        let displaced = Rc::new(Notify::default());
        let entry = AdmissionEntry { host, displaced: displaced.clone(), is_displaced: false };
        let place = self.entries.borrow_mut().insert(entry);
        self.handshakes.borrow_mut().insert(serial, place);
        self.count(host, 1);
        AdmittedConnection { admission: self.clone(), serial, place, displaced }
    }

    /// Displaces the oldest connection in its handshake that `fits`. Returns `None` if there is
    /// none.
    fn displace(&self, fits: impl Fn(&AdmissionEntry) -> bool) -> Option<()> {
        let mut entries = self.entries.borrow_mut();
        let mut handshakes = self.handshakes.borrow_mut();
        let oldest = handshakes.iter().find(|(_, place)| entries.get(**place).is_some_and(&fits));
        let (serial, place) = oldest.map(|(serial, place)| (*serial, *place))?;
        handshakes.remove(&serial);
        let entry = entries.get_mut(place)?;
        entry.is_displaced = true;
        entry.displaced.notify();
        self.count(entry.host, -1);
        Some(())
    }

    fn count(&self, host: Option<IpAddr>, change: isize) {
        let changed = |number: usize| match number.checked_add_signed(change) {
            Some(number) => number,
            None => panic!("more connections ended than were admitted"),
        };
        self.all.set(changed(self.all.get()));
        let Some(host) = host else { return };
        self.remote.set(changed(self.remote.get()));
        let mut hosts = self.hosts.borrow_mut();
        let number = changed(hosts.get(&host).copied().unwrap_or(0));
        if number == 0 {
            hosts.remove(&host);
        } else {
            hosts.insert(host, number);
        }
    }

    /// Returns whether a line may be logged about a connection that never used an export: if so,
    /// the number of lines suppressed before. Without a limit any host could fill the log.
    pub(crate) fn log_quota(&self) -> Option<u64> {
        let (mut quota, now) = (self.quota.get(), Reactor::current().now());
        if quota.since.is_none_or(|since| now.since(since) >= WINDOW) {
            (quota.since, quota.lines) = (Some(now), 0);
        }
        let before = quota.suppressed;
        let may = quota.lines < LINES;
        if may {
            (quota.lines, quota.suppressed) = (quota.lines + 1, 0);
        } else {
            quota.suppressed += 1;
        }
        self.quota.set(quota);
        may.then_some(before)
    }
}

impl AdmittedConnection {
    /// Waits until the connection is displaced by another one.
    pub(crate) async fn displaced(&self) {
        self.displaced.notified().await;
    }

    /// Marks the handshake as completed: the connection is no longer displaced.
    pub(crate) fn establish(&self) {
        self.admission.handshakes.borrow_mut().remove(&self.serial);
    }

    /// Returns the admission control.
    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
    }
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        self.admission.handshakes.borrow_mut().remove(&self.serial);
        let entry = self.admission.entries.borrow_mut().remove(self.place);
        if !entry.is_displaced {
            self.admission.count(entry.host, -1);
        }
    }
}

/// Returns the host that a connection counts for; `None` if it is local. For IPv6 a host is a /64
/// network.
fn host_of(peer: Peer) -> Option<IpAddr> {
    let Peer::Tcp(address) = peer else { return None };
    Some(match address.ip().to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address => address,
    })
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
