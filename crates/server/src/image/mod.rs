//! Disk images: detection of formats, and copies between image files and volumes.
//!
//! The daemon copies raw images itself, all others with qemu-img(1) through a private NBD socket.
//!
//! Invariants: an image that refers to other files is refused, because the content of those would
//! be copied into the volume; a copy that ends without an error is durable; a copy that fails or is
//! cancelled leaves no volume, snapshot or file behind.

mod atomic_file;
mod copy;
mod counters;
mod extents;
mod nbd;
mod operations;
mod qemu_img;
#[cfg(test)]
mod tests;
mod volume_io;

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use api::Size;
use api::types::ImageFormat;

pub use atomic_file::AtomicFile;
pub use extents::{BLOCK, CHUNK, nonzero_ranges};
pub(crate) use operations::ImageOperations;

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
struct Image {
    path: PathBuf,
    format: String,
    /// Size of the disk in the image, in bytes.
    size: u64,
}

/// Returns the format that a file extension stands for.
fn format_of_name(path: &Path) -> Option<&'static str> {
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
fn format_to_write(path: &Path) -> Result<ImageFormat> {
    match format_of_name(path) {
        None | Some(RAW) => Ok(ImageFormat::Raw),
        Some("qcow2") => Ok(ImageFormat::Qcow2),
        Some(other) => {
            let message = format!("{}: cannot write images of the format '{other}'", path.display());
            Err(invalid(message)
                .hint("write a qcow2 image and convert it with qemu-img, or give the format raw"))
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// Returns the API error of a file operation, with the path.
pub fn file_error(path: &Path, error: &std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("{}: {error}", path.display()))
}

impl Image {
    /// Inspects an image with an absolute path, which cannot be mistaken for a protocol prefix. The
    /// format is the given one, or detected by signature. Blocks.
    ///
    /// # Errors
    /// If the file is not an image, or refers to other files.
    fn inspect(path: &Path, format: Option<ImageFormat>) -> Result<Self> {
        let shown_path = path.display();
        // A pipe without a writer would block the open.
        let metadata = std::fs::metadata(path).map_err(|error| file_error(path, &error))?;
        if !metadata.is_file() {
            return Err(invalid(format!("{shown_path} is not a file"))
                .hint("'qemu-img convert' copies a device to an image file"));
        }
        let file = std::fs::File::open(path).map_err(|error| file_error(path, &error))?;
        let mut start = Vec::with_capacity(HEADER_BYTES);
        file.take(HEADER_BYTES as u64).read_to_end(&mut start).map_err(|error| file_error(path, &error))?;
        let raw = match format {
            Some(format) => format == ImageFormat::Raw,
            None => !has_magic(&start),
        };
        if !raw {
            return qemu_img::inspect(path, format);
        }
        if let (None, Some(other)) = (format, format_of_name(path).filter(|named| *named != RAW)) {
            return Err(invalid(format!(
                "{shown_path} has the extension of the format '{other}' but not its signature"
            ))
            .hint("the format raw imports the bytes of the file unchanged"));
        }
        if metadata.len() == 0 {
            return Err(invalid(format!("{shown_path} is empty")));
        }
        Ok(Self { path: path.to_owned(), format: RAW.to_owned(), size: metadata.len() })
    }

    /// Returns path, format and size as text.
    fn description(&self) -> String {
        format!("{} ({}, {})", self.path.display(), self.format, Size(self.size))
    }
}

fn has_magic(start: &[u8]) -> bool {
    MAGICS.iter().any(|(at, magic)| start.get(*at..).is_some_and(|rest| rest.starts_with(magic)))
}
