//! Measures the processor time of random 4 KiB operations on RBD images: by the library alone in
//! this process, by a minimal server, and by servers that export images over NBD.
//!
//!     rbd_cpu fill DIRECTORY IMAGE                          write an image from end to end
//!     rbd_cpu direct DIRECTORY IMAGE JOB DEPTH SECONDS      the library alone
//!     rbd_cpu relay DIRECTORY IMAGE WAKES JOB DEPTH SECONDS
//!                                                           a minimal server that wakes one or two
//!                                                           times for an operation
//!     rbd_cpu nbd SOCKET EXPORT PID JOB DEPTH SECONDS       a server, by its process id
//!     rbd_cpu compare ROUNDS DEPTH SECONDS CORE NAME=PART,... NAME=PART,... ...
//!                                                           both in turn, with medians
//!
//! DIRECTORY is that of a cluster, JOB is `read` or `write`, and the parts of `compare` are those
//! of the other commands before JOB, joined with commas, as in `librbd=direct,DIR,IMAGE`. The loads
//! of `compare` run on CORE (`taskset`). The processor time of the library alone includes that of
//! its load; the time of a server does not include that of the client.
#![allow(clippy::big_endian_bytes, reason = "the numbers of NBD are big-endian")]

mod relay;

use std::collections::BTreeMap;
use std::error::Error;
use std::future::Future;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::Pin;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use ceph::{OpenImage, RbdImage, RbdPool, VOLUMES_USER, options_of};
use reactor::Buffer;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const BLOCK: u64 = 4096;
const WARM_UP: Duration = Duration::from_millis(500);
const CLOSE_WAIT: Duration = Duration::from_secs(30);
/// Bytes of an operation that fills an image.
const FILL: u64 = 1 << 20;
const FILL_DEPTH: usize = 4;
const POOL: &str = "rbd";
/// Commands and replies of NBD (doc/proto.md of its project).
const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
const NBD_OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const NBD_OPTION_EXPORT_NAME: u32 = 1;
const NBD_REQUEST: u32 = 0x2560_9513;
const NBD_REPLY: u32 = 0x6744_6698;
const NBD_READ: u16 = 0;
const NBD_WRITE: u16 = 1;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["fill", directory, image] => with_image(directory, image, fill),
        ["direct", directory, image, job, depth, seconds] => {
            let load = LoadPlan::parse(job, depth, seconds)?;
            with_image(directory, image, |image| direct(&load, image))?.print();
            Ok(())
        }
        ["relay", directory, image, wakes @ ("one" | "two"), job, depth, seconds] => {
            let load = LoadPlan::parse(job, depth, seconds)?;
            let wakes_twice = *wakes == "two";
            with_image(directory, image, |image| relay::relay(&load, image, wakes_twice))?.print();
            Ok(())
        }
        ["nbd", socket, export, pid, job, depth, seconds] => {
            let load = LoadPlan::parse(job, depth, seconds)?;
            nbd(&load, socket, export, pid.parse()?)?.print();
            Ok(())
        }
        ["compare", rounds, depth, seconds, core, parties @ ..] if !parties.is_empty() => {
            compare(rounds.parse()?, depth, seconds, core, parties)
        }
        _ => Err("usage: rbd_cpu fill | direct | relay | nbd | compare; see the source".into()),
    }
}

/// A load.
struct LoadPlan {
    writes: bool,
    depth: usize,
    length: Duration,
}

impl LoadPlan {
    fn parse(job: &str, depth: &str, seconds: &str) -> Outcome<Self> {
        let writes = match job {
            "read" => false,
            "write" => true,
            _ => return Err(format!("'{job}' is neither read nor write").into()),
        };
        Ok(Self { writes, depth: depth.parse()?, length: Duration::from_secs_f64(seconds.parse()?) })
    }
}

/// The result of a load.
struct Measured {
    operations: u64,
    seconds: f64,
    cpu_seconds: f64,
}

impl Measured {
    #[allow(clippy::cast_precision_loss)]
    fn print(&self) {
        let operations = self.operations as f64;
        println!("{:.1} {:.3}", operations / self.seconds, self.cpu_seconds * 1e6 / operations.max(1.0));
    }
}

/// Random offsets (xorshift).
struct Offsets {
    state: u64,
    blocks: u64,
}

impl Offsets {
    fn new(bytes: u64) -> Self {
        Self { state: 0x9E37_79B9_7F4A_7C15 ^ u64::from(std::process::id()), blocks: bytes / BLOCK }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % self.blocks * BLOCK
    }
}

