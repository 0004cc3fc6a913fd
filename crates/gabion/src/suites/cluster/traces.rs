//! The traces of a run in a cluster: the names of what it creates, and a record in its folder as
//! long as any of it exists.
//!
//! Always true: runs of other hosts and other targets of the run have other names. Without a record,
//! the target has nothing in the cluster.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::failure::Usage;

/// Longest name of a volume.
const NAME_MAX: usize = 63;
/// Digits of the number of a volume.
const NUMBER_DIGITS: usize = 4;
/// The file with the token of a run, in its folder.
const TOKEN_FILE: &str = "cluster-token";
/// Hexadecimal digits of a token.
const TOKEN_DIGITS: usize = 6;
/// Ending of the record of a target, in the folder of the run.
const RECORD_ENDING: &str = ".in-cluster";

/// Returns the prefix of the names of a target's volumes. It ends with a hyphen.
///
/// # Errors
/// If the name of the target is too long, or the folder cannot be written.
pub(super) fn volume_prefix(folder: &Path, target: &str) -> Result<String> {
    let run = folder.file_name().and_then(|name| name.to_str()).context("the run has no name")?;
    let name = format!("bench-{run}-{}-{target}-", token(folder)?);
    if name.len() > NAME_MAX - NUMBER_DIGITS {
        let message = format!("the name of target '{target}' is too long: choose another, as in NAME=TARGET");
        return Err(Usage(message).into());
    }
    Ok(name)
}

/// Returns the name of a target's directory of a file system, or of its namespace of a pool.
///
/// # Errors
/// As [`volume_prefix`].
pub(super) fn directory_name(folder: &Path, target: &str) -> Result<String> {
    let mut name = volume_prefix(folder, target)?;
    // Only the last hyphen: the name of a target may end with one.
    name.pop();
    Ok(name)
}

/// Returns the random token of a run, which distinguishes it from a run that another host started
/// in the same second.
fn token(folder: &Path) -> Result<String> {
    let path = folder.join(TOKEN_FILE);
    let at = || path.display().to_string();
    match std::fs::read_to_string(&path) {
        Ok(token) if is_token(&token) => return Ok(token),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).with_context(at),
        // A run was killed before it had written the file, and so before it created anything.
        _ => {}
    }
    let mut token = uuid::Uuid::new_v4().simple().to_string();
    token.truncate(TOKEN_DIGITS);
    let mut file = std::fs::File::create(&path).with_context(at)?;
    file.write_all(token.as_bytes()).with_context(at)?;
    file.sync_all().with_context(at)?;
    Ok(token)
}

fn is_token(text: &str) -> bool {
    text.len() == TOKEN_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn record_path(folder: &Path, target: &str) -> PathBuf {
    folder.join(format!("{target}{RECORD_ENDING}"))
}

/// Records that a target is about to create something in a cluster.
///
/// # Errors
/// If the folder cannot be written.
pub(super) fn record(folder: &Path, target: &str) -> Result<()> {
    let path = record_path(folder, target);
    std::fs::write(&path, "").with_context(|| path.display().to_string())
}

/// True if an earlier process of the run may have left something of a target in a cluster.
pub(super) fn is_recorded(folder: &Path, target: &str) -> bool {
    record_path(folder, target).exists()
}

/// Removes the record after everything of a target was removed from the cluster.
///
/// # Errors
/// If the folder cannot be written.
pub(super) fn forget(folder: &Path, target: &str) -> Result<()> {
    let path = record_path(folder, target);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_of_each_run_has_its_own_names() {
        let hosts = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let runs = hosts.each_ref().map(|host| host.path().join("sweep-20260102-030405"));
        for run in &runs {
            std::fs::create_dir(run).unwrap();
        }
        let [first, other] = runs.each_ref().map(|run| volume_prefix(run, "rbd").unwrap());
        assert!(first.starts_with("bench-sweep-20260102-030405-") && first.ends_with("-rbd-"), "{first}");
        assert_ne!(first, other, "runs of the same second on two hosts");
        assert_eq!(volume_prefix(&runs[0], "rbd").unwrap(), first, "a resumed run");
        assert_eq!(directory_name(&runs[0], "a").unwrap() + "-", directory_name(&runs[0], "a-").unwrap());
        // A file of a killed run without its contents.
        std::fs::write(runs[0].join(TOKEN_FILE), "").unwrap();
        assert_ne!(volume_prefix(&runs[0], "rbd").unwrap(), first);
        let long = "a-name-of-a-target-that-is-longer-than-any";
        assert!(volume_prefix(&runs[0], long).unwrap_err().to_string().contains("NAME=TARGET"));
    }

    #[test]
    fn a_record_lasts_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        forget(folder.path(), "rbd").unwrap();
        assert!(!is_recorded(folder.path(), "rbd"));
        record(folder.path(), "rbd").unwrap();
        assert!(is_recorded(folder.path(), "rbd") && !is_recorded(folder.path(), "rbd2"));
        forget(folder.path(), "rbd").unwrap();
        assert!(!is_recorded(folder.path(), "rbd"));
    }
}
