//! RBD images: their pool, their administration, and their data on reactors.

mod aio;
mod diff;
mod image;
mod info;
mod pool;

pub use diff::ImageDiff;
pub use image::{OpenImage, RbdImage};
pub use info::{ImageInfo, ImageSnapshot};
pub use pool::RbdPool;
