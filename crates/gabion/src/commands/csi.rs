//! `gabion csi`.

use anyhow::{Context, Result};
use csi::{AttachMode, DriverOptions, Registration};
use tokio::signal::unix::{SignalKind, signal};

use super::serve;
use crate::cli::{AttachArg, CsiArgs, Global};
use crate::failure::ExitReason;

/// Runs the CSI driver until a signal stops it.
///
/// # Errors
/// If a socket cannot be bound, or a server fails.
pub(super) fn run(global: &Global, arguments: CsiArgs) -> Result<ExitReason> {
    serve::start_configured_log(global)?;
    let CsiArgs { node, controller, expand_on_node, endpoint, node_id, driver_name, max_volumes, .. } =
        arguments;
    let kubelet_endpoint = arguments.kubelet_endpoint.unwrap_or_else(|| endpoint.0.clone());
    let registration = arguments.registration.map(|directory| Registration { directory, kubelet_endpoint });
    let host_name = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let options = DriverOptions {
        endpoint,
        controller,
        expand_on_node,
        node,
        node_id: node_id.unwrap_or_else(host_name),
        driver_name,
        max_volumes,
        registration,
        attach: match arguments.attach {
            AttachArg::Local => AttachMode::Local,
            AttachArg::NvmeTcp => AttachMode::NvmeTcp,
        },
        client: super::context::client(global)?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime")?;
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
        let mut interrupted = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
        let stop = async move {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
            }
        };
        csi::serve(options, stop).await.context("the CSI driver cannot serve")
    })?;
    Ok(ExitReason::Success)
}
