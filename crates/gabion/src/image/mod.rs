//! Disk images: detection of formats, and copies between images and exports.
//!
//! Raw images are copied with the NBD client of `export`, all others with qemu-img(1).
//!
//! Always true: an image that refers to other files is refused, because the content of those would
//! be copied into the volume; a copy that returns without an error is durable. Must not know:
//! volumes, snapshots, the API.

mod atomic_file;
mod copy;
mod extents;
mod interrupt;
mod nbd;
mod progress;
mod qemu_img;
mod salvage;
#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::{Error, ErrorKind, Size};

pub(crate) use atomic_file::AtomicFile;
pub(crate) use copy::{Copied, can_write, export, fill};
pub(crate) use interrupt::Interrupt;
pub(crate) use nbd::NbdEndpoint;
pub(crate) use salvage::salvage_image;

/// The format that is copied without another program.
const RAW: &str = "raw";
/// Image formats that consist of one file.
const FORMATS: [&str; 4] = ["qcow2", RAW, "vhdx", "vdi"];
/// Signatures of formats other than raw, with their offsets.
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
/// Bytes of an image that are searched for signatures.
const HEADER_BYTES: usize = 512;

/// A disk image that can be copied.
#[derive(Debug)]
pub(crate) struct Image {
    path: PathBuf,
    format: String,
    /// Size of the disk in the image, in bytes.
    pub(crate) size: u64,
}

/// A format of written images.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The bytes of the disk, with holes
    Raw,
    /// QEMU's format; needs qemu-img
    Qcow2,
}

impl Format {
    /// Returns the name of the format.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Raw => RAW,
            Self::Qcow2 => "qcow2",
        }
    }

    /// Returns the format that a file extension stands for.
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

    /// Returns the format of a new image by its file extension; raw for others.
    ///
    /// # Errors
    /// If the extension stands for a format that cannot be written.
    pub(crate) fn to_write(path: &Path) -> Result<Self> {
        match Self::of_name(path) {
            None | Some(RAW) => Ok(Self::Raw),
            Some("qcow2") => Ok(Self::Qcow2),
            Some(other) => {
                let message = format!("{}: cannot write images of the format '{other}'", path.display());
                Err(invalid(message)
                    .hint("write a qcow2 image and convert it with qemu-img, or give --format raw")
                    .into())
            }
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// Returns the API error of a file operation, with the path.
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
    /// Inspects an image. The format is the given one, or detected by signature.
    ///
    /// # Errors
    /// If the file is not an image, or refers to other files.
    pub(crate) fn inspect(path: &Path, format: Option<Format>) -> Result<Self> {
        let shown_path = path.display();
        let file = std::fs::File::open(path).map_err(|error| of_file(path, &error))?;
        let metadata = file.metadata().map_err(|error| of_file(path, &error))?;
        if !metadata.is_file() {
            return Err(invalid(format!("{shown_path} is not a file"))
                .hint("'qemu-img convert' copies a device to an image file")
                .into());
        }
        // An absolute path cannot be mistaken for a protocol prefix.
        let absolute = std::path::absolute(path).with_context(|| format!("'{shown_path}'"))?;
        let mut start = Vec::with_capacity(HEADER_BYTES);
        file.take(HEADER_BYTES as u64).read_to_end(&mut start).map_err(|error| of_file(path, &error))?;
        let raw = match format {
            Some(format) => format == Format::Raw,
            None => !has_magic(&start),
        };
        if !raw {
            return qemu_img::inspect(&absolute, format);
        }
        if let (None, Some(other)) = (format, Format::of_name(path).filter(|named| *named != RAW)) {
            return Err(invalid(format!(
                "{shown_path} has the extension of the format '{other}' but not its signature"
            ))
            .hint("--format raw imports the bytes of the file unchanged")
            .into());
        }
        if metadata.len() == 0 {
            return Err(invalid(format!("{shown_path} is empty")).into());
        }
        Ok(Self { path: absolute, format: RAW.to_owned(), size: metadata.len() })
    }

    /// Returns the name of the format.
    pub(crate) fn format(&self) -> &str {
        &self.format
    }

    /// Returns path, format and size as text.
    pub(crate) fn description(&self) -> String {
        format!("{} ({}, {})", self.path.display(), self.format, Size(self.size))
    }
}

fn has_magic(start: &[u8]) -> bool {
    MAGICS.iter().any(|(at, magic)| start.get(*at..).is_some_and(|rest| rest.starts_with(magic)))
}
