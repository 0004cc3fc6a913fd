//! NBD disks by the kernel's client: its netlink family and its sysfs.
//!
//! Always true: each disk has the URI of its export as identifier in the kernel, which is the only
//! record, so that a killed driver continues from it. A disk whose connection has ended keeps its
//! requests until it gets another connection, and sends them again.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::blocking::blocking;
use super::device::DeviceNumber;
use super::error::HostError;
use super::nbd_handshake::{self, OpenedExport};
use super::netlink::{Attributes, Family};

/// Name of the netlink family.
const FAMILY: &str = "nbd";
/// Major number of NBD disks.
const MAJOR: u32 = 43;
/// Commands of the family.
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;
/// Attributes of the commands.
const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_SIZE_BYTES: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_CONNECTION_TIMEOUT: u16 = 8;
const BACKEND: u16 = 10;
/// Attribute of a list of sockets.
const SOCKET_ITEM: u16 = 1;
/// Attribute of a socket in the list.
const SOCKET_FD: u16 = 1;
/// Seconds after which the kernel sends a request again: requests that were in flight when their
/// connection ended wait for this time.
const REQUEST_SECONDS: u64 = 10;
/// Seconds for which requests wait for another connection: a year.
const RECONNECT_SECONDS: u64 = 365 * 24 * 3600;
/// Pause between two polls of a disk that the kernel is removing.
const POLL_PAUSE: Duration = Duration::from_millis(10);
/// Number of these polls.
const POLLS: u32 = 1000;

/// The kernel's client.
#[derive(Clone, Debug)]
pub(crate) struct NbdHost {
    /// Directory of sysfs.
    sys: PathBuf,
}

impl Default for NbdHost {
    fn default() -> Self {
        Self { sys: "/sys".into() }
    }
}

/// An export of NBD on a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NbdExport {
    /// `nbd+unix:///NAME?socket=PATH`.
    pub(crate) uri: String,
    socket: PathBuf,
    name: String,
}

impl NbdExport {
    /// Returns the export of a URI; `None` for other URIs.
    pub(crate) fn of(uri: &str) -> Option<Self> {
        let (name, socket) = uri.strip_prefix("nbd+unix:///")?.split_once("?socket=")?;
        let (name, socket) = (name.to_owned(), socket.into());
        Some(Self { uri: uri.to_owned(), socket, name })
    }

    /// Opens the export. Returns the connection, for the kernel.
    async fn open(&self) -> Result<(UnixStream, OpenedExport), HostError> {
        let (socket, name) = (self.socket.clone(), self.name.clone());
        blocking(move || nbd_handshake::open(&socket, &name))
            .await
            .map_err(HostError::at(&self.socket, "open the NBD export"))
    }
}

/// Returns true for the number of an NBD disk.
pub(crate) fn is_nbd(number: DeviceNumber) -> bool {
    number.major == MAJOR
}

impl NbdHost {
    /// Returns true if the kernel has a client.
    pub(crate) fn is_available(&self) -> bool {
        self.sys.join("module/nbd").exists()
    }

    /// Returns true if an export of this host is a disk, connected or not.
    pub(crate) fn has_disks(&self) -> bool {
        self.identifiers().any(|(_, uri)| NbdExport::of(&uri).is_some())
    }

    /// Returns the disk of an export; `None` if there is none.
    pub(crate) fn device(&self, export: &NbdExport) -> Option<PathBuf> {
        let (name, _) = self.identifiers().find(|(_, uri)| *uri == export.uri)?;
        Some(Path::new("/dev").join(name))
    }

