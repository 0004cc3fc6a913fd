//! What drives are and hold, for people: the system's view, foreign marks, our own pools.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::DriveContents;
use reactor::{DriveOptions, Remote};

use crate::blocking::blocking;
use crate::drives::OpenDrive;
use crate::error::{Error, Result};
use crate::inspect::{self, Inspection, Openers};
use api::types::{DetectedContent, DetectedPool, IdentifiedDrive};

/// Looks at each of these drives.
///
/// # Errors
/// When the reactor is gone. What is wrong with a drive is in its entry.
pub(crate) async fn all(reactor: &Remote, paths: Vec<PathBuf>) -> Result<Vec<IdentifiedDrive>> {
    let mut identified = Vec::new();
    let openers = Arc::new(blocking(Openers::scan).await?);
    for path in paths {
        identified.push(one(reactor, path, openers.clone()).await?);
    }
    Ok(identified)
}

async fn one(reactor: &Remote, path: PathBuf, openers: Arc<Openers>) -> Result<IdentifiedDrive> {
    let (looked_at, stable) = (path.clone(), path.clone());
    let inspected = blocking(move || {
        inspect::inspect(&looked_at, &openers).map(|seen| (seen, inspect::stable_path(&stable)))
    })
    .await?;
    let (inspection, stable) = match inspected {
        Ok(inspected) => inspected,
        Err(error) => return Ok(unreadable(path, error)),
    };
    let mut drive = describe(&inspection, stable);
    // Only a look: no claim is made on it, and who has it locked is told instead.
    let look = DriveOptions { read_only: true, busy_timeout: Duration::ZERO, ..DriveOptions::default() };
    match blocking(move || OpenDrive::open(&path, look)).await? {
        Ok(open) => {
            let found = reactor.call(move || async move { engine::identify(&*open).await }).await?;
            drive.pool = pool_of(found, &mut drive.contents);
        }
        Err(error) if error.kind() == crate::ErrorKind::Busy => {
            drive.used_by.push("another process has it locked: a daemon, if its pool is open".into())
        }
        // An empty file, or sectors too large: no pool can be on it.
        Err(_) => {}
    }
    Ok(drive)
}

fn describe(inspection: &Inspection, stable: PathBuf) -> IdentifiedDrive {
    let finding = |found: &inspect::Signature| DetectedContent {
        description: found.what.clone().into_owned(),
        offset: found.offset,
    };
    IdentifiedDrive {
        path: inspection.path.to_string_lossy().into_owned(),
        stable_path: Some(stable.to_string_lossy().into_owned()),
        kind: Some(inspection.kind().to_owned()),
        size: Some(inspection.size),
        pool: None,
        used_by: inspection.users.clone(),
        contents: inspection.holds.iter().map(finding).collect(),
        error: None,
    }
}

fn unreadable(path: PathBuf, error: Error) -> IdentifiedDrive {
    IdentifiedDrive {
        path: path.to_string_lossy().into_owned(),
        stable_path: None,
        kind: None,
        size: None,
        pool: None,
        used_by: Vec::new(),
        contents: Vec::new(),
        error: Some(error.into()),
    }
}

fn pool_of(found: DriveContents, holds: &mut [DetectedContent]) -> Option<DetectedPool> {
    let marks = holds.iter_mut().filter(|finding| finding.description.starts_with("Gabion"));
    match found {
        DriveContents::Pool(pool) => {
            let index = pool.members.iter().position(|member| member.id == pool.drive);
            marks.for_each(|mark| mark.description = format!("Gabion pool '{}'", pool.name));
            Some(DetectedPool {
                id: pool.pool.to_string(),
                scheme: pool.scheme.to_string(),
                index: index.and_then(|index| u16::try_from(index).ok()),
                drives: pool.members.into_iter().map(|member| member.path).collect(),
                clean: pool.clean,
                name: pool.name,
            })
        }
        DriveContents::Damaged => {
            marks.for_each(|mark| mark.description = "damaged superblock of a Gabion pool".into());
            None
        }
        DriveContents::OtherVersion(version) => {
            marks.for_each(|mark| mark.description = format!("Gabion pool of format version {version}"));
            None
        }
        DriveContents::NoPool | DriveContents::Unreadable(_) => None,
    }
}
