//! What a connection receives, in the pieces that the protocol has.
//!
//! Owns the receiving half of a connection's stream. Small messages are received many at a time, and the payload of
//! small writes is handed on where it was received. Large payload is received into memory of its own, except for what had
//! come with its header.
//!
//! Always true: bytes come out in the order in which they were sent, each once; memory that payload keeps is charged to the
//! connection's budget before the next message is read. Must not know what they mean.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use reactor::{Buffer, Io, IoError, IoErrorKind, Reactor, Span, Stream};

use super::budget::{Budget, Charge};
use super::end::End;

/// Bytes that are received at once at least, and when little comes.
const STAGE_MIN: usize = 4 << 10;
/// Bytes that are received at once at most.
const STAGE_MAX: usize = 512 << 10;
/// Payload of at most this many bytes is handed on where it was received.
const SMALL_PAYLOAD: usize = 128 << 10;

/// The receiving half of a connection.
pub(super) struct Intake {
    stream: Rc<Stream>,
    /// Where bytes are received: those from `start` to `end` have not been taken yet.
    stage: Rc<Stage>,
    start: usize,
    end: usize,
    /// Earlier stages that payload keeps, and that nobody has been charged for.
    retired: Vec<Rc<Stage>>,
    /// How much the next receive asks for.
    ask: usize,
    /// A receive into the stage behind `end`. Who stops waiting for it may wait again.
    receiving: Option<Io>,
    movement: Rc<Movement>,
}

/// Memory that bytes are received into. Payload of a few bytes keeps all of it.
struct Stage {
    memory: Span,
    /// For what is kept of it once it is not received into any more.
    charge: RefCell<Option<Charge>>,
}

impl Stage {
    fn new(len: usize) -> Rc<Self> {
        Rc::new(Self { memory: Buffer::new(len).span(), charge: RefCell::default() })
    }
}

/// Payload of a message, and what keeps it.
pub(super) struct Payload {
    pub(super) data: Span,
    _stage: Option<Rc<Stage>>,
}

/// What a watchdog sees of one direction of a connection.
#[derive(Default)]
pub(super) struct Movement {
    /// A message has begun and not ended.
    pub(super) within: Cell<bool>,
    /// Counts the parts that were moved.
    pub(super) moved: Cell<u64>,
}

impl Movement {
    pub(super) fn step(&self) {
        self.moved.set(self.moved.get().wrapping_add(1));
    }
}

impl Intake {
    pub(super) fn new(stream: Rc<Stream>) -> Self {
        Self {
            stream,
            stage: Stage::new(STAGE_MIN),
            start: 0,
            end: 0,
            retired: Vec::new(),
            ask: STAGE_MIN,
            receiving: None,
            movement: Rc::default(),
        }
    }

    /// For a watchdog.
    pub(super) fn movement(&self) -> &Rc<Movement> {
        &self.movement
    }

    /// Charges the connection for the memory that payload keeps. Waits for room, so no request may be held that is not
    /// begun: others could wait for its share of what all connections have.
    pub(super) async fn settle(&mut self, budget: &Rc<Budget>) {
        while let Some(stage) = self.retired.last() {
            if Rc::strong_count(stage) > 1 {
                let charge = budget.charge_bytes(stage.memory.len()).await;
                stage.charge.replace(Some(charge));
            }
            self.retired.pop();
        }
    }

    /// The first `N` bytes of a message. The client may close the connection instead.
    pub(super) async fn header<const N: usize>(&mut self) -> Result<[u8; N], End> {
        if self.available() == 0 {
            match self.receive(N).await {
                Ok(true) => {}
                Ok(false) => return Err(End::Left),
                Err(error) if error.kind() == IoErrorKind::Closed => return Err(End::Left),
                Err(error) => return Err(error.into()),
            }
        }
        self.body().await
    }

    /// The next `N` bytes of a message.
    pub(super) async fn body<const N: usize>(&mut self) -> Result<[u8; N], End> {
        self.require(N).await?;
        let mut bytes = [0; N];
        self.stage.memory.copy_to(self.start, &mut bytes);
        self.consume(N);
        Ok(bytes)
    }

