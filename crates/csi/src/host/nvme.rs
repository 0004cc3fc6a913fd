//! NVMe disks of the network, by the kernel's initiator: its device `nvme-fabrics` and its sysfs.
//!
//! Always true: the kernel's controllers are the only record, so that a killed driver continues
//! from them. The kernel connects again without an end while the target cannot be reached, and I/O
//! waits meanwhile.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::blocking::blocking;
use super::error::HostError;
use super::nvme_secrets::NvmeSecrets;

/// Device by which the kernel connects to targets.
const FABRICS: &str = "/dev/nvme-fabrics";
/// Pause between two polls of a state that the kernel changes.
const POLL_PAUSE: Duration = Duration::from_millis(10);
/// Number of these polls.
const POLLS: u32 = 1000;
/// `errno` of the kernel for a connection that exists.
const EALREADY: i32 = 114;

/// The kernel's initiator.
#[derive(Clone, Debug)]
pub(crate) struct NvmeHost {
    /// Directory of sysfs.
    sys: PathBuf,
    /// Device by which it connects.
    fabrics: PathBuf,
}

/// A connection to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NvmeController {
    /// Directory of its attributes.
    directory: PathBuf,
    /// True if it is connected at present.
    pub(crate) is_live: bool,
    /// Address of the target, as the kernel prints it.
    address: String,
}

/// The identity with which the kernel connects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NvmeLogin<'a> {
    /// NQN of the host.
    pub(crate) nqn: &'a str,
    /// Identifier of the host, a UUID.
    pub(crate) id: &'a str,
    /// Secrets for both directions; `None` to connect without authentication.
    pub(crate) secrets: Option<&'a NvmeSecrets>,
}

impl Default for NvmeHost {
    fn default() -> Self {
        Self { sys: "/sys".into(), fabrics: FABRICS.into() }
    }
}

impl NvmeHost {
    /// Returns true if the kernel has an initiator for NVMe/TCP.
    pub(crate) fn is_available(&self) -> bool {
        self.fabrics.exists()
    }

    /// Returns true if the kernel has an initiator that authenticates itself and the target, with
    /// the module of NVMe/TCP loaded.
    pub(crate) fn can_authenticate(&self) -> bool {
        let options = std::fs::read_to_string(&self.fabrics).unwrap_or_default();
        options.contains("dhchap_ctrl_secret=") && self.sys.join("module/nvme_tcp").exists()
    }

    /// Returns the connections to a disk.
    pub(crate) fn controllers(&self, nqn: &str) -> Vec<NvmeController> {
        let has_name = |directory: &PathBuf| attribute(directory, "subsysnqn").as_deref() == Some(nqn);
        let found = entries(&self.sys.join("class/nvme")).into_iter().filter(has_name);
        let controller = |directory: PathBuf| NvmeController {
            is_live: attribute(&directory, "state").as_deref() == Some("live"),
            address: attribute(&directory, "address").unwrap_or_default(),
            directory,
        };
        found.map(controller).collect()
    }

    /// Returns the block device of a disk with one namespace; `None` if it is not connected.
    pub(crate) fn device(&self, nqn: &str) -> Option<PathBuf> {
        let is_of_disk = |directory: &PathBuf| {
            let is_visible = attribute(directory, "hidden").is_none_or(|hidden| hidden == "0");
            is_visible && attribute(directory, "device/subsysnqn").as_deref() == Some(nqn)
        };
        let found = entries(&self.sys.join("block")).into_iter().find(is_of_disk)?;
        Some(Path::new("/dev").join(found.file_name()?))
    }

