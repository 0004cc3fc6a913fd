//! Named contexts: remote daemons, in a file of the user.
//!
//! Invariant: the file names the files of tokens, and holds no token.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

/// The name that stands for the daemon of this host.
pub(crate) const LOCAL: &str = "local";

/// A remote daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedContext {
    pub(crate) server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprint: Option<String>,
}

/// The file of contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ContextFile {
    /// The current context; absent for the daemon of this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, NamedContext>,
}

/// Returns the error for a name that no context has.
pub(crate) fn no_context(name: &str) -> anyhow::Error {
    Error::new(ErrorKind::NotFound, format!("there is no context '{name}'"))
        .hint("'gabion context list' lists the contexts")
        .into()
}

/// Returns the path of the file of contexts.
pub(crate) fn file_path() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")));
    directory.unwrap_or_else(|| PathBuf::from("/etc")).join("gabion/contexts.toml")
}

/// Reads the file of contexts; without a file, there are none.
///
/// # Errors
/// When it cannot be read or parsed.
pub(crate) fn read(path: &Path) -> Result<ContextFile> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            toml::from_str(&text).with_context(|| format!("{} is not a file of contexts", path.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(ContextFile::default()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Replaces the file of contexts.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(path: &Path, file: &ContextFile) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let directory = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory).with_context(failed)?;
    // A new file is its user's alone, whatever the umask is: others may not change where tokens are
    // sent.
    let mut new = NamedTempFile::new_in(directory).with_context(failed)?;
    new.write_all(toml::to_string(file)?.as_bytes()).with_context(failed)?;
    new.persist(path).map(|_| ()).with_context(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_user_can_change_the_file() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("gabion/contexts.toml");
        let file = ContextFile { current: Some("lab".into()), ..ContextFile::default() };
        write(&path, &file).unwrap();
        assert_eq!(read(&path).unwrap(), file);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
