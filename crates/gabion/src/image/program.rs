//! qemu-img(1): what it says of images, and what it copies.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use api::{Error, ErrorKind};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdout};

use super::progress::Counted;
use super::{FORMATS, Format, Image, invalid};

const PROGRAM: &str = "qemu-img";

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Told {
    format: String,
    virtual_size: u64,
    backing_filename: Option<String>,
    format_specific: Option<Value>,
}

fn not_started(error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, format!("there is no '{PROGRAM}' on the PATH"))
                .hint(
                    "on Debian and Ubuntu it is in the package qemu-utils; raw images are copied without it",
                )
                .into()
        }
        _ => anyhow::Error::new(error).context(format!("starting {PROGRAM}")),
    }
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text).into_owned();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing").to_owned()
}

/// Fails if the program is not there.
///
/// # Errors
/// That, with the package that has it.
pub(super) fn find() -> Result<()> {
    let mut command = std::process::Command::new(PROGRAM);
    let command = command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().map(drop).map_err(not_started)
}

/// Has an image looked at, whose path is absolute.
///
/// # Errors
/// When it is none, or needs other files.
pub(super) fn look(path: &Path, format: Option<Format>) -> Result<Image> {
    let shown = path.display();
    let mut command = std::process::Command::new(PROGRAM);
    command.args(["info", "--output=json"]);
    if let Some(format) = format {
        command.args(["-f", format.word()]);
    }
    let output = command.arg(path).stdin(Stdio::null()).output().map_err(not_started)?;
    if !output.status.success() {
        return Err(invalid(format!("{shown}: {}", last_line(&output.stderr))).into());
    }
    let told: Told =
        serde_json::from_slice(&output.stdout).with_context(|| format!("what {PROGRAM} says of {shown}"))?;
    if !FORMATS.contains(&told.format.as_str()) {
        let known = FORMATS.join(", ");
        return Err(invalid(format!("{shown} is an image of the format '{}'", told.format))
            .hint(format!("these are copied: {known}; 'qemu-img convert' makes one of them"))
            .into());
    }
    let data_file = told.format_specific.as_ref().and_then(|more| more.pointer("/data/data-file")?.as_str());
    if let Some(other) = told.backing_filename.as_deref().or(data_file) {
        return Err(invalid(format!("{shown} is only part of a disk: the rest is in '{other}'"))
            .hint("'qemu-img convert' makes one whole image of it, if you trust where it comes from")
            .into());
    }
    Ok(Image { path: path.to_owned(), format: told.format, size: told.virtual_size })
}

/// Copies an image to an export of zeros. Flushed when it returns; ended if it is dropped before.
pub(super) async fn import(image: &Image, uri: &str, counted: &Counted) -> Result<()> {
    let words: [&OsStr; 9] = [
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
    convert(&words, image.size, counted).await.with_context(|| format!("copying {}", image.path.display()))
}

/// Copies an export of `size` bytes into an image. Flushed when it returns; ended if it is dropped before.
pub(super) async fn export(uri: &str, to: &Path, format: Format, size: u64, counted: &Counted) -> Result<()> {
    let words: [&OsStr; 7] = [
        "-f".as_ref(),
        "raw".as_ref(),
        "-O".as_ref(),
        format.word().as_ref(),
        "--".as_ref(),
        uri.as_ref(),
        to.as_os_str(),
    ];
    convert(&words, size, counted).await
}

async fn convert(words: &[&OsStr], size: u64, counted: &Counted) -> Result<()> {
    let mut command = tokio::process::Command::new(PROGRAM);
    // Not 'unsafe', the default cache mode of this command, which flushes nothing.
    command.args(["convert", "-p", "-t", "writeback", "-W", "-m", "16"]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(not_started)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (told, complaints) = tokio::join!(follow(out, size, counted), complaints(err));
    let status = child.wait().await.with_context(|| format!("waiting for {PROGRAM}"))?;
    told?;
    if status.success() {
        return Ok(());
    }
    let said = last_line(&complaints);
    let kind = if said.contains("No space left") { ErrorKind::NoSpace } else { ErrorKind::Io };
    Err(Error::new(kind, format!("{PROGRAM}: {said}")).into())
}

/// Reads how far the program is: `(12.34/100%)`, again and again.
async fn follow(out: Option<ChildStdout>, size: u64, counted: &Counted) -> Result<()> {
    let Some(mut out) = out else { return Ok(()) };
    let mut piece = [0; 256];
    loop {
        let length = out.read(&mut piece).await.with_context(|| format!("reading from {PROGRAM}"))?;
        let Some(text) = piece.get(..length).filter(|text| !text.is_empty()) else { return Ok(()) };
        if let Some(hundredths) = hundredths(&String::from_utf8_lossy(text)) {
            let done = u128::from(size) * u128::from(hundredths) / 10_000;
            counted.done.store(u64::try_from(done).unwrap_or(size), Ordering::Relaxed);
        }
    }
}

/// The last share that a text tells whole, in hundredths of a percent.
pub(super) fn hundredths(text: &str) -> Option<u64> {
    let (before, _) = text.rsplit_once("/100%)")?;
    let (_, number) = before.rsplit_once('(')?;
    let (whole, part) = number.trim().split_once('.')?;
    let part = part.parse::<u64>().ok().filter(|_| part.len() == 2)?;
    whole.parse::<u64>().ok()?.checked_mul(100)?.checked_add(part)
}

async fn complaints(err: Option<ChildStderr>) -> Vec<u8> {
    let mut said = Vec::new();
    if let Some(mut err) = err {
        // What cannot be read is not needed: the status says that it failed.
        let _ = err.read_to_end(&mut said).await;
    }
    said
}
