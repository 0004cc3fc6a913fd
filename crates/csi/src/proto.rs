//! The messages, clients and servers of the protocols, generated from `crates/csi/proto`.

/// The Container Storage Interface, `csi.v1`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
#[path = "generated/csi.v1.rs"]
pub mod csi;

/// The registration of plugins with the kubelet, `pluginregistration` (version 1).
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
#[path = "generated/pluginregistration.rs"]
pub mod pluginregistration;