/// Processor time of all threads of a process in seconds, from the kernel's accounting.
fn cpu_seconds(pid: u32) -> Outcome<f64> {
    let mut nanos = 0u64;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has exited no longer counts.
        let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        nanos += text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos).as_secs_f64())
}

/// Works with an open image, and then waits until its lock is free for the next process.
fn with_image<T>(
    directory: &str,
    image: &str,
    work: impl FnOnce(&Arc<RbdImage>) -> Outcome<T>,
) -> Outcome<T> {
    let path = Path::new(directory);
    let name = path.file_name().and_then(|name| name.to_str()).ok_or("the directory has no name")?;
    let pool = RbdPool::connect(&options_of(name, path, VOLUMES_USER)?, POOL)?;
    let image = RbdImage::open(&pool, &OpenImage { exclusive: true, ..OpenImage::new(image) })?;
    let result = work(&image);
    drop(image);
    if !pool.wait_idle(CLOSE_WAIT) {
        return Err("the image was not closed in time".into());
    }
    result
}

fn fill(image: &Arc<RbdImage>) -> Outcome {
    let mut buffer = Buffer::zeroed(usize::try_from(FILL)?);
    buffer.as_mut_slice().fill(7);
    let span = buffer.span();
    let mut next = 0;
    run(FILL_DEPTH, |_| {
        let at = next;
        next += FILL;
        let (image, span) = (image.clone(), span.clone());
        (at < image.size()).then_some(async move { image.write(at, &span).await })
    })
}

fn direct(load: &LoadPlan, image: &Arc<RbdImage>) -> Outcome<Measured> {
    let mut offsets = Offsets::new(image.size());
    let spans: Vec<_> = (0..load.depth).map(|_| Buffer::zeroed(4096).span()).collect();
    let mut timed = |length: Duration| -> Outcome<Measured> {
        let (start, before) = (Instant::now(), cpu_seconds(std::process::id())?);
        let mut operations = 0;
        run(load.depth, |slot| {
            if start.elapsed() > length {
                return None;
            }
            operations += 1;
            let (image, span, at) = (image.clone(), spans.get(slot)?.clone(), offsets.next());
            let writes = load.writes;
            Some(
                async move { if writes { image.write(at, &span).await } else { image.read(at, &span).await } },
            )
        })?;
        let seconds = start.elapsed().as_secs_f64();
        Ok(Measured { operations, seconds, cpu_seconds: cpu_seconds(std::process::id())? - before })
    };
    timed(WARM_UP)?;
    timed(load.length)
}

/// Wakes the executor for one slot.
struct SlotWaker {
    slot: usize,
    woken: Arc<(Mutex<Vec<usize>>, Condvar)>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.woken.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.slot);
        self.woken.1.notify_one();
    }
}

