//! One TLS session of the library s2n-tls, over memory instead of a socket.
//!
//! Owns the session of the library, the received bytes that it has not consumed, and the encrypted
//! bytes that were not sent. Always true: the callbacks of the library use these buffers alone, and
//! never block; encrypted bytes are limited by the caller, who passes limited amounts of data. Must
//! not know sockets.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;
use std::sync::OnceLock;
use std::task::Poll;

use reactor::{Buffer, Span};
use s2n_tls::config::Config;
use s2n_tls::connection::Connection;
use s2n_tls::enums::{Blinding, PskHmac, Version};
use s2n_tls::psk::Psk;
use s2n_tls::security::Policy;

/// The most bytes of data of a record.
pub(super) const RECORD_MAX: usize = 16 << 10;
/// The most bytes that a record adds to its data: header, type and tag. Alerts and replies to key
/// updates are shorter than a record of data.
const RECORD_OVERHEAD: usize = 5 + 1 + 16;
/// Room for the messages of a handshake, and for alerts and key updates.
const MESSAGES: usize = 4 << 10;

/// The security policy of the library: TLS 1.3 only, with AES-GCM and ChaCha20-Poly1305. The hash
/// of the key, and [`TlsSession::check`], restrict the cipher suite further.
const POLICY: &str = "AWS-CRT-SDK-TLSv1.3-2023";

/// The hash function of a key, which determines the cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsKeyHash {
    /// For TLS_AES_128_GCM_SHA256.
    Sha256,
    /// For TLS_AES_256_GCM_SHA384.
    Sha384,
}

impl TlsKeyHash {
    /// The name of the cipher suite.
    pub(crate) fn suite(self) -> &'static str {
        match self {
            Self::Sha256 => "TLS_AES_128_GCM_SHA256",
            Self::Sha384 => "TLS_AES_256_GCM_SHA384",
        }
    }

    /// The number of the cipher suite in messages. Source: RFC 8446, B.4.
    pub(crate) fn suite_number(self) -> [u8; 2] {
        match self {
            Self::Sha256 => [0x13, 0x01],
            Self::Sha384 => [0x13, 0x02],
        }
    }
}

/// A pre-shared key, and the identity by which peers name it.
pub(crate) struct TlsKey {
    pub(crate) identity: Vec<u8>,
    pub(crate) secret: Vec<u8>,
    pub(crate) hash: TlsKeyHash,
}

/// The reason why a session failed: a description of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TlsError(pub(crate) &'static str);

impl From<s2n_tls::error::Error> for TlsError {
    fn from(error: s2n_tls::error::Error) -> Self {
        Self(error.message())
    }
}

/// The result of an attempt to decrypt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decrypted {
    /// This many bytes.
    Bytes(usize),
    /// The peer has ended its stream.
    End,
    /// More encrypted bytes are needed.
    NeedsInput,
}

/// A TLS session.
pub(super) struct TlsSession {
    /// Dropped before the buffers, whose address it has.
    library: Connection,
    buffers: Rc<RefCell<CipherBuffers>>,
    hash: TlsKeyHash,
    /// Decrypted bytes on their way into a span.
    record: Box<[u8]>,
    /// The failure of a decryption, which is reported after the bytes before it.
    failure: Option<TlsError>,
}

/// Encrypted bytes.
struct CipherBuffers {
    /// Received bytes, not consumed from `start` to `end`. Absent if all are consumed and released.
    input: Option<Span>,
    start: usize,
    end: usize,
    /// Bytes to send.
    output: Option<CipherOutput>,
}

struct CipherOutput {
    memory: Span,
    len: usize,
}

/// The configuration of all sessions.
fn config() -> Result<Config, TlsError> {
    static CONFIG: OnceLock<Result<Config, TlsError>> = OnceLock::new();
    let build = || {
        let mut builder = Config::builder();
        builder.with_system_certs(false)?.set_security_policy(&Policy::from_version(POLICY)?)?;
        // The delay of alerts protects ciphers that TLS 1.3 does not have.
        builder.set_max_blinding_delay(0)?;
        Ok(builder.build()?)
    };
    CONFIG.get_or_init(build).clone()
}

impl TlsSession {
    /// The most bytes of memory of a session, beside received and encrypted bytes: the library's
    /// buffers of a record in each direction and its copy of the first message, each of about 16
    /// KiB, its state, and a record on its way into a span.
    pub(super) const BYTES: usize = 128 << 10;

