//! A load over one NBD connection, for machines without fio.
//!
//! Pipelines the requests; the protocol is the client's.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

pub use export::nbd::client::BlockingClient;
use export::nbd::client::{Command, Replies};

use crate::result::{DirectionFigures, JobResult};
use crate::sample::Recorder;
use crate::suite::Job;

/// Maximum time to wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Opens the export `name` behind a Unix socket.
///
/// # Errors
/// If no NBD server listens there, or the export does not exist.
pub fn connect(socket: &Path, name: &str) -> io::Result<BlockingClient> {
    Ok(BlockingClient::connect_unix(socket, name, Replies::Simple, REPLY_TIMEOUT)?)
}

/// A request in flight.
#[derive(Clone, Copy)]
struct Pending {
    started: Instant,
    read: bool,
}

/// The counters of one direction.
struct DirectionRecorder {
    recorder: Recorder,
    bytes: u64,
}

impl DirectionRecorder {
    fn figures(&self, elapsed: f64) -> Option<DirectionFigures> {
        (self.recorder.count() > 0).then(|| self.recorder.figures(self.bytes, elapsed))
    }
}

/// Runs a job on the first `size` bytes of an export, over one connection.
///
/// # Errors
/// The server's error, or that of the connection.
pub fn run_job(socket: &Path, name: &str, job: &Job, size: u64, seconds: u64) -> io::Result<JobResult> {
    let mut client = connect(socket, name)?;
    let blocks = (size.min(client.size()) / job.block_bytes).max(1);
    let length = u32::try_from(job.block_bytes).map_err(|_| invalid("block size too large for NBD"))?;
    let mut data = vec![0u8; length as usize];
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = move || {
        // xorshift64 (Marsaglia, 2003).
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut sequential = 0;
    let mut pending = vec![Pending { started: Instant::now(), read: true }; job.depth as usize];
    let mut counted = [true, false].map(|_| DirectionRecorder { recorder: Recorder::new(), bytes: 0 });
    let start = Instant::now();
    let mut submit = |client: &mut BlockingClient, data: &mut [u8], slot: usize, pending: &mut [Pending]| {
        let block = if job.random { next() % blocks } else { sequential % blocks };
        sequential += 1;
        let read = next() % 100 < u64::from(job.read_percent);
        if let Some(entry) = pending.get_mut(slot) {
            *entry = Pending { started: Instant::now(), read };
        }
        let payload: &[u8] = if read {
            &[]
        } else {
            let stamp = next().to_le_bytes();
            data.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&stamp));
            data
        };
        let command = if read { Command::Read } else { Command::Write };
        client.submit(command, slot as u64, block * job.block_bytes, length, payload)
    };
    for slot in 0..pending.len() {
        submit(&mut client, &mut data, slot, &mut pending)?;
    }
    let mut in_flight = pending.len();
    while in_flight > 0 {
        let slot = usize::try_from(client.next_simple_reply()?).unwrap_or(usize::MAX);
        let Some(Pending { started, read }) = pending.get(slot).copied() else {
            return Err(invalid("a reply without a request"));
        };
        if read {
            client.receive(&mut data)?;
        }
        if let Some(counted) = counted.get_mut(usize::from(!read)) {
            counted.recorder.record(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
            counted.bytes += job.block_bytes;
        }
        if start.elapsed() < Duration::from_secs(seconds) {
            submit(&mut client, &mut data, slot, &mut pending)?;
        } else {
            in_flight -= 1;
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    let [read, write] = counted.map(|counted| counted.figures(elapsed));
    Ok(JobResult { job: job.name.clone(), runner: "built-in load, one connection".into(), read, write })
}