    /// Returns the names of the disks, and their identifiers.
    fn identifiers(&self) -> impl Iterator<Item = (String, String)> + use<> {
        let entries = std::fs::read_dir(self.sys.join("block")).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(|name| name.starts_with("nbd"))?;
            let identifier = std::fs::read_to_string(entry.path().join("backend")).ok()?;
            Some((name, identifier.trim_end().to_owned()))
        })
    }

    /// Makes a disk of an export, with blocks of `sector` bytes. Returns its device.
    ///
    /// # Errors
    /// If the server or the kernel refuses.
    pub(crate) async fn connect(&self, export: &NbdExport, sector: u32) -> Result<PathBuf, HostError> {
        let (connection, opened) = export.open().await?;
        let attributes = Attributes::default()
            .u64(SIZE_BYTES, opened.size)
            .u64(BLOCK_SIZE_BYTES, sector.into())
            .u64(TIMEOUT, REQUEST_SECONDS)
            .u64(DEAD_CONNECTION_TIMEOUT, RECONNECT_SECONDS)
            .u64(SERVER_FLAGS, opened.flags.into())
            .text(BACKEND, &export.uri);
        let reply = call(CONNECT, attributes, Some(connection)).await;
        let reply = reply.map_err(HostError::at(Path::new(&export.uri), "make an NBD disk"))?;
        let Some(index) = reply.get_u32(INDEX) else {
            let absent = io::Error::new(io::ErrorKind::InvalidData, "the kernel returned no number");
            return Err(HostError::at(Path::new(&export.uri), "make an NBD disk")(absent));
        };
        let device = PathBuf::from(format!("/dev/nbd{index}"));
        if self.device(export).as_ref() != Some(&device) {
            disconnect(&device).await?;
            let old = io::Error::new(io::ErrorKind::Unsupported, "Linux 5.14 or newer is required");
            return Err(HostError::at(&device, "find the export of the disk")(old));
        }
        Ok(device)
    }

    /// Gives the disk of an export another connection, if the disk has lost its own. The earlier
    /// connection must have ended at the server, too: its writes could arrive late otherwise.
    ///
    /// # Errors
    /// If the server or the kernel refuses; if the export is smaller than the disk.
    pub(crate) async fn reconnect(&self, export: &NbdExport) -> Result<(), HostError> {
        let Some(device) = self.device(export) else { return Ok(()) };
        let (connection, opened) = export.open().await?;
        let size = self.size(&device);
        if opened.size < size {
            let small = format!("the export has {} bytes, and the disk {size}", opened.size);
            return Err(HostError::at(&device, "connect the disk again")(io::Error::other(small)));
        }
        let attributes = of_disk(&device, export)?;
        let called = call(RECONFIGURE, attributes, Some(connection)).await;
        called.map(drop).map_err(HostError::at(&device, "connect the disk again"))
    }

    /// Returns the size of a disk in bytes, without an access to it.
    fn size(&self, device: &Path) -> u64 {
        let file = self.sys.join("block").join(device.file_name().unwrap_or_default()).join("size");
        let sectors = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<u64>().ok());
        sectors.unwrap_or(0).saturating_mul(512)
    }

    /// Gives the disk of an export another size. Does nothing if it has that size.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) async fn update_size(&self, export: &NbdExport, size: u64) -> Result<(), HostError> {
        let Some(device) = self.device(export).filter(|device| self.size(device) != size) else {
            return Ok(());
        };
        let attributes = of_disk(&device, export)?.u64(SIZE_BYTES, size);
        call(RECONFIGURE, attributes, None).await.map(drop).map_err(HostError::at(&device, "grow"))
    }

    /// Removes a disk, and waits until the kernel has closed it. Does nothing if it is not in use.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) async fn disconnect(&self, device: &Path) -> Result<(), HostError> {
        disconnect(device).await?;
        let name = device.file_name().unwrap_or_default();
        let backend = self.sys.join("block").join(name).join("backend");
        for _ in 0..POLLS {
            if !backend.exists() {
                return Ok(());
            }
            tokio::time::sleep(POLL_PAUSE).await;
        }
        let busy = io::Error::new(io::ErrorKind::ResourceBusy, "a program has the device open");
        Err(HostError::at(device, "remove the disk")(busy))
    }
}

async fn disconnect(device: &Path) -> Result<(), HostError> {
    let attributes = Attributes::default().u32(INDEX, index(device)?);
    let called = call(DISCONNECT, attributes, None).await;
    called.map(drop).map_err(HostError::at(device, "remove the disk"))
}

/// Returns the attributes that select a disk.
fn of_disk(device: &Path, export: &NbdExport) -> Result<Attributes, HostError> {
    Ok(Attributes::default().u32(INDEX, index(device)?).text(BACKEND, &export.uri))
}

/// Returns the number of a disk.
fn index(device: &Path) -> Result<u32, HostError> {
    let name = device.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let number = name.strip_prefix("nbd").and_then(|number| number.parse().ok());
    number.ok_or_else(|| {
        let other = io::Error::new(io::ErrorKind::InvalidInput, "it is not an NBD disk");
        HostError::at(device, "use the disk")(other)
    })
}

/// Executes a command of the family, with a connection for the kernel.
async fn call(command: u8, attributes: Attributes, connection: Option<UnixStream>) -> io::Result<Attributes> {
    blocking(move || {
        let attributes = match &connection {
            None => attributes,
            Some(connection) => {
                let number = connection.as_raw_fd().cast_unsigned();
                let item = Attributes::default().u32(SOCKET_FD, number);
                attributes.nested(SOCKETS, &Attributes::default().nested(SOCKET_ITEM, &item))
            }
        };
        Family::open(FAMILY)?.call(command, &attributes)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    const URI: &str = "nbd+unix:///fast/a?socket=/run/gabion/nbd.sock";

    #[test]
    fn exports_on_unix_sockets_can_become_disks() {
        let export = NbdExport::of(URI).unwrap();
        assert_eq!(
            (export.name.as_str(), export.socket.as_path()),
            ("fast/a", Path::new("/run/gabion/nbd.sock"))
        );
        for other in ["nbd://127.0.0.1:10809/fast/a", "/dev/nbd0", "nbd+unix:///fast/a"] {
            assert_eq!(NbdExport::of(other), None, "{other}");
        }
    }

    #[test]
    fn the_kernel_shows_the_exports_of_disks() {
        let root = tempfile::tempdir().unwrap();
        let host = NbdHost { sys: root.path().to_owned() };
        assert!(!host.is_available() && !host.has_disks());
        for (name, file, text) in [
            ("module/nbd", "refcnt", "1"),
            ("block/nbd0", "size", "0"),
            ("block/nbd1", "backend", "image-7\n"),
            ("block/nbd2", "backend", &format!("{URI}2\n")),
            ("block/nbd3", "backend", &format!("{URI}\n")),
            ("block/nbd3", "size", "2048\n"),
            ("block/sda", "backend", &format!("{URI}\n")),
        ] {
            std::fs::create_dir_all(root.path().join(name)).unwrap();
            std::fs::write(root.path().join(name).join(file), text).unwrap();
        }
        assert!(host.is_available() && host.has_disks());
        let device = host.device(&NbdExport::of(URI).unwrap()).unwrap();
        assert_eq!((device.as_path(), host.size(&device)), (Path::new("/dev/nbd3"), 1 << 20));
        assert_eq!(host.device(&NbdExport::of("nbd+unix:///x?socket=/s").unwrap()), None);
        assert_eq!(index(&device).unwrap(), 3);
        assert!(index(Path::new("/dev/nbd3p1")).is_err() && index(Path::new("/dev/sda")).is_err());
    }
}
