//! The damage sweep after a crash: a pool is left with flushed writes in its log, and each page of
//! these writes is damaged on one drive more than the scheme tolerates.
//!
//! The pool is then refused, or its volume returns the flushed data or errors. A flushed write is
//! never absent without an error, except for the writes of the last flush if a damaged cell of them
//! can be read: such a cell cannot be distinguished from one that the power cut left unwritten.

use std::fmt;

use engine::ErrorKind;

use super::damage::{DamageCounts, read_all};
use super::modelled_write::write;
use super::operation::SECTOR;
use super::perform::prepare;
use super::{ExpectedState, SweepOp, SweepOptions, completed};
use crate::disk::DiskImage;
use crate::model::VolumeModel;
use crate::random::mix;
use crate::run::Machine;

/// The operation that prepares the pool.
const PREPARED: SweepOp = SweepOp::Open;
/// The first page after the superblocks of a drive.
const FIRST_PAGE: u64 = 1024;
/// Offset and length of each write, in bytes. Short writes go to mirrored segments, long ones to
/// segments of the full width.
const LONG_WRITES: [(u64, u64); 5] =
    [(0, 4096), (64 << 10, 120 << 10), (4096, 4096), (256 << 10, 120 << 10), (512 << 10, 200 << 10)];
const SHORT_WRITES: [(u64, u64); 4] = [(0, 4096), (16 << 10, 4096), (4096, 4096), (32 << 10, 4096)];

/// Damage of a page on several drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageDamage {
    /// Reads fail on all of them.
    Unreadable,
    /// Reads return wrong bytes on all of them.
    Wrong,
    /// Both, in turns.
    Mixed,
}

const ALL_DAMAGE: [PageDamage; 3] = [PageDamage::Unreadable, PageDamage::Wrong, PageDamage::Mixed];

/// A page that is damaged on several drives.
struct DamagedPage {
    page: u64,
    /// The first of the drives.
    first: usize,
    damage: PageDamage,
}

impl fmt::Display for DamagedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { page, first, damage } = self;
        write!(f, "page {page} {damage:?} from drive {first} on")
    }
}

/// A pool after a power cut.
struct CrashedPool {
    machine: Machine,
    images: Vec<DiskImage>,
    /// Pages that the last opening wrote.
    pages: Vec<u64>,
    /// The content with all flushed writes.
    flushed: VolumeModel,
    /// The content with or without those of the last flush.
    last_uncertain: VolumeModel,
}

/// Damages every page, or every `step`th page, of the log that a crash left, on every choice of
/// neighbouring drives and in every way.
///
/// # Errors
/// Describes the failure and the damaged page.
pub fn sweep_crash_damage(options: &SweepOptions<'_>) -> Result<DamageCounts, String> {
    let mut counts = DamageCounts::default();
    for (name, writes) in [("long", LONG_WRITES.as_slice()), ("short", SHORT_WRITES.as_slice())] {
        let pool = crashed(options, writes)?;
        for page in pool.pages.iter().copied().step_by(options.step) {
            for first in 0..pool.machine.disks.len() {
                for damage in ALL_DAMAGE {
                    let damaged = DamagedPage { page, first, damage };
                    one_page(options, &pool, &damaged, &mut counts)
                        .map_err(|message| format!("{options}, {name} writes, {damaged}: {message}"))?;
                    counts.pages += 1;
                }
            }
        }
    }
    Ok(counts)
}

/// Creates a pool, writes and flushes, and cuts the power.
fn crashed(options: &SweepOptions<'_>, writes: &[(u64, u64)]) -> Result<CrashedPool, String> {
    let machine = options.machine(PREPARED, mix(7 ^ 1 << 60));
    let mut expected = ExpectedState::of(PREPARED, options);
    prepare(PREPARED, &machine, &mut expected)?;
    machine.cut_power();
    let before: Vec<DiskImage> = machine.disks.iter().map(|disk| disk.image()).collect();
    let mut model = expected.model;
    let mut last_uncertain = model.clone();
    completed(machine.boot(async || {
        let work = async {
            let (pool, _) = machine.open().await?;
            // Only the volume's writes follow in the log.
            pool.checkpoint().await?;
            let volume = pool.open_volume("v").await?.attach();
            for (value, (offset, length)) in (200..).zip(writes) {
                last_uncertain = model.clone();
                let (first, count) = (offset / u64::from(SECTOR), length / u64::from(SECTOR));
                let _ = last_uncertain.begin_write(2 * value, first, count, value, false);
                write(&volume, &mut model, value, *offset, *length).await?;
                volume.flush().await?;
                model.note_flush(2 * value + 1);
            }
            Ok::<_, engine::Error>(())
        };
        work.await.map_err(|error| format!("writing before the crash: {error:?}"))
    }))?;
    machine.cut_power();
    let images: Vec<DiskImage> = machine.disks.iter().map(|disk| disk.image()).collect();
    let mut pages: Vec<u64> =
        before.iter().zip(&images).flat_map(|(before, after)| after.changed_since(before)).collect();
    pages.retain(|page| *page >= FIRST_PAGE);
    pages.sort_unstable();
    pages.dedup();
    Ok(CrashedPool { machine, images, pages, flushed: model, last_uncertain })
}

fn one_page(
    options: &SweepOptions<'_>,
    pool: &CrashedPool,
    damaged: &DamagedPage,
    counts: &mut DamageCounts,
) -> Result<(), String> {
    let machine = &pool.machine;
    machine.disks.iter().zip(&pool.images).for_each(|(disk, image)| disk.restore(image));
    let drives = machine.disks.iter().cycle().skip(damaged.first).take(options.parity() + 1);
    for (at, disk) in drives.enumerate() {
        let unreadable = match damaged.damage {
            PageDamage::Unreadable => true,
            PageDamage::Wrong => false,
            PageDamage::Mixed => (damaged.first + at).is_multiple_of(2),
        };
        if unreadable {
            disk.mark_unreadable(damaged.page);
        } else {
            // A page that was never written stays as it is.
            disk.flip_bit(damaged.page, usize::try_from(damaged.page * 4099).unwrap_or(0));
        }
    }
    let ended = completed(machine.boot(async || match machine.open().await {
        Ok((opened, _)) => {
            let read = match read_all(&opened, &pool.flushed, counts).await {
                Err(_) if damaged.damage != PageDamage::Unreadable => {
                    read_all(&opened, &pool.last_uncertain, counts).await
                }
                read => read,
            };
            // Repair may end with an error.
            let _ = opened.close().await;
            read
        }
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::NotAPool) => {
            counts.closed += 1;
            Ok(())
        }
        Err(error) => Err(format!("open of a damaged pool: {error:?}")),
    }));
    machine.kill_process();
    ended
}
