//! `MinIO` on one XFS file system per drive, as the reference document sets it up.

use std::path::Path;

use crate::bounds::Layout;
use crate::program::{command, is_installed};
use crate::suite::Workload;
use crate::system::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent};

use super::s3_server::{self, RunningS3, devices, endpoint, free_address};
use super::{Failure, PeerOptions, number};

pub(super) struct Minio {
    options: PeerOptions,
    parity: Option<u32>,
    layout: Option<Layout>,
    up: Option<RunningS3>,
}

/// Returns the missing requirement, if any.
pub(super) fn missing_requirement() -> Option<String> {
    let missing = ["minio", "mkfs.xfs"].into_iter().find(|program| !is_installed(program));
    if let Some(program) = missing {
        return Some(format!("{program} is not installed"));
    }
    (!rustix::process::geteuid().is_root()).then(|| "it requires root to mount file systems".into())
}

impl Minio {
    pub(super) fn new(options: PeerOptions) -> Result<Self, String> {
        let mut parity = None;
        options.each(|key, value| {
            match key {
                "parity" => parity = Some(u32::try_from(number(value, 8)?).ok()?),
                _ => return None,
            }
            Some(())
        })?;
        Ok(Self { options, parity, layout: None, up: None })
    }

    fn make(&mut self, wish: &Requirements<'_>, up: &mut RunningS3) -> Result<(), Failure> {
        let drives = devices(&self.options, wish)?;
        let count = u32::try_from(drives.len())?;
        let of_suite = wish.scheme.and_then(|scheme| Layout::parse(scheme, count, 1).ok());
        let parity = self.parity.or(of_suite.map(|layout| layout.parity)).unwrap_or(count / 2);
        if count < 2 || parity > count / 2 {
            return Err(
                format!("EC:{parity} needs at least {} drives, and there are {count}", parity * 2).into()
            );
        }
        let layout = Layout { drives: count, data: count - parity, parity, pools: 1 };
        let mut mounts = Vec::new();
        for drive in drives {
            let one = std::slice::from_ref(drive);
            mounts.push(up.mount((&self.options, wish), one, "xfs", &["-q", "-f", "-L", "minio"])?);
        }
        let (address, console) = (free_address()?, free_address()?);
        let endpoint = endpoint(address)?;
        let mut server = command("minio");
        server.arg("server").arg("--quiet").arg("--address").arg(address.to_string());
        server.arg("--console-address").arg(console.to_string()).args(mounts);
        server.env("MINIO_ROOT_USER", &endpoint.access_key).env("MINIO_ROOT_PASSWORD", &endpoint.secret_key);
        server.env("MINIO_STORAGE_CLASS_STANDARD", format!("EC:{parity}")).env("MINIO_BROWSER", "off");
        let is_ready: fn(u16) -> bool = |status| status == 200;
        up.start((&self.options, wish), server, address, ("/minio/health/cluster", is_ready))?;
        let bytes = up.free()? / u64::from(count) * u64::from(layout.data);
        up.extents = vec![s3_server::extent(endpoint, bytes)];
        self.layout = Some(layout);
        Ok(())
    }
}

impl System for Minio {
    fn info(&self) -> SystemInfo {
        let shape = self.layout.map_or(String::new(), |layout| {
            format!(
                "{} drives with XFS, {}+{} (EC:{})",
                layout.drives, layout.data, layout.parity, layout.parity
            )
        });
        SystemInfo {
            name: self.options.name.clone(),
            what: format!("MinIO: {shape}"),
            promises: Guarantees {
                flush: "bodies are written with direct I/O and fdatasync; the rename that makes an object visible \
                        is not flushed"
                    .into(),
                checksums: "HighwayHash of every shard, verified on every read".into(),
                protection: "failures of up to m drives of a k+m scheme".into(),
            },
            takes_drives: true,
            degrades: false,
            layout: self.layout,
            remark: None,
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
        Err(self.options.error("fail a drive", "the drives of a running server cannot be failed"))
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

impl Drop for Minio {
    fn drop(&mut self) {
        let _ = self.tear_down();
    }
}
