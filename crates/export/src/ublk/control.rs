//! The kernel's control device: devices are made, described, started, taken over, stopped and deleted there.
//!
//! Always true: a command has ended when its method returns. Must not know requests.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::path::Path;

use reactor::{IoError, IoErrorKind, run_long_command};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::error::{DeviceError, DeviceErrorKind};
use super::limits::DEVICES_MAX;
use super::words::{self, Control as Word, INFO_BYTES, Info, PARAMETERS_BYTES, Parameters, SECTOR};

const DEVICE: &str = "/dev/ublk-control";
/// Where the kernel lists its devices, as `ublkc` and a number.
const DEVICES: &str = "/sys/class/ublk-char";

/// See the module. Its methods block.
pub(super) struct Control {
    device: OwnedFd,
    features: u64,
}

impl Control {
    /// # Errors
    /// When this kernel has no ublk, one that is too old, or does not let us.
    pub(super) fn open() -> Result<Self, DeviceError> {
        let device =
            rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
                match errno {
                    Errno::NOENT | Errno::NODEV | Errno::NXIO => {
                        let message = format!("this kernel has no ublk, or has not loaded it ({DEVICE})");
                        DeviceError::new(DeviceErrorKind::Missing, message)
                    }
                    errno => DeviceError::system(&format!("open {DEVICE}"), &errno.into()),
                }
            })?;
        let mut control = Self { device, features: 0 };
        let mut features = [0; 8];
        control.order(Word::GetFeatures, 0, 0, &mut features).map_err(|error| match error.kind() {
            IoErrorKind::ReadOnly => DeviceError::kernel("tell what its ublk can do", error),
            _ => {
                let message =
                    format!("this kernel's ublk is too old: it does not tell what it can do ({error})");
                DeviceError::new(DeviceErrorKind::Old, message)
            }
        })?;
        #[allow(clippy::host_endian_bytes, reason = "the kernel of this machine wrote it")]
        let features = u64::from_ne_bytes(features);
        control.features = features;
        Ok(control)
    }

    /// Gives a command, with `bytes` that the kernel reads or fills.
    fn order(&self, word: Word, id: u32, data: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        let length = u16::try_from(bytes.len()).unwrap_or(0);
        let address = if bytes.is_empty() { 0 } else { bytes.as_mut_ptr() as u64 };
        let command = words::control(id, length, address, data);
        // SAFETY: the kernel is told the length of `bytes`, which are borrowed until it has answered, and touches no more.
        unsafe { run_long_command(&self.device, word as u32, command) }.map(drop)
    }

    /// Makes a device, which nobody serves yet.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn add(&self, info: &Info, parameters: &Parameters) -> Result<Info, DeviceError> {
        let mut bytes = info.encode();
        self.order(Word::Add, info.id, 0, &mut bytes)
            .map_err(|error| DeviceError::kernel("make a device", error))?;
        let made = Info::decode(&bytes);
        let set = self.order(Word::SetParameters, made.id, 0, &mut parameters.encode());
        set.map_err(|error| {
            self.delete(made.id);
            DeviceError::kernel("take what a device is to be like", error)
        })?;
        Ok(made)
    }

    /// What a device is; nothing if there is none.
    pub(super) fn info(&self, id: u32) -> Option<Info> {
        let mut bytes = [0; INFO_BYTES];
        self.order(Word::GetInfo, id, 0, &mut bytes).ok().map(|()| Info::decode(&bytes))
    }

    /// What a device's disk is like.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn parameters(&self, id: u32) -> Result<Parameters, IoError> {
        let mut bytes: [u8; PARAMETERS_BYTES] = Parameters::question();
        self.order(Word::GetParameters, id, 0, &mut bytes).map(|()| Parameters::decode(&bytes))
    }

    /// Every device that there is, ours or not.
    pub(super) fn devices(&self) -> Vec<Info> {
        let Ok(entries) = std::fs::read_dir(DEVICES) else { return Vec::new() };
        let number =
            |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok();
        entries
            .take(DEVICES_MAX)
            .filter_map(|entry| number(entry.ok()?))
            .filter_map(|id| self.info(id))
            .collect()
    }

    /// Lets a device's disk appear. Waits until each of its queues has somebody who takes requests.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn start(&self, id: u32) -> Result<(), IoError> {
        self.order(Word::Start, id, std::process::id().into(), &mut [])
    }

    /// Begins to take over a device whose server is gone.
    ///
    /// # Errors
    /// What the kernel says: that it is busy, as long as the server is not quite gone.
    pub(super) fn start_recovery(&self, id: u32) -> Result<(), IoError> {
        self.order(Word::StartRecovery, id, 0, &mut [])
    }

    /// Lets requests come again. Waits until each queue has somebody who takes them.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn end_recovery(&self, id: u32) -> Result<(), IoError> {
        self.order(Word::EndRecovery, id, std::process::id().into(), &mut [])
    }

    /// Takes a device's disk away: whoever takes requests of it is told that it is gone.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn stop(&self, id: u32) -> Result<(), IoError> {
        self.order(Word::Stop, id, 0, &mut [])
    }

    /// Deletes a device, now or when nobody has its disk open any more.
    pub(super) fn delete(&self, id: u32) {
        // Kernels that cannot do it later wait here until it is done.
        let done = self
            .order(Word::DeleteLater, id, 0, &mut [])
            .or_else(|_| self.order(Word::Delete, id, 0, &mut []));
        if let Err(error) = done {
            tracing::warn!(device = id, %error, "a ublk device could not be deleted");
        }
    }

    /// Changes a disk's size in bytes. False if this kernel cannot.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn resize(&self, id: u32, size: u64) -> Result<bool, IoError> {
        if self.features & words::UPDATE_SIZE == 0 {
            return Ok(false);
        }
        self.order(Word::UpdateSize, id, size / SECTOR, &mut []).map(|()| true)
    }
}

/// A device of the kernel's, by its kind and number.
pub(super) fn path(kind: &str, id: u32) -> std::path::PathBuf {
    Path::new("/dev").join(format!("{kind}{id}"))
}
