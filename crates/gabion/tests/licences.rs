//! Licences of everything that is compiled into the product or run by its tests: only those that let anybody use, change
//! and pass on the product. Needs no network: it asks cargo about the packages that were used to build this test.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod project;

use std::process::Command;

use cargo_metadata::{Metadata, MetadataCommand};
use spdx::{Expression, ParseMode};

/// Licences that ask for no more than their text being kept. One more of that kind may be added; anything that asks for
/// more than that may not.
const ALLOWED: [&str; 9] = [
    "Apache-2.0",
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Everything that this machine's build uses, tests included.
fn metadata() -> Metadata {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let told = String::from_utf8(rustc.stdout).unwrap();
    let host = told.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let options = ["--offline", "--locked", "--filter-platform", host].map(str::to_owned);
    MetadataCommand::new().other_options(options).exec().unwrap()
}

/// What is wrong with a licence expression, if anything is.
fn objection(expression: &str) -> Option<String> {
    let mode = ParseMode { allow_slash_as_or_operator: true, ..ParseMode::STRICT };
    let parsed = match Expression::parse_mode(expression, mode) {
        Ok(parsed) => parsed,
        Err(error) => return Some(error.to_string()),
    };
    let allowed = parsed.evaluate(|needed| {
        let id = needed.license.id().map(|id| id.name);
        id.is_some_and(|id| ALLOWED.contains(&id)) && needed.addition.is_none()
    });
    (!allowed).then(|| "not among those that we allow".to_owned())
}

#[test]
fn every_dependency_may_be_used_and_passed_on() {
    let metadata = metadata();
    assert!(metadata.packages.len() > 50, "only {} packages", metadata.packages.len());
    let mut refused = Vec::new();
    for package in &metadata.packages {
        let licence = package.license.as_deref().unwrap_or("none");
        if let Some(why) = objection(licence) {
            refused.push(format!("{} {}: '{licence}' is {why}", package.name, package.version));
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn ours_is_the_one_that_we_say() {
    let metadata = metadata();
    for package in metadata.workspace_packages() {
        assert_eq!(package.license.as_deref(), Some("Apache-2.0"), "{}", package.name);
    }
    let text = project::read("LICENSE");
    assert!(text.contains("Apache License") && text.contains("Version 2.0, January 2004"));
}

#[test]
fn what_asks_for_more_is_refused() {
    for fine in ["MIT", "MIT OR GPL-3.0-only", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
        assert_eq!(objection(fine), None, "{fine}");
    }
    let exception = "Apache-2.0 WITH LLVM-exception";
    for bad in ["GPL-3.0-or-later", "MIT AND MPL-2.0", "LGPL-2.1-only", "none", "Commercial", exception] {
        assert!(objection(bad).is_some(), "{bad}");
    }
}
