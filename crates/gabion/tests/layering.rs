//! The rooms of the house: which of our crates may know which.

use std::collections::BTreeSet;
use std::path::Path;

use cargo_metadata::{DependencyKind, MetadataCommand};

/// What each room may use of the others. To let a room use another one, say so here, and why in docs/decisions.md.
const ALLOWED: &[(&str, &[&str])] = &[
    ("api", &[]),
    ("codec", &[]),
    ("format", &[]),
    ("reactor", &[]),
    ("engine", &["codec", "format", "reactor"]),
    ("simulator", &["codec", "engine", "format", "reactor"]),
    ("export", &["reactor"]),
    ("server", &["api", "engine", "export", "format", "reactor"]),
    ("bench", &["codec", "engine", "export", "format", "reactor"]),
    ("vm", &[]),
    ("fuzz", &[]),
    // The NBD client of `export` copies images.
    ("gabion", &["api", "bench", "export", "server", "vm"]),
    ("test-support", &[]),
];

/// What tests may use besides.
const ALLOWED_IN_TESTS: &[(&str, &[&str])] = &[
    ("format", &["fuzz"]),
    ("vm", &["fuzz"]),
    ("reactor", &["test-support"]),
    ("export", &["fuzz", "test-support"]),
    ("server", &["fuzz", "test-support"]),
    ("bench", &["test-support"]),
    ("gabion", &["simulator", "fuzz", "test-support"]),
];

/// What only tests may link.
const TESTS_ONLY: [&str; 3] = ["simulator", "fuzz", "test-support"];

fn allowed(table: &'static [(&str, &[&str])], room: &str) -> &'static [&'static str] {
    table.iter().find(|(name, _)| *name == room).map_or(&[], |(_, rooms)| rooms)
}

#[test]
fn rooms_use_only_what_they_may() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let rooms: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let known: BTreeSet<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
    assert_eq!(rooms, known, "every room has its line in this test");
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

/// Files of the command line that work without a daemon, or are the daemon: only they may use the
/// room `server`.
const WITHOUT_DAEMON: &[&str] = &[
    "cli/serve.rs",
    "commands/check.rs",
    "commands/identify.rs",
    "commands/salvage.rs",
    "commands/serve.rs",
    "commands/version.rs",
    "image/salvaged.rs",
    "quickstart/steps.rs",
];

#[test]
fn commands_talk_to_the_daemon_through_the_api_only() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut using = BTreeSet::new();
    let mut directories = vec![source.clone()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if std::fs::read_to_string(&path).unwrap().contains("server::") {
                using.insert(path.strip_prefix(&source).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let allowed: BTreeSet<String> = WITHOUT_DAEMON.iter().map(ToString::to_string).collect();
    assert_eq!(using, allowed, "files that use the room 'server', and files that may");
}

#[test]
fn the_product_does_not_contain_what_is_for_tests() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    for package in &metadata.packages {
        let linked = |kind| matches!(kind, DependencyKind::Normal | DependencyKind::Build);
        let mut linked = package.dependencies.iter().filter(|dependency| linked(dependency.kind));
        let is_for_tests = |name: &str| TESTS_ONLY.contains(&name);
        assert!(linked.all(|dependency| !is_for_tests(&dependency.name)), "{} links it", package.name);
    }
}
