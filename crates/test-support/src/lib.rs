//! Requirements of tests on the test machine: root, devices, kernel features, programs. Data that
//! tests write.
//!
//! Owns the decision about a test with a missing requirement. Always true: the test fails with the
//! name of the requirement, unless the environment skips it by that name; a skipped test prints a
//! message. Must not know the tests. Only tests link this crate.
//!
//! ```no_run
//! if !test_support::has_fuse() {
//!     return;
//! }
//! ```

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

/// The environment variable that skips tests: names of requirements, separated by commas, such as
/// `GABION_SKIP=fuse,qemu-img`. Tests with one of these requirements are skipped even if it is
/// available.
pub const SKIP: &str = "GABION_SKIP";

/// Returns bytes that are different for each seed.
#[must_use]
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Returns true if a test that needs `requirement` must run. `available` is the result of looking
/// for the requirement. A test that gets false returns without testing.
///
/// # Panics
/// If the requirement is missing and not skipped by name.
#[must_use]
#[track_caller]
pub fn has(requirement: &str, available: Result<(), String>) -> bool {
    match decide(requirement, available, std::env::var(SKIP).ok().as_deref()) {
        Decision::Run => true,
        Decision::Skip(message) => {
            // The print macros are captured by the test harness; direct writes to stderr are not.
            let _ = writeln!(std::io::stderr(), "{message}");
            false
        }
        Decision::Fail(message) => panic!("{message}"),
    }
}

/// The decision about a test.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Run,
    Skip(String),
    Fail(String),
}

fn decide(requirement: &str, available: Result<(), String>, skipped: Option<&str>) -> Decision {
    let mut names = skipped.unwrap_or_default().split(',').map(str::trim);
    if names.any(|name| name == requirement) {
        return Decision::Skip(format!("SKIPPED: a test that needs '{requirement}', by {SKIP}"));
    }
    match available {
        Ok(()) => Decision::Run,
        Err(missing) => Decision::Fail(format!(
            "this test needs '{requirement}', which is missing: {missing}. './run setup' installs the required packages; \
             {SKIP}={requirement} skips the tests that need it"
        )),
    }
}

/// Requirement `root`: root privileges, for mounts and devices.
///
/// # Panics
/// The cases of [`has`].
#[must_use]
#[track_caller]
pub fn has_root() -> bool {
    let available = if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err("the tests do not run as root".into())
    };
    has("root", available)
}

/// Requirement `loop`: root, and the kernel's loop devices.
///
/// # Panics
/// The cases of [`has`].
#[must_use]
#[track_caller]
pub fn has_loop() -> bool {
    has_root() && has("loop", exists("/dev/loop-control"))
}

/// Requirement `fuse`: root, and the kernel's FUSE.
///
/// # Panics
/// The cases of [`has`].
#[must_use]
#[track_caller]
pub fn has_fuse() -> bool {
    has_root() && has("fuse", exists("/dev/fuse"))
}

/// A requirement with the name of a program, which must be on the PATH or in one of the system
/// directories for administrators.
///
/// # Panics
/// The cases of [`has`].
#[must_use]
#[track_caller]
pub fn has_program(program: &str) -> bool {
    let available = find_program(program).map(drop);
    has(program, available.ok_or_else(|| format!("'{program}' is not on the PATH")))
}

/// Several programs, each a requirement with its name.
///
/// # Panics
/// The cases of [`has`].
#[must_use]
#[track_caller]
pub fn has_programs(programs: &[&str]) -> bool {
    programs.iter().all(|program| has_program(program))
}

/// Requirement `fio-nbd`: fio with its NBD engine.
///
/// # Panics
/// The cases of [`has`].
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

/// Requirement `guest-kernel`: QEMU, and the directory of a guest kernel, which `./run setup`
/// unpacks next to cargo's build directories. `program` is any program built by cargo.
///
/// # Panics
/// The cases of [`has`].
#[must_use]
#[track_caller]
pub fn guest_kernel(program: &str) -> Option<PathBuf> {
    if !has_program("qemu-system-x86_64") {
        return None;
    }
    let mut candidates = Path::new(program).ancestors().map(|path| path.join("guest"));
    let directory = candidates.find(|path| path.join("boot").is_dir());
    let available =
        directory.is_some().then_some(()).ok_or_else(|| "no guest kernel was unpacked".to_owned());
    if has("guest-kernel", available) { directory } else { None }
}

/// Returns the path of a program.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // The PATH of ordinary users may lack the directories for administrators.
    let admin_directories = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(admin_directories)
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
    fn patterns_of_seeds_differ_in_every_sector() {
        let (one, two) = (pattern(1, 4099), pattern(2, 4099));
        assert_eq!((one.len(), pattern(1, 512)), (4099, one[..512].to_vec()));
        let mut sectors: Vec<&[u8]> = one.chunks(512).chain(two.chunks(512)).collect();
        sectors.sort_unstable();
        sectors.dedup();
        assert_eq!(sectors.len(), 18);
    }

    #[test]
    fn a_missing_requirement_fails_the_test_unless_it_is_skipped_by_name() {
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
    fn programs_are_found_on_the_path() {
        assert!(find_program("sh").is_some_and(|file| file.ends_with("sh")));
        assert_eq!(find_program("no-such-program-here"), None);
    }
}
