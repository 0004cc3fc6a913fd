//! Connections that a server takes, and those in their handshake that it closes to make room for others.
//!
//! Anybody who reaches a TCP address can connect, without a password. Always true: no more connections are counted than
//! there is room for; those over TCP leave some of it to local ones, and those of one host leave half of it to others; a
//! connection that uses an export is never closed to make room. So a client that is quick in its handshake gets in, however
//! many there are that say nothing, unless several hosts use exports with as many connections as there may be.
//!
//! Must not know what connections do.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::time::Duration;

use reactor::{Instant, Notify, Peer, Reactor};
use slab::Slab;

/// Of the connections that there may be, one in so many is for local clients alone.
const LOCAL_SHARE: usize = 8;
/// Time in which at most [`LINES`] are logged.
const WINDOW: Duration = Duration::from_secs(10);
/// Lines about connections that never used an export, for each [`WINDOW`].
const LINES: u32 = 20;

/// The connections of a server.
pub(super) struct Admission {
    most: usize,
    entries: RefCell<Slab<Entry>>,
    /// Places of connections in their handshake that are not to be closed, by their numbers: oldest first.
    handshakes: RefCell<BTreeMap<u64, usize>>,
    /// The number of the next connection.
    serial: Cell<u64>,
    /// Connections that are counted: all, and those over TCP.
    all: Cell<usize>,
    remote: Cell<usize>,
    /// Those of each host.
    hosts: RefCell<HashMap<IpAddr, usize>>,
    quota: Cell<Quota>,
}

struct Entry {
    host: Option<IpAddr>,
    /// Closes the connection.
    displaced: Rc<Notify>,
    /// It is to be closed, and not counted any more.
    is_displaced: bool,
}

/// A connection's place, until this is dropped.
pub(super) struct Admitted {
    admission: Rc<Admission>,
    serial: u64,
    place: usize,
    displaced: Rc<Notify>,
}

/// Lines that were logged lately.
#[derive(Clone, Copy, Default)]
struct Quota {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Admission {
    /// Room for `most` connections.
    pub(super) fn new(most: usize) -> Rc<Self> {
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

    /// A place for a new connection: a free one, or that of the oldest one that is still in its handshake. `None` if there
    /// is neither.
    pub(super) fn admit(self: &Rc<Self>, peer: Peer) -> Option<Admitted> {
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

    fn enter(self: &Rc<Self>, host: Option<IpAddr>) -> Admitted {
        let serial = self.serial.get();
        self.serial.set(serial + 1);
        let displaced = Rc::new(Notify::default());
        let entry = Entry { host, displaced: displaced.clone(), is_displaced: false };
        let place = self.entries.borrow_mut().insert(entry);
        self.handshakes.borrow_mut().insert(serial, place);
        self.count(host, 1);
        Admitted { admission: self.clone(), serial, place, displaced }
    }

    /// Closes the oldest connection in its handshake that `fits`. `None` if there is none.
    fn displace(&self, fits: impl Fn(&Entry) -> bool) -> Option<()> {
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
            None => panic!("more connections ended than were counted"),
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

    /// Whether one more line may be logged about a connection that never used an export: how many were left out before, if
    /// so. Otherwise anybody could fill the log.
    pub(super) fn may_log(&self) -> Option<u64> {
        let (mut quota, now) = (self.quota.get(), Reactor::current().now());
        if quota.since.is_none_or(|since| now.since(since) >= WINDOW) {
            (quota.since, quota.lines) = (Some(now), 0);
        }
        let before = quota.left_out;
        let may = quota.lines < LINES;
        if may {
            (quota.lines, quota.left_out) = (quota.lines + 1, 0);
        } else {
            quota.left_out += 1;
        }
        self.quota.set(quota);
        may.then_some(before)
    }
}

impl Admitted {
    /// Waits until the connection is to be closed for another one.
    pub(super) async fn displaced(&self) {
        self.displaced.notified().await;
    }

    /// The handshake has ended: from now on the connection keeps its place.
    pub(super) fn establish(&self) {
        self.admission.handshakes.borrow_mut().remove(&self.serial);
    }

    /// Where it was admitted.
    pub(super) fn admission(&self) -> &Admission {
        &self.admission
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.admission.handshakes.borrow_mut().remove(&self.serial);
        let entry = self.admission.entries.borrow_mut().remove(self.place);
        if !entry.is_displaced {
            self.admission.count(entry.host, -1);
        }
    }
}

/// Who a connection counts for; none if it is local. Of addresses of version 6 a host has a whole network.
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
