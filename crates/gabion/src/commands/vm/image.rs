//! Disk images into volumes, by qemu-img(1) and NBD.
//!
//! Always true: an image that names other files is refused, since what those hold would end in the machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;
use server::wire::{Daemon, Protocol};
use server::{Error, ErrorKind, Size};

use super::Work;
use super::disks::Manner;
use crate::cli::VolumeName;

const PROGRAM: &str = "qemu-img";
/// Formats of images that are one file.
const FORMATS: [&str; 4] = ["qcow2", "raw", "vhdx", "vdi"];

/// An image that can be copied.
#[derive(Debug)]
pub(super) struct Image {
    path: PathBuf,
    format: String,
    /// Bytes of the disk that it holds.
    pub(super) size: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Told {
    format: String,
    virtual_size: u64,
    backing_filename: Option<String>,
    format_specific: Option<Value>,
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

fn program(arguments: &[&std::ffi::OsStr]) -> Result<std::process::Output> {
    let output = Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output();
    output.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, format!("there is no '{PROGRAM}' on the PATH"))
                .hint("on Debian and Ubuntu it is in the package qemu-utils")
                .into()
        }
        _ => anyhow::Error::new(error).context(format!("starting {PROGRAM}")),
    })
}

fn last_line(output: &std::process::Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing").to_owned()
}

impl Image {
    /// Looks at an image.
    ///
    /// # Errors
    /// When it is none, or needs other files.
    pub(super) fn look(path: &Path) -> Result<Self> {
        let shown = path.display();
        std::fs::File::open(path).map_err(|error| {
            let kind = match error.kind() {
                std::io::ErrorKind::NotFound => ErrorKind::NotFound,
                _ => ErrorKind::Io,
            };
            Error::new(kind, format!("{shown}: {error}"))
        })?;
        // Absolute: a name that begins like a protocol is none then.
        let path = std::path::absolute(path).with_context(|| format!("'{shown}'"))?;
        let output = program(&["info".as_ref(), "--output=json".as_ref(), path.as_os_str()])?;
        if !output.status.success() {
            return Err(invalid(format!("{shown}: {}", last_line(&output))).into());
        }
        let told: Told = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("what {PROGRAM} says of {shown}"))?;
        if !FORMATS.contains(&told.format.as_str()) {
            let known = FORMATS.join(", ");
            return Err(invalid(format!("{shown} is an image of the format '{}'", told.format))
                .hint(format!("these are copied: {known}; 'qemu-img convert' makes one of them"))
                .into());
        }
        let data_file =
            told.format_specific.as_ref().and_then(|more| more.pointer("/data/data-file")?.as_str());
        if let Some(other) = told.backing_filename.as_deref().or(data_file) {
            return Err(invalid(format!("{shown} is only part of a disk: the rest is in '{other}'"))
                .hint("'qemu-img convert' makes one whole image of it, if you trust where it comes from")
                .into());
        }
        Ok(Self { path, format: told.format, size: told.virtual_size })
    }
}

impl Work<'_> {
    /// Copies an image into a new volume, which nobody else uses.
    ///
    /// # Errors
    /// When the copy fails; the volume holds part of it then.
    pub(super) async fn import(&self, image: &Image, name: &VolumeName) -> Result<()> {
        let daemon: Daemon = self.setting.client.get("/v1/daemon").await?;
        let (pool, volume) = (crate::client::segment(&name.pool), crate::client::segment(&name.volume));
        let uri = match (&daemon.nbd_socket, daemon.nbd_listen.first()) {
            (Some(socket), _) => format!("nbd+unix:///{pool}/{volume}?socket={socket}"),
            (None, Some(address)) => format!("nbd://{address}/{pool}/{volume}"),
            (None, None) => {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    "images are copied by NBD, which the daemon serves nowhere",
                )
                .hint("set nbd.socket in its configuration and restart it")
                .into());
            }
        };
        let manner = Manner { protocol: Protocol::Nbd, read_only: false, reactors: Vec::new() };
        self.export(name, manner).await?;
        if !self.setting.quiet {
            eprintln!("copying {} ({}) into {name}", image.path.display(), Size(image.size));
        }
        let copied = copy(image, &uri);
        self.end_export(name).await?;
        copied
    }
}

/// Copies an image to an export of zeros. Flushed when it returns.
fn copy(image: &Image, uri: &str) -> Result<()> {
    let words: [&std::ffi::OsStr; 14] = [
        "convert".as_ref(),
        "-n".as_ref(),
        "--target-is-zero".as_ref(),
        // Not 'unsafe', the default of this command, which flushes nothing.
        "-t".as_ref(),
        "writeback".as_ref(),
        "-W".as_ref(),
        "-m".as_ref(),
        "16".as_ref(),
        "-f".as_ref(),
        image.format.as_ref(),
        "-O".as_ref(),
        "raw".as_ref(),
        image.path.as_os_str(),
        uri.as_ref(),
    ];
    let output = program(&words)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Io, format!("copying {}: {}", image.path.display(), last_line(&output))).into())
}
