//! Operations that clients offload to the engine: compare-and-write, and a copy from a snapshot.

use engine::{AttachedVolume, Comparison, ErrorKind, Pool};
use reactor::Buffer;

use super::operation::SECTOR;
use crate::model::{VolumeModel, content, sector_tag};

/// Replaces two sectors in the middle of a block by compare-and-write. A second request, which
/// expects the old content, must change nothing.
pub(super) async fn compare_and_write(
    volume: &AttachedVolume,
    model: &mut VolumeModel,
    value: u64,
) -> engine::Result<()> {
    const OFFSET: u64 = 8192 + 512;
    const LENGTH: usize = 1024;
    let (first, count) = (OFFSET / u64::from(SECTOR), LENGTH as u64 / u64::from(SECTOR));
    let expected = Buffer::new(LENGTH);
    volume.read(OFFSET, &expected.span()).await?;
    let of = |value| (first..first + count).flat_map(move |cell| content(value, cell, SECTOR));
    let token = model.begin_write(2 * value, first, count, value, true);
    let data = Buffer::copy_of(&of(value).collect::<Vec<u8>>());
    let result = volume.compare_and_write(OFFSET, &expected.span(), &data.span()).await;
    model.end_write(token, 2 * value + 1, result.is_ok());
    assert_eq!(result?, Comparison::Written);
    let other = Buffer::copy_of(&of(value + 1).collect::<Vec<u8>>());
    let again = volume.compare_and_write(OFFSET, &expected.span(), &other.span()).await?;
    assert_eq!(again, Comparison::Differs { at: OFFSET }, "the old content is overwritten");
    Ok(())
}

/// Copies the first half of the snapshot to the volume.
pub(super) async fn copy(
    pool: &Pool,
    volume: &AttachedVolume,
    model: &mut VolumeModel,
    value: u64,
) -> engine::Result<()> {
    let snapshot = pool.open_volume("v@before").await?.attach();
    let length = model.size() / 2;
    let held = Buffer::new(usize::try_from(length).unwrap_or(0));
    snapshot.read(0, &held.span()).await?;
    let sectors = (0..).zip(held.as_slice().chunks(SECTOR as usize));
    let tokens: Vec<_> = sectors
        .map(|(cell, sector)| model.begin_write(2 * value, cell, 1, sector_tag(sector), false))
        .collect();
    let result = volume.copy_from(&snapshot, 0, 0, length).await;
    tokens.into_iter().for_each(|token| model.end_write(token, 2 * value + 1, result.is_ok()));
    result
}

/// Checks that a block is unreadable only if the pool has failed: the drive that holds it is lost,
/// and the scheme tolerates no loss.
pub(super) async fn check_unreadable(pool: &Pool, result: engine::Result<()>) -> engine::Result<()> {
    if let Err(error) = &result
        && error.kind() == ErrorKind::Corrupt
    {
        let failure = pool.status().await?.failure;
        assert!(failure.is_some(), "a block is unreadable in a pool in service: {error}");
    }
    result
}
