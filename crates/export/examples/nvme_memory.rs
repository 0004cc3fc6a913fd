//! Serves a volume in memory over NVMe/TCP, for benchmarks:
//! `nvme_memory ADDRESS:PORT NQN [SIZE_MIB] [BACKEND] [POLL_US] [TLS_KEY]`.
//!
//! The volume is filled first. BACKEND is the name of a [`reactor::Backend`]. POLL_US is the time
//! for which the reactor polls before it sleeps, in microseconds; the default is 50, as that of the
//! daemon. TLS_KEY is a configured key in the interchange format. The program ends at the end of
//! its standard input.

use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use export::nvme::{NvmeConfig, NvmeDiscovery, NvmeFrontend, NvmeLimits, NvmeTlsKey};
use export::{
    ExportConfig, ExportName, Frontend, FrontendContext, MemorySource, NetworkConfig, ReactorSet,
    ReservationRegistry, Volume, VolumeSource,
};
use reactor::{Access, Backend, Buffer, Clock, Platform, Reactor, SystemClock};

type Outcome = Result<(), Box<dyn Error>>;

const USAGE: &str = "usage: nvme_memory ADDRESS:PORT NQN [SIZE_MIB] [BACKEND] [POLL_US] [TLS_KEY]";
/// Bytes that are written at once to fill the volume.
const FILL: u64 = 1 << 20;

thread_local! {
    static PLATFORM: RefCell<Option<Rc<Platform>>> = const { RefCell::new(None) };
}

fn platform() -> Rc<Platform> {
    match PLATFORM.with_borrow(Clone::clone) {
        Some(platform) => platform,
        None => unreachable!("there is one reactor, on this thread"),
    }
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or(USAGE)?.parse()?;
    let name = arguments.next().ok_or(USAGE)?;
    let size: u64 = arguments.next().as_deref().unwrap_or("1024").parse()?;
    let backend: Backend = arguments.next().as_deref().unwrap_or("auto").parse()?;
    let poll: u64 = arguments.next().as_deref().unwrap_or("50").parse()?;
    let tls_key = arguments.next().map(NvmeTlsKey);

    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    PLATFORM.set(Some(Platform::new(backend, clock.clone())?));
    let reactor = Reactor::new(platform(), clock);
    reactor.set_poll_before_sleep(Duration::from_micros(poll));
    let remote = reactor.remote();
    let (stop, stopped) = futures_channel::oneshot::channel();
    std::thread::spawn(move || {
        // An error is treated like the end of the input.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = stop.send(());
    });
    reactor.run(async {
        let source = Arc::new(MemorySource::create(&remote, size << 20, 512).await?);
        fill(&source, size << 20).await?;
        let reactors = ReactorSet::new(&[remote], backend, platform);
        let context = FrontendContext { reactors, access: Access::OWNER };
        let reservations = ReservationRegistry::new(None);
        let config = NvmeConfig {
            listen: vec![address],
            discovery: NvmeDiscovery::ExportsOnly,
            limits: NvmeLimits::default(),
            reservations,
        };
        let frontend = NvmeFrontend::start(config, &context).await?;
        let network = NetworkConfig { target: Some(name), tls_key, ..NetworkConfig::default() };
        let options = ExportConfig { network, ..ExportConfig::default() };
        let running = frontend.start(&ExportName::new("memory/volume"), &options, source).await?;
        println!("serving {size} MiB as {} over {}", running.listeners().join(", "), platform().backend());
        // Also stops if the sender is dropped.
        let _ = stopped.await;
        frontend.shut_down().await;
        Ok(())
    })
}

/// Writes all blocks: memory is allocated only for written data.
async fn fill(source: &MemorySource, size: u64) -> Outcome {
    let volume = source.open();
    let data: Vec<u8> = (0..FILL).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect();
    let data = Buffer::copy_of(&data).span();
    for offset in (0..size).step_by(FILL as usize) {
        volume.write(offset, &data).await?;
    }
    Ok(())
}
