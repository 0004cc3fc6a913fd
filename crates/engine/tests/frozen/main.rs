//! A frozen pool of each format version: pools written by earlier builds are read, and pools of
//! other versions are refused.
//!
//! The drives of two states of one pool are stored next to this file as text (see `image`): closed
//! cleanly, and left by a crash, with a failed drive and a torn last record. `history` holds the
//! operations applied to them, and so their expected contents. `GABION_FREEZE=1` regenerates them:
//! see docs/format.md for when that is appropriate.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod history;
mod image;
mod machine;
mod reader;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Once;

use engine::{ErrorKind, Pool};
use format::{DriveState, FORMAT_VERSION};
use history::{Contents, PoolState, contents, freeze};
use image::Image;
use machine::{Machine, run};
use reactor::Buffer;
use reader::Reader;

/// Returns the directory of the frozen pools of a version.
fn directory(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/frozen/version-{version}"))
}

/// Returns the drives of a state in the current version, regenerated if requested.
fn frozen(state: PoolState) -> Vec<Image> {
    static REGENERATED: Once = Once::new();
    if std::env::var_os("GABION_FREEZE").is_some_and(|value| value == "1") {
        REGENERATED.call_once(regenerate);
    }
    load(FORMAT_VERSION, state)
}

fn load(version: u32, state: PoolState) -> Vec<Image> {
    let directory = directory(version).join(state.name());
    (0..history::DRIVES).map(|index| Image::load(&directory, index)).collect()
}

fn regenerate() {
    for state in PoolState::ALL {
        let directory = directory(FORMAT_VERSION).join(state.name());
        for (index, image) in freeze(state).iter().enumerate() {
            image.store(&directory, index);
        }
    }
}

#[test]
fn frozen_pools_are_read() {
    for state in PoolState::ALL {
        let machine = Machine::with(&frozen(state));
        let report = run(async || engine::check(&machine.sources()).await.unwrap());
        let wanted = contents(state);
        assert_eq!(report.findings, [], "{state:?}");
        assert_eq!((report.volumes, report.data_blocks), (wanted.len() as u64, blocks(&wanted)), "{state:?}");
        assert_eq!((report.clean, report.incomplete == 0), (state.is_clean(), state.is_clean()), "{state:?}");
        // Twice: the second round opens a pool written by this build.
        for round in 0..2 {
            run(async || {
                let (pool, report) = machine.open(10 + round).await.unwrap();
                if round == 0 {
                    assert_eq!(report.clean, state.is_clean(), "{state:?}");
                    // Even a cleanly closed pool has records of its last checkpoint to replay.
                    assert!(report.replayed > 0 && report.dropped == 0, "{state:?}: {report:?}");
                    assert_eq!(report.completed, state.torn_cells(), "{state:?}");
                    assert_eq!(report.missing.len(), state.lost_drives(), "{state:?}");
                }
                assert_same(&read_all(&pool).await, &wanted, &format!("{state:?} round {round}"));
                pool.close().await.unwrap();
            });
        }
    }
}

/// Returns the number of distinct nonzero blocks. Blocks shared by snapshots and clones count once,
/// because no two writes have the same contents.
fn blocks(contents: &Contents) -> u64 {
    let is_nonzero = |bytes: &&[u8]| bytes.iter().any(|byte| *byte != 0);
    let blocks: BTreeSet<&[u8]> =
        contents.values().flat_map(|bytes| bytes.chunks(4096)).filter(is_nonzero).collect();
    blocks.len() as u64
}

async fn read_all(pool: &Pool) -> Contents {
    let mut contents = Contents::new();
    for info in pool.volumes().await.unwrap() {
        let volume = pool.open_volume(&info.name).await.unwrap().attach();
        let buffer = Buffer::new(usize::try_from(info.size).unwrap());
        volume.read(0, &buffer.span()).await.unwrap();
        contents.insert(info.name, buffer.as_slice().to_vec());
    }
    contents
}

#[test]
fn the_reader_of_the_documented_format_agrees() {
    for state in PoolState::ALL {
        let reader = Reader::open(&frozen(state));
        let lost = reader.superblock.drives.iter().filter(|drive| drive.state != DriveState::Online);
        assert_eq!(lost.count(), state.lost_drives(), "{state:?}");
        assert_same(&reader.volumes(), &contents(state), &format!("{state:?}"));
    }
}

/// Asserts equality with a short message on failure.
fn assert_same(found: &Contents, wanted: &Contents, when: &str) {
    let names = |contents: &Contents| contents.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(wanted), "{when}");
    for (name, bytes) in wanted {
        let differs = found[name].iter().zip(bytes).position(|(found, wanted)| found != wanted);
        assert_eq!((found[name].len(), differs), (bytes.len(), None), "{when}: {name}");
    }
}

#[test]
fn pools_of_other_versions_are_refused() {
    let mut other_versions = vec![(FORMAT_VERSION + 1, relabelled(FORMAT_VERSION + 1))];
    for version in frozen_versions() {
        if version != FORMAT_VERSION {
            other_versions.push((version, load(version, PoolState::Closed)));
        }
    }
    for (version, images) in other_versions {
        let machine = Machine::with(&images);
        let error = run(async || machine.open(10).await.err().unwrap());
        assert_eq!(error.kind(), ErrorKind::Version, "{error}");
        let (found, ours) = (format!("version {version}"), format!("version {FORMAT_VERSION}"));
        assert!(error.to_string().contains(&found) && error.to_string().contains(&ours), "{error}");
        let unchanged = machine.images();
        assert!(unchanged == images, "a pool of another version was written to");
    }
}

/// Returns the versions of the stored frozen pools.
fn frozen_versions() -> Vec<u32> {
    let entries = std::fs::read_dir(directory(FORMAT_VERSION).parent().unwrap()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_prefix("version-")?.parse().ok()).collect()
}

/// Returns the closed pool with another version number.
fn relabelled(version: u32) -> Vec<Image> {
    let mut images = frozen(PoolState::Closed);
    for image in &mut images {
        for slot in [0, 2 << 20] {
            image.bytes[slot + 8..slot + 12].copy_from_slice(&version.to_le_bytes());
        }
    }
    images
}
