//! A client of Ceph clusters: commands, and RBD images on reactors.
//!
//! Owns the bindings to `librados` and `librbd`, connections, and open images. Always true: the
//! program runs without the libraries, whose absence is an error that names the package; a write
//! that completed is on the drives of all copies, because no image has a cache on the client.
//!
//! Must not know: how a cluster is deployed, exports, the daemon.

mod client;
mod error;
mod files;
mod library;
mod rbd;

pub use client::{RadosClient, RadosOptions};
pub use error::{Error, ErrorKind, Result};
pub use files::{
    ADMIN_USER, CONF_FILE, GATEWAY_USER, VOLUMES_USER, conf_value, keyring_key, keyring_path, options_of,
};
pub use rbd::{ImageDiff, ImageInfo, ImageSnapshot, OpenImage, RbdImage, RbdPool};