    /// Begins a session that accepts this key only.
    pub(super) fn server(key: &TlsKey) -> Result<Self, TlsError> {
        Self::new(Connection::new_server(), key)
    }

    /// Begins a session of the other side, for tests.
    #[cfg(test)]
    pub(super) fn client(key: &TlsKey) -> Result<Self, TlsError> {
        Self::new(Connection::new_client(), key)
    }

    fn new(mut library: Connection, key: &TlsKey) -> Result<Self, TlsError> {
        let mut psk = Psk::builder()?;
        psk.set_identity(&key.identity)?.set_secret(&key.secret)?.set_hmac(match key.hash {
            TlsKeyHash::Sha256 => PskHmac::SHA256,
            TlsKeyHash::Sha384 => PskHmac::SHA384,
        })?;
        library.set_config(config()?)?.set_blinding(Blinding::SelfService)?.prefer_throughput()?;
        library.append_psk(&psk.build()?)?;
        let buffers = CipherBuffers { input: None, start: 0, end: 0, output: None };
        let buffers = Rc::new(RefCell::new(buffers));
        library.set_receive_callback(Some(receive))?.set_send_callback(Some(send))?;
        let context = Rc::as_ptr(&buffers).cast_mut().cast::<c_void>();
        // SAFETY: the buffers live longer than the connection, which is dropped first, and stay at
        // their address. The callbacks use the pointer for shared references only.
        unsafe { library.set_receive_context(context)?.set_send_context(context)? };
        let record = vec![0; RECORD_MAX].into_boxed_slice();
        Ok(Self { library, buffers, hash: key.hash, record, failure: None })
    }

    /// Continues the handshake. Returns false if it needs more input. There may be output then.
    pub(super) fn negotiate(&mut self) -> Result<bool, TlsError> {
        self.make_output(RECORD_MAX);
        match self.library.poll_negotiate() {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) => Err(error.into()),
            Poll::Ready(Ok(_)) => self.check().map(|()| true),
        }
    }

    /// Checks that the handshake has used the key, in the way that the key demands.
    fn check(&self) -> Result<(), TlsError> {
        if self.library.negotiated_psk_identity_length()? == 0 {
            return Err(TlsError("the handshake did not use the pre-shared key"));
        }
        if self.library.actual_protocol_version()? != Version::TLS13 {
            return Err(TlsError("the handshake negotiated another version than TLS 1.3"));
        }
        match self.library.cipher_suite()? == self.hash.suite() {
            true => Ok(()),
            false => Err(TlsError("the handshake negotiated a cipher suite that the key does not permit")),
        }
    }

    /// Adds received bytes, the first `len` ones of a span. All earlier ones must be consumed.
    pub(super) fn feed(&mut self, input: Span, len: usize) {
        assert!(len <= input.len(), "more bytes were received than their memory has");
        self.release_input();
        let mut buffers = self.buffers.borrow_mut();
        (buffers.input, buffers.start, buffers.end) = (Some(input), 0, len);
    }

    /// Releases the memory of received bytes, all of which must be consumed.
    pub(super) fn release_input(&mut self) {
        let mut buffers = self.buffers.borrow_mut();
        assert!(buffers.start == buffers.end, "received bytes were lost");
        (buffers.input, buffers.start, buffers.end) = (None, 0, 0);
    }

    /// True if received bytes are not consumed yet, a part of a record is decrypted and not read,
    /// or a failure is not reported.
    pub(super) fn has_input(&self) -> bool {
        let buffers = self.buffers.borrow();
        buffers.start < buffers.end || self.library.peek_len() > 0 || self.failure.is_some()
    }

    /// Decrypts into the beginning of `into`, as much as was received.
    pub(super) fn decrypt(&mut self, into: &Span) -> Result<Decrypted, TlsError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let mut filled = 0;
        while filled < into.len() {
            let room = (into.len() - filled).min(RECORD_MAX);
            let Some(record) = self.record.get_mut(..room) else { break };
            match self.library.poll_recv(record) {
                Poll::Ready(Ok(0)) if filled == 0 => return Ok(Decrypted::End),
                Poll::Ready(Ok(0)) | Poll::Pending => break,
                Poll::Ready(Ok(count)) => {
                    into.copy_from(filled, record.get(..count).unwrap_or_default());
                    filled += count;
                }
                Poll::Ready(Err(error)) => {
                    self.failure = Some(error.into());
                    break;
                }
            }
        }
        match self.failure {
            _ if filled > 0 => Ok(Decrypted::Bytes(filled)),
            Some(failure) => Err(failure),
            None => Ok(Decrypted::NeedsInput),
        }
    }

    /// Makes room for the records of `len` bytes of data.
    pub(super) fn make_output(&mut self, len: usize) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.output.is_none() {
            // A key update may precede the data, and pieces may be shorter than records.
            let records = len.div_ceil(RECORD_MAX) + 2;
            let memory = Buffer::new(len + records * RECORD_OVERHEAD + MESSAGES).span();
            buffers.output = Some(CipherOutput { memory, len: 0 });
        }
    }

    /// Encrypts data as one record, for which [`Self::make_output`] has made room.
    pub(super) fn encrypt(&mut self, data: &[u8]) -> Result<(), TlsError> {
        let sent = self.library.poll_send(data);
        if let Poll::Ready(Err(error)) = sent {
            return Err(error.into());
        }
        let is_whole = matches!(sent, Poll::Ready(Ok(count)) if count == data.len());
        assert!(is_whole, "a record of {} bytes exceeds its buffer", data.len());
        Ok(())
    }

    /// Writes the alert that ends our stream. The library ends the stream so after most failures
    /// too: alerts that name failures would help attackers.
    pub(super) fn end(&mut self) {
        self.make_output(0);
        // Fails if the peer has ended the session by an alert.
        let _ = self.library.poll_shutdown_send();
    }

    /// Takes the bytes to send.
    pub(super) fn take_output(&mut self) -> Option<Span> {
        let output = self.buffers.borrow_mut().output.take()?;
        (output.len > 0).then(|| output.memory.slice(0..output.len))
    }

    /// Changes the key of the sending direction with the next record, for tests.
    #[cfg(test)]
    pub(super) fn update_keys(&mut self) {
        self.library.request_key_update(s2n_tls::enums::PeerKeyUpdate::KeyUpdateNotRequested).unwrap();
    }

    /// Bytes of the memory of received and encrypted bytes, for tests.
    #[cfg(test)]
    pub(super) fn buffer_bytes(&self) -> usize {
        let buffers = self.buffers.borrow();
        let spans = [buffers.input.as_ref(), buffers.output.as_ref().map(|output| &output.memory)];
        spans.into_iter().flatten().map(|span| span.allocation().1).sum()
    }
}

