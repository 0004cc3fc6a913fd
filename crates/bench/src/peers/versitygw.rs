//! `versitygw`, a gateway of S3 requests to files: one btrfs file system over the drives, without
//! erasure code, as the gateway leaves protection to the file system.

use crate::bounds::Layout;
use crate::program::{command, is_installed};
use crate::system::{Guarantees, Requirements};

use super::s3_peer::{S3Peer, S3Server};
use super::s3_server::{self, RunningS3, devices, endpoint, free_address};
use super::{Failure, PeerOptions, btrfs};

/// The server, which has no options.
pub(super) struct VersityGateway;

/// Returns the missing requirement, if any.
pub(super) fn missing_requirement() -> Option<String> {
    if !is_installed("versitygw") {
        return Some("versitygw is not installed".into());
    }
    btrfs::missing_requirement()
}

pub(super) fn open(options: PeerOptions) -> Result<S3Peer<VersityGateway>, String> {
    options.each(|_, _| None)?;
    Ok(S3Peer::new(options, VersityGateway))
}

impl S3Server for VersityGateway {
    fn start(
        &self,
        (options, requirements): (&PeerOptions, &Requirements<'_>),
        running: &mut RunningS3,
    ) -> Result<Layout, Failure> {
        let drives = devices(options, requirements)?;
        let count = u32::try_from(drives.len())?;
        let (data, metadata) = if count > 1 { ("raid0", "raid1") } else { ("single", "dup") };
        let arguments = ["-q", "-f", "-L", "gabion-bench", "-d", data, "-m", metadata];
        let root = running.mount((options, requirements), drives, "btrfs", &arguments)?;
        let address = free_address()?;
        let endpoint = endpoint(address)?;
        let mut server = command("versitygw");
        server.arg("--port").arg(address.to_string()).arg("--region").arg(&endpoint.region);
        server.env("ROOT_ACCESS_KEY", &endpoint.access_key).env("ROOT_SECRET_KEY", &endpoint.secret_key);
        server.arg("posix").arg(root);
        // Without a signature, a server that is ready refuses the request.
        let is_ready: fn(u16) -> bool = |status| (200..500).contains(&status);
        running.start((options, requirements), server, address, ("/", is_ready))?;
        let bytes = running.free()?;
        running.extents = vec![s3_server::extent(endpoint, bytes)];
        Ok(Layout { drives: count, data: count, parity: 0, pools: 1 })
    }

    fn describe(&self, layout: Option<Layout>) -> String {
        let drives = layout.map_or(0, |layout| layout.drives);
        format!("versitygw: one btrfs file system over {drives} drives, data raid0")
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            flush: "a PUT is acknowledged from the page cache; it reaches the drives later".into(),
            checksums: "CRC-32C of every block by btrfs, verified when the block is read from a drive".into(),
            protection: "none: a drive failure loses data".into(),
        }
    }

    fn remark(&self) -> Option<String> {
        Some("page cache".into())
    }

    fn no_degrade(&self) -> &'static str {
        "it has no redundancy"
    }
}
