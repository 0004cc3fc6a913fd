//! libFuzzer as the engine: it derives inputs from a corpus and keeps those that reach code which
//! no other one reached.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys as _;

/// The directory for inputs that are found and for those that fail.
const DIRECTORY: &str = "FUZZ_DIRECTORY";
/// libFuzzer's own flags, with spaces between them.
const FLAGS: &str = "FUZZ_FLAGS";
/// What stands between arguments for the test harness, which takes what follows for names of tests,
/// and libFuzzer's.
const SEPARATOR: &str = "--";

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

type Callback = unsafe extern "C" fn(*const u8, usize) -> c_int;

unsafe extern "C" {
    /// libFuzzer's main function.
    fn LLVMFuzzerRunDriver(argc: *mut c_int, argv: *mut *mut *mut c_char, callback: Callback) -> c_int;
}

/// Runs the target on one input.
///
/// # Safety
/// `data` points to `size` bytes, or `size` is 0.
unsafe extern "C" fn run_one(data: *const u8, size: usize) -> c_int {
    let bytes = match size {
        0 => &[],
        // SAFETY: libFuzzer's promise to its callback.
        _ => unsafe { std::slice::from_raw_parts(data, size) },
    };
    let Some(target) = TARGET.get() else { std::process::abort() };
    if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
        // libFuzzer takes the signal for a failure, and keeps the input.
        std::process::abort();
    }
    0
}

/// Fuzzes the target until the time is over that the flags give, or it fails. `seeds` is the corpus
/// of the repository, which is only read. Does not return: libFuzzer ends the process.
pub(crate) fn run(seeds: &str, target: fn(&[u8])) {
    let Ok(directory) = std::env::var(DIRECTORY) else { panic!("{DIRECTORY} names no directory") };
    let found = Path::new(&directory).join("corpus");
    if let Err(error) = std::fs::create_dir_all(&found) {
        panic!("{}: {error}", found.display());
    }
    if TARGET.set(target).is_err() {
        panic!("a process runs one target: './run fuzz' names it");
    }
    let (harness, own): (Vec<_>, Vec<_>) = split(std::env::args().collect());
    // As a shell is told to run the same test: libFuzzer starts itself again to merge corpora.
    let mut arguments = vec![format!("{} {SEPARATOR}", harness.join(" "))];
    if own.is_empty() {
        arguments.push(format!("-artifact_prefix={directory}/"));
        arguments.extend(std::env::var(FLAGS).unwrap_or_default().split_whitespace().map(str::to_owned));
        arguments.extend([found.to_string_lossy().into_owned(), seeds.to_owned()]);
    } else {
        arguments.extend(own);
    }
    let arguments: Vec<CString> = arguments.into_iter().filter_map(|text| CString::new(text).ok()).collect();
    let mut pointers: Vec<*mut c_char> = arguments.iter().map(|text| text.as_ptr().cast_mut()).collect();
    let mut count = c_int::try_from(pointers.len()).unwrap_or(c_int::MAX);
    pointers.push(std::ptr::null_mut());
    let mut vector = pointers.as_mut_ptr();
    // SAFETY: count and vector are those of strings that live until the process ends, with a null
    // pointer behind the last; the callback takes any bytes.
    let code = unsafe { LLVMFuzzerRunDriver(&raw mut count, &raw mut vector, run_one) };
    std::process::exit(code);
}

/// The arguments of the test harness, and those of libFuzzer, if it has started this process.
fn split(mut arguments: Vec<String>) -> (Vec<String>, Vec<String>) {
    match arguments.iter().position(|argument| argument == SEPARATOR) {
        Some(at) => {
            let own = arguments.split_off(at).into_iter().skip(1).collect();
            (arguments, own)
        }
        None => (arguments, Vec::new()),
    }
}