/// Runs operations in slots: `next` returns the next one of a slot, or nothing at the end.
fn run<F: Future<Output = ceph::Result<()>>>(
    slots: usize,
    mut next: impl FnMut(usize) -> Option<F>,
) -> Outcome {
    let woken = Arc::new((Mutex::new((0..slots).collect::<Vec<usize>>()), Condvar::new()));
    let wakers: Vec<Waker> =
        (0..slots).map(|slot| Waker::from(Arc::new(SlotWaker { slot, woken: woken.clone() }))).collect();
    let mut futures: Vec<Option<Pin<Box<F>>>> = (0..slots).map(|slot| next(slot).map(Box::pin)).collect();
    let mut running = futures.iter().flatten().count();
    while running > 0 {
        let ready = {
            let mut list = woken.0.lock().unwrap_or_else(PoisonError::into_inner);
            while list.is_empty() {
                list = woken.1.wait(list).unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::take(&mut *list)
        };
        for slot in ready {
            let (Some(place), Some(waker)) = (futures.get_mut(slot), wakers.get(slot)) else { continue };
            while let Some(future) = place.as_mut() {
                match future.as_mut().poll(&mut Context::from_waker(waker)) {
                    Poll::Pending => break,
                    Poll::Ready(result) => {
                        result?;
                        *place = next(slot).map(Box::pin);
                        if place.is_none() {
                            running -= 1;
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// Connects to an NBD server. Returns the connection and the size of the export.
fn nbd_connect(socket: &str, export: &str) -> Outcome<(UnixStream, u64)> {
    let mut stream = UnixStream::connect(socket)?;
    let mut hello = [0; 18];
    stream.read_exact(&mut hello)?;
    let expected = [NBD_MAGIC.to_be_bytes(), NBD_OPTION_MAGIC.to_be_bytes()].concat();
    if hello.get(..16) != Some(&expected[..]) {
        return Err("the socket is not an NBD server".into());
    }
    // Fixed newstyle, without the padding of the old one.
    let mut request = 3u32.to_be_bytes().to_vec();
    request.extend(NBD_OPTION_MAGIC.to_be_bytes());
    request.extend(NBD_OPTION_EXPORT_NAME.to_be_bytes());
    request.extend(u32::try_from(export.len())?.to_be_bytes());
    request.extend(export.as_bytes());
    stream.write_all(&request)?;
    let mut size = [0; 8];
    stream.read_exact(&mut size)?;
    stream.read_exact(&mut [0; 2])?;
    Ok((stream, u64::from_be_bytes(size)))
}

fn nbd(load: &LoadPlan, socket: &str, export: &str, pid: u32) -> Outcome<Measured> {
    let (mut stream, size) = nbd_connect(socket, export)?;
    let mut offsets = Offsets::new(size);
    let block = usize::try_from(BLOCK)?;
    let mut data = vec![0; block];
    let mut send = |stream: &mut UnixStream| -> Outcome {
        let mut request = NBD_REQUEST.to_be_bytes().to_vec();
        request.extend(0u16.to_be_bytes());
        request.extend(if load.writes { NBD_WRITE } else { NBD_READ }.to_be_bytes());
        request.extend(0u64.to_be_bytes());
        request.extend(offsets.next().to_be_bytes());
        request.extend(u32::try_from(BLOCK)?.to_be_bytes());
        if load.writes {
            request.resize(request.len() + block, 7);
        }
        Ok(stream.write_all(&request)?)
    };
    let mut timed = |length: Duration| -> Outcome<Measured> {
        let (start, before) = (Instant::now(), cpu_seconds(pid)?);
        let (mut operations, mut in_flight) = (0, 0);
        while in_flight < load.depth {
            send(&mut stream)?;
            in_flight += 1;
        }
        while in_flight > 0 {
            let mut reply = [0; 16];
            stream.read_exact(&mut reply)?;
            if reply.get(..8) != Some(&[NBD_REPLY.to_be_bytes(), [0; 4]].concat()[..]) {
                return Err(format!("an operation failed: {reply:?}").into());
            }
            if !load.writes {
                stream.read_exact(&mut data)?;
            }
            operations += 1;
            in_flight -= 1;
            if start.elapsed() < length {
                send(&mut stream)?;
                in_flight += 1;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        Ok(Measured { operations, seconds, cpu_seconds: cpu_seconds(pid)? - before })
    };
    timed(WARM_UP)?;
    timed(load.length)
}

/// Runs all parties in turn, each round starting with another one.
fn compare(rounds: usize, depth: &str, seconds: &str, core: &str, parties: &[&str]) -> Outcome {
    let parsed = parties.iter().map(|party| party.split_once('=').ok_or("expected NAME=PART,..."));
    let parsed: Vec<(&str, &str)> = parsed.collect::<Result<_, _>>()?;
    let program = std::env::current_exe()?;
    for job in ["read", "write"] {
        let mut found: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for round in 0..rounds {
            for index in 0..parsed.len() {
                let Some((name, parts)) = parsed.get((index + round) % parsed.len()) else { continue };
                let mut command = Command::new("taskset");
                command.args(["-c", core]).arg(&program).args(parts.split(',')).args([job, depth, seconds]);
                let output = command.output()?;
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                let mut words = text.split_whitespace().map(str::parse::<f64>);
                let (Some(Ok(iops)), Some(Ok(cpu))) = (words.next(), words.next()) else {
                    return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)).into());
                };
                found.entry(name).or_default().push((iops, cpu));
            }
        }
        for (name, _) in &parsed {
            let all = found.get(name).cloned().unwrap_or_default();
            let column = |pick: fn(&(f64, f64)) -> f64| {
                let mut values: Vec<f64> = all.iter().map(pick).collect();
                values.sort_by(f64::total_cmp);
                let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
                (at(0), at(values.len() / 2), at(values.len().saturating_sub(1)))
            };
            let (cpu, iops) = (column(|one| one.1), column(|one| one.0));
            println!(
                "{job:<6} {name:<28} {:>8.2} us ({:.2} to {:.2})   {:>9.0} operations/s",
                cpu.1, cpu.0, cpu.2, iops.1
            );
        }
    }
    Ok(())
}
