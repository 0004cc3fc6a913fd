//! A pool that is salvaged: listed, read and served read-only without a daemon.
//!
//! Always true: drives are opened read-only, and nothing is written to them.

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
use crate::offline::{open_to_look, start_reactor, to_wire_finding};
use crate::pools::drive_state;
use crate::reactors::{Reactors, call_resident};
use api::types::{ByteRange, SalvageReport, SalvagedDrive, SalvagedVolume, UnreadableRange};
pub use nbd::NbdSocket;

/// A pool that is salvaged. Its drives are in use until it is dropped.
pub struct Salvage {
    reactors: Reactors,
    home: Handle<engine::Salvage>,
    report: SalvageReport,
}

/// A stretch of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SalvagedExtent {
    /// Its length in bytes.
    pub length: u64,
    /// Its state.
    pub state: ExtentState,
    /// True if newer data may have been written there, or it may have been deleted since.
    pub stale: bool,
}

/// The state of a stretch of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentState {
    /// It reads as zeros.
    Hole,
    /// It holds data.
    Data,
    /// It cannot be read.
    Lost,
}

/// The result of a read.
#[derive(Clone, Debug)]
pub struct ReadPart {
    /// The bytes; zeros where they cannot be read.
    pub bytes: Vec<u8>,
    /// The ranges that cannot be read.
    pub unreadable: Vec<UnreadableRange>,
}

impl Salvage {
    /// Opens the pool on these drives. Takes long if the log is searched.
    ///
    /// # Errors
    /// When a drive cannot be read or is in use, or no superblock can be read.
    pub async fn open(drives: &[PathBuf], accept_stale: bool) -> Result<Self> {
        let opened = open_to_look(drives)?;
        let sources = as_sources(&opened);
        let reactors = start_reactor()?;
        let look = move || async move {
            let options = SalvageOptions { accept_stale, ..SalvageOptions::default() };
            let found = engine::salvage(&sources, &options).await?;
            let report = report_of(&found, accept_stale);
            Ok::<_, Error>((Handle::register(&Reactor::current(), found), report))
        };
        match reactors.next().call(look).await.map_err(Error::from).flatten() {
            Ok((home, report)) => Ok(Self { reactors, home, report }),
            Err(error) => {
                reactors.stop();
                Err(error)
            }
        }
    }

    /// The report on the pool. Its volumes have no figures yet: see [`Salvage::survey`].
    pub fn report(&self) -> &SalvageReport {
        &self.report
    }

    /// Finds the ranges of a volume that can be read: by the map and the drives that are present, or by reading every block
    /// (`verify`). Counts the bytes that were looked at in `passed`.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn survey(&self, name: &str, verify: bool, passed: Arc<AtomicU64>) -> Result<SalvagedVolume> {
        let survey = move |volume: Rc<engine::SalvageVolume>| async move {
            let count = |bytes| {
                passed.fetch_add(bytes, Ordering::Relaxed);
            };
            let found = volume.survey(verify, count).await;
            let info = volume_of(volume.info());
            Ok(SalvagedVolume {
                readable_bytes: found.readable,
                stale_bytes: found.stale,
                lost_bytes: found.lost,
                lost: found.lost_ranges.into_iter().map(range).collect(),
                stale_ranges: found.stale_ranges.into_iter().map(range).collect(),
                ..info
            })
        };
        self.with(name, survey).await
    }

    /// The extents of a volume from `offset` on, or the first of them if there are many.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn extents(&self, name: &str, offset: u64) -> Result<Vec<SalvagedExtent>> {
        let look = move |volume: Rc<engine::SalvageVolume>| async move {
            let left = volume.info().size.saturating_sub(offset);
            let found = volume.extents(offset, left).await?;
            let extent = |extent: engine::SalvageExtent| SalvagedExtent {
                length: extent.length,
                state: match extent.state {
                    SalvageState::Hole => ExtentState::Hole,
                    SalvageState::Data => ExtentState::Data,
                    SalvageState::Lost => ExtentState::Lost,
                },
                stale: extent.stale,
            };
            Ok(found.into_iter().map(extent).collect())
        };
        self.with(name, look).await
    }

    /// Reads a range of a volume as far as it can be read.
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

    /// Serves all volumes and snapshots by NBD, read-only, on a Unix socket that only this process's user may use.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub async fn serve_nbd(&self, socket: &Path) -> Result<NbdSocket> {
        nbd::serve(&self.home, socket).await
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
        call_resident(&self.home, work).await?
    }
}

impl Drop for Salvage {
    fn drop(&mut self) {
        self.reactors.stop();
    }
}

fn report_of(found: &Rc<engine::Salvage>, accepts_stale: bool) -> SalvageReport {
    let report = found.report();
    let drive = |drive: &engine::SalvagedDrive| SalvagedDrive {
        index: drive.index,
        path: drive.path.clone(),
        state: drive_state(drive.state),
        present: drive.present,
    };
    SalvageReport {
        pool: found.name().to_owned(),
        id: found.id().to_string(),
        scheme: found.scheme().to_string(),
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
        volumes: found.volumes().into_iter().map(volume_of).collect(),
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