/// Reports that the call would have to wait.
fn would_block() -> libc::c_int {
    // SAFETY: the location is that of this thread.
    unsafe { *libc::__errno_location() = libc::EAGAIN };
    -1
}

/// Passes received bytes to the session.
///
/// # Safety
/// `context` points to the buffers of a session, and `into` to `len` writable bytes.
unsafe extern "C" fn receive(context: *mut c_void, into: *mut u8, len: u32) -> libc::c_int {
    // SAFETY: set by `TlsSession::new`, for as long as the session lives.
    let buffers = unsafe { &*context.cast::<RefCell<CipherBuffers>>() };
    let Ok(mut buffers) = buffers.try_borrow_mut() else { return would_block() };
    let count = (buffers.end - buffers.start).min(len as usize).min(libc::c_int::MAX as usize);
    if count == 0 {
        return would_block();
    }
    let Some(input) = &buffers.input else { return would_block() };
    let input = input.slice(buffers.start..buffers.start + count);
    // SAFETY: both are valid for `count` bytes, and lie in different allocations. Nothing writes to
    // the input: the operation that has filled it has ended.
    unsafe { ptr::copy_nonoverlapping(input.as_ptr(), into, count) };
    buffers.start += count;
    count as libc::c_int
}

/// Takes encrypted bytes from the session.
///
/// # Safety
/// `context` points to the buffers of a session, and `from` to `len` bytes.
unsafe extern "C" fn send(context: *mut c_void, from: *const u8, len: u32) -> libc::c_int {
    // SAFETY: as in `receive`.
    let buffers = unsafe { &*context.cast::<RefCell<CipherBuffers>>() };
    let Ok(mut buffers) = buffers.try_borrow_mut() else { return would_block() };
    let Some(output) = &mut buffers.output else { return would_block() };
    let count = (output.memory.len() - output.len).min(len as usize).min(libc::c_int::MAX as usize);
    if count == 0 {
        return would_block();
    }
    // SAFETY: valid for `len` bytes, of which these are the first.
    let bytes = unsafe { std::slice::from_raw_parts(from, count) };
    output.memory.copy_from(output.len, bytes);
    output.len += count;
    count as libc::c_int
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
