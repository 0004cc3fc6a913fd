//! A memory volume as frontends open it.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use reactor::{Handle, Reactor, ReactorGone, Remote};

use super::MemoryVolume;
use crate::VolumeSource;

/// A memory volume that lives on one reactor. Frontends open it on that reactor alone.
pub struct MemorySource {
    handle: Handle<MemoryVolume>,
    size: u64,
    sector: u32,
    identity: [u8; 16],
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
        Ok(Self { handle: reactor.call(create).await?, size, sector, identity: new_identity() })
    }

    /// Calls a function with the volume, on its reactor.
    ///
    /// # Errors
    /// When the reactor has shut down.
    pub async fn with<T: Send + 'static>(
        &self,
        call: impl FnOnce(&MemoryVolume) -> T + Send + 'static,
    ) -> Result<T, ReactorGone> {
        let handle = self.handle.clone();
        let call = move || async move { handle.local().map(|volume| call(&volume)) };
        self.handle.remote().call(call).await?.ok_or(ReactorGone)
    }
}

/// An identity that no other volume of this process has: a UUID of version 8.
fn new_identity() -> [u8; 16] {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    let mut identity = *b"memory\x80\0\x80\0\0\0\0\0\0\0";
    identity.iter_mut().skip(9).zip(number).for_each(|(place, byte)| *place = byte);
    identity
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

    fn identity(&self) -> [u8; 16] {
        self.identity
    }

    fn open(&self) -> MemoryVolume {
        match self.handle.local() {
            Some(volume) => (*volume).clone(),
            None => panic!("a memory volume is opened on its own reactor"),
        }
    }
}