    /// Connects to a disk by all of its addresses, and returns its block device. Connections that
    /// exist are kept.
    ///
    /// # Errors
    /// If no address can be connected to, or the kernel shows no device.
    pub(crate) async fn connect(
        &self,
        nqn: &str,
        addresses: &[SocketAddr],
        login: NvmeLogin<'_>,
    ) -> Result<PathBuf, HostError> {
        let connected = self.controllers(nqn);
        let mut failure = None;
        for address in addresses {
            let wanted = format!("traddr={},trsvcid={}", address.ip(), address.port());
            if connected.iter().any(|controller| has_address(&controller.address, &wanted)) {
                continue;
            }
            let NvmeLogin { nqn: host, id, secrets } = login;
            let options = format!(
                "transport=tcp,{wanted},nqn={nqn},hostnqn={host},hostid={id},reconnect_delay=2,ctrl_loss_tmo=-1"
            );
            tracing::debug!(options, authenticated = secrets.is_some(), "connecting");
            let options = options + &secrets.map_or(String::new(), NvmeSecrets::options);
            if let Err(error) = self.write_options(options).await {
                tracing::warn!(%address, %error, "cannot connect");
                failure = Some(error);
            }
        }
        self.hide_secrets(nqn);
        if self.controllers(nqn).is_empty()
            && let Some(error) = failure
        {
            return Err(error);
        }
        for _ in 0..POLLS {
            if let Some(device) = self.device(nqn).filter(|device| device.exists()) {
                return Ok(device);
            }
            tokio::time::sleep(POLL_PAUSE).await;
        }
        let missing =
            std::io::Error::new(std::io::ErrorKind::NotFound, format!("no namespace of {nqn} appeared"));
        Err(HostError::at(&self.fabrics, "connect")(missing))
    }

    /// Makes the secrets of connections readable for root only; the kernel shows them to every
    /// user. Root of a container without a user namespace still reads them.
    fn hide_secrets(&self, nqn: &str) {
        for controller in self.controllers(nqn) {
            for name in ["dhchap_secret", "dhchap_ctrl_secret"] {
                let file = controller.directory.join(name);
                let hidden = std::fs::set_permissions(&file, Permissions::from_mode(0o600));
                if let Err(error) = hidden
                    && error.kind() != std::io::ErrorKind::NotFound
                {
                    tracing::warn!(file = %file.display(), %error, "cannot hide a secret");
                }
            }
        }
    }

    async fn write_options(&self, options: String) -> Result<(), HostError> {
        let fabrics = self.fabrics.clone();
        // The kernel answers when the connection is made, or failed.
        let write = move || {
            let mut device = std::fs::File::options().read(true).write(true).open(&fabrics)?;
            device.write_all(options.as_bytes())?;
            device.read(&mut [0; 256])
        };
        match blocking(write).await {
            Err(error) if error.raw_os_error() != Some(EALREADY) => {
                Err(HostError::at(&self.fabrics, "connect")(error))
            }
            _ => Ok(()),
        }
    }

