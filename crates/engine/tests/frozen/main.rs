//! A frozen pool of each format version: what an earlier build wrote is read, and pools of other versions are refused.
//!
//! The drives of two states of one pool lie beside this file, as text (see `image`): closed in order, and left behind by a
//! crash, with a drive lost and the last record torn. `history` says what was done to them, and so what they must
//! hold. With `GABION_FREEZE=1` they are made anew: see docs/format.md for when that is right.
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
use history::{Contents, State, contents, freeze};
use image::Image;
use machine::{Machine, run};
use reactor::Buffer;
use reader::Reader;

/// The directory of the frozen pools of a version.
fn directory(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/frozen/version-{version}"))
}

/// The drives of a state, of the current version; made anew if that is asked for.
fn frozen(state: State) -> Vec<Image> {
    static MADE: Once = Once::new();
    if std::env::var_os("GABION_FREEZE").is_some_and(|value| value == "1") {
        MADE.call_once(make);
    }
    load(FORMAT_VERSION, state)
}

fn load(version: u32, state: State) -> Vec<Image> {
    let directory = directory(version).join(state.name());
    (0..history::DRIVES).map(|at| Image::load(&directory, at)).collect()
}

fn make() {
    for state in State::ALL {
        let directory = directory(FORMAT_VERSION).join(state.name());
        for (at, image) in freeze(state).iter().enumerate() {
            image.store(&directory, at);
        }
    }
}

#[test]
fn frozen_pools_are_read() {
    for state in State::ALL {
        let machine = Machine::with(&frozen(state));
        let report = run(async || engine::check(&machine.sources()).await.unwrap());
        let wanted = contents(state);
        assert_eq!(report.findings, [], "{state:?}");
        assert_eq!((report.volumes, report.data_blocks), (wanted.len() as u64, blocks(&wanted)), "{state:?}");
        assert_eq!((report.clean, report.incomplete == 0), (state.is_clean(), state.is_clean()), "{state:?}");
        // Twice: what the first opening leaves behind is a pool of this build.
        for round in 0..2 {
            run(async || {
                let (pool, report) = machine.open(10 + round).await.unwrap();
                if round == 0 {
                    assert_eq!(report.clean, state.is_clean(), "{state:?}");
                    // Even a pool that was closed has the records of its last checkpoint behind that.
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

/// Blocks that hold something, each once, however many snapshots and clones share it: no two writes are alike.
fn blocks(contents: &Contents) -> u64 {
    let full = |bytes: &&[u8]| bytes.iter().any(|byte| *byte != 0);
    let blocks: BTreeSet<&[u8]> =
        contents.values().flat_map(|bytes| bytes.chunks(4096)).filter(full).collect();
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
fn the_rules_of_the_document_find_the_same() {
    for state in State::ALL {
        let reader = Reader::open(&frozen(state));
        let lost = reader.superblock.drives.iter().filter(|drive| drive.state != DriveState::Online);
        assert_eq!(lost.count(), state.lost_drives(), "{state:?}");
        assert_same(&reader.volumes(), &contents(state), &format!("{state:?}"));
    }
}

/// Says what differs, not all that is there.
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
    let mut others = vec![(FORMAT_VERSION + 1, relabelled(FORMAT_VERSION + 1))];
    for version in frozen_versions() {
        if version != FORMAT_VERSION {
            others.push((version, load(version, State::Closed)));
        }
    }
    for (version, images) in others {
        let machine = Machine::with(&images);
        let error = run(async || machine.open(10).await.err().unwrap());
        assert_eq!(error.kind(), ErrorKind::Version, "{error}");
        let (found, ours) = (format!("version {version}"), format!("version {FORMAT_VERSION}"));
        assert!(error.to_string().contains(&found) && error.to_string().contains(&ours), "{error}");
        let unchanged = machine.images();
        assert!(unchanged == images, "a pool of another version was written to");
    }
}

/// The versions of which there are frozen pools.
fn frozen_versions() -> Vec<u32> {
    let entries = std::fs::read_dir(directory(FORMAT_VERSION).parent().unwrap()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_prefix("version-")?.parse().ok()).collect()
}

/// The closed pool, as if another version had written it.
fn relabelled(version: u32) -> Vec<Image> {
    let mut images = frozen(State::Closed);
    for image in &mut images {
        for slot in [0, 2 << 20] {
            image.bytes[slot + 8..slot + 12].copy_from_slice(&version.to_le_bytes());
        }
    }
    images
}
