//! Measures the cost of the reactor itself: tasks, calls between reactors, and 4 KiB reads of a
//! drive.
//!
//!     roundtrip tasks                spawn, yield and cycle on one reactor
//!     roundtrip calls                calls between two reactors: polling, and asleep each time
//!     roundtrip crossing             32 and 512 calls in flight between two reactors, both ways
//!     roundtrip idle SECONDS         an idle reactor that listens; prints the CPU time it used
//!     roundtrip reads DRIVE [BACKEND] [SECONDS]
//!                                    random 4 KiB reads at queue depth 1, 8, 32 and 128
//!
//! Prints one line per figure.

use std::error::Error;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use reactor::{
    Backend, Buffer, Clock, Drive, DriveOptions, FileDrive, Handle, Listener, Platform, Reactor, SystemClock,
};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["tasks"] => tasks(),
        ["calls"] => calls(Duration::from_millis(10)).and_then(|()| calls(Duration::ZERO)),
        ["calls", "polling"] => calls(Duration::from_millis(10)),
        ["crossing"] => crossing(32).and_then(|()| crossing(512)),
        ["idle", seconds] => idle(seconds.parse()?),
        ["reads", drive] => reads(drive, Backend::Auto, 2.0),
        ["reads", drive, backend] => reads(drive, backend.parse()?, 2.0),
        ["reads", drive, backend, seconds] => reads(drive, backend.parse()?, seconds.parse()?),
        _ => {
            Err("usage: roundtrip tasks | calls | crossing | idle SECONDS | reads DRIVE [BACKEND] [SECONDS]"
                .into())
        }
    }
}

fn start(backend: Backend) -> Result<(Rc<Platform>, Reactor), Box<dyn Error>> {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let platform = Platform::new(backend, clock.clone())?;
    let reactor = Reactor::new(platform.clone(), clock);
    Ok((platform, reactor))
}

fn figure(label: &str, value: f64, unit: &str) {
    println!("{label:<48} {value:>12.1} {unit}");
}

fn tasks() -> Outcome {
    const ROUNDS: u32 = 2_000_000;
    let (_platform, reactor) = start(Backend::Auto)?;
    for _ in 0..3 {
        let begin = Instant::now();
        reactor.run(async {
            for _ in 0..ROUNDS {
                reactor.spawn(async {}).await;
            }
        });
        figure("spawn a task and await it", nanos(begin, ROUNDS), "ns");
        let begin = Instant::now();
        reactor.run(async {
            for _ in 0..ROUNDS {
                reactor.yield_now().await;
            }
        });
        figure("yield: one cycle of the main future", nanos(begin, ROUNDS), "ns");
        let begin = Instant::now();
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let inside = reactor.clone();
                reactor.spawn(async move {
                    for _ in 0..ROUNDS / 100 {
                        inside.yield_now().await;
                    }
                })
            })
            .collect();
        reactor.run(async {
            for task in tasks {
                task.await;
            }
        });
        figure("wake and run one of 100 tasks", nanos(begin, ROUNDS), "ns");
    }
    Ok(())
}

fn nanos(begin: Instant, rounds: u32) -> f64 {
    begin.elapsed().as_nanos() as f64 / f64::from(rounds)
}

fn calls(poll: Duration) -> Outcome {
    let (sender, receiver) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let Ok((_platform, reactor)) = start(Backend::Auto) else { return };
        reactor.set_poll_before_sleep(poll);
        let (stop, stopped) = futures_channel::oneshot::channel::<()>();
        let home = Handle::register(&reactor, Rc::new(()));
        if sender.send((home.clone(), stop)).is_ok() {
            // Ends when the other side drops `stop`.
            let _ = reactor.run(stopped);
        }
        home.unregister();
    });
    let (home, stop) = receiver.recv()?;
    let (_platform, reactor) = start(Backend::Auto)?;
    reactor.set_poll_before_sleep(poll);
    let mut times = Vec::new();
    for _ in 0..100_000 {
        let begin = Instant::now();
        reactor.run(home.call(|_| async {}))?;
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    let how = if poll.is_zero() { "sleep" } else { "poll" };
    for (percentile, part) in [("10 %", 0.1), ("median", 0.5), ("99 %", 0.99)] {
        let time = times.get((times.len() as f64 * part) as usize).copied().unwrap_or_default();
        figure(&format!("call between reactors that {how}, {percentile}"), time.as_nanos() as f64, "ns");
    }
    drop(stop);
    server.join().map_err(|_| "the serving reactor panicked")?;
    Ok(())
}

