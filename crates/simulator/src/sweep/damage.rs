//! The damage sweep: each page of a pool is damaged once, on one drive more than the scheme
//! tolerates.
//!
//! A read must return the written data or an error. The engine must not write to the read's memory
//! afterwards, although the other drives complete slowly. This is checked while the pool is in
//! service and after it is opened again, if that succeeds.

use std::time::Duration;

use engine::{ErrorKind, Pool};
use reactor::{Buffer, Reactor};

use super::operation::SECTOR;
use super::perform::prepare;
use super::{ExpectedState, SweepOp, SweepOptions, completed};
use crate::disk::Faults;
use crate::model::VolumeModel;
use crate::random::mix;
use crate::run::Machine;
use crate::swarm::BufferWatch;

/// The operation that prepares the damaged pool. Its volume has a snapshot.
const PREPARED: SweepOp = SweepOp::Clone;
/// The first page after the superblocks of a drive.
const FIRST_PAGE: u64 = 1024;
/// Lengths of the reads, in bytes.
const LENGTHS: [u64; 3] = [256 << 10, 16 << 10, 4096];

/// The results of a damage sweep.
#[derive(Clone, Copy, Debug, Default)]
pub struct DamageCounts {
    /// Damaged pages, each on several drives.
    pub pages: u64,
    /// Reads that returned the written data.
    pub answered: u64,
    /// Reads that returned an error.
    pub refused: u64,
    /// Pools that could not be opened any more.
    pub closed: u64,
}

impl DamageCounts {
    /// Adds the counts of another sweep.
    pub fn add(&mut self, other: &Self) {
        self.pages += other.pages;
        self.answered += other.answered;
        self.refused += other.refused;
        self.closed += other.closed;
    }
}

/// Damages every page, or every `step`th page, one after the other.
///
/// # Errors
/// Describes the failure and the damaged page.
pub fn sweep_damage(options: &SweepOptions<'_>) -> Result<DamageCounts, String> {
    let mut counts = DamageCounts::default();
    let (machine, _) = prepared(options, 0)?;
    let mut pages: Vec<u64> = machine.disks.iter().flat_map(|disk| disk.pages()).collect();
    pages.retain(|page| *page >= FIRST_PAGE);
    pages.sort_unstable();
    pages.dedup();
    for page in pages.into_iter().step_by(options.step) {
        let at = |message| format!("{options}, page {page} damaged: {message}");
        one_page(options, page, &mut counts).map_err(at)?;
        counts.pages += 1;
    }
    Ok(counts)
}

/// Creates a pool and closes it cleanly. Returns its machine and expected content.
fn prepared(options: &SweepOptions<'_>, seed: u64) -> Result<(Machine, VolumeModel), String> {
    let machine = options.machine(PREPARED, mix(seed ^ 1 << 61));
    let mut expected = ExpectedState::of(PREPARED, options);
    prepare(PREPARED, &machine, &mut expected)?;
    completed(machine.boot(async || {
        let (pool, _) = machine.open().await.map_err(|error| format!("open: {error:?}"))?;
        pool.close().await.map_err(|error| format!("close: {error:?}"))
    }))?;
    Ok((machine, expected.model))
}

fn one_page(options: &SweepOptions<'_>, page: u64, counts: &mut DamageCounts) -> Result<(), String> {
    let (machine, model) = prepared(options, page)?;
    completed(machine.boot(async || {
        let (pool, _) = machine.open().await.map_err(|error| format!("open: {error:?}"))?;
        damage(&machine, options.parity() + 1, page);
        read_all(&pool, &model, counts).await.map_err(|message| format!("in service: {message}"))?;
        // Time for repair. Its result does not matter here.
        Reactor::current().sleep(Duration::from_secs(5)).await;
        let _ = pool.close().await;
        Ok(())
    }))?;
    machine.kill_process();
    completed(machine.boot(async || match machine.open().await {
        Ok((pool, _)) => {
            read_all(&pool, &model, counts)
                .await
                .map_err(|message| format!("when opened again: {message}"))?;
            let _ = pool.close().await;
            Ok(())
        }
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::NotAPool) => {
            counts.closed += 1;
            Ok(())
        }
        Err(error) => Err(format!("open of a damaged pool: {error:?}")),
    }))?;
    machine.kill_process();
    // The verifier may find damage or fail to read the pool. Other errors are not allowed.
    match machine.check() {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::NotAPool) => {
            Ok(())
        }
        Err(error) => Err(format!("check: {error:?}")),
    }
}

/// Damages a page on `count` drives. The page number selects the first of them. All drives stall
/// occasionally.
fn damage(machine: &Machine, count: usize, page: u64) {
    let first = usize::try_from(page).unwrap_or(0) % machine.disks.len();
    for (at, disk) in machine.disks.iter().cycle().skip(first).take(machine.disks.len()).enumerate() {
        disk.set_faults(Faults { stall: 3, ..Faults::default() });
        match (page + at as u64) % 2 {
            _ if at >= count => {}
            0 => disk.mark_unreadable(page),
            _ => _ = disk.flip_bit(page, usize::try_from(page * 4099).unwrap_or(0)),
        }
    }
}

/// Reads the volume several times, in chunks of each length.
pub(super) async fn read_all(
    pool: &Pool,
    model: &VolumeModel,
    counts: &mut DamageCounts,
) -> Result<(), String> {
    let volume = pool.open_volume("v").await.map_err(|error| format!("open the volume: {error:?}"))?.attach();
    let buffers = BufferWatch::default();
    for length in LENGTHS {
        for offset in (0..model.size()).step_by(usize::try_from(length).unwrap_or(1)) {
            let buffer = Buffer::new(usize::try_from(length).unwrap_or(0));
            let read = volume.read(offset, &buffer.span()).await;
            match read {
                Ok(()) => {
                    counts.answered += 1;
                    let first = offset / u64::from(SECTOR);
                    model.check_read(first, buffer.as_slice(), u64::MAX, u64::MAX)?;
                }
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) => {
                    counts.refused += 1
                }
                Err(error) => return Err(format!("read at {offset}: {error:?}")),
            }
            buffers.watch(format!("read of {length} at {offset}"), buffer)?;
        }
    }
    // The longest time that a stalled transfer takes.
    Reactor::current().sleep(Duration::from_secs(1)).await;
    buffers.check()
}
