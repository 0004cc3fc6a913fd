//! A TLS session on a socket connection.
//!
//! Owns the transfers of encrypted bytes. Always true: a wait that is dropped loses no encrypted
//! bytes, in either direction: the next call continues its transfer; one receive and one send are
//! in flight at a time; a task yields after each receive that ends at once; a failure is final.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use reactor::{Buffer, Io, IoError, IoErrorKind, Span, Stream};

use super::session::{Decrypted, RECORD_MAX, TlsError, TlsKey, TlsSession};

/// The smallest receive, in bytes: a record of data with a small reply fits.
const INPUT_MIN: usize = 4 << 10;
/// The largest receive, in bytes.
const INPUT_MAX: usize = 128 << 10;
/// Data of up to this many bytes is encrypted before it is sent.
const SEND_MAX: usize = 112 << 10;
/// Bytes of the memory of a send: a power of two, into which the records of [`SEND_MAX`] fit.
const OUTPUT_MAX: usize = 128 << 10;
/// A handshake fails once it has received this many bytes after the first message: two messages of
/// the length that a first message may have.
const HANDSHAKE_MAX: usize = 32 << 10;

/// A connection within TLS. One read and one write may be in progress at a time.
pub(crate) struct TlsStream {
    stream: Rc<Stream>,
    session: RefCell<TlsSession>,
    /// The receive in flight, and its memory.
    receiving: RefCell<Option<(Io, Span)>>,
    /// The send in flight, and its memory.
    sending: RefCell<Option<(Io, Span)>>,
    /// The size of the next receive.
    next_size: Cell<usize>,
    /// The stream of the peer has ended.
    ended: Cell<bool>,
    failure: Cell<Option<TlsError>>,
}

impl TlsStream {
    /// The most bytes of memory of a session: received bytes, encrypted bytes, and the session of
    /// the library. During the handshake, the library holds more, and the others are short.
    pub(crate) const BYTES: usize = INPUT_MAX + OUTPUT_MAX + TlsSession::BYTES;

    /// Begins a session with a client that was found to know the key. `received` are the bytes
    /// that the client has sent so far.
    ///
    /// # Errors
    /// If the library cannot create a session.
    pub(crate) fn accept(stream: Rc<Stream>, key: &TlsKey, received: &[u8]) -> Result<Rc<Self>, TlsError> {
        let mut session = TlsSession::server(key)?;
        session.feed(Buffer::copy_of(received).span(), received.len());
        Ok(Self::new(stream, session))
    }

    /// Begins a session with a server, for tests.
    #[cfg(test)]
    pub(crate) fn connect(stream: Rc<Stream>, key: &TlsKey) -> Rc<Self> {
        Self::new(stream, TlsSession::client(key).unwrap())
    }

    fn new(stream: Rc<Stream>, session: TlsSession) -> Rc<Self> {
        Rc::new(Self {
            stream,
            session: RefCell::new(session),
            receiving: RefCell::default(),
            sending: RefCell::default(),
            next_size: Cell::new(INPUT_MIN),
            ended: Cell::new(false),
            failure: Cell::default(),
        })
    }

    /// The connection below.
    pub(crate) fn stream(&self) -> &Rc<Stream> {
        &self.stream
    }

    /// The failure of the session, if it has failed: other errors are those of the connection.
    pub(crate) fn failure(&self) -> Option<TlsError> {
        self.failure.get()
    }

    /// Begins the receive of the next read, if the read needs one.
    pub(crate) fn begin_read(&self) {
        if !self.is_readable() {
            self.begin_receive();
        }
    }

