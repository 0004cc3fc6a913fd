//! The files of the project, for the tests that read them.
#![allow(dead_code, reason = "each test uses some of this")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory of the project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the relative paths of all files of the project, committed or not.
pub(crate) fn paths() -> Vec<PathBuf> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").args(arguments).current_dir(root()).output().unwrap();
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).unwrap();
    names.split_terminator('\0').map(PathBuf::from).collect()
}

/// Returns all text files of the project, by relative path.
pub(crate) fn files() -> Vec<(PathBuf, String)> {
    // A deleted file that is not committed yet is still listed.
    let read = |path: PathBuf| std::fs::read_to_string(root().join(&path)).ok().map(|text| (path, text));
    let files: Vec<_> = paths().into_iter().filter_map(read).collect();
    assert!(files.len() > 50, "only {} files", files.len());
    files
}

/// Returns all source files but generated ones, whose style is that of their generator.
pub(crate) fn sources() -> impl Iterator<Item = (PathBuf, String)> {
    let is_generated = |path: &Path| path.components().any(|part| part.as_os_str() == "generated");
    let is_source = |path: &Path| path.extension().is_some_and(|extension| extension == "rs");
    files().into_iter().filter(move |(path, _)| is_source(path) && !is_generated(path))
}

/// Reads a file of the project.
pub(crate) fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}
