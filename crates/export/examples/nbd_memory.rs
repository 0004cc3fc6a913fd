//! Serves a volume in memory over NBD, for benchmarks:
//! `nbd_memory SOCKET|ADDRESS:PORT [SIZE_MIB] [BACKEND] [POLL_US]`.
//!
//! BACKEND is the name of a [`reactor::Backend`]. POLL_US is the time for which the reactor polls
//! before it sleeps, in microseconds; the default is 0. Log lines are written to standard error.
//! The program ends at the end of its standard input.

use std::error::Error;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use export::nbd::{Limits, NbdServer};
use export::{MemoryExports, MemoryVolume};
use reactor::{Access, Backend, Clock, Listener, Platform, Reactor, SystemClock};

type Outcome = Result<(), Box<dyn Error>>;

const USAGE: &str = "usage: nbd_memory SOCKET|ADDRESS:PORT [SIZE_MIB] [BACKEND] [POLL_US]";

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let at = arguments.next().ok_or(USAGE)?;
    let size: u64 = arguments.next().as_deref().unwrap_or("1024").parse()?;
    let backend: Backend = arguments.next().as_deref().unwrap_or("auto").parse()?;
    let poll: u64 = arguments.next().as_deref().unwrap_or("0").parse()?;

    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let platform = Platform::new(backend, clock.clone())?;
    let reactor = Reactor::new(platform.clone(), clock);
    reactor.set_poll_before_sleep(Duration::from_micros(poll));

    let exports = MemoryExports::default();
    exports.insert("memory", "a volume in memory", &MemoryVolume::new(size << 20, 512));
    let (stop, stopped) = futures_channel::oneshot::channel();
    std::thread::spawn(move || {
        // An error is treated like the end of the input.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = stop.send(());
    });
    reactor.run(async {
        let listener = match at.parse::<SocketAddr>() {
            Ok(address) => Listener::bind_tcp(&platform, address)?,
            Err(_) => Listener::bind_unix(&platform, &at, Access::OWNER)?,
        };
        let server = NbdServer::new(exports, Limits::default());
        let listening = server.clone();
        reactor.spawn(async move { listening.listen(listener).await }).detach();
        println!("serving export \"memory\" of {size} MiB at {at} over {}", platform.backend());
        // Also stops if the sender is dropped.
        let _ = stopped.await;
        server.shut_down().await;
        Ok(())
    })
}
