//! The load on one queue: keeps commands in flight, measures their latency and verifies reads.
//!
//! Invariants: the id of a command is not reused until it completes; a PDU for another id than that
//! of a command in flight ends the load; only completions within the window count. The clock is
//! read once for all PDUs that arrive together.

use std::collections::VecDeque;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::controller::{ConnectedQueue, NAMESPACE};
use super::pdu::{COMMON, Entry, ReadyToTransfer, TargetPdu, push_command, push_data, u32_at};
use crate::block_stamps;
use crate::disk_bench::{LoadCounters, RequestSequence, Window};

const BLOCK: usize = 4096;
const WRITE: u8 = 1;
const READ: u8 = 2;

/// The specification of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct NvmeLoadSpec {
    pub(super) block_bytes: u32,
    pub(super) read_percent: u8,
    pub(super) random: bool,
    pub(super) depth: u16,
    /// Seed: loads with different seeds access different offsets.
    pub(super) seed: u32,
    /// Bytes of the namespace to use, and of one of its sectors.
    pub(super) size: u64,
    pub(super) sector: u32,
    /// The first block of a sequential load.
    pub(super) first: u64,
    /// The most bytes of data in a capsule.
    pub(super) capsule: u32,
    /// True to stamp written blocks with their number.
    pub(super) written: bool,
    /// True to verify the stamps of read blocks.
    pub(super) verified: bool,
    /// Maximum number of commands.
    pub(super) limit: u64,
}

#[derive(Clone, Copy, Default)]
struct Command {
    /// True from the submission to the completion.
    is_in_flight: bool,
    started: u64,
    offset: u64,
    read: bool,
    /// Bytes of data that have arrived.
    received: usize,
}

/// A load on one queue.
pub(super) struct NvmeLoad {
    pub(super) queue: ConnectedQueue,
    spec: NvmeLoadSpec,
    window: Window,
    commands: Vec<Command>,
    free: Vec<u16>,
    /// Received bytes that are not processed: a part of `received`.
    received: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes to send; those before `sent` are sent.
    out: Vec<u8>,
    sent: usize,
    transfers: VecDeque<ReadyToTransfer>,
    /// The data of a write; the stamps of its blocks are set for each command.
    data: Vec<u8>,
    requests: RequestSequence,
    begun: u64,
    heard: u64,
    pub(super) counted: LoadCounters,
    /// A violation of the protocol, or a failure of the connection.
    pub(super) problem: Option<String>,
}

impl NvmeLoad {
    pub(super) fn new(queue: ConnectedQueue, spec: NvmeLoadSpec, window: Window) -> Self {
        // Bytes that no drive can compress.
        let mut data = vec![0; spec.block_bytes as usize];
        SmallRng::seed_from_u64(spec.seed.into()).fill(data.as_mut_slice());
        // A PDU that is not complete, and the bytes that arrive with it.
        let room = (4 << 20).max(4 * spec.block_bytes as usize);
        Self {
            commands: vec![Command::default(); usize::from(spec.depth)],
            free: (0..spec.depth).rev().collect(),
            received: vec![0; room],
            start: 0,
            end: 0,
            out: Vec::new(),
            sent: 0,
            transfers: VecDeque::new(),
            data,
            requests: RequestSequence::new(
                (spec.read_percent, spec.random),
                (0, spec.size),
                spec.block_bytes,
                spec.first,
                spec.seed,
            ),
            begun: 0,
            heard: 0,
            counted: LoadCounters::new(),
            problem: None,
            queue,
            spec,
            window,
        }
    }

    /// Processes the bytes that have arrived, and submits commands. Returns true when the load has
    /// ended.
    pub(super) fn poll(&mut self) -> bool {
        if let Err(error) = self.receive() {
            return self.fail(format!("the connection failed: {error}"));
        }
        let now = self.window.now();
        if self.begun == 0 {
            self.heard = now;
        }
        while let Some((start, length)) = self.next_pdu() {
            self.heard = now;
            self.process(start, length, now);
        }
        if self.problem.is_some() {
            return true;
        }
        let is_idle = self.free.len() == self.commands.len();
        let is_over = self.counted.is_over(&self.window, now) || self.begun >= self.spec.limit;
        if is_over && is_idle {
            self.counted.finish(&self.window, now);
            return true;
        }
        if !is_idle && self.counted.check_stuck(self.heard, now) {
            return true;
        }
        while !is_over
            && self.begun < self.spec.limit
            && let Some(id) = self.free.pop()
        {
            self.begin(id, now);
        }
        match self.send() {
            Ok(()) => false,
            Err(error) => self.fail(format!("the connection failed: {error}")),
        }
    }

