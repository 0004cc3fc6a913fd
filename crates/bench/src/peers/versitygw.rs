//! `versitygw`, a gateway of S3 requests to files: one btrfs file system over the drives, without
//! erasure code, as the gateway leaves protection to the file system.

use std::path::Path;

use crate::bounds::Layout;
use crate::program::{command, is_installed};
use crate::suite::Workload;
use crate::system::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent};

use super::s3_server::{self, RunningS3, devices, endpoint, free_address};
use super::{Failure, PeerOptions, btrfs};

pub(super) struct VersityGateway {
    options: PeerOptions,
    layout: Option<Layout>,
    up: Option<RunningS3>,
}

/// Returns the missing requirement, if any.
pub(super) fn missing_requirement() -> Option<String> {
    if !is_installed("versitygw") {
        return Some("versitygw is not installed".into());
    }
    btrfs::missing_requirement()
}

impl VersityGateway {
    pub(super) fn new(options: PeerOptions) -> Result<Self, String> {
        options.each(|_, _| None)?;
        Ok(Self { options, layout: None, up: None })
    }

    fn make(&mut self, wish: &Requirements<'_>, up: &mut RunningS3) -> Result<(), Failure> {
        let drives = devices(&self.options, wish)?;
        let count = u32::try_from(drives.len())?;
        let (data, metadata) = if count > 1 { ("raid0", "raid1") } else { ("single", "dup") };
        let arguments = ["-q", "-f", "-L", "gabion-bench", "-d", data, "-m", metadata];
        let root = up.mount((&self.options, wish), drives, "btrfs", &arguments)?;
        let address = free_address()?;
        let endpoint = endpoint(address)?;
        let mut server = command("versitygw");
        server.arg("--port").arg(address.to_string()).arg("--region").arg(&endpoint.region);
        server.env("ROOT_ACCESS_KEY", &endpoint.access_key).env("ROOT_SECRET_KEY", &endpoint.secret_key);
        server.arg("posix").arg(root);
        // Without a signature, a server that is ready refuses the request.
        let is_ready: fn(u16) -> bool = |status| (200..500).contains(&status);
        up.start((&self.options, wish), server, address, ("/", is_ready))?;
        let bytes = up.free()?;
        up.extents = vec![s3_server::extent(endpoint, bytes)];
        self.layout = Some(Layout { drives: count, data: count, parity: 0, pools: 1 });
        Ok(())
    }
}

impl System for VersityGateway {
    fn info(&self) -> SystemInfo {
        let drives = self.layout.map_or(0, |layout| layout.drives);
        SystemInfo {
            name: self.options.name.clone(),
            what: format!("versitygw: one btrfs file system over {drives} drives, data raid0"),
            promises: Guarantees {
                flush: "a PUT is acknowledged from the page cache; it reaches the drives later".into(),
                checksums: "CRC-32C of every block by btrfs, verified when the block is read from a drive"
                    .into(),
                protection: "none: a drive failure loses data".into(),
            },
            takes_drives: true,
            degrades: false,
            layout: self.layout,
            remark: Some("page cache".into()),
        }
    }

    fn serves(&self, workload: Workload) -> bool {
        workload == Workload::Objects
    }

    fn set_up(&mut self, wish: &Requirements<'_>) -> Result<(), SystemError> {
        let mut up = RunningS3::default();
        if let Err(error) = self.make(wish, &mut up) {
            return Err(self.options.error("set up", super::with_left(error, up.remove())));
        }
        self.up = Some(up);
        Ok(())
    }

    fn targets(&self) -> Vec<TargetExtent> {
        self.up.as_ref().map(|up| up.extents.clone()).unwrap_or_default()
    }

    fn processes(&self) -> Vec<u32> {
        self.up.iter().filter_map(|up| Some(up.server.as_ref()?.process())).collect()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        Err(self.options.error("fail a drive", "it has no redundancy"))
    }

    fn clean_up(&mut self, folder: &Path) -> Result<(), SystemError> {
        let cleaned = s3_server::clean_up(folder, &self.options.name);
        cleaned.map_err(|error| self.options.error("clean up after the run", error))
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        let Some(mut up) = self.up.take() else { return Ok(()) };
        up.remove().map_err(|error| self.options.error("tear down", error))
    }
}

impl Drop for VersityGateway {
    fn drop(&mut self) {
        let _ = self.tear_down();
    }
}
