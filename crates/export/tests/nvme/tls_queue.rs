//! Queues within TLS.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::initiator::{HOST, Queue, SocketSession, Wire};
use crate::tls_client::TlsClient;
use crate::tls_identity::TlsIdentity;

/// A TLS session that its queue and a test share.
#[derive(Clone)]
pub(crate) struct SharedTls {
    client: Arc<Mutex<TlsClient>>,
    identity: TlsIdentity,
}

impl SharedTls {
    fn begin(socket: TcpStream, identity: &TlsIdentity) -> Result<Self, String> {
        let client = Arc::new(Mutex::new(TlsClient::connect(socket, identity)?));
        Ok(Self { client, identity: identity.clone() })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, TlsClient> {
        self.client.lock().unwrap()
    }
}

impl Read for SharedTls {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.lock().read(into)
    }
}

impl Write for SharedTls {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.lock().write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SocketSession for SharedTls {
    fn renew(&self, socket: TcpStream) -> Box<dyn SocketSession> {
        Box::new(Self::begin(socket, &self.identity).unwrap())
    }
}

/// Connects a socket, begins TLS on it, and exchanges the parameters of the transport. Fails with
/// the description of the library for TLS.
pub(crate) fn secured(
    address: SocketAddr,
    identity: &TlsIdentity,
    wire: Wire,
) -> Result<(Queue, SharedTls), String> {
    let mut queue = Queue::open(address, wire);
    let shared = SharedTls::begin(queue.stream.try_clone().unwrap(), identity)?;
    queue.session = Some(Box::new(shared.clone()));
    queue.exchange_parameters();
    Ok((queue, shared))
}

/// Opens the admin queue of a new controller over TLS and enables it.
pub(crate) fn secured_admin(address: SocketAddr, identity: &TlsIdentity, wire: Wire) -> Queue {
    let (mut queue, _) = secured(address, identity, wire).unwrap();
    assert_eq!(queue.connect(&identity.subsystem, HOST, 0, 0xffff, 0).status, 0);
    queue.enable();
    queue
}

/// Opens an I/O queue of a controller over TLS.
pub(crate) fn secured_io(admin: &Queue, identity: &TlsIdentity, id: u16) -> (Queue, SharedTls) {
    let (mut queue, tls) = secured(admin.stream.peer_addr().unwrap(), identity, admin.wire).unwrap();
    assert_eq!(queue.connect(&identity.subsystem, HOST, id, admin.controller, 0).status, 0);
    (queue, tls)
}
