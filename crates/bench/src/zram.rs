//! Block devices in memory, zram, filled with random bytes: the drives of the benchmarks where the
//! kernel has them.
//!
//! zram stores incompressible pages as they are, so a write and a read copy each page, as to a fast
//! drive. Invariant: a device is removed when its owner is dropped.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use reactor::Buffer;

const CONTROL: &str = "/sys/class/zram-control";
/// Bytes of one write while a device is filled.
const FILL_BYTES: usize = 1 << 20;

/// A zram device, removed on drop.
#[derive(Debug)]
pub(crate) struct ZramDevice {
    number: u32,
}

/// Returns true if this process may create zram devices.
pub(crate) fn is_available() -> bool {
    rustix::process::geteuid().is_root() && Path::new(CONTROL).join("hot_add").exists()
}

impl ZramDevice {
    /// Creates a device of `bytes` bytes and fills it with random bytes.
    ///
    /// # Errors
    /// If the kernel has no zram or refuses the device, or memory is short.
    pub(crate) fn create(bytes: u64) -> io::Result<Self> {
        let number = std::fs::read_to_string(Path::new(CONTROL).join("hot_add"))?;
        let number = number.trim().parse().map_err(io::Error::other)?;
        let device = Self { number };
        std::fs::write(device.attribute("disksize"), bytes.to_string())?;
        fill(&device.path(), bytes)?;
        Ok(device)
    }

    /// Returns the device node.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/zram{}", self.number))
    }

    fn attribute(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/zram{}/{name}", self.number))
    }
}

impl Drop for ZramDevice {
    fn drop(&mut self) {
        let removed = std::fs::write(self.attribute("reset"), "1")
            .and_then(|()| std::fs::write(Path::new(CONTROL).join("hot_remove"), self.number.to_string()));
        if let Err(error) = removed {
            eprintln!("cannot remove {}: {error}", self.path().display());
        }
    }
}

/// Fills a device with incompressible bytes.
fn fill(device: &Path, bytes: u64) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).open(device)?;
    let mut buffer = Buffer::new(FILL_BYTES);
    let mut word = 0x9E37_79B9_7F4A_7C15_u64;
    let mut left = bytes;
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(FILL_BYTES).min(FILL_BYTES);
        let chunk = buffer.as_mut_slice().get_mut(..count).unwrap_or_default();
        for eight in chunk.chunks_exact_mut(8) {
            // xorshift64 (Marsaglia, 2003).
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            eight.copy_from_slice(&word.to_le_bytes());
        }
        file.write_all(chunk)?;
        left -= count as u64;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_filled_and_removed() {
        let control = Path::new(CONTROL).join("hot_add");
        let available = if control.exists() { Ok(()) } else { Err("this kernel has no zram".to_owned()) };
        if !test_support::has_root() || !test_support::has("zram", available) {
            return;
        }
        let device = ZramDevice::create(3 << 20).unwrap();
        let path = device.path();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 3 << 20);
        let blank = bytes.chunks(4096).filter(|block| block.iter().all(|byte| *byte == block[0])).count();
        assert_eq!(blank, 0, "zram stores blocks of one byte value without memory");
        drop(device);
        assert!(!path.exists());
    }
}