    /// The next `length` bytes of a message, a few of them.
    pub(super) async fn bytes(&mut self, length: usize) -> Result<Vec<u8>, End> {
        self.require(length).await?;
        let mut bytes = vec![0; length];
        self.stage.memory.copy_to(self.start, &mut bytes);
        self.consume(length);
        Ok(bytes)
    }

    /// The next `length` bytes of a message, where they are.
    pub(super) async fn payload(&mut self, length: usize) -> Result<Payload, End> {
        if length > SMALL_PAYLOAD {
            return Ok(Payload { data: self.large_payload(length).await?, _stage: None });
        }
        self.require(length).await?;
        let data = self.stage.memory.slice(self.start..self.start + length);
        self.consume(length);
        Ok(Payload { data, _stage: Some(self.stage.clone()) })
    }

    async fn large_payload(&mut self, length: usize) -> Result<Span, End> {
        let payload = Buffer::new(length).span();
        let staged = self.available().min(length);
        payload.slice(0..staged).copy_from_span(&self.stage.memory.slice(self.start..self.start + staged));
        self.consume(staged);
        if staged < length {
            self.movement.within.set(true);
            self.stream.read_exact(&[payload.slice(staged..length)]).await?;
            self.movement.step();
        }
        // What comes with the next header would have to be copied too.
        self.ask = STAGE_MIN;
        Ok(payload)
    }

    /// Passes over the next `length` bytes of a message.
    pub(super) async fn skip(&mut self, length: u64) -> Result<(), End> {
        let mut left = length;
        while left > 0 {
            if self.available() == 0 {
                self.require(1).await?;
            }
            let step = usize::try_from(left).map_or(self.available(), |left| left.min(self.available()));
            self.consume(step);
            left -= step as u64;
        }
        Ok(())
    }

    fn available(&self) -> usize {
        self.end - self.start
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        self.movement.within.set(false);
    }

    /// Receives until `count` bytes are available, in the middle of a message.
    async fn require(&mut self, count: usize) -> Result<(), End> {
        while self.available() < count {
            self.movement.within.set(true);
            if !self.receive(count).await? {
                return Err(End::Cut);
            }
        }
        Ok(())
    }

    /// Receives what there is, into a stage that has room for `count` bytes that are not taken yet. False if nothing will
    /// ever come.
    async fn receive(&mut self, count: usize) -> Result<bool, IoError> {
        if self.receiving.is_none() {
            self.make_room(count);
            let receive = self.stream.read(&self.stage.memory.slice(self.end..self.stage.memory.len()));
            let at_once = receive.is_done();
            self.receiving = Some(receive);
            if at_once {
                // A client that sends faster than we read must not keep the others waiting.
                Reactor::current().yield_now().await;
            }
        }
        let Some(receive) = &mut self.receiving else { unreachable!("a receive has just been begun") };
        let received = receive.await;
        self.receiving = None;
        let received = received?;
        self.movement.step();
        self.ask = adapted(self.ask, received, self.stage.memory.len() - self.end);
        self.end += received;
        Ok(received > 0)
    }

    /// Passes over everything until the client closes the connection.
    pub(super) async fn discard(&mut self) {
        while let Ok(true) = self.receive(1).await {
            self.start = self.end;
        }
    }

    /// Sees to it that the stage has room for `count` bytes from the first one that is not taken, and for half of what
    /// is to be asked for. Payload that was handed on keeps the old stage.
    fn make_room(&mut self, count: usize) {
        if self.stage.memory.len() - self.start >= count.max(self.ask / 2) {
            return;
        }
        let available = self.available();
        let stage = Stage::new(count.max(self.ask));
        stage.memory.slice(0..available).copy_from_span(&self.stage.memory.slice(self.start..self.end));
        let old = std::mem::replace(&mut self.stage, stage);
        if Rc::strong_count(&old) > 1 {
            self.retired.push(old);
        }
        (self.start, self.end) = (0, available);
    }
}

/// How much to ask for after `received` bytes came, and `room` could have.
fn adapted(ask: usize, received: usize, room: usize) -> usize {
    if received == room {
        (2 * ask).min(STAGE_MAX)
    } else if received < ask / 4 {
        (ask / 2).max(STAGE_MIN)
    } else {
        ask
    }
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
