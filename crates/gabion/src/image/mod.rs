//! Copies of volumes of salvaged pools into images, and the interruption of commands by signals.
//!
//! Imports and exports of open pools are operations of the daemon.

mod interrupt;
mod progress;
mod salvage;

pub(crate) use interrupt::Interrupt;
pub(crate) use progress::per_second;
pub(crate) use salvage::salvage_image;
