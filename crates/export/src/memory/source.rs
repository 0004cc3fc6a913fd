//! A memory volume as frontends open it.

use std::rc::Rc;

use reactor::{Handle, Reactor, ReactorGone, Remote};

use super::MemoryVolume;
use crate::VolumeSource;

/// A memory volume that lives on one reactor. Frontends open it on that reactor alone.
pub struct MemorySource {
    handle: Handle<MemoryVolume>,
    size: u64,
    sector: u32,
}

impl MemorySource {
    /// Creates a volume on a reactor.
    ///
    /// # Errors
    /// When the reactor has shut down.
    pub async fn create(reactor: &Remote, size: u64, sector: u32) -> Result<Self, ReactorGone> {
        let create = move || async move {
            Handle::register(&Reactor::current(), Rc::new(MemoryVolume::new(size, sector)))
        };
        Ok(Self { handle: reactor.call(create).await?, size, sector })
    }
}

impl VolumeSource for MemorySource {
    type Volume = MemoryVolume;

    fn size(&self) -> u64 {
        self.size
    }

    fn sector(&self) -> u32 {
        self.sector
    }

    fn reactors(&self) -> Vec<Remote> {
        vec![self.handle.remote().clone()]
    }

    fn open(&self) -> MemoryVolume {
        match self.handle.local() {
            Some(volume) => (*volume).clone(),
            None => panic!("a memory volume is opened on its own reactor"),
        }
    }
}
