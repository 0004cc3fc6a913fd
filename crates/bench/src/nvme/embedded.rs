//! A pool in this process whose volume is served over NVMe/TCP: the benchmark's default target.

use std::net::Ipv4Addr;
use std::sync::Arc;

use export::nvme::{NvmeConfig, NvmeDiscovery, NvmeFrontend, NvmeLimits};
use export::{
    ExportConfig, ExportName, Frontend, FrontendContext, NetworkConfig, ReactorSet, ReservationRegistry,
    VolumeSource,
};
use reactor::{Access, Backend, Reactor, Remote};

use super::controller::NvmeAddress;
use crate::disk_bench::{EmbeddedError, EmbeddedPool, PoolShape, ServedVolume};
use crate::local_platform;

const SUBSYSTEM: &str = "nqn.2014-08.org.gabion:bench";

/// The pool and the address of its volume. Dropping it stops the pool.
pub(super) struct NvmePool {
    pub(super) address: NvmeAddress,
    pub(super) pool: EmbeddedPool,
}

impl NvmePool {
    /// Creates the pool and starts serving at a free port of the loopback address.
    ///
    /// # Errors
    /// If memory cannot be allocated, or no I/O backend is available.
    pub(super) fn start(shape: &PoolShape) -> Result<Self, EmbeddedError> {
        let pool = EmbeddedPool::start(shape)?;
        let volume = pool.volumes.first().cloned().ok_or(EmbeddedError::Ended)?;
        let (remotes, io) = (pool.remotes().to_vec(), shape.io);
        let address = pool.run(move || async move { serve_here(volume, &remotes, io).await })??;
        Ok(Self { address, pool })
    }
}

/// Serves a volume until the reactors end, at a port that the kernel selects. Returns the address.
async fn serve_here(
    volume: engine::Volume,
    remotes: &[Remote],
    io: Backend,
) -> Result<NvmeAddress, EmbeddedError> {
    let reactors = ReactorSet::new(remotes, io, local_platform::current);
    let context = FrontendContext { reactors, access: Access::OWNER };
    let config = NvmeConfig {
        listen: vec![(Ipv4Addr::LOCALHOST, 0).into()],
        discovery: NvmeDiscovery::ExportsOnly,
        limits: NvmeLimits::default(),
        reservations: ReservationRegistry::new(None),
    };
    let frontend = NvmeFrontend::start(config, &context).await?;
    let network = NetworkConfig { target: Some(SUBSYSTEM.into()), ..NetworkConfig::default() };
    let options = ExportConfig { network, ..ExportConfig::default() };
    let running =
        frontend.start(&ExportName::new("bench/disk0"), &options, Arc::new(PoolSource(volume))).await?;
    let uris = running.listeners();
    let address = uris.iter().find_map(|uri| uri.strip_prefix("nvme+tcp://")?.parse().ok());
    let serve = async move {
        std::future::pending::<()>().await;
        drop((running, frontend));
    };
    Reactor::current().spawn(serve).detach();
    address.ok_or(EmbeddedError::Ended)
}

/// A volume of the pool, for the frontend.
struct PoolSource(engine::Volume);

impl VolumeSource for PoolSource {
    type Volume = ServedVolume;

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn sector(&self) -> u32 {
        self.0.sector()
    }

    fn reactors(&self) -> Vec<Remote> {
        self.0.reactors()
    }

    fn identity(&self) -> [u8; 16] {
        *b"gabion-benchmark"
    }

    fn open(&self) -> ServedVolume {
        ServedVolume::attach(&self.0)
    }
}
