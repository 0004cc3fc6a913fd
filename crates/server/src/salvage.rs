//! Salvage of a damaged pool without a daemon: volumes are listed, read and exported read-only.
//!
//! Invariant: drives are opened read-only, and nothing is written to them.

mod nbd;
mod volume;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::{SalvageOptions, SalvageState};
use reactor::{Buffer, Handle, Reactor};

use crate::drives::as_sources;
use crate::error::{Error, Result};
use crate::offline::{open_read_only, start_reactor, to_wire_finding};
use crate::pools::drive_state_of;
use crate::reactors::{Reactors, call_object};
use api::types::{ByteRange, SalvageReport, SalvagedDrive, SalvagedVolume, UnreadableRange};
pub use nbd::NbdSocket;

/// A pool opened for salvage. Its drives are locked until it is dropped.
pub struct Salvage {
    reactors: Reactors,
    pool: Handle<engine::Salvage>,
    report: SalvageReport,
}

/// An extent of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SalvagedExtent {
    /// The length in bytes.
    pub length: u64,
    /// The state of the extent.
    pub state: ExtentState,
    /// True if the extent may be outdated: newer data, or a deletion, may be lost.
    pub stale: bool,
}

/// The state of an extent of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentState {
    /// The extent reads as zeros.
    Hole,
    /// The extent holds data.
    Data,
    /// The extent cannot be read.
    Lost,
}

/// The result of a read.
#[derive(Clone, Debug)]
pub struct ReadPart {
    /// The bytes; unreadable ranges are zeros.
    pub bytes: Vec<u8>,
    /// The ranges that cannot be read.
    pub unreadable: Vec<UnreadableRange>,
}

impl Salvage {
    /// Opens the pool on these drives. This takes long if the whole log must be scanned.
    ///
    /// # Errors
    /// When a drive cannot be read or is in use, or no superblock can be read.
    pub async fn open(drives: &[PathBuf], accept_stale: bool) -> Result<Self> {
        let opened = open_read_only(drives)?;
        let sources = as_sources(&opened);
        let reactors = start_reactor()?;
        let salvage = move || async move {
            let options = SalvageOptions { accept_stale, ..SalvageOptions::default() };
            let pool = engine::salvage(&sources, &options).await?;
            let report = report_of(&pool, accept_stale);
            Ok::<_, Error>((Handle::register(&Reactor::current(), pool), report))
        };
        match reactors.next().call(salvage).await.map_err(Error::from).flatten() {
            Ok((pool, report)) => Ok(Self { reactors, pool, report }),
            Err(error) => {
                reactors.stop();
                Err(error)
            }
        }
    }

    /// Returns the report on the pool. Its volumes have no byte counts yet: see
    /// [`Salvage::survey`].
    pub fn report(&self) -> &SalvageReport {
        &self.report
    }

    /// Finds the readable ranges of a volume: from the map and the present drives, or, with
    /// `verify`, by reading every block. Adds the bytes that were examined to `examined`.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn survey(&self, name: &str, verify: bool, examined: Arc<AtomicU64>) -> Result<SalvagedVolume> {
        let survey = move |volume: Rc<engine::SalvageVolume>| async move {
            let mut count = |bytes| {
                examined.fetch_add(bytes, Ordering::Relaxed);
            };
            let result = volume.survey(verify, &mut count).await;
            let info = volume_of(volume.info());
            Ok(SalvagedVolume {
                readable_bytes: result.readable,
                stale_bytes: result.stale,
                lost_bytes: result.lost,
                lost: result.lost_ranges.into_iter().map(range).collect(),
                stale_ranges: result.stale_ranges.into_iter().map(range).collect(),
                ..info
            })
        };
        self.with(name, survey).await
    }

    /// Returns the extents of a volume from `offset` on, or the first part of them if there are
    /// many.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn extents(&self, name: &str, offset: u64) -> Result<Vec<SalvagedExtent>> {
        let list = move |volume: Rc<engine::SalvageVolume>| async move {
            let left = volume.info().size.saturating_sub(offset);
            let extents = volume.extents(offset, left).await?;
            let extent = |extent: engine::SalvageExtent| SalvagedExtent {
                length: extent.length,
                state: match extent.state {
                    SalvageState::Hole => ExtentState::Hole,
                    SalvageState::Data => ExtentState::Data,
                    SalvageState::Lost => ExtentState::Lost,
                },
                stale: extent.stale,
            };
            Ok(extents.into_iter().map(extent).collect())
        };
        self.with(name, list).await
    }

    /// Reads the readable parts of a range of a volume.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` beyond the end.
    pub async fn read(&self, name: &str, offset: u64, length: usize) -> Result<ReadPart> {
        let read = move |volume: Rc<engine::SalvageVolume>| async move {
            let buffer = Buffer::new(length);
            let unreadable = volume.read_available(offset, &buffer.span()).await?;
            let range = |range: engine::UnreadableRange| UnreadableRange {
                offset: range.offset,
                length: range.length,
                reason: range.error.to_string(),
            };
            let unreadable = unreadable.into_iter().map(range).collect();
            Ok(ReadPart { bytes: buffer.as_slice().to_vec(), unreadable })
        };
        self.with(name, read).await
    }

    /// Exports all volumes and snapshots read-only over NBD, on a Unix socket for this process's
    /// user.
    ///
    /// # Errors
    /// When the socket cannot be created.
    pub async fn serve_nbd(&self, socket: &Path) -> Result<NbdSocket> {
        nbd::serve(&self.pool, socket).await
    }

    async fn with<T, F>(
        &self,
        name: &str,
        work: impl FnOnce(Rc<engine::SalvageVolume>) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + 'static,
    {
        let name = name.to_owned();
        let work = |pool: Rc<engine::Salvage>| async move { work(Rc::new(pool.volume(&name)?)).await };
        call_object(&self.pool, work).await?
    }
}

impl Drop for Salvage {
    fn drop(&mut self) {
        self.reactors.stop();
    }
}

fn report_of(salvage: &Rc<engine::Salvage>, accepts_stale: bool) -> SalvageReport {
    let report = salvage.report();
    let drive = |drive: &engine::SalvagedDrive| SalvagedDrive {
        index: drive.index,
        path: drive.path.clone(),
        state: drive_state_of(drive.state),
        present: drive.present,
    };
    SalvageReport {
        pool: salvage.name().to_owned(),
        id: salvage.id().to_string(),
        scheme: salvage.scheme().to_string(),
        clean: report.clean,
        opening: report.state.0,
        generation: report.state.1,
        drives: report.drives.iter().map(drive).collect(),
        problems: report.problems.iter().cloned().map(to_wire_finding).collect(),
        records: report.records,
        unowned_layers: report.unowned_layers,
        stale: report.stale,
        accepts_stale,
        verified: false,
        volumes: salvage.volumes().into_iter().map(volume_of).collect(),
    }
}

fn volume_of(info: engine::SalvageVolumeInfo) -> SalvagedVolume {
    SalvagedVolume {
        name: info.name,
        size: info.size,
        sector: info.sector,
        snapshot: info.snapshot,
        created: info.created,
        stale: info.stale,
        readable_bytes: 0,
        stale_bytes: 0,
        lost_bytes: 0,
        lost: Vec::new(),
        stale_ranges: Vec::new(),
    }
}

fn range(range: engine::ByteRange) -> ByteRange {
    ByteRange { offset: range.offset, length: range.length }
}
