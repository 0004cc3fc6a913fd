//! A volume of a pool of three shards on three reactors, as frontends see it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use engine::{CreateOptions, DriveSource, NewVolume, OpenOptions, Tuning};
use reactor::{Backend, Drive, Memory};

use super::*;
use crate::reactors::{Reactors, Settings};

struct MemorySource(Arc<Memory>);

impl DriveSource for MemorySource {
    fn open(&self) -> Rc<dyn Drive> {
        self.0.open()
    }

    fn path(&self) -> String {
        "memory".into()
    }
}

async fn create_pool(reactors: Vec<Remote>) -> engine::Result<engine::Pool> {
    let drives: Vec<Arc<dyn DriveSource>> = (0..3)
        .map(|_| Arc::new(MemorySource(Memory::new(32 << 20).unwrap())) as Arc<dyn DriveSource>)
        .collect();
    let options = CreateOptions {
        name: "fast".into(),
        scheme: "2+1".parse().unwrap(),
        shards: 3,
        zone_bytes: Some(128 << 10),
        now: 0,
        entropy: [7; 32],
    };
    engine::create(&drives, &options).await?;
    let options = OpenOptions {
        tuning: Tuning::default(),
        reactors,
        nonce: 5,
        now: Arc::new(|| 1_700_000_000),
        state_store: None,
        accept_stale: false,
    };
    Ok(engine::open(&drives, &options).await?.0)
}

#[test]
fn a_volume_names_the_reactors_of_its_shards() {
    let settings = Settings { cores: vec![None; 3], poll: Duration::ZERO, backend: Backend::Auto };
    let reactors = Arc::new(Reactors::start(&settings).unwrap());
    let (all, first) = (reactors.all().to_vec(), reactors.next());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let pool = first.call(move || create_pool(all)).await.unwrap().unwrap();
        for (name, shards, expected) in
            [("a", Some(1), vec![0]), ("b", Some(2), vec![1, 2]), ("c", None, vec![0, 1, 2])]
        {
            let wanted = NewVolume { size: 8 << 20, sector: 4096, thick: false, shards, now: 0 };
            pool.create_volume_with(name, wanted).await.unwrap();
            let volume = pool.open_volume(name).await.unwrap();
            let volume = PoolVolume { volume, counters: Arc::default() };
            let index = |one: &Remote| reactors.all().iter().position(|other| other.is_same(one)).unwrap();
            let mut found: Vec<usize> = volume.reactors().iter().map(index).collect();
            found.sort_unstable();
            assert_eq!(found, expected, "{name}");
        }
        pool.close().await.unwrap();
    });
    reactors.stop();
}

#[test]
fn a_volume_compares_and_copies_within_its_limits() {
    let settings = Settings { cores: vec![None; 3], poll: Duration::ZERO, backend: Backend::Auto };
    let reactors = Arc::new(Reactors::start(&settings).unwrap());
    let (all, first) = (reactors.all().to_vec(), reactors.next());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let work = move || async move {
        let pool = create_pool(all).await.unwrap();
        let wanted = NewVolume { size: 16 << 20, sector: 512, thick: false, shards: None, now: 0 };
        pool.create_volume_with("a", wanted).await.unwrap();
        let volume = pool.open_volume("a").await.unwrap();
        let volume = ReactorVolume::new(&volume, &ExportCounters::default());
        let limits = export::Volume::atomic_limits(&volume);
        let bytes = limits.bytes as usize;
        let span = |byte: u8, length: usize| reactor::Buffer::copy_of(&vec![byte; length]).span();
        // The longest atomic range, at the least favourable offset.
        let at = 4096 - 512;
        let swap = async |offset: u64, expected: Span, data: Span| {
            export::Volume::compare_and_write(&volume, offset, &expected, &data)
                .await
                .map_err(|error| error.kind())
        };
        assert_eq!(swap(at, span(0, bytes), span(1, bytes)).await, Ok(Comparison::Written));
        let wanted = span(1, bytes);
        wanted.copy_from(1000, &[2]);
        assert_eq!(swap(at, wanted, span(3, bytes)).await, Ok(Comparison::Differs { at: 1000 }));
        let crossing = limits.boundary.unwrap() - 512;
        assert!(!limits.covers(crossing, 1024));
        assert_eq!(swap(crossing, span(0, 1024), span(1, 1024)).await, Err(VolumeErrorKind::Invalid));
        export::Volume::copy_from(&volume, &volume, at, 9 << 20, bytes as u64).await.unwrap();
        let copied = span(0, bytes);
        export::Volume::read(&volume, 9 << 20, &copied).await.unwrap();
        assert!(copied.peek(|bytes| bytes.iter().all(|byte| *byte == 1)));
        drop(volume);
        pool.close().await.unwrap();
    };
    runtime.block_on(async { first.call(work).await.unwrap() });
    reactors.stop();
}
