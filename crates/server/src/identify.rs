//! Descriptions of drives for the API: kind, size, users, contents and pool membership.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::DriveContents;
use reactor::{DriveOptions, Remote};

use crate::blocking::blocking;
use crate::drives::OpenDrive;
use crate::error::{Error, Result};
use crate::inspect::{self, Inspection, Openers, PoolDrives};
use api::types::{DetectedContent, DetectedPool, IdentifiedDrive};

/// Describes each of the drives. The error of an unreadable drive is in its entry.
///
/// # Errors
/// When the reactor is gone.
pub(crate) async fn all(
    reactor: &Remote,
    paths: Vec<PathBuf>,
    in_pools: PoolDrives,
) -> Result<Vec<IdentifiedDrive>> {
    let mut identified = Vec::new();
    let openers = Arc::new(blocking(move || Openers::scan(in_pools)).await?);
    for path in paths {
        identified.push(one(reactor, path, openers.clone()).await?);
    }
    Ok(identified)
}

async fn one(reactor: &Remote, path: PathBuf, openers: Arc<Openers>) -> Result<IdentifiedDrive> {
    let given = path.clone();
    let inspected = blocking(move || {
        inspect::inspect(&given, &openers).map(|inspection| (inspection, inspect::stable_path(&given)))
    })
    .await?;
    let (inspection, stable) = match inspected {
        Ok(inspected) => inspected,
        Err(error) => return Ok(unreadable(path, error)),
    };
    let mut drive = describe(&inspection, stable);
    // Read-only and without waiting: a drive that is locked is reported as in use.
    let options = DriveOptions { read_only: true, busy_timeout: Duration::ZERO, ..DriveOptions::default() };
    match blocking(move || OpenDrive::open(&path, options)).await? {
        Ok(open) => {
            let contents = reactor.call(move || async move { engine::identify(&*open).await }).await?;
            drive.pool = pool_of(contents, &mut drive.contents);
        }
        Err(error) if error.kind() == crate::ErrorKind::Busy => {
            if drive.used_by.is_empty() {
                drive.used_by.push("another process has locked it".into());
            }
        }
        // An empty file or a drive with large sectors cannot hold a pool.
        Err(_) => {}
    }
    Ok(drive)
}

fn describe(inspection: &Inspection, stable: PathBuf) -> IdentifiedDrive {
    let content = |signature: &inspect::Signature| DetectedContent {
        description: signature.description.clone().into_owned(),
        offset: signature.offset,
    };
    IdentifiedDrive {
        path: inspection.path.to_string_lossy().into_owned(),
        stable_path: Some(stable.to_string_lossy().into_owned()),
        kind: Some(inspection.kind().to_owned()),
        size: Some(inspection.size),
        pool: None,
        used_by: inspection.users.clone(),
        contents: inspection.contents.iter().map(content).collect(),
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

fn pool_of(drive: DriveContents, detected: &mut [DetectedContent]) -> Option<DetectedPool> {
    let marks = detected.iter_mut().filter(|content| content.description.starts_with("Gabion"));
    match drive {
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
