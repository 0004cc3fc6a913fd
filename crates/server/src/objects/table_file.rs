//! Files of the state directory that hold tables of S3 as JSON.
//!
//! Must not know: the tables.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};
use crate::private_file;

/// The part of all such files that every release can read.
#[derive(Deserialize)]
struct FileVersion {
    version: u32,
}

/// Reads a file; `None` if there is none. `contents` names the tables for errors, as in "access
/// keys".
///
/// # Errors
/// When the file cannot be read, is damaged, or has another version.
pub(super) fn read_tables<T: DeserializeOwned>(
    path: &Path,
    version: u32,
    contents: &str,
) -> Result<Option<T>> {
    let Some(bytes) = private_file::read(path)? else { return Ok(None) };
    let invalid = |error: serde_json::Error| damaged_file(path, &error.to_string(), contents);
    let found: FileVersion = serde_json::from_slice(&bytes).map_err(invalid)?;
    if found.version != version {
        return Err(damaged_file(path, "another release of Gabion wrote it", contents));
    }
    serde_json::from_slice(&bytes).map(Some).map_err(invalid)
}

/// Returns the error for a file that cannot be used.
pub(super) fn damaged_file(path: &Path, reason: &str, contents: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{} cannot be used: {reason}", path.display()))
        .hint(format!("restore the file from a backup, or remove it to begin without {contents}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Tables {
        version: u32,
        rows: Vec<u32>,
    }

    #[test]
    fn damaged_files_and_those_of_other_releases_are_refused_with_their_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tables.json");
        let read = || read_tables::<Tables>(&path, 1, "rows");
        assert_eq!(read().unwrap(), None);
        std::fs::write(&path, r#"{"version": 1, "rows": [2]}"#).unwrap();
        assert_eq!(read().unwrap(), Some(Tables { version: 1, rows: vec![2] }));
        for (text, reason) in [
            (r#"{"version": 2, "columns": []}"#, "another release of Gabion wrote it"),
            (r#"{"version": 1, "columns": []}"#, "unknown field"),
            ("{", "EOF"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = read().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            let message = error.to_string();
            assert!(message.contains(path.to_str().unwrap()) && message.contains(reason), "{message}");
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(read().unwrap_err().kind(), ErrorKind::Io);
    }
}