/// Each of two reactors calls the other, like two cores of a pool.
fn crossing(depth: u32) -> Outcome {
    const CALLS: u32 = 1_000_000;
    let (first, second) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let done = Arc::new(AtomicU32::new(0));
    let side = |to_other: std::sync::mpsc::Sender<Handle<()>>,
                from_other: std::sync::mpsc::Receiver<Handle<()>>| {
        let done = done.clone();
        move || -> Option<f64> {
            let (_platform, reactor) = start(Backend::Auto).ok()?;
            reactor.set_poll_before_sleep(Duration::from_millis(10));
            let here = Handle::register(&reactor, Rc::new(()));
            to_other.send(here.clone()).ok()?;
            let other = from_other.recv().ok()?;
            let begin = Instant::now();
            let tasks: Vec<_> = (0..depth)
                .map(|_| {
                    let other = other.clone();
                    reactor.spawn(async move {
                        for number in 0..CALLS / depth {
                            if other.call(move |_| async move { number }).await != Ok(number) {
                                return;
                            }
                        }
                    })
                })
                .collect();
            reactor.run(async {
                for task in tasks {
                    task.await;
                }
            });
            let time = nanos(begin, CALLS);
            // The other reactor may not be done yet.
            done.fetch_add(1, Ordering::Relaxed);
            while done.load(Ordering::Relaxed) < 2 {
                reactor.run(reactor.sleep(Duration::from_millis(1)));
            }
            here.unregister();
            Some(time)
        }
    };
    let threads = [std::thread::spawn(side(first.0, second.1)), std::thread::spawn(side(second.0, first.1))];
    for thread in threads {
        let time = thread.join().ok().flatten().ok_or("a reactor panicked")?;
        figure(&format!("each call of two reactors, {depth} in flight"), time, "ns");
    }
    Ok(())
}

fn idle(seconds: f64) -> Outcome {
    for backend in [Backend::Uring, Backend::Threads] {
        let (platform, reactor) = start(backend)?;
        let listener = Listener::bind_tcp(&platform, (Ipv4Addr::LOCALHOST, 0).into())?;
        reactor.spawn(async move { listener.accept().await.map(drop) }).detach();
        let before = cpu_time();
        reactor.run(reactor.sleep(Duration::from_secs_f64(seconds)));
        let used = cpu_time().saturating_sub(before);
        figure(&format!("CPU used in {seconds} s idle, {backend}"), used.as_nanos() as f64 / 1e3, "us");
        reactor.shut_down();
    }
    Ok(())
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn reads(path: &str, backend: Backend, seconds: f64) -> Outcome {
    let handle = FileDrive::open(path, DriveOptions { read_only: true, ..DriveOptions::default() })?;
    let (platform, reactor) = start(backend)?;
    println!(
        "{path}: {} bytes, direct: {}, {}",
        handle.properties().size,
        handle.is_direct(),
        platform.backend()
    );
    for (depth, poll) in [1, 1, 8, 32, 128].into_iter().zip([false, true, false, false, false]) {
        let drive = handle.open_on(&platform);
        reactor.set_poll_before_sleep(if poll { Duration::from_millis(1) } else { Duration::ZERO });
        let (begin, cpu) = (Instant::now(), cpu_time());
        let end = reactor.now() + Duration::from_secs_f64(seconds);
        let readers: Vec<_> = (0..depth)
            .map(|index| reactor.spawn(reader(reactor.clone(), drive.clone(), end, index)))
            .collect();
        let mut total = 0;
        for reader in readers {
            total += reactor.run(reader)?;
        }
        let elapsed = begin.elapsed().as_secs_f64();
        let cpu = (cpu_time() - cpu).as_secs_f64();
        let how = if poll { ", polling" } else { "" };
        figure(&format!("reads per second at depth {depth}{how}"), total as f64 / elapsed, "");
        figure("    CPU time per read", cpu * 1e6 / total as f64, "us");
    }
    Ok(())
}

async fn reader(
    reactor: Reactor,
    drive: Rc<FileDrive>,
    end: reactor::Instant,
    seed: u64,
) -> Result<u64, reactor::IoError> {
    let blocks = drive.properties().size / 4096;
    let span = Buffer::new(4096).span();
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut done = 0;
    while reactor.now() < end {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        drive.read(state % blocks * 4096, std::slice::from_ref(&span)).await?;
        done += 1;
    }
    Ok(done)
}
