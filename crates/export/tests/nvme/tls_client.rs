//! The client side of TLS on a blocking socket. Client and target have the library for TLS in
//! common, and no other code.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::task::Poll;

use s2n_tls::config::Config;
use s2n_tls::connection::Connection;
use s2n_tls::enums::{Blinding, PeerKeyUpdate, PskHmac};
use s2n_tls::psk::Psk;
use s2n_tls::security::DEFAULT_TLS13;

use crate::tls_identity::TlsIdentity;

/// A TLS session on a socket.
pub(crate) struct TlsClient {
    /// Dropped before the socket, whose address it has.
    session: Connection,
    _socket: Box<TcpStream>,
}

fn explain(error: &s2n_tls::error::Error) -> String {
    format!("{}: {}", error.name(), error.message())
}

impl TlsClient {
    /// Begins a session. Fails with the description of the library.
    pub(crate) fn connect(socket: TcpStream, identity: &TlsIdentity) -> Result<Self, String> {
        let mut config = Config::builder();
        config.with_system_certs(false).unwrap().set_security_policy(&DEFAULT_TLS13).unwrap();
        config.set_max_blinding_delay(0).unwrap();
        let mut psk = Psk::builder().unwrap();
        psk.set_identity(identity.text.as_bytes()).unwrap().set_secret(&identity.key).unwrap();
        let hash = if identity.key.len() == 32 { PskHmac::SHA256 } else { PskHmac::SHA384 };
        psk.set_hmac(hash).unwrap();
        let (mut session, socket) = (Connection::new_client(), Box::new(socket));
        session.set_config(config.build().unwrap()).unwrap();
        session.set_blinding(Blinding::SelfService).unwrap().append_psk(&psk.build().unwrap()).unwrap();
        session.set_receive_callback(Some(receive)).unwrap().set_send_callback(Some(send)).unwrap();
        let context = std::ptr::from_ref(&*socket).cast_mut().cast::<c_void>();
        // SAFETY: the socket has an allocation of its own, and is dropped after the session.
        unsafe { session.set_receive_context(context).unwrap().set_send_context(context).unwrap() };
        match session.poll_negotiate() {
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => {
                let alert = session.alert().map_or(String::new(), |alert| format!(" (alert {alert})"));
                return Err(format!("{}{alert}", explain(&error)));
            }
            Poll::Pending => return Err("the socket has timed out".into()),
        }
        Ok(Self { session, _socket: socket })
    }

    /// The cipher suite.
    pub(crate) fn suite(&self) -> &str {
        self.session.cipher_suite().unwrap()
    }

    /// Changes the key of the sending direction with the next write.
    pub(crate) fn update_key(&mut self) {
        self.session.request_key_update(PeerKeyUpdate::KeyUpdateNotRequested).unwrap();
    }

    /// Ends the session in the sending direction.
    pub(crate) fn end(&mut self) {
        assert!(matches!(self.session.poll_shutdown_send(), Poll::Ready(Ok(_))));
    }
}

impl Read for TlsClient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.session.poll_recv(into) {
            Poll::Ready(Ok(count)) => Ok(count),
            Poll::Ready(Err(error)) => Err(io::Error::other(explain(&error))),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for TlsClient {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self.session.poll_send(from) {
            Poll::Ready(Ok(count)) => Ok(count),
            Poll::Ready(Err(error)) => Err(io::Error::other(explain(&error))),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// # Safety
/// `context` points to a socket, and `into` to `len` bytes.
unsafe extern "C" fn receive(context: *mut c_void, into: *mut u8, len: u32) -> libc::c_int {
    // SAFETY: as demanded above; the library has initialised its memory.
    let (mut socket, into) =
        unsafe { (&*context.cast::<TcpStream>(), std::slice::from_raw_parts_mut(into, len as usize)) };
    socket.read(into).map_or(-1, |count| count as libc::c_int)
}

/// # Safety
/// `context` points to a socket, and `from` to `len` bytes.
unsafe extern "C" fn send(context: *mut c_void, from: *const u8, len: u32) -> libc::c_int {
    // SAFETY: as demanded above.
    let (mut socket, from) =
        unsafe { (&*context.cast::<TcpStream>(), std::slice::from_raw_parts(from, len as usize)) };
    socket.write(from).map_or(-1, |count| count as libc::c_int)
}
