//! Quick handshakes are admitted, and connections in use are never closed.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Waker};

use super::*;

fn tcp(address: &str) -> Peer {
    Peer::Tcp(SocketAddr::new(address.parse().unwrap(), 1000))
}

fn is_displaced(admitted: &AdmittedConnection) -> bool {
    pin!(admitted.displaced()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn established(admission: &Rc<Admission>, peer: Peer) -> AdmittedConnection {
    let admitted = admission.admit(peer).unwrap();
    admitted.establish();
    admitted
}

#[test]
fn the_oldest_handshake_is_displaced_and_used_connections_are_not() {
    let admission = Admission::new(4);
    let used = established(&admission, Peer::Unix);
    let waiting: Vec<AdmittedConnection> = (0..3).map(|_| admission.admit(Peer::Unix).unwrap()).collect();
    let fifth = established(&admission, Peer::Unix);
    assert_eq!(waiting.iter().map(is_displaced).collect::<Vec<_>>(), [true, false, false]);
    let more = [established(&admission, Peer::Unix), established(&admission, Peer::Unix)];
    assert!(waiting.iter().skip(1).all(is_displaced));
    assert!(admission.admit(Peer::Unix).is_none(), "all four are used");
    drop(fifth);
    let sixth = admission.admit(Peer::Unix).unwrap();
    assert_eq!(admission.all.get(), 4);
    drop((used, waiting, more, sixth));
    assert_eq!((admission.all.get(), admission.entries.borrow().len()), (0, 0));
}

#[test]
fn a_host_leaves_room_for_others_and_all_of_them_for_local_clients() {
    let admission = Admission::new(16);
    let one: Vec<AdmittedConnection> = (0..8).map(|_| established(&admission, tcp("192.0.2.1"))).collect();
    assert!(admission.admit(tcp("192.0.2.1")).is_none(), "half of it is one host's");
    assert!(admission.admit(tcp("::ffff:192.0.2.1")).is_none(), "however it is written");
    let two: Vec<AdmittedConnection> = (0..6).map(|_| established(&admission, tcp("2001:db8::1"))).collect();
    assert!(admission.admit(tcp("2001:db8::2")).is_none(), "the rest is for local ones");
    let local: Vec<AdmittedConnection> = (0..2).map(|_| established(&admission, Peer::Unix)).collect();
    assert!(admission.admit(Peer::Unix).is_none());
    drop(one);
    let network: Vec<AdmittedConnection> =
        (0..2).map(|number| established(&admission, tcp(&format!("2001:db8::{number}")))).collect();
    assert!(admission.admit(tcp("2001:db8::ffff")).is_none(), "a network counts as one host");
    drop((two, local, network));
    assert!(admission.hosts.borrow().is_empty());
    assert_eq!((admission.all.get(), admission.remote.get()), (0, 0));
}

#[test]
fn a_host_displaces_its_own_handshakes_before_those_of_others() {
    let admission = Admission::new(16);
    let other = admission.admit(tcp("192.0.2.2")).unwrap();
    let silent: Vec<AdmittedConnection> =
        (0..100).map(|_| admission.admit(tcp("192.0.2.1")).unwrap()).collect();
    assert!(!is_displaced(&other));
    assert_eq!(silent.iter().filter(|silent| !is_displaced(silent)).count(), 8);
    assert_eq!(admission.all.get(), 9);
    // Closed connections leave nothing behind.
    drop(silent);
    for _ in 0..1000 {
        drop(admission.admit(tcp("192.0.2.1")).unwrap());
    }
    assert_eq!(admission.handshakes.borrow().len(), 1);
    drop(other);
}
