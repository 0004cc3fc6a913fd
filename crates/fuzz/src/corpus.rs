//! The corpus of a target: a directory in which each file is one input.
#![cfg_attr(fuzzing, allow(dead_code, reason = "libFuzzer reads the corpus itself"))]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

/// Maximum bytes of all inputs of a target: corpora stay small enough for review.
const BYTES_MAX: usize = 8 << 10;

/// Runs a target on every input of its corpus, and on empty input.
///
/// # Panics
/// If the target panics, after printing the name of the input; if the corpus is empty or larger
/// than 8 KiB.
pub(crate) fn replay(directory: &Path, target: fn(&[u8])) {
    let inputs = read(directory);
    assert!(!inputs.is_empty(), "{} has no inputs; './run fuzz' creates some", directory.display());
    let bytes: usize = inputs.iter().map(|(_, input)| input.len()).sum();
    assert!(bytes <= BYTES_MAX, "{} has {bytes} bytes; reduce it to {BYTES_MAX}", directory.display());
    target(&[]);
    for (name, input) in inputs {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(&input))) {
            eprintln!("the target failed on {}/{name}", directory.display());
            resume_unwind(panic);
        }
    }
}

/// Returns the inputs of a corpus with their names, sorted by name.
fn read(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let failed = |error: std::io::Error| -> ! { panic!("{}: {error}", directory.display()) };
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| failed(error));
    let mut inputs: Vec<_> = entries
        .map(|entry| {
            let path = entry.unwrap_or_else(|error| failed(error)).path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, std::fs::read(&path).unwrap_or_else(|error| failed(error)))
        })
        .collect();
    inputs.sort();
    inputs
}

#[cfg(test)]
#[path = "corpus_tests.rs"]
mod tests;