    /// True if the next read ends without a receive, or its receive has ended: it may need no wait.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_readable() || self.receiving.borrow().as_ref().is_some_and(|(io, _)| io.is_done())
    }

    /// True if the next read may end without a receive.
    fn is_readable(&self) -> bool {
        self.ended.get() || self.failure.get().is_some() || self.session.borrow().has_input()
    }

    /// Completes the handshake.
    ///
    /// # Errors
    /// If the session or the connection fails. A failed session has sent the alert that ends its
    /// stream, unless the peer had sent one before.
    pub(crate) async fn negotiate(&self) -> Result<(), IoError> {
        let mut received = 0;
        loop {
            let progress = match self.session.borrow_mut().negotiate() {
                Ok(false) if received >= HANDSHAKE_MAX => Err(TlsError("the handshake is too long")),
                progress => progress,
            };
            if progress.is_err() {
                self.session.borrow_mut().end();
            }
            self.send_output();
            self.sent().await?;
            if progress.map_err(|error| self.fail(error))? {
                return Ok(());
            }
            match poll_fn(|context| self.poll_receive(context)).await? {
                0 => return Err(IoError::new(IoErrorKind::Closed)),
                count => received += count,
            }
        }
    }

    /// Reads the bytes that are available, up to the length of `into`. Returns their number; 0 at
    /// the end of the stream. A peer may end its connection without an end of the session: its
    /// messages have lengths, which show whether they are complete.
    pub(crate) fn poll_read(&self, context: &mut Context<'_>, into: &Span) -> Poll<Result<usize, IoError>> {
        if into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            if self.failure.get().is_some() {
                return Poll::Ready(Err(IoError::new(IoErrorKind::Other)));
            }
            let decrypted = self.session.borrow_mut().decrypt(into);
            match decrypted.map_err(|error| self.fail(error))? {
                Decrypted::Bytes(count) => return Poll::Ready(Ok(count)),
                Decrypted::End => return Poll::Ready(Ok(0)),
                Decrypted::NeedsInput if self.ended.get() => return Poll::Ready(Ok(0)),
                Decrypted::NeedsInput => {
                    ready!(self.poll_receive(context))?;
                }
            }
        }
    }

    /// Reads until every span is full. Fails as closed if the stream ends first.
    pub(crate) async fn read_exact(&self, into: &[Span]) -> Result<(), IoError> {
        for span in into {
            let mut filled = 0;
            while filled < span.len() {
                let rest = span.slice(filled..span.len());
                match poll_fn(|context| self.poll_read(context, &rest)).await? {
                    0 => return Err(IoError::new(IoErrorKind::Closed)),
                    count => filled += count,
                }
            }
        }
        Ok(())
    }

    /// Begins a receive, unless one is in flight. The session has consumed all earlier bytes, whose
    /// memory is released first. Returns true if the receive has ended.
    fn begin_receive(&self) -> bool {
        let mut receiving = self.receiving.borrow_mut();
        let (io, _) = receiving.get_or_insert_with(|| {
            self.session.borrow_mut().release_input();
            let input = Buffer::new(self.next_size.get()).span();
            (self.stream.read(&input), input)
        });
        io.is_done()
    }

    /// Receives encrypted bytes for the session, which has consumed all earlier ones. Returns their
    /// number; 0 at the end of the connection.
    fn poll_receive(&self, context: &mut Context<'_>) -> Poll<Result<usize, IoError>> {
        let is_new = self.receiving.borrow().is_none();
        if self.begin_receive() && is_new {
            // A peer that sends faster than the session decrypts must not starve other tasks.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut receiving = self.receiving.borrow_mut();
        let Some((io, input)) = receiving.as_mut() else { unreachable!("a receive has been begun") };
        let received = ready!(Pin::new(io).poll(context));
        let input = input.clone();
        *receiving = None;
        let count = received?;
        if count == input.len() {
            self.next_size.set((2 * count).min(INPUT_MAX));
        } else if count < input.len() / 4 {
            self.next_size.set((input.len() / 2).max(INPUT_MIN));
        }
        self.ended.set(count == 0);
        self.session.borrow_mut().feed(input, count);
        Poll::Ready(Ok(count))
    }

    /// Writes every span, in order.
    pub(crate) async fn write_all(&self, from: &[Span]) -> Result<(), IoError> {
        // A dropped call may have left a send in flight: encrypted bytes are sent in their order.
        self.sent().await?;
        let mut rest = PlainBytes { spans: from, offset: 0 };
        while !rest.is_empty() {
            let encrypted = rest.encrypt_some(&mut self.session.borrow_mut());
            encrypted.map_err(|error| self.fail(error))?;
            self.send_output();
            self.sent().await?;
        }
        Ok(())
    }

    /// Begins to send the encrypted bytes. No other send is in flight.
    fn send_output(&self) {
        if let Some(output) = self.session.borrow_mut().take_output() {
            let io = self.stream.write_all(std::slice::from_ref(&output));
            *self.sending.borrow_mut() = Some((io, output));
        }
    }

    /// Waits until no send is in flight.
    async fn sent(&self) -> Result<(), IoError> {
        poll_fn(|context| self.poll_sent(context)).await
    }

    fn poll_sent(&self, context: &mut Context<'_>) -> Poll<Result<(), IoError>> {
        let mut sending = self.sending.borrow_mut();
        let Some((io, _)) = sending.as_mut() else { return Poll::Ready(Ok(())) };
        let sent = ready!(Pin::new(io).poll(context));
        *sending = None;
        Poll::Ready(sent.map(|_| ()))
    }

    /// Ends the stream in the sending direction, by the alert for it.
    pub(crate) async fn shutdown(&self) -> Result<(), IoError> {
        self.sent().await?;
        self.session.borrow_mut().end();
        self.send_output();
        self.sent().await?;
        self.stream.shutdown()
    }

    fn fail(&self, error: TlsError) -> IoError {
        self.failure.set(Some(error));
        IoError::new(IoErrorKind::Other)
    }

    /// Changes the key of the sending direction with the next write.
    #[cfg(test)]
    pub(crate) fn update_keys(&self) {
        self.session.borrow_mut().update_keys();
    }

    /// Bytes of the memory of received and encrypted bytes, for tests.
    #[cfg(test)]
    fn transfer_bytes(&self) -> usize {
        let memory = |transfer: &RefCell<Option<(Io, Span)>>| {
            transfer.borrow().as_ref().map_or(0, |(_, memory)| memory.allocation().1)
        };
        memory(&self.receiving) + memory(&self.sending) + self.session.borrow().buffer_bytes()
    }
}

