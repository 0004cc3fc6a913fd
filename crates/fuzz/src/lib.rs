//! Fuzz targets: functions that must accept arbitrary bytes.
//!
//! Owns the common parts of all targets: a corpus in the repository that ordinary tests replay,
//! libFuzzer to extend it, and a limit on the memory that a decoder allocates. A target is a test
//! in the crate of the decoder that it fuzzes, so that it can access private items:
//!
//! ```text
//! ::fuzz::target!(superblock, |bytes: &[u8]| { ... });
//! ```
//!
//! `cargo test` runs the target on each file of `fuzz/superblock` in the directory of the crate.
//! `./run fuzz format/superblock 600` builds the same test with `--cfg fuzzing` and the compiler's
//! coverage counters, and runs it for 600 seconds on inputs that libFuzzer
//! (<https://llvm.org/docs/LibFuzzer.html>) derives from the corpus. Both fail if the target
//! panics.
//!
//! Always true: the product does not link this crate. Must not know: any decoder.

mod corpus;
#[cfg(fuzzing)]
mod libfuzzer;
mod memory;

pub use memory::within;

/// Defines a fuzz target: a test of this name that calls a function of type `fn(&[u8])`.
#[macro_export]
macro_rules! target {
    ($(#[$about:meta])* $name:ident, $run:expr) => {
        $(#[$about])*
        #[test]
        fn $name() {
            $crate::run(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/", stringify!($name)), $run);
        }
    };
}

/// Runs a target on its corpus in `directory`; with `--cfg fuzzing`, on inputs that libFuzzer
/// derives from it.
///
/// # Panics
/// If the target panics, or there is no corpus.
pub fn run(directory: &str, target: fn(&[u8])) {
    #[cfg(fuzzing)]
    libfuzzer::run(directory, target);
    #[cfg(not(fuzzing))]
    corpus::replay(directory.as_ref(), target);
}
