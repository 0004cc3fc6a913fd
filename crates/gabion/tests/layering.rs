//! The layering of the crates: allowed dependencies between them.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod project;

use std::collections::BTreeSet;
use std::path::PathBuf;

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Allowed dependencies of each crate. Additions need a reason in docs/decisions.md.
const ALLOWED: &[(&str, &[&str])] = &[
    ("api", &[]),
    ("codec", &[]),
    ("format", &[]),
    ("file-lock", &[]),
    ("loop-device", &[]),
    ("reactor", &[]),
    ("object", &[]),
    ("s3", &["codec", "object"]),
    ("s3-client", &[]),
    ("engine", &["codec", "format", "reactor"]),
    ("simulator", &["codec", "engine", "format", "reactor"]),
    ("export", &["codec", "loop-device", "reactor"]),
    (
        "server",
        &["api", "ceph", "engine", "export", "file-lock", "format", "object", "reactor", "s3", "s3-client"],
    ),
    ("bench", &["codec", "engine", "export", "file-lock", "format", "reactor", "s3-client"]),
    ("vm", &["file-lock"]),
    ("ceph", &["reactor"]),
    ("cluster", &["api", "ceph", "file-lock"]),
    ("csi", &["api", "loop-device"]),
    ("fuzz", &[]),
    // The NBD client of `export` copies images.
    ("gabion", &["api", "bench", "cluster", "csi", "export", "s3-client", "server", "vm"]),
    ("test-support", &[]),
];

/// Additional dependencies of tests.
const ALLOWED_IN_TESTS: &[(&str, &[&str])] = &[
    ("format", &["fuzz"]),
    ("vm", &["fuzz"]),
    ("cluster", &["test-support"]),
    ("loop-device", &["test-support"]),
    ("reactor", &["test-support"]),
    ("export", &["fuzz", "test-support"]),
    ("server", &["fuzz", "test-support"]),
    ("bench", &["test-support"]),
    ("gabion", &["simulator", "fuzz", "loop-device", "test-support"]),
];

/// Crates that only tests may link.
const TESTS_ONLY: [&str; 3] = ["simulator", "fuzz", "test-support"];

fn allowed(table: &'static [(&str, &[&str])], room: &str) -> &'static [&'static str] {
    table.iter().find(|(name, _)| *name == room).map_or(&[], |(_, rooms)| rooms)
}

#[test]
fn crates_depend_only_on_allowed_crates() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let rooms: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let known: BTreeSet<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
    assert_eq!(rooms, known, "every crate has a row in this test");
    let mut forbidden = Vec::new();
    for package in &metadata.packages {
        let room = package.name.as_str();
        for dependency in
            package.dependencies.iter().filter(|dependency| rooms.contains(dependency.name.as_str()))
        {
            let other = dependency.name.as_str();
            let in_tests = dependency.kind == DependencyKind::Development;
            let fine = allowed(ALLOWED, room).contains(&other)
                || in_tests && (allowed(ALLOWED_IN_TESTS, room).contains(&other) || room == other);
            if !fine {
                forbidden.push(format!("{room} -> {other} ({:?})", dependency.kind));
            }
        }
    }
    assert!(forbidden.is_empty(), "forbidden edges: {}", forbidden.join(", "));
}

/// Source files of the command line that work without a daemon, or run the daemon. Only they may
/// use the crate `server`.
const WITHOUT_DAEMON: &[&str] = &[
    "cli/serve.rs",
    "commands/check.rs",
    "commands/host_objects.rs",
    "commands/identify.rs",
    "commands/salvage.rs",
    "commands/serve.rs",
    "commands/version.rs",
    "failure.rs",
    "image/salvage.rs",
    "quickstart/steps.rs",
    "reference/settings.rs",
];

#[test]
fn commands_use_the_daemon_through_the_api_only() {
    let using: BTreeSet<String> = sources_in("crates/gabion/src")
        .filter(|(_, text)| text.contains("server::"))
        .map(|(path, _)| path.to_str().unwrap().to_owned())
        .collect();
    let allowed: BTreeSet<String> = WITHOUT_DAEMON.iter().map(ToString::to_string).collect();
    assert_eq!(using, allowed, "files that use the crate 'server', and files that may");
}

/// Returns the source files in a directory, with paths relative to it.
fn sources_in(directory: &str) -> impl Iterator<Item = (PathBuf, String)> {
    let directory = PathBuf::from(directory);
    project::sources()
        .filter_map(move |(path, text)| Some((path.strip_prefix(&directory).ok()?.to_owned(), text)))
}

#[test]
fn the_product_links_no_test_crates() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    for package in &metadata.packages {
        let linked = |kind| matches!(kind, DependencyKind::Normal | DependencyKind::Build);
        let mut linked = package.dependencies.iter().filter(|dependency| linked(dependency.kind));
        let is_for_tests = |name: &str| TESTS_ONLY.contains(&name);
        assert!(linked.all(|dependency| !is_for_tests(&dependency.name)), "{} links it", package.name);
    }
}

/// Operations in which the allocation of a box would take a tenth of the time.
const UNBOXED: [&str; 2] = [
    "pub async fn read(&self, offset: u64, into: &Span)",
    "pub async fn write(&self, offset: u64, data: &Span)",
];

/// The crates that use the engine would otherwise contain its code once more each, and builds of
/// tests, which optimise the engine but not its users, would run it without optimisation.
#[test]
fn the_code_of_the_engine_is_generated_in_its_crate() {
    let mut found = Vec::new();
    for (_, text) in sources_in("crates/engine/src") {
        found.extend(text.lines().filter(|line| is_future(line)).map(|line| line.trim().to_owned()));
    }
    found.sort();
    let unboxed = UNBOXED.map(|signature| format!("{signature} -> Result<()> {{"));
    assert_eq!(found, unboxed, "public functions without a boxed future, and those that may");
}

fn is_future(line: &str) -> bool {
    line.contains("pub async fn") || line.contains("pub fn") && line.contains("-> impl Future")
}
