//! Snapshots of two volumes that are taken together.

use engine::{AttachedVolume, Pool};

use super::ExpectedState;
use super::contents::read_last;
use super::modelled_write::write;
use super::operation::{SECTOR, SIZE};
use crate::model::VolumeModel;

/// The name of the second volume.
const OTHER: &str = "w";
/// The name of its snapshot.
const OTHER_SNAPSHOT: &str = "w@during";

/// The second volume.
#[derive(Clone)]
pub(super) struct OtherVolume {
    /// The volume's content before the operation and, once it has begun, after it.
    model: VolumeModel,
    /// The content of the snapshot.
    snapshot: VolumeModel,
}

/// Creates the second volume with known content.
pub(super) async fn prepare(pool: &Pool) -> engine::Result<OtherVolume> {
    pool.create_volume(OTHER, SIZE, SECTOR, 0).await?;
    let mut model = VolumeModel::new(SIZE, SECTOR);
    let volume = pool.open_volume(OTHER).await?.attach();
    for (value, offset, length) in [(20, 0, 40 << 10), (21, 500 << 10, 100 << 10)] {
        write(&volume, &mut model, value, offset, length).await?;
    }
    volume.flush().await?;
    model.note_flush(100);
    Ok(OtherVolume { snapshot: model.clone(), model })
}

/// Takes the snapshots, then writes to both volumes.
pub(super) async fn perform(
    pool: &Pool,
    volume: &AttachedVolume,
    first: &mut VolumeModel,
    other: Option<&mut OtherVolume>,
) -> engine::Result<()> {
    let Some(OtherVolume { model, .. }) = other else { panic!("the second volume exists") };
    let other = pool.open_volume(OTHER).await?.attach();
    pool.snapshot_volumes(&["v@during", OTHER_SNAPSHOT], 0).await?;
    write(&other, model, 60, 8192, 64 << 10).await?;
    other.flush().await?;
    model.note_flush(1000);
    write(volume, first, 60, 8192, 64 << 10).await
}

/// Checks that both snapshots exist or none, and the contents of the second volume and of its
/// snapshot. `has_first` is true if the snapshot of the first volume exists.
pub(super) async fn verify(pool: &Pool, has_first: bool, expected: &mut ExpectedState) -> Result<(), String> {
    let Some(OtherVolume { model, snapshot }) = &mut expected.other else {
        return Err("the second volume has no model".into());
    };
    let found = pool.volume_info(OTHER_SNAPSHOT).await.map_err(|error| format!("info: {error:?}"))?;
    match (has_first, found.is_some()) {
        (true, true) => {
            let bytes = read_last(pool, OTHER_SNAPSHOT, SIZE).await?;
            snapshot.adopt_after_crash(&bytes).map_err(|error| format!("{OTHER_SNAPSHOT}: {error}"))?;
        }
        (false, false) => {}
        (first, other) => {
            return Err(format!("v@during exists: {first}, {OTHER_SNAPSHOT} exists: {other}"));
        }
    }
    let bytes = read_last(pool, OTHER, SIZE).await?;
    model.adopt_after_crash(&bytes).map_err(|error| format!("{OTHER}: {error}"))
}
