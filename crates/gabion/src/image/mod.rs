//! Disk images: what they are, and copying them into and out of exports.
//!
//! Raw images are copied over the NBD client of `export`, all others by qemu-img(1).
//!
//! Always true: an image that names other files is refused, since what those hold would end in the volume; a copy that
//! returns without an error is durable. Must not know: volumes, snapshots, the API.

mod beside;
mod copy;
mod extents;
mod interrupt;
mod nbd;
mod program;
mod progress;
mod salvaged;
#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::{Error, ErrorKind, Size};

pub(crate) use beside::Beside;
pub(crate) use copy::{Copied, can_write, export, fill};
pub(crate) use interrupt::Interrupt;
pub(crate) use nbd::Place;
pub(crate) use salvaged::salvage_image;

/// The format that is copied without any other program.
const RAW: &str = "raw";
/// Formats of images that are one file.
const FORMATS: [&str; 4] = ["qcow2", RAW, "vhdx", "vdi"];
/// How images begin that are not raw; the last of them is found a little further on.
const MAGICS: [(usize, &[u8]); 11] = [
    (0, b"QFI\xfb"),
    (0, b"vhdxfile"),
    (0, b"conectix"),
    (0, b"KDMV"),
    (0, b"COWD"),
    (0, b"# Disk DescriptorFile"),
    (0, b"QED\0"),
    (0, b"LUKS\xba\xbe"),
    (0, b"WithoutFreeSpace"),
    (0, b"WithouFreSpacExt"),
    (64, b"\x7f\x10\xda\xbe"),
];
/// Bytes of an image that are looked at.
const LOOKED_AT: usize = 512;

/// An image that can be copied.
#[derive(Debug)]
pub(crate) struct Image {
    path: PathBuf,
    format: String,
    /// Bytes of the disk that it holds.
    pub(crate) size: u64,
}

/// A format that images are written in.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The disk's bytes, with holes where nothing was written
    Raw,
    /// QEMU's format, by qemu-img
    Qcow2,
}

impl Format {
    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Raw => RAW,
            Self::Qcow2 => "qcow2",
        }
    }

    /// What a file of this name is expected to hold.
    fn of_name(path: &Path) -> Option<&'static str> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "raw" | "img" | "iso" => Some(RAW),
            "qcow2" => Some("qcow2"),
            "vhdx" => Some("vhdx"),
            "vdi" => Some("vdi"),
            "vmdk" => Some("vmdk"),
            _ => None,
        }
    }

    /// The format of a new image of this name: raw, unless its extension says otherwise.
    ///
    /// # Errors
    /// When it is named like a format that is not written.
    pub(crate) fn to_write(path: &Path) -> Result<Self> {
        match Self::of_name(path) {
            None | Some(RAW) => Ok(Self::Raw),
            Some("qcow2") => Ok(Self::Qcow2),
            Some(other) => {
                let message = format!("{}: images of the format '{other}' are not written", path.display());
                Err(invalid(message)
                    .hint("write qcow2, and convert that with qemu-img; or say --format raw")
                    .into())
            }
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// An error of a file's, with its name.
fn of_file(path: &Path, error: &std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("{}: {error}", path.display()))
}

impl Image {
    /// Looks at an image. Its format is that which is given, or what its first bytes say.
    ///
    /// # Errors
    /// When it is none, or needs other files.
    pub(crate) fn look(path: &Path, format: Option<Format>) -> Result<Self> {
        let shown = path.display();
        let file = std::fs::File::open(path).map_err(|error| of_file(path, &error))?;
        let about = file.metadata().map_err(|error| of_file(path, &error))?;
        if !about.is_file() {
            return Err(invalid(format!("{shown} is not a file"))
                .hint("images are files; 'qemu-img convert' makes one of a device")
                .into());
        }
        // Absolute: a name that begins like a protocol is none then.
        let absolute = std::path::absolute(path).with_context(|| format!("'{shown}'"))?;
        let mut start = Vec::with_capacity(LOOKED_AT);
        file.take(LOOKED_AT as u64).read_to_end(&mut start).map_err(|error| of_file(path, &error))?;
        let raw = match format {
            Some(format) => format == Format::Raw,
            None => !has_magic(&start),
        };
        if !raw {
            return program::look(&absolute, format);
        }
        if let (None, Some(other)) = (format, Format::of_name(path).filter(|named| *named != RAW)) {
            return Err(invalid(format!(
                "{shown} is named like an image of the format '{other}', and is none"
            ))
            .hint("--format raw takes its bytes as they are")
            .into());
        }
        if about.len() == 0 {
            return Err(invalid(format!("{shown} is empty")).into());
        }
        Ok(Self { path: absolute, format: RAW.to_owned(), size: about.len() })
    }

    /// Its format.
    pub(crate) fn format(&self) -> &str {
        &self.format
    }

    /// Where it is, and how much it holds, to be shown.
    pub(crate) fn shown(&self) -> String {
        format!("{} ({}, {})", self.path.display(), self.format, Size(self.size))
    }
}

fn has_magic(start: &[u8]) -> bool {
    MAGICS.iter().any(|(at, magic)| start.get(*at..).is_some_and(|rest| rest.starts_with(magic)))
}
