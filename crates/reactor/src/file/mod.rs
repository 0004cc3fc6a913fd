//! Drives that are block devices or regular files.

mod drive;
mod error;
mod open;
mod probe;

#[cfg(test)]
mod tests;

pub use drive::FileDrive;
pub use error::{OpenDriveError, OpenDriveErrorKind};
pub use open::{DriveHandle, DriveOptions, create_file};
