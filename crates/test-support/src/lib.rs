//! Requirements of tests on the machine that they run on: root, devices, file systems of the kernel, programs.
//!
//! Owns the one decision what becomes of a test whose requirement is missing. Always true: such a test fails, with the name
//! of the requirement, unless the environment skips it by that name; a test that was skipped is seen to have been skipped.
//! Must not know what is tested. Only tests link it.
//!
//! ```no_run
//! if !test_support::has_fuse() {
//!     return;
//! }
//! ```

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variable that skips tests: names of requirements, separated by commas, as in `GABION_SKIP=fuse,qemu-img`. Tests that
/// need one of these do not run, whether it is missing or not.
pub const SKIP: &str = "GABION_SKIP";

/// True if a test that needs `requirement` is to run, where looking for it gave `found`. A test that gets false ends.
///
/// # Panics
/// If the requirement is missing and not skipped by name.
#[must_use]
#[track_caller]
pub fn has(requirement: &str, found: Result<(), String>) -> bool {
    match decide(requirement, found, std::env::var(SKIP).ok().as_deref()) {
        Decision::Run => true,
        Decision::Skip(message) => {
            // Not through the macros, whose output is kept back for tests that pass.
            let _ = writeln!(std::io::stderr(), "{message}");
            false
        }
        Decision::Fail(message) => panic!("{message}"),
    }
}

/// What becomes of a test.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Run,
    Skip(String),
    Fail(String),
}

fn decide(requirement: &str, found: Result<(), String>, skipped: Option<&str>) -> Decision {
    let mut names = skipped.unwrap_or_default().split(',').map(str::trim);
    if names.any(|name| name == requirement) {
        return Decision::Skip(format!("SKIPPED: a test that needs '{requirement}', by {SKIP}"));
    }
    match found {
        Ok(()) => Decision::Run,
        Err(missing) => Decision::Fail(format!(
            "this test needs '{requirement}', which is missing: {missing}. './run setup' installs what can be installed; \
             {SKIP}={requirement} skips the tests that need it"
        )),
    }
}

/// Requirement `root`: the rights of root, to mount and to make devices.
///
/// # Panics
/// As [`has`].
#[must_use]
#[track_caller]
pub fn has_root() -> bool {
    let found = if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err("the tests run as another user".into())
    };
    has("root", found)
}

/// Requirement `loop`: root, and loop devices of the kernel.
///
/// # Panics
/// As [`has`].
#[must_use]
#[track_caller]
pub fn has_loop() -> bool {
    has_root() && has("loop", exists("/dev/loop-control"))
}

/// Requirement `fuse`: root, and FUSE of the kernel.
///
/// # Panics
/// As [`has`].
#[must_use]
#[track_caller]
pub fn has_fuse() -> bool {
    has_root() && has("fuse", exists("/dev/fuse"))
}

/// A requirement with the name of a program, which must be found where administrators' programs are looked for.
///
/// # Panics
/// As [`has`].
#[must_use]
#[track_caller]
pub fn has_program(program: &str) -> bool {
    let found = find_program(program).map(drop);
    has(program, found.ok_or_else(|| format!("no program '{program}' is on the PATH")))
}

/// Several programs, each a requirement with its name.
///
/// # Panics
/// As [`has`].
#[must_use]
#[track_caller]
pub fn has_programs(programs: &[&str]) -> bool {
    programs.iter().all(|program| has_program(program))
}

/// Requirement `fio-nbd`: fio, with an engine for NBD.
///
/// # Panics
/// As [`has`].
#[must_use]
#[track_caller]
pub fn has_fio_nbd() -> bool {
    if !has_program("fio") {
        return false;
    }
    let listed = Command::new("fio").arg("--enghelp").stdin(Stdio::null()).output();
    let has_engine = listed.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("nbd"));
    has("fio-nbd", if has_engine { Ok(()) } else { Err("fio was built without its NBD engine".into()) })
}

/// Requirement `guest-kernel`: QEMU, and the directory of a kernel for guests, which `./run setup` unpacks beside what cargo
/// builds. `program` is any program that cargo has built.
///
/// # Panics
/// As [`has`].
#[must_use]
#[track_caller]
pub fn guest_kernel(program: &str) -> Option<PathBuf> {
    if !has_program("qemu-system-x86_64") {
        return None;
    }
    let mut places = Path::new(program).ancestors().map(|path| path.join("guest"));
    let place = places.find(|path| path.join("boot").is_dir());
    let found = place.is_some().then_some(()).ok_or_else(|| "no kernel for guests was unpacked".to_owned());
    if has("guest-kernel", found) { place } else { None }
}

/// The file of a program.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Tools of the system's administrator need not be on everybody's path.
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(more)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

fn exists(path: &str) -> Result<(), String> {
    if Path::new(path).exists() { Ok(()) } else { Err(format!("there is no {path}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requirement_that_is_missing_fails_the_test_unless_it_is_skipped_by_name() {
        let missing = || Err("there is no /dev/fuse".to_owned());
        for skipped in [None, Some(""), Some("fuse-other,loop"), Some("FUSE")] {
            let Decision::Fail(message) = decide("fuse", missing(), skipped) else { panic!("{skipped:?}") };
            for part in ["'fuse'", "there is no /dev/fuse", "GABION_SKIP=fuse", "./run setup"] {
                assert!(message.contains(part), "{message}");
            }
        }
        for skipped in ["fuse", "loop, fuse"] {
            assert!(matches!(decide("fuse", missing(), Some(skipped)), Decision::Skip(_)), "{skipped}");
            assert!(matches!(decide("fuse", Ok(()), Some(skipped)), Decision::Skip(_)), "{skipped}");
        }
        assert_eq!(decide("fuse", Ok(()), Some("loop")), Decision::Run);
    }

    #[test]
    fn programs_are_found_on_the_path_and_beside_it() {
        assert!(find_program("sh").is_some_and(|file| file.ends_with("sh")));
        assert_eq!(find_program("no-such-program-here"), None);
    }
}
