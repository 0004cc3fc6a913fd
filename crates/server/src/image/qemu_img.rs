//! Calls of qemu-img(1): inspection and conversion of images.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;

use serde::Deserialize;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdout};

use super::counters::CopyCounters;
use super::{FORMATS, Image, invalid};
use crate::error::{Error, ErrorKind, Result};
use api::types::ImageFormat;

const QEMU_IMG: &str = "qemu-img";

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ImageInfo {
    format: String,
    virtual_size: u64,
    backing_filename: Option<String>,
    format_specific: Option<Value>,
}

fn start_error(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, format!("'{QEMU_IMG}' is not on the PATH"))
                .hint("install the package qemu-utils (Debian, Ubuntu); raw images do not need it")
        }
        _ => Error::new(ErrorKind::Io, format!("cannot start {QEMU_IMG}: {error}")),
    }
}

fn lost(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("lost the connection to {QEMU_IMG}: {error}"))
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text).into_owned();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no error message").to_owned()
}

/// Checks that qemu-img is installed.
///
/// # Errors
/// If it is missing.
pub(super) fn check_installed() -> Result<()> {
    let mut command = std::process::Command::new(QEMU_IMG);
    let command = command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().map(drop).map_err(start_error)
}

/// Inspects an image with an absolute path.
///
/// # Errors
/// If the file is not an image, or refers to other files.
pub(super) fn inspect(path: &Path, format: Option<ImageFormat>) -> Result<Image> {
    let shown = path.display();
    let mut command = std::process::Command::new(QEMU_IMG);
    command.args(["info", "--output=json"]);
    if let Some(format) = format {
        command.args(["-f", format.name()]);
    }
    let output = command.arg(path).stdin(Stdio::null()).output().map_err(start_error)?;
    if !output.status.success() {
        return Err(invalid(format!("{shown}: {}", last_line(&output.stderr))));
    }
    let info: ImageInfo = serde_json::from_slice(&output.stdout).map_err(|error| {
        let message = format!("unexpected output of {QEMU_IMG} about {shown}: {error}");
        Error::new(ErrorKind::Internal, message)
    })?;
    if !FORMATS.contains(&info.format.as_str()) {
        let known = FORMATS.join(", ");
        return Err(invalid(format!("{shown} has the format '{}', which cannot be imported", info.format))
            .hint(format!("convert it with 'qemu-img convert' to one of: {known}")));
    }
    let data_file = info.format_specific.as_ref().and_then(|more| more.pointer("/data/data-file")?.as_str());
    if let Some(other) = info.backing_filename.as_deref().or(data_file) {
        return Err(invalid(format!("{shown} depends on another file, '{other}'"))
            .hint("if you trust its source, 'qemu-img convert' merges both into one image"));
    }
    Ok(Image { path: path.to_owned(), format: info.format, size: info.virtual_size })
}

/// Copies an image to an export of zeros and flushes it. A drop ends the program.
pub(super) async fn import(image: &Image, uri: &str, counters: &CopyCounters) -> Result<()> {
    let arguments: [&OsStr; 9] = [
        "-n".as_ref(),
        "--target-is-zero".as_ref(),
        "-f".as_ref(),
        image.format.as_ref(),
        "-O".as_ref(),
        "raw".as_ref(),
        "--".as_ref(),
        image.path.as_os_str(),
        uri.as_ref(),
    ];
    let converted = convert(&arguments, image.size, counters).await;
    converted.map_err(|error| error.context(format!("copying {}", image.path.display())))
}

/// Copies an export of `size` bytes into an image and flushes it. A drop ends the program.
pub(super) async fn export(
    uri: &str,
    to: &Path,
    format: ImageFormat,
    size: u64,
    counters: &CopyCounters,
) -> Result<()> {
    let arguments: [&OsStr; 7] = [
        "-f".as_ref(),
        "raw".as_ref(),
        "-O".as_ref(),
        format.name().as_ref(),
        "--".as_ref(),
        uri.as_ref(),
        to.as_os_str(),
    ];
    convert(&arguments, size, counters).await
}

async fn convert(arguments: &[&OsStr], size: u64, counters: &CopyCounters) -> Result<()> {
    let mut command = tokio::process::Command::new(QEMU_IMG);
    // The default cache mode of this command, 'unsafe', does not flush.
    command.args(["convert", "-p", "-t", "writeback", "-W", "-m", "16"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(start_error)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (progress, stderr) = tokio::join!(follow(out, size, counters), read_stderr(err));
    let status = child.wait().await.map_err(|error| lost(&error))?;
    progress?;
    if status.success() {
        return Ok(());
    }
    let message = last_line(&stderr);
    let kind = if message.contains("No space left") { ErrorKind::NoSpace } else { ErrorKind::Io };
    Err(Error::new(kind, format!("{QEMU_IMG}: {message}")))
}

/// Reads the progress output, `(12.34/100%)`, repeatedly.
async fn follow(out: Option<ChildStdout>, size: u64, counters: &CopyCounters) -> Result<()> {
    let Some(mut out) = out else { return Ok(()) };
    let mut buffer = [0; 256];
    loop {
        let length = out.read(&mut buffer).await.map_err(|error| lost(&error))?;
        let Some(text) = buffer.get(..length).filter(|text| !text.is_empty()) else { return Ok(()) };
        if let Some(hundredths) = hundredths(&String::from_utf8_lossy(text)) {
            let done = u128::from(size) * u128::from(hundredths) / 10_000;
            counters.set_done(u64::try_from(done).unwrap_or(size));
        }
    }
}

/// Returns the last complete percentage of a text, in hundredths of a percent.
pub(super) fn hundredths(text: &str) -> Option<u64> {
    let (before, _) = text.rsplit_once("/100%)")?;
    let (_, number) = before.rsplit_once('(')?;
    let (whole, part) = number.trim().split_once('.')?;
    let part = part.parse::<u64>().ok().filter(|_| part.len() == 2)?;
    whole.parse::<u64>().ok()?.checked_mul(100)?.checked_add(part)
}

async fn read_stderr(err: Option<ChildStderr>) -> Vec<u8> {
    let mut message = Vec::new();
    if let Some(mut err) = err {
        // Best effort: the exit status reports the failure.
        let _ = err.read_to_end(&mut message).await;
    }
    message
}
