//! Drives that are block devices or regular files.

mod drive;
mod error;
mod lease;
mod open;
mod open_drive;
mod probe;

#[cfg(test)]
mod tests;

pub use drive::FileDrive;
pub use error::{OpenDriveError, OpenDriveErrorKind};
pub use lease::is_open_for_writing;
pub use open::{DriveHandle, create_file};
pub use open_drive::DriveOptions;
