//! The CSI driver: volumes for the containers of a cluster, by the Container Storage Interface
//! 1.12.
//!
//! Owns the services of the driver (Identity, Controller, Node), the registration with the kubelet,
//! and the devices and mounts of volumes on this node. Always true: a call is idempotent after a
//! crash between any two of its steps, because each step is derived from the state of the daemon
//! and of the kernel, and the driver stores nothing itself; two calls for one volume never run at
//! the same time; a device that holds data is never formatted. Must not know: how the daemon stores
//! volumes; it uses the daemon's API only.

mod calls;
mod capability;
mod controller;
mod daemon;
mod exports;
mod host;
mod identity;
mod listener;
mod locks;
mod names;
mod network;
mod node;
mod options;
mod parameters;
pub mod proto;
mod registration;
mod server;
mod status;

pub use options::{AttachMode, DEFAULT_DRIVER_NAME, DriverOptions, Endpoint, EndpointError, Registration};
pub use server::{ServeError, serve};
