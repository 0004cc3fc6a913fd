//! Versions of this program.

use api::types::{API_VERSION, Version};

/// Returns the versions of this program.
pub fn version() -> Version {
    Version {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        api: API_VERSION.to_owned(),
        format: format::FORMAT_VERSION,
    }
}
