//! libFuzzer as the engine: it derives inputs from a corpus and keeps the inputs that reach new
//! code.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys as _;

/// Environment variable: the directory for new and for failing inputs.
const DIRECTORY: &str = "FUZZ_DIRECTORY";
/// Environment variable: additional flags for libFuzzer, separated by spaces.
const FLAGS: &str = "FUZZ_FLAGS";
/// Separates the arguments of the test harness, which reads the following ones as test names, from
/// those of libFuzzer.
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
        // SAFETY: the contract of libFuzzer's callback.
        _ => unsafe { std::slice::from_raw_parts(data, size) },
    };
    let Some(target) = TARGET.get() else { std::process::abort() };
    if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
        // libFuzzer treats the signal as a failure, and saves the input.
        std::process::abort();
    }
    0
}

/// Fuzzes the target until it fails or the time limit in the flags expires. `seeds` is the corpus
/// of the repository, which is only read. Does not return: libFuzzer exits the process.
pub(crate) fn run(seeds: &str, target: fn(&[u8])) {
    let Ok(directory) = std::env::var(DIRECTORY) else { panic!("{DIRECTORY} is not set") };
    let corpus = Path::new(&directory).join("corpus");
    if let Err(error) = std::fs::create_dir_all(&corpus) {
        panic!("{}: {error}", corpus.display());
    }
    if TARGET.set(target).is_err() {
        panic!("a process can run only one target; './run fuzz' selects it");
    }
    let (harness, libfuzzer_arguments): (Vec<_>, Vec<_>) = split(std::env::args().collect());
    // The program name includes the harness arguments: libFuzzer runs it in a shell to merge
    // corpora.
    let mut arguments = vec![format!("{} {SEPARATOR}", harness.join(" "))];
    if libfuzzer_arguments.is_empty() {
        arguments.push(format!("-artifact_prefix={directory}/"));
        arguments.extend(std::env::var(FLAGS).unwrap_or_default().split_whitespace().map(str::to_owned));
        arguments.extend([corpus.to_string_lossy().into_owned(), seeds.to_owned()]);
    } else {
        arguments.extend(libfuzzer_arguments);
    }
    let arguments: Vec<CString> = arguments.into_iter().filter_map(|text| CString::new(text).ok()).collect();
    let mut pointers: Vec<*mut c_char> = arguments.iter().map(|text| text.as_ptr().cast_mut()).collect();
    let mut count = c_int::try_from(pointers.len()).unwrap_or(c_int::MAX);
    pointers.push(std::ptr::null_mut());
    let mut vector = pointers.as_mut_ptr();
    // SAFETY: count and vector describe strings that live until the process exits, followed by a
    // null pointer; the callback accepts any bytes.
    let code = unsafe { LLVMFuzzerRunDriver(&raw mut count, &raw mut vector, run_one) };
    std::process::exit(code);
}

/// Splits the arguments into those of the test harness, and those of libFuzzer if it started this
/// process.
fn split(mut arguments: Vec<String>) -> (Vec<String>, Vec<String>) {
    match arguments.iter().position(|argument| argument == SEPARATOR) {
        Some(at) => {
            let libfuzzer_arguments = arguments.split_off(at).into_iter().skip(1).collect();
            (arguments, libfuzzer_arguments)
        }
        None => (arguments, Vec::new()),
    }
}
