//! The data of the demonstration: written once, and compared after each loss.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::cluster::{FileSystemMount, MountOptions, ServiceOptions, Workspace, remove_stale_mount, services};
use anyhow::{Context, Result, ensure};
use bench::nbd;

use super::retry;

/// Bytes of each part of the volume.
const PART_BYTES: usize = 16 << 20;
/// Number of parts.
const PARTS: u8 = 3;
/// Limit of waiting for a gateway that starts.
const WAIT: Duration = Duration::from_secs(60);

/// Returns bytes that differ between seeds and between blocks.
fn pattern(seed: u8, length: usize) -> Vec<u8> {
    let mut state = u64::from(seed).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).flatten().take(length).collect()
}

/// A volume over NBD.
pub(super) struct VolumeCheck {
    socket: PathBuf,
    export: String,
    written: std::cell::Cell<u8>,
}

impl VolumeCheck {
    pub(super) fn new(socket: PathBuf, export: String) -> Self {
        Self { socket, export, written: std::cell::Cell::new(0) }
    }

    fn connect(&self) -> Result<nbd::BlockingClient> {
        nbd::connect(&self.socket, &self.export).with_context(|| format!("connecting to {}", self.export))
    }

    /// Writes a part and flushes it.
    pub(super) fn write(&self, part: u8) -> Result<()> {
        let mut client = self.connect()?;
        let data = pattern(part, PART_BYTES);
        for (index, chunk) in data.chunks(1 << 20).enumerate() {
            let at = usize::from(part) * PART_BYTES + index * (1 << 20);
            client.write(at as u64, chunk).context("writing")?;
        }
        client.flush().context("flushing")?;
        self.written.set(self.written.get().max(part + 1).min(PARTS));
        Ok(())
    }

    /// Compares the parts that were written.
    pub(super) fn verify(&self) -> Result<()> {
        let mut client = self.connect()?;
        let mut found = vec![0; 1 << 20];
        for part in 0..self.written.get() {
            for (index, chunk) in pattern(part, PART_BYTES).chunks(1 << 20).enumerate() {
                let at = usize::from(part) * PART_BYTES + index * (1 << 20);
                client.read(at as u64, &mut found).context("reading")?;
                ensure!(found == chunk, "the MiB at {at} differs from the data that was written");
            }
        }
        Ok(())
    }
}

/// The mounted file system. Unmounted when it is dropped.
pub(super) struct FileCheck {
    mount: FileSystemMount,
    data: Vec<u8>,
}

impl FileCheck {
    /// Mounts the file system of a cluster.
    pub(super) fn mount(workspace: &Workspace, directory: &Path) -> Result<Self> {
        let mount = {
            // Of a demonstration that was killed.
            remove_stale_mount(directory)?;
            let log = directory.with_extension("log");
            let options = MountOptions { place: None, subtree: None, variable: None, log: &log };
            FileSystemMount::mount(workspace, directory, options)?
        };
        Ok(Self { mount, data: pattern(9, 4 << 20) })
    }

    /// Writes a file and flushes it.
    pub(super) fn write(&self) -> Result<()> {
        let mut file = std::fs::File::create(self.mount.directory().join("data"))?;
        file.write_all(&self.data)?;
        Ok(file.sync_all()?)
    }

    /// Writes another file, and compares the first one.
    pub(super) fn verify(&self) -> Result<()> {
        let directory = self.mount.directory();
        std::fs::write(directory.join("newer"), b"written after the others")?;
        let found = std::fs::read(directory.join("data"))?;
        ensure!(found == self.data, "the file differs from the data that was written");
        Ok(())
    }
}

/// The object gateways.
pub(super) struct GatewayCheck {
    addresses: Vec<SocketAddr>,
}

impl GatewayCheck {
    pub(super) fn new(workspace: &Workspace) -> Result<Self> {
        let planned = services(workspace, &ServiceOptions::default(), true, &|_| {})?;
        let addresses = planned.services.iter().filter_map(|service| {
            service.address.strip_prefix("http://").and_then(|address| address.parse().ok())
        });
        let addresses: Vec<SocketAddr> = addresses.collect();
        ensure!(!addresses.is_empty(), "the cluster has no object gateway");
        Ok(Self { addresses })
    }

    /// Sends a request to each gateway. The answer to one without a signature is a list of no
    /// buckets.
    pub(super) fn verify(&self) -> Result<()> {
        for address in &self.addresses {
            retry(WAIT, || {
                let mut stream = TcpStream::connect_timeout(address, Duration::from_secs(5))?;
                stream.set_read_timeout(Some(WAIT))?;
                write!(stream, "GET / HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer)?;
                ensure!(
                    answer.starts_with("HTTP/1.1 200") && answer.contains("ListAllMyBucketsResult"),
                    "{address} answers: {}",
                    answer.lines().next().unwrap_or_default()
                );
                Ok(())
            })?;
        }
        Ok(())
    }
}
