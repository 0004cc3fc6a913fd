//! Sets `GABION_VERSION`, the text of `gabion --version`: the version, and the commit if the source
//! is in its git repository.

use std::process::Command;

/// The directory of this crate in the repository, as git prints it.
const PREFIX: &str = "crates/gabion/";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION");
    let text = commit().map_or_else(|| version.to_owned(), |commit| format!("{version} (commit {commit})"));
    println!("cargo::rustc-env=GABION_VERSION={text}");
}

/// Returns the commit that is checked out; `None` without git, and for a copy of the source outside
/// of its repository, such as an archive, which may be within another repository.
fn commit() -> Option<String> {
    let is_own = git(&["rev-parse", "--show-prefix"])? == PREFIX
        && git(&["ls-files", "--error-unmatch", "build.rs"]).is_some();
    if !is_own {
        return None;
    }
    // Commits and checkouts add a line to this file.
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// Returns the output of git in the directory of the crate; `None` if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
