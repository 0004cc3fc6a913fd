//! The kernel's requests of loop devices, as in loop(4) and `linux/loop.h`.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use linux_raw_sys::loop_device::{
    LOOP_CLR_FD, LOOP_CONFIGURE, LOOP_CTL_GET_FREE, LOOP_GET_STATUS64, LOOP_SET_CAPACITY, LOOP_SET_STATUS64,
    loop_config, loop_info64,
};
use rustix::io::Result;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl};

use crate::LoopOptions;

/// The device refuses writes (`LO_FLAGS_READ_ONLY`).
const READ_ONLY: u32 = 1;
/// The device is detached when its last user closes it (`LO_FLAGS_AUTOCLEAR`).
const DETACH_AT_CLOSE: u32 = 4;
/// The device bypasses the page cache of its file (`LO_FLAGS_DIRECT_IO`).
const DIRECT: u32 = 16;

/// The request for a free device, which returns its number.
struct FreeDevice;

// SAFETY: the request has no argument, and its result is the number.
unsafe impl Ioctl for FreeDevice {
    type Output = IoctlOutput;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        Opcode::from(LOOP_CTL_GET_FREE)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> Result<Self::Output> {
        Ok(output)
    }
}

/// Returns the number of a device that has no file at present; the kernel creates one if necessary.
pub(crate) fn free_device(control: &File) -> Result<IoctlOutput> {
    // SAFETY: the request matches the kernel's.
    unsafe { ioctl(control, FreeDevice) }
}

/// Attaches the open file `backing`, which has the path `name`.
pub(crate) fn configure(device: &File, backing: &File, name: &Path, options: LoopOptions) -> Result<()> {
    // SAFETY: all fields are integers, or arrays of integers.
    let mut config: loop_config = unsafe { std::mem::zeroed() };
    config.fd = backing.as_raw_fd().cast_unsigned();
    config.block_size = options.sector;
    config.info.lo_flags = DIRECT | if options.read_only { READ_ONLY } else { 0 };
    // The last byte ends the name.
    let places = config.info.lo_file_name.iter_mut().rev().skip(1).rev();
    places.zip(name.as_os_str().as_bytes()).for_each(|(place, byte)| *place = *byte);
    // SAFETY: the kernel reads one `loop_config`.
    unsafe { ioctl(device, Setter::<{ LOOP_CONFIGURE as Opcode }, _>::new(config)) }
}

/// Returns the status of a device, `NXIO` if it has no file. Other errors are those of the file.
pub(crate) fn status(device: &File) -> Result<loop_info64> {
    // SAFETY: the kernel writes one `loop_info64`.
    unsafe { ioctl(device, Getter::<{ LOOP_GET_STATUS64 as Opcode }, loop_info64>::new()) }
}

/// Returns the file in a status: the major and minor number of the file's own device, and its
/// inode.
pub(crate) fn file_of(status: &loop_info64) -> ((u32, u32), u64) {
    let device = status.lo_device;
    ((rustix::fs::major(device), rustix::fs::minor(device)), status.lo_inode)
}

/// Takes back that a device is detached at its last close. `status` is its present status.
pub(crate) fn keep(device: &File, mut status: loop_info64) -> Result<()> {
    if status.lo_flags & DETACH_AT_CLOSE == 0 {
        return Ok(());
    }
    status.lo_flags &= !DETACH_AT_CLOSE;
    // SAFETY: the kernel reads one `loop_info64`.
    unsafe { ioctl(device, Setter::<{ LOOP_SET_STATUS64 as Opcode }, _>::new(status)) }
}

/// Gives a device the size of its file.
pub(crate) fn update_size(device: &File) -> Result<()> {
    // SAFETY: the request has no argument.
    unsafe { ioctl(device, NoArg::<{ LOOP_SET_CAPACITY as Opcode }>::new()) }
}

/// Detaches a device from its file.
pub(crate) fn detach(device: &File) -> Result<()> {
    // SAFETY: the request has no argument.
    unsafe { ioctl(device, NoArg::<{ LOOP_CLR_FD as Opcode }>::new()) }
}
