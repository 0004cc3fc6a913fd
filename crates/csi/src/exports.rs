//! The driver's mark on the exports that it makes.
//!
//! Always true: a node uses and deletes only exports that have it; those of administrators stay.
//! The controller recognizes its network disks by their NQN as well.

use api::types::{DeleteExportQuery, Export};

/// The owner of the driver's exports.
pub(crate) const OWNER: &str = "gabion csi";

/// Returns the request for the deletion of an export of the driver.
pub(crate) fn deletion_of(export: &Export) -> DeleteExportQuery {
    DeleteExportQuery {
        id: Some(export.id.clone()),
        owner: Some(OWNER.to_owned()),
        ..DeleteExportQuery::default()
    }
}
