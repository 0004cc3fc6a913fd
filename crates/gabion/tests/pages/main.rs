//! Runs the commands of README.md and docs/ as they are printed, and compares their output.
//!
//! Each page runs in one shell, in namespaces of its own: /run, /var and the other directories
//! that commands write to are private and empty, and no other host is reachable. Outputs are
//! compared in shape: numbers, units, times and ids may differ.
//!
//! HTML comments in a page control its run:
//! - `<!-- setup: COMMANDS -->` runs shell commands that the page does not print.
//! - `<!-- not run: REASON -->` skips the next block.
//! - `<!-- not run (PREFIX): REASON -->` skips the commands of the next block with this prefix.
//! - `<!-- page not run: REASON -->` skips the page.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::indexing_slicing, reason = "a test")]

mod page;
#[path = "../project/mod.rs"]
mod project;
mod session;
mod shape;

use page::{Page, Step};
use session::Session;

/// Operations whose progress a command prints.
const OPERATIONS: [&str; 6] =
    ["pool create", "pool open", "pool close", "drive add", "volume export-image", "volume import"];

/// Pages that are generated from the program; another test compares them.
const GENERATED: [&str; 3] = ["docs/cli.md", "docs/configuration.md", "docs/api.md"];

/// Commands that run in another form: `(page, printed, run)`.
const SUBSTITUTES: [(&str, &str, &str); 12] = [
    ("README.md", "./run build && install target/release/gabion", "test -x"),
    // The rebuild takes a moment.
    (
        "README.md",
        "gabion pool events fast",
        "until gabion drive list fast | grep -q removed; do sleep 0.05; done; gabion pool events fast",
    ),
    ("docs/getting-started.md", "./run build", "test -x /usr/local/bin/gabion"),
    (
        "docs/getting-started.md",
        "gabion serve",
        "gabion serve 2> daemon.log & until grep -q ready daemon.log 2>/dev/null; do sleep 0.02; done; cat daemon.log",
    ),
    // Less data, to save time.
    ("docs/getting-started.md", "head -c 1G", "head -c 32M"),
    ("docs/getting-started.md", "--size 1G", "--size 32M"),
    ("docs/getting-started.md", "/run/user/1000/gabion-", "/run/gabion/"),
    ("docs/getting-started.md", "/run/user/1000", "/run/gabion"),
    ("docs/remote.md", "3A:9F:...", "$(cat fingerprint)"),
    ("docs/remote.md", "/srv/alice.token", concat!("/var/tmp/work", "/alice.token")),
    ("docs/salvage.md", "/dev/nvme{0,3,4}n1", "/var/tmp/two/two-{0,2,3,4}.drive"),
    ("docs/getting-started.md", "~/.local/state/gabion", "/var/lib/gabion"),
];

/// Runs a page. Fails with all commands that differ from the page.
fn check(name: &str) {
    if !test_support::has_root() || !test_support::has_fuse() || !test_support::has_loop() {
        return;
    }
    let page = Page::parse(&project::read(name));
    for (text, reason) in &page.skipped {
        eprintln!("{name}: not run: {text} ({reason})");
    }
    let substitutes = SUBSTITUTES.iter().filter(|each| each.0 == name);
    let substitute = |text: &str| {
        substitutes.clone().fold(text.to_owned(), |text, (_, printed, run)| text.replace(printed, run))
    };
    let mut session = Session::new();
    for step in &page.steps {
        session.add(&substitute(step.command()));
    }
    let results = session.run();
    let mut wrong = String::new();
    for (step, ran) in page.steps.iter().zip(&results) {
        let Step::Command { command, output, line } = step else {
            if ran.status != 0 {
                wrong += &format!("{name}: the setup failed with {}:\n{}\n", ran.status, ran.output);
            }
            continue;
        };
        let fails = output.as_ref().is_some_and(|output| output.starts_with("gabion: "));
        // Exit status 3: a pool is not healthy.
        let expected_status = if fails { ran.status == 1 } else { matches!(ran.status, 0 | 3) };
        let is_same = output
            .as_ref()
            .is_none_or(|output| shape::matches(&substitute(output), &without_progress(&ran.output)));
        if !expected_status || !is_same {
            let printed = output.as_deref().unwrap_or_default();
            wrong += &format!(
                "{name}:{line}: {command}\n--- printed:\n{printed}\n--- exit status {}, output:\n{}\n",
                ran.status, ran.output
            );
        }
    }
    assert_eq!(results.len(), page.steps.len(), "the shell ended early\n{wrong}");
    assert!(wrong.is_empty(), "{wrong}");
}

/// Removes the progress of operations, which commands print on a slow machine.
fn without_progress(output: &str) -> String {
    let is_progress = |line: &&str| {
        let rest = OPERATIONS.iter().find_map(|kind| line.strip_prefix(kind)?.strip_prefix(' '));
        rest.and_then(|rest| rest.split_once(": ")).is_some_and(|(target, _)| !target.contains(' '))
    };
    output.lines().filter(|line| !is_progress(line)).fold(String::new(), |text, line| text + line + "\n")
}

#[test]
fn readme() {
    check("README.md");
}

#[test]
fn getting_started() {
    check("docs/getting-started.md");
}

#[test]
fn drives() {
    check("docs/drives.md");
}

#[test]
fn volumes() {
    check("docs/volumes.md");
}

#[test]
fn objects() {
    check("docs/objects.md");
}

#[test]
fn metrics() {
    check("docs/metrics.md");
}

#[test]
fn remote() {
    check("docs/remote.md");
}

#[test]
fn exports() {
    check("docs/exports.md");
}

#[test]
fn salvage() {
    check("docs/salvage.md");
}

/// Every other page has no commands, or says why they are not run.
#[test]
fn no_page_is_left_out() {
    let tested =
        ["getting-started", "drives", "volumes", "exports", "objects", "metrics", "remote", "salvage"];
    for (path, text) in project::files() {
        let name = path.to_string_lossy().into_owned();
        let is_page = name.starts_with("docs/") && name.ends_with(".md");
        let is_tested = tested.iter().any(|page| name == format!("docs/{page}.md"));
        if !is_page || is_tested || GENERATED.contains(&name.as_str()) {
            continue;
        }
        let page = Page::parse(&text);
        assert!(page.steps.is_empty(), "{name} has commands that no test runs: {:?}", page.steps);
        for (text, reason) in &page.skipped {
            eprintln!("{name}: not run: {text} ({reason})");
        }
    }
}
