//! Licences of all dependencies of the product and its tests: only those that permit use,
//! modification and redistribution. Needs no network: cargo lists the packages of this build.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod project;

use std::process::Command;

use cargo_metadata::{Metadata, MetadataCommand};
use spdx::{Expression, ParseMode};

/// Licences that only require the preservation of their text. Others of this kind may be added.
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

/// Returns the packages of this build, including tests.
fn metadata() -> Metadata {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let told = String::from_utf8(rustc.stdout).unwrap();
    let host = told.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let options = ["--offline", "--locked", "--filter-platform", host].map(str::to_owned);
    MetadataCommand::new().other_options(options).exec().unwrap()
}

/// Returns the objection to a licence expression.
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
    (!allowed).then(|| "not an allowed licence".to_owned())
}

#[test]
fn every_dependency_has_an_allowed_licence() {
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
fn own_crates_are_apache_2() {
    let metadata = metadata();
    for package in metadata.workspace_packages() {
        assert_eq!(package.license.as_deref(), Some("Apache-2.0"), "{}", package.name);
    }
    let text = project::read("LICENSE");
    assert!(text.contains("Apache License") && text.contains("Version 2.0, January 2004"));
}

#[test]
fn other_licences_are_refused() {
    for fine in ["MIT", "MIT OR GPL-3.0-only", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
        assert_eq!(objection(fine), None, "{fine}");
    }
    let exception = "Apache-2.0 WITH LLVM-exception";
    for bad in ["GPL-3.0-or-later", "MIT AND MPL-2.0", "LGPL-2.1-only", "none", "Commercial", exception] {
        assert!(objection(bad).is_some(), "{bad}");
    }
}