/// Data that is being written.
struct PlainBytes<'a> {
    spans: &'a [Span],
    /// Bytes of the first span that were taken.
    offset: usize,
}

impl PlainBytes<'_> {
    fn is_empty(&self) -> bool {
        self.spans.iter().map(Span::len).sum::<usize>() == self.offset
    }

    /// Takes up to `most` bytes of one span.
    fn take(&mut self, most: usize) -> Option<Span> {
        loop {
            let (first, rest) = self.spans.split_first()?;
            let end = first.len().min(self.offset.saturating_add(most));
            if end > self.offset {
                let taken = first.slice(self.offset..end);
                self.offset = end;
                return Some(taken);
            }
            (self.spans, self.offset) = (rest, 0);
        }
    }

    /// Encrypts up to [`SEND_MAX`] bytes. Small pieces share records: each record costs bytes and
    /// time.
    fn encrypt_some(&mut self, session: &mut TlsSession) -> Result<(), TlsError> {
        let left: usize = self.spans.iter().map(Span::len).sum::<usize>() - self.offset;
        session.make_output(left.min(SEND_MAX));
        let (mut gathered, mut taken) = (Vec::new(), 0);
        while taken < SEND_MAX {
            let room = (RECORD_MAX - gathered.len()).min(SEND_MAX - taken);
            let Some(piece) = self.take(room) else { break };
            taken += piece.len();
            if gathered.is_empty() && piece.len() == RECORD_MAX {
                piece.peek(|bytes| session.encrypt(bytes))?;
                continue;
            }
            piece.peek(|bytes| gathered.extend_from_slice(bytes));
            if gathered.len() == RECORD_MAX {
                session.encrypt(&gathered)?;
                gathered.clear();
            }
        }
        if gathered.is_empty() { Ok(()) } else { session.encrypt(&gathered) }
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