    /// Ends all connections to a disk. Does nothing if there are none.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) async fn disconnect(&self, nqn: &str) -> Result<(), HostError> {
        for controller in self.controllers(nqn) {
            let file = controller.directory.join("delete_controller");
            match write_attribute(file.clone()).await {
                // Another call, or the target, ended it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(HostError::at(&file, "disconnect")(error)),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Makes the kernel read the size of a disk again, and waits until it is at least `size`.
    ///
    /// # Errors
    /// If the kernel refuses, or the disk stays smaller.
    pub(crate) async fn update_size(&self, nqn: &str, size: u64) -> Result<(), HostError> {
        let Some(device) = self.device(nqn) else { return Ok(()) };
        for controller in self.controllers(nqn) {
            let file = controller.directory.join("rescan_controller");
            write_attribute(file.clone()).await.map_err(HostError::at(&file, "rescan"))?;
        }
        let name = device.file_name().unwrap_or_default();
        for _ in 0..POLLS {
            let sectors = attribute(&self.sys.join("block").join(name), "size");
            let sectors = sectors.and_then(|sectors| sectors.parse::<u64>().ok()).unwrap_or(0);
            if sectors.saturating_mul(512) >= size {
                return Ok(());
            }
            tokio::time::sleep(POLL_PAUSE).await;
        }
        let small = std::io::Error::other(format!("the disk is smaller than {size} bytes"));
        Err(HostError::at(&device, "grow")(small))
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    found.sort();
    found
}

fn attribute(directory: &Path, name: &str) -> Option<String> {
    Some(std::fs::read_to_string(directory.join(name)).ok()?.trim().to_owned())
}

/// Returns true if the address that the kernel prints has the wanted fields; it may have more.
fn has_address(printed: &str, wanted: &str) -> bool {
    let fields: Vec<&str> = printed.split(',').collect();
    wanted.split(',').all(|field| fields.contains(&field))
}

/// Writes 1 to an attribute; the kernel may take long.
async fn write_attribute(file: PathBuf) -> std::io::Result<()> {
    let write = move || std::fs::File::options().write(true).open(file)?.write_all(b"1");
    blocking(write).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the files that a kernel shows for two controllers of one disk with native multipath,
    /// and for another disk.
    fn fake_kernel(root: &Path) -> NvmeHost {
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (name, nqn, state, address) in [
            ("nvme0", "nqn.other", "live", "traddr=10.0.0.9,trsvcid=4420"),
            ("nvme1", "nqn.disk", "live", "traddr=10.0.0.1,trsvcid=4420,src_addr=10.0.0.5"),
            ("nvme2", "nqn.disk", "connecting", "traddr=10.0.0.2,trsvcid=4420"),
        ] {
            write(&format!("class/nvme/{name}/subsysnqn"), &format!("{nqn}\n"));
            write(&format!("class/nvme/{name}/state"), &format!("{state}\n"));
            write(&format!("class/nvme/{name}/address"), &format!("{address}\n"));
            write(&format!("class/nvme/{name}/delete_controller"), "");
            write(&format!("class/nvme/{name}/rescan_controller"), "");
        }
        for (name, nqn, hidden) in
            [("nvme0n1", "nqn.other", "0"), ("nvme1c1n1", "nqn.disk", "1"), ("nvme1n1", "nqn.disk", "0")]
        {
            write(&format!("block/{name}/hidden"), hidden);
            write(&format!("block/{name}/device/subsysnqn"), nqn);
            write(&format!("block/{name}/size"), "2048\n");
        }
        write("block/sda/size", "1\n");
        write("fabrics", "");
        NvmeHost { sys: root.to_owned(), fabrics: root.join("fabrics") }
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn the_kernel_shows_connections_and_devices() {
        let root = tempfile::tempdir().unwrap();
        let host = fake_kernel(root.path());
        assert!(host.is_available());
        let live: Vec<bool> = host.controllers("nqn.disk").iter().map(|found| found.is_live).collect();
        assert_eq!(live, [true, false]);
        // The hidden device is one path of the other.
        assert_eq!(host.device("nqn.disk"), Some("/dev/nvme1n1".into()));
        assert_eq!((host.device("nqn.none"), host.controllers("nqn.none")), (None, Vec::new()));
        run(host.update_size("nqn.disk", 2048 * 512)).unwrap();
        run(host.disconnect("nqn.disk")).unwrap();
        let ended = |name: &str| {
            std::fs::read(root.path().join(format!("class/nvme/{name}/delete_controller"))).unwrap() == b"1"
        };
        assert_eq!(["nvme0", "nvme1", "nvme2"].map(ended), [false, true, true]);
    }

    #[test]
    fn an_initiator_without_authentication_is_recognized() {
        let root = tempfile::tempdir().unwrap();
        let host = fake_kernel(root.path());
        assert!(!host.can_authenticate());
        std::fs::create_dir_all(root.path().join("module/nvme_tcp")).unwrap();
        assert!(!host.can_authenticate());
        std::fs::write(&host.fabrics, "instance=-1,transport=%s,dhchap_secret=%s,dhchap_ctrl_secret=%s")
            .unwrap();
        assert!(host.can_authenticate());
        std::fs::remove_dir(root.path().join("module/nvme_tcp")).unwrap();
        assert!(!host.can_authenticate());
    }

    #[test]
    fn secrets_of_connections_are_hidden() {
        let root = tempfile::tempdir().unwrap();
        let host = fake_kernel(root.path());
        let secret = root.path().join("class/nvme/nvme1/dhchap_secret");
        std::fs::write(&secret, "DHHC-1").unwrap();
        std::fs::set_permissions(&secret, Permissions::from_mode(0o644)).unwrap();
        host.hide_secrets("nqn.disk");
        assert_eq!(std::fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_connection_that_exists_is_not_made_again() {
        assert!(has_address(
            "traddr=10.0.0.1,trsvcid=4420,src_addr=10.0.0.5",
            "traddr=10.0.0.1,trsvcid=4420"
        ));
        assert!(!has_address("traddr=10.0.0.1,trsvcid=4420", "traddr=10.0.0.1,trsvcid=4421"));
        assert!(!has_address("traddr=10.0.0.11,trsvcid=4420", "traddr=10.0.0.1,trsvcid=4420"));
    }
}
