//! `MinIO` on one XFS file system per drive, as the reference document sets it up.

use crate::bounds::Layout;
use crate::program::{command, is_installed};
use crate::system::{Guarantees, Requirements};

use super::s3_peer::{S3Peer, S3Server};
use super::s3_server::{self, RunningS3, devices, endpoint, free_address};
use super::{Failure, PeerOptions, number};

/// The server, with the parity of an option.
pub(super) struct Minio {
    parity: Option<u32>,
}

/// Returns the missing requirement, if any.
pub(super) fn missing_requirement() -> Option<String> {
    let missing = ["minio", "mkfs.xfs"].into_iter().find(|program| !is_installed(program));
    if let Some(program) = missing {
        return Some(format!("{program} is not installed"));
    }
    (!rustix::process::geteuid().is_root()).then(|| "it requires root to mount file systems".into())
}

pub(super) fn open(options: PeerOptions) -> Result<S3Peer<Minio>, String> {
    let mut parity = None;
    options.each(|key, value| {
        match key {
            "parity" => parity = Some(u32::try_from(number(value, 8)?).ok()?),
            _ => return None,
        }
        Some(())
    })?;
    Ok(S3Peer::new(options, Minio { parity }))
}

impl S3Server for Minio {
    fn start(
        &self,
        (options, requirements): (&PeerOptions, &Requirements<'_>),
        running: &mut RunningS3,
    ) -> Result<Layout, Failure> {
        let drives = devices(options, requirements)?;
        let count = u32::try_from(drives.len())?;
        let of_suite = requirements.scheme.and_then(|scheme| Layout::parse(scheme, count, 1).ok());
        let parity = self.parity.or(of_suite.map(|layout| layout.parity)).unwrap_or(count / 2);
        if count < 2 || parity > count / 2 {
            return Err(
                format!("EC:{parity} needs at least {} drives, and there are {count}", parity * 2).into()
            );
        }
        let mut mounts = Vec::new();
        for drive in drives {
            let one = std::slice::from_ref(drive);
            mounts.push(running.mount((options, requirements), one, "xfs", &["-q", "-f", "-L", "minio"])?);
        }
        let (address, console) = (free_address()?, free_address()?);
        let endpoint = endpoint(address)?;
        let mut server = command("minio");
        server.arg("server").arg("--quiet").arg("--address").arg(address.to_string());
        server.arg("--console-address").arg(console.to_string()).args(mounts);
        server.env("MINIO_ROOT_USER", &endpoint.access_key).env("MINIO_ROOT_PASSWORD", &endpoint.secret_key);
        server.env("MINIO_STORAGE_CLASS_STANDARD", format!("EC:{parity}")).env("MINIO_BROWSER", "off");
        let is_ready: fn(u16) -> bool = |status| status == 200;
        running.start((options, requirements), server, address, ("/minio/health/cluster", is_ready))?;
        let data = count - parity;
        let bytes = running.free()? / u64::from(count) * u64::from(data);
        running.extents = vec![s3_server::extent(endpoint, bytes)];
        Ok(Layout { drives: count, data, parity, pools: 1 })
    }

    fn describe(&self, layout: Option<Layout>) -> String {
        let shape = layout.map_or(String::new(), |layout| {
            format!(
                "{} drives with XFS, {}+{} (EC:{})",
                layout.drives, layout.data, layout.parity, layout.parity
            )
        });
        format!("MinIO: {shape}")
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            flush:
                "bodies are written with direct I/O and fdatasync; the rename that makes an object visible \
                    is not flushed"
                    .into(),
            checksums: "HighwayHash of every shard, verified on every read".into(),
            protection: "failures of up to m drives of a k+m scheme".into(),
        }
    }

    fn remark(&self) -> Option<String> {
        None
    }

    fn no_degrade(&self) -> &'static str {
        "the drives of a running server cannot be failed"
    }
}
