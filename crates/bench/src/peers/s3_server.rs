//! S3 servers of other projects: file systems on the drives, the process, its address and keys.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};

use crate::load::{S3Endpoint, Target};
use crate::program::{ProgramError, Server, command, run};
use crate::system::{Requirements, TargetExtent, is_device};

use super::btrfs::{forget, mounted_in};
use super::{Failure, PeerOptions, interrupted, target_extent};

/// Maximum time for a server to answer its first request.
const START_MAX: Duration = Duration::from_secs(120);
const REQUEST_MAX: Duration = Duration::from_secs(2);
const REGION: &str = "us-east-1";
/// Bytes of randomness of each key.
const KEY_BYTES: usize = 16;

/// A mounted file system on one or more drives.
pub(super) struct DriveMount {
    drives: Vec<PathBuf>,
    at: PathBuf,
    is_btrfs: bool,
    mounted: bool,
}

/// A running server and its file systems.
#[derive(Default)]
pub(super) struct RunningS3 {
    pub(super) mounts: Vec<DriveMount>,
    pub(super) server: Option<Server>,
    pub(super) extents: Vec<TargetExtent>,
}

/// Returns the drives of a run if they may be overwritten and are block devices.
pub(super) fn devices<'a>(
    options: &PeerOptions,
    requirements: &Requirements<'a>,
) -> Result<&'a [PathBuf], Failure> {
    options.take(requirements.drives)?;
    match requirements.drives.iter().find(|drive| !is_device(drive)) {
        Some(file) => {
            Err(format!("{} is not a block device; use the drives of a lab", file.display()).into())
        }
        None => Ok(requirements.drives),
    }
}

impl RunningS3 {
    /// Makes a file system on drives and mounts it in the folder of the run.
    pub(super) fn mount(
        &mut self,
        (options, requirements): (&PeerOptions, &Requirements<'_>),
        drives: &[PathBuf],
        kind: &str,
        arguments: &[&str],
    ) -> Result<PathBuf, Failure> {
        interrupted(requirements.stop)?;
        run(command(&format!("mkfs.{kind}")).args(arguments).args(drives))?;
        let at = requirements.folder.join(format!("{}-{}", options.name, self.mounts.len()));
        match std::fs::create_dir(&at) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.into()),
            _ => {}
        }
        let first = drives.first().ok_or("no drives")?;
        // btrfs finds its other drives by this option.
        let data = match drives {
            [_] => String::new(),
            all => {
                all.iter().map(|drive| format!("device={}", drive.display())).collect::<Vec<_>>().join(",")
            }
        };
        let data = std::ffi::CString::new(data)?;
        let is_btrfs = kind == "btrfs";
        self.mounts.push(DriveMount { drives: drives.to_vec(), at: at.clone(), is_btrfs, mounted: false });
        rustix::mount::mount(first, &at, kind, MountFlags::NOATIME, Some(data.as_c_str()))
            .map_err(|error| format!("{} cannot be mounted as {kind}: {error}", first.display()))?;
        if let Some(mount) = self.mounts.last_mut() {
            mount.mounted = true;
        }
        Ok(at)
    }

    /// Returns the free bytes of all file systems.
    pub(super) fn free(&self) -> Result<u64, Failure> {
        let free = |mount: &DriveMount| rustix::fs::statvfs(&mount.at).map(|of| of.f_bavail * of.f_frsize);
        Ok(self.mounts.iter().map(free).sum::<Result<u64, _>>()?)
    }

    /// Starts the server and waits until `path` of its address is answered with a status that
    /// `is_ready` accepts.
    pub(super) fn start(
        &mut self,
        (options, requirements): (&PeerOptions, &Requirements<'_>),
        server: std::process::Command,
        address: SocketAddr,
        (path, is_ready): (&str, fn(u16) -> bool),
    ) -> Result<(), ProgramError> {
        let mut server = Server::start(server, requirements.folder, &options.name)?;
        let ready = || status(address, path).is_ok_and(is_ready);
        server.wait_until(START_MAX, requirements.stop, ready)?;
        self.server = Some(server);
        Ok(())
    }

    /// Removes as much as possible and returns the first failure.
    pub(super) fn remove(&mut self) -> Result<(), Failure> {
        let mut result = self.server.take().map_or(Ok(()), Server::stop).map_err(Failure::from);
        for mount in &mut self.mounts {
            let done = mount.remove();
            result = result.and(done);
        }
        result
    }
}

impl DriveMount {
    fn remove(&mut self) -> Result<(), Failure> {
        if self.mounted {
            rustix::mount::unmount(&self.at, UnmountFlags::empty())
                .map_err(|error| format!("{} stays mounted: {error}", self.at.display()))?;
            self.mounted = false;
        }
        // The kernel keeps the drives of a known btrfs open.
        if self.is_btrfs {
            forget(&self.drives)?;
        }
        run(command("wipefs").args(["-a", "-q"]).args(&self.drives))?;
        Ok(std::fs::remove_dir(&self.at)?)
    }
}

/// Unmounts the file systems that an earlier process of the run left in its folder.
pub(super) fn clean_up(folder: &Path, name: &str) -> Result<(), Failure> {
    for at in mounted_in(folder, name)? {
        rustix::mount::unmount(&at, UnmountFlags::empty())?;
    }
    Ok(())
}

/// Returns a free port of this host.
pub(super) fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Returns an endpoint with new keys.
pub(super) fn endpoint(address: SocketAddr) -> Result<S3Endpoint, Failure> {
    Ok(S3Endpoint {
        url: format!("http://{address}"),
        region: REGION.into(),
        access_key: random_key()?,
        secret_key: random_key()?,
    })
}

pub(super) fn extent(endpoint: S3Endpoint, bytes: u64) -> TargetExtent {
    target_extent(Target::S3(endpoint), bytes)
}

fn random_key() -> Result<String, Failure> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the status of a GET without a signature.
fn status(address: SocketAddr, path: &str) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect_timeout(&address, REQUEST_MAX)?;
    stream.set_read_timeout(Some(REQUEST_MAX))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    // "HTTP/1.1 200".
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    let head = String::from_utf8_lossy(&head).into_owned();
    head.get(9..).and_then(|status| status.parse().ok()).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}
