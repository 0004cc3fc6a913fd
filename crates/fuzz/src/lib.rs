//! Fuzz targets: functions that must bear any bytes.
//!
//! Owns what every target needs: a corpus in the repository that ordinary tests replay, libFuzzer
//! to extend it, and a bound on the memory that a decoder takes. A target is a test of the room
//! whose decoder it fuzzes, so that it reaches what is private there:
//!
//! ```text
//! ::fuzz::target!(superblock, |bytes: &[u8]| { ... });
//! ```
//!
//! `cargo test` runs the target on each file of `fuzz/superblock` in the room's directory. `./run
//! fuzz format/superblock 600` builds the same test with `--cfg fuzzing` and with the compiler's
//! coverage counters, and runs it for 600 seconds on inputs that libFuzzer
//! (<https://llvm.org/docs/LibFuzzer.html>) derives from the corpus. Both fail when the target
//! panics.
//!
//! Always true: nothing of this is in the product. Must not know: any decoder.

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

/// Runs a target on its corpus, which is in `directory`; with `--cfg fuzzing`, on what libFuzzer
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
