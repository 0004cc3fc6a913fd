//! The kernel's ublk control device, which adds, configures, starts, recovers, stops and deletes
//! ublk devices.
//!
//! Always true: a command is complete when its method returns. Must not know requests.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::path::Path;

use reactor::{IoError, IoErrorKind, run_long_command};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::error::{DeviceError, DeviceErrorKind};
use super::limits::DEVICES_MAX;
use super::uapi::{self, ControlCommand, DeviceInfo, DiskParameters, INFO_BYTES, PARAMETERS_BYTES, SECTOR};

const DEVICE: &str = "/dev/ublk-control";
/// Directory in which the kernel lists its devices, as `ublkc` and a number.
const DEVICES: &str = "/sys/class/ublk-char";

/// The open control device. Its methods block.
pub(super) struct ControlDevice {
    device: OwnedFd,
    features: u64,
}

impl ControlDevice {
    /// Opens the control device.
    ///
    /// # Errors
    /// Fails if this kernel has no ublk, its ublk is too old, or access is denied.
    pub(super) fn open() -> Result<Self, DeviceError> {
        let device =
            rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
                match errno {
                    Errno::NOENT | Errno::NODEV | Errno::NXIO => {
                        let message =
                            format!("this kernel has no ublk, or its module is not loaded ({DEVICE})");
                        DeviceError::new(DeviceErrorKind::Missing, message)
                    }
                    errno => DeviceError::system(&format!("open {DEVICE}"), &errno.into()),
                }
            })?;
        let mut control = Self { device, features: 0 };
        let mut features = [0; 8];
        control.send(ControlCommand::GetFeatures, 0, 0, &mut features).map_err(|error| {
            match error.kind() {
                IoErrorKind::ReadOnly => DeviceError::kernel("report the features of its ublk", error),
                _ => {
                    let message =
                        format!("this kernel's ublk is too old: it does not report its features ({error})");
                    DeviceError::new(DeviceErrorKind::Old, message)
                }
            }
        })?;
        #[allow(clippy::host_endian_bytes, reason = "the kernel of this machine wrote it")]
        let features = u64::from_ne_bytes(features);
        control.features = features;
        Ok(control)
    }

    /// Sends a command, with `bytes` that the kernel reads or fills.
    fn send(&self, command: ControlCommand, id: u32, data: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        let length = u16::try_from(bytes.len()).unwrap_or(0);
        let address = if bytes.is_empty() { 0 } else { bytes.as_mut_ptr() as u64 };
        let encoded = uapi::control_command(id, length, address, data);
        // SAFETY: the kernel gets the length of `bytes`, which are borrowed until the command is
        // complete, and accesses no more.
        unsafe { run_long_command(&self.device, command as u32, encoded) }.map(drop)
    }

    /// Adds a device, which has no server yet.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub(super) fn add(
        &self,
        info: &DeviceInfo,
        parameters: &DiskParameters,
    ) -> Result<DeviceInfo, DeviceError> {
        let mut bytes = info.encode();
        self.send(ControlCommand::Add, info.id, 0, &mut bytes)
            .map_err(|error| DeviceError::kernel("add a device", error))?;
        let made = DeviceInfo::decode(&bytes);
        let set = self.send(ControlCommand::SetParameters, made.id, 0, &mut parameters.encode());
        set.map_err(|error| {
            self.delete(made.id);
            DeviceError::kernel("set the parameters of a device", error)
        })?;
        Ok(made)
    }

    /// Returns the description of a device, or `None` if it does not exist.
    pub(super) fn info(&self, id: u32) -> Option<DeviceInfo> {
        let mut bytes = [0; INFO_BYTES];
        self.send(ControlCommand::GetInfo, id, 0, &mut bytes).ok().map(|()| DeviceInfo::decode(&bytes))
    }

    /// Returns the parameters of a device's disk.
    ///
    /// # Errors
    /// Fails if the device does not exist.
    pub(super) fn parameters(&self, id: u32) -> Result<DiskParameters, IoError> {
        let mut bytes: [u8; PARAMETERS_BYTES] = DiskParameters::query();
        self.send(ControlCommand::GetParameters, id, 0, &mut bytes).map(|()| DiskParameters::decode(&bytes))
    }

    /// Returns all devices of the host, including those of other programs.
    pub(super) fn devices(&self) -> Vec<DeviceInfo> {
        let Ok(entries) = std::fs::read_dir(DEVICES) else { return Vec::new() };
        let number =
            |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok();
        entries
            .take(DEVICES_MAX)
            .filter_map(|entry| number(entry.ok()?))
            .filter_map(|id| self.info(id))
            .collect()
    }

    /// Starts a device, so that its disk appears. Waits until each of its queues fetches requests.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn start(&self, id: u32) -> Result<(), IoError> {
        self.send(ControlCommand::Start, id, std::process::id().into(), &mut [])
    }

    /// Begins to take over a device after its server has ended.
    ///
    /// # Errors
    /// Returns the kernel's error: `EBUSY` until the server's process is completely gone.
    pub(super) fn start_recovery(&self, id: u32) -> Result<(), IoError> {
        self.send(ControlCommand::StartRecovery, id, 0, &mut [])
    }

    /// Ends the recovery, so that requests arrive again. Waits until each queue fetches requests.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn end_recovery(&self, id: u32) -> Result<(), IoError> {
        self.send(ControlCommand::EndRecovery, id, std::process::id().into(), &mut [])
    }

    /// Stops a device and removes its disk. Tasks that fetch its requests get an error.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn stop(&self, id: u32) -> Result<(), IoError> {
        self.send(ControlCommand::Stop, id, 0, &mut [])
    }

    /// Deletes a device, now or when its disk is no longer open.
    pub(super) fn delete(&self, id: u32) {
        // Kernels without deferred deletion wait here until the device is deleted.
        let done = self
            .send(ControlCommand::DeleteLater, id, 0, &mut [])
            .or_else(|_| self.send(ControlCommand::Delete, id, 0, &mut []));
        if let Err(error) = done {
            tracing::warn!(device = id, %error, "could not delete a ublk device");
        }
    }

    /// Changes a disk's size in bytes. Returns false if this kernel does not support it.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn resize(&self, id: u32, size: u64) -> Result<bool, IoError> {
        if self.features & uapi::UPDATE_SIZE == 0 {
            return Ok(false);
        }
        self.send(ControlCommand::UpdateSize, id, size / SECTOR, &mut []).map(|()| true)
    }
}

/// Returns the path of a device, from its kind and number.
pub(super) fn path(kind: &str, id: u32) -> std::path::PathBuf {
    Path::new("/dev").join(format!("{kind}{id}"))
}