    fn fail(&mut self, problem: String) -> bool {
        self.problem = Some(problem);
        true
    }

    /// Receives the bytes that have arrived.
    fn receive(&mut self) -> std::io::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.received.len() - self.end < self.received.len() / 2 {
            self.received.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let space = self.received.get_mut(self.end..).unwrap_or_default();
        match rustix::net::recv(&self.queue.stream, space, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok((count, _)) => {
                self.end += count;
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                std::hint::spin_loop();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the next whole PDU: its place and its length.
    fn next_pdu(&mut self) -> Option<(usize, usize)> {
        let left = self.received.get(self.start..self.end)?;
        if left.len() < COMMON {
            return None;
        }
        let length = (u32_at(left, 4) as usize).max(COMMON);
        if length > self.received.len() / 2 {
            self.problem = Some(format!("the target sent a PDU of {length} bytes"));
            return None;
        }
        if left.len() < length {
            return None;
        }
        let start = self.start;
        self.start += length;
        Some((start, length))
    }

    /// Processes the PDU at this place.
    fn process(&mut self, start: usize, length: usize, now: u64) {
        let received = std::mem::take(&mut self.received);
        let pdu = TargetPdu::decode(received.get(start..start + length).unwrap_or_default());
        let completed = match pdu {
            TargetPdu::Response { command, status, .. } => {
                self.counted.failed += u64::from(status != 0);
                Some(command)
            }
            TargetPdu::Data { command, .. } | TargetPdu::Ready(ReadyToTransfer { command, .. })
                if !self.is_in_flight(command) =>
            {
                self.refuse(command);
                None
            }
            TargetPdu::Data { command, offset, bytes, completes } => {
                self.verify(command, offset, bytes);
                completes.then_some(command)
            }
            TargetPdu::Ready(ready) => {
                self.transfers.push_back(ready);
                None
            }
            TargetPdu::Unexpected(kind) => {
                self.problem = Some(format!("the target sent a PDU of type {kind}"));
                None
            }
        };
        self.received = received;
        if let Some(command) = completed {
            self.finish(command, now);
        }
    }

    fn is_in_flight(&self, id: u16) -> bool {
        self.commands.get(usize::from(id)).is_some_and(|command| command.is_in_flight)
    }

    /// Ends the load after a PDU for a command that was not submitted, or has completed.
    fn refuse(&mut self, id: u16) {
        self.problem = Some(format!("the target answered command {id}, which is not in flight"));
    }

    /// Checks the stamps of blocks that have arrived.
    fn verify(&mut self, command: u16, offset: usize, bytes: &[u8]) {
        let Some(place) = self.commands.get_mut(usize::from(command)) else { return };
        place.received += bytes.len();
        if !self.spec.verified {
            return;
        }
        if !(offset | bytes.len()).is_multiple_of(BLOCK) {
            self.problem = Some("the target splits blocks of 4 KiB, which cannot be verified".into());
            return;
        }
        let wrong = block_stamps::wrong_blocks(bytes, place.offset + offset as u64);
        self.counted.count_wrong(wrong);
    }

    fn begin(&mut self, id: u16, now: u64) {
        let (read, offset) = self.requests.next();
        self.begun += 1;
        let Some(place) = self.commands.get_mut(usize::from(id)) else { return };
        *place = Command { is_in_flight: true, started: now, offset, read, received: 0 };
        let (length, sector) = (self.spec.block_bytes, self.spec.sector);
        let in_capsule = !read && length <= self.spec.capsule;
        let mut entry = Entry::new(if read { READ } else { WRITE }, id, NAMESPACE, length, in_capsule);
        entry.set(40, &(offset / u64::from(sector)).to_le_bytes());
        // The count is less by one.
        entry.set(48, &(length / sector - 1).to_le_bytes());
        if in_capsule && self.spec.written {
            block_stamps::stamp(&mut self.data, offset);
        }
        push_command(&mut self.out, &entry, if in_capsule { &self.data } else { &[] });
    }

    /// Sends queued bytes, and the data that the target has asked for.
    fn send(&mut self) -> std::io::Result<()> {
        loop {
            if self.sent == self.out.len() {
                self.out.clear();
                self.sent = 0;
                let Some(ready) = self.transfers.pop_front() else { return Ok(()) };
                self.queue_data(&ready);
            }
            let left = self.out.get(self.sent..).unwrap_or_default();
            match rustix::net::send(&self.queue.stream, left, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn queue_data(&mut self, ready: &ReadyToTransfer) {
        let Some(command) = self.commands.get(usize::from(ready.command)) else { return };
        if self.spec.written {
            block_stamps::stamp(&mut self.data, command.offset);
        }
        let end = (ready.offset + ready.length).min(self.data.len());
        let all = self.data.get(ready.offset..end).unwrap_or_default();
        let parts = all.len().div_ceil(self.queue.data_max);
        for (index, part) in all.chunks(self.queue.data_max).enumerate() {
            push_data(&mut self.out, ready, index * self.queue.data_max, part, index + 1 == parts);
        }
    }

    /// Completes a command.
    fn finish(&mut self, id: u16, now: u64) {
        let in_flight = self.commands.get_mut(usize::from(id)).filter(|command| command.is_in_flight);
        let Some(command) = in_flight else { return self.refuse(id) };
        command.is_in_flight = false;
        let command = *command;
        if command.read && command.received != self.spec.block_bytes as usize {
            self.counted.count_wrong(1);
        }
        self.counted.count(&self.window, command.read, command.started, now);
        self.free.push(id);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;
    use crate::disk_bench::RunLength;

    /// Returns a load with one read of 4 KiB in flight, and the target's end of its connection.
    fn one_read() -> (NvmeLoad, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut target, _) = listener.accept().unwrap();
        let spec = NvmeLoadSpec {
            block_bytes: 4096,
            read_percent: 100,
            random: false,
            depth: 2,
            seed: 0,
            size: 1 << 20,
            sector: 4096,
            first: 0,
            capsule: 8192,
            written: false,
            verified: false,
            limit: 1,
        };
        let window = Window::begin(RunLength::Requests(1));
        let mut load = NvmeLoad::new(ConnectedQueue { stream, data_max: 4096 }, spec, window);
        assert!(!load.poll());
        // A command of 64 bytes after its header.
        target.read_exact(&mut [0; 72]).unwrap();
        (load, target)
    }

    /// Returns a completion of a command.
    fn response(id: u16) -> [u8; 24] {
        let mut pdu = [0; 24];
        (pdu[0], pdu[2], pdu[4]) = (5, 24, 24);
        pdu[20..22].copy_from_slice(&id.to_le_bytes());
        pdu
    }

    fn polled(load: &mut NvmeLoad) {
        let begin = std::time::Instant::now();
        while !load.poll() {
            assert!(begin.elapsed() < Duration::from_secs(30), "the load ends");
        }
    }

    #[test]
    fn a_command_completes_once() {
        let (mut load, mut target) = one_read();
        let id = 0;
        target.write_all(&[response(id), response(id)].concat()).unwrap();
        polled(&mut load);
        assert_eq!(load.problem.as_deref(), Some("the target answered command 0, which is not in flight"));
        let counts = load.counted.sides.each_ref().map(crate::sample::Recorder::count);
        assert_eq!(counts, [1, 0]);
    }

    #[test]
    fn only_commands_in_flight_complete() {
        for id in [1, 2] {
            let (mut load, mut target) = one_read();
            target.write_all(&response(id)).unwrap();
            polled(&mut load);
            assert!(load.problem.unwrap().contains("not in flight"));
        }
        let (mut load, mut target) = one_read();
        target.write_all(&response(0)).unwrap();
        polled(&mut load);
        assert_eq!(load.problem, None);
    }
}
