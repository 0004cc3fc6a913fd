//! Loading of the libraries, and the types of their functions.
//!
//! Contains unsafe code: the functions of a shared library have the types that its headers
//! declare (`rados/librados.h` and `rbd/librbd.h` of Ceph 16.2), which stay compatible within a
//! version of the library's name.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;

use crate::error::{Error, ErrorKind, Result};

pub(crate) type RadosT = *mut c_void;
pub(crate) type IoContext = *mut c_void;
pub(crate) type ImageHandle = *mut c_void;
pub(crate) type CompletionHandle = *mut c_void;
pub(crate) type ImageOptions = *mut c_void;
pub(crate) type CompletionFn = unsafe extern "C" fn(CompletionHandle, *mut c_void);
pub(crate) type DiffFn = unsafe extern "C" fn(u64, usize, c_int, *mut c_void) -> c_int;
pub(crate) type ProgressFn = unsafe extern "C" fn(u64, u64, *mut c_void) -> c_int;
type NameFn = unsafe extern "C" fn(ImageHandle, *const c_char) -> c_int;
type OpenFn = unsafe extern "C" fn(IoContext, *const c_char, *mut ImageHandle, *const c_char) -> c_int;

/// `rbd_image_spec_t`.
#[repr(C)]
pub(crate) struct ImageSpec {
    pub(crate) id: *mut c_char,
    pub(crate) name: *mut c_char,
}

/// `rbd_snap_info_t`.
#[repr(C)]
pub(crate) struct SnapshotSpec {
    pub(crate) id: u64,
    pub(crate) size: u64,
    pub(crate) name: *const c_char,
}

/// `rbd_linked_image_spec_t`.
#[repr(C)]
pub(crate) struct LinkedImageSpec {
    pub(crate) pool_id: i64,
    pub(crate) pool_name: *mut c_char,
    pub(crate) pool_namespace: *mut c_char,
    pub(crate) image_id: *mut c_char,
    pub(crate) image_name: *mut c_char,
    pub(crate) trash: bool,
}

/// `rbd_snap_spec_t`.
#[repr(C)]
pub(crate) struct LinkedSnapshotSpec {
    pub(crate) id: u64,
    pub(crate) namespace: c_int,
    pub(crate) name: *mut c_char,
}

/// `struct timespec` of 64-bit systems.
#[repr(C)]
pub(crate) struct Timestamp {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: i64,
}
pub(crate) type CommandFn = unsafe extern "C" fn(
    RadosT,
    *const *const c_char,
    usize,
    *const c_char,
    usize,
    *mut *mut c_char,
    *mut usize,
    *mut *mut c_char,
    *mut usize,
) -> c_int;

/// Declares a table of functions, and its loader.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident in $file:literal { $($name:ident: $type:ty = $symbol:literal,)* }) => {
        $(#[$doc])*
        pub(crate) struct $table {
            $(pub(crate) $name: $type,)*
            _library: Library,
        }

        impl $table {
            fn load() -> Result<Self, String> {
                // SAFETY: loading runs the library's initialisers, which have no preconditions.
                let library = unsafe { Library::new($file) }.map_err(|error| error.to_string())?;
                // SAFETY: the types are those of the headers; the table keeps the library loaded.
                unsafe {
                    Ok(Self {
                        $($name: *library.get::<$type>($symbol).map_err(|error| error.to_string())?,)*
                        _library: library,
                    })
                }
            }
        }
    };
}

functions! {
    /// Functions of `librados`.
    RadosLibrary in "librados.so.2" {
        create2: unsafe extern "C" fn(*mut RadosT, *const c_char, *const c_char, u64) -> c_int = "rados_create2",
        conf_set: unsafe extern "C" fn(RadosT, *const c_char, *const c_char) -> c_int = "rados_conf_set",
        connect: unsafe extern "C" fn(RadosT) -> c_int = "rados_connect",
        shutdown: unsafe extern "C" fn(RadosT) = "rados_shutdown",
        mon_command: CommandFn = "rados_mon_command",
        mgr_command: CommandFn = "rados_mgr_command",
        buffer_free: unsafe extern "C" fn(*mut c_char) = "rados_buffer_free",
        addresses: unsafe extern "C" fn(RadosT, *mut *mut c_char) -> c_int = "rados_getaddrs",
        ioctx_create: unsafe extern "C" fn(RadosT, *const c_char, *mut IoContext) -> c_int = "rados_ioctx_create",
        ioctx_destroy: unsafe extern "C" fn(IoContext) = "rados_ioctx_destroy",
        ioctx_id: unsafe extern "C" fn(IoContext) -> i64 = "rados_ioctx_get_id",
    }
}

functions! {
    /// Functions of `librbd`.
    RbdLibrary in "librbd.so.1" {
        open: OpenFn = "rbd_open",
        open_read_only: OpenFn = "rbd_open_read_only",
        close: unsafe extern "C" fn(ImageHandle) -> c_int = "rbd_close",
        pool_init: unsafe extern "C" fn(IoContext, bool) -> c_int = "rbd_pool_init",
        pool_metadata_set: unsafe extern "C" fn(IoContext, *const c_char, *const c_char) -> c_int = "rbd_pool_metadata_set",
        options_create: unsafe extern "C" fn(*mut ImageOptions) = "rbd_image_options_create",
        options_set_text: unsafe extern "C" fn(ImageOptions, c_int, *const c_char) -> c_int = "rbd_image_options_set_string",
        options_destroy: unsafe extern "C" fn(ImageOptions) = "rbd_image_options_destroy",
        create: unsafe extern "C" fn(IoContext, *const c_char, u64, ImageOptions) -> c_int = "rbd_create4",
        clone: unsafe extern "C" fn(
            IoContext, *const c_char, *const c_char, IoContext, *const c_char, ImageOptions,
        ) -> c_int = "rbd_clone3",
        remove: unsafe extern "C" fn(IoContext, *const c_char) -> c_int = "rbd_remove",
        list: unsafe extern "C" fn(IoContext, *mut ImageSpec, *mut usize) -> c_int = "rbd_list2",
        list_cleanup: unsafe extern "C" fn(*mut ImageSpec, usize) = "rbd_image_spec_list_cleanup",
        size: unsafe extern "C" fn(ImageHandle, *mut u64) -> c_int = "rbd_get_size",
        id: unsafe extern "C" fn(ImageHandle, *mut c_char, usize) -> c_int = "rbd_get_id",
        features: unsafe extern "C" fn(ImageHandle, *mut u64) -> c_int = "rbd_get_features",
        created: unsafe extern "C" fn(ImageHandle, *mut Timestamp) -> c_int = "rbd_get_create_timestamp",
        parent: unsafe extern "C" fn(ImageHandle, *mut LinkedImageSpec, *mut LinkedSnapshotSpec) -> c_int = "rbd_get_parent",
        parent_cleanup: unsafe extern "C" fn(*mut LinkedImageSpec) = "rbd_linked_image_spec_cleanup",
        parent_snapshot_cleanup: unsafe extern "C" fn(*mut LinkedSnapshotSpec) = "rbd_snap_spec_cleanup",
        resize: unsafe extern "C" fn(ImageHandle, u64, bool, ProgressFn, *mut c_void) -> c_int = "rbd_resize2",
        snapshot_create: NameFn = "rbd_snap_create",
        snapshot_remove: NameFn = "rbd_snap_remove",
        snapshot_rollback: NameFn = "rbd_snap_rollback",
        snapshot_list: unsafe extern "C" fn(ImageHandle, *mut SnapshotSpec, *mut c_int) -> c_int = "rbd_snap_list",
        snapshot_list_end: unsafe extern "C" fn(*mut SnapshotSpec) = "rbd_snap_list_end",
        diff: unsafe extern "C" fn(
            ImageHandle, *const c_char, u64, u64, u8, u8, DiffFn, *mut c_void,
        ) -> c_int = "rbd_diff_iterate2",
        lock_acquire: unsafe extern "C" fn(ImageHandle, c_int) -> c_int = "rbd_lock_acquire",
        lock_owners: unsafe extern "C" fn(ImageHandle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int = "rbd_lock_get_owners",
        lock_owners_cleanup: unsafe extern "C" fn(*mut *mut c_char, usize) = "rbd_lock_get_owners_cleanup",
        lock_break: unsafe extern "C" fn(ImageHandle, c_int, *const c_char) -> c_int = "rbd_lock_break",
        completion: unsafe extern "C" fn(*mut c_void, CompletionFn, *mut CompletionHandle) -> c_int = "rbd_aio_create_completion",
        completion_result: unsafe extern "C" fn(CompletionHandle) -> isize = "rbd_aio_get_return_value",
        completion_release: unsafe extern "C" fn(CompletionHandle) = "rbd_aio_release",
        read: unsafe extern "C" fn(ImageHandle, u64, usize, *mut c_char, CompletionHandle) -> c_int = "rbd_aio_read",
        write: unsafe extern "C" fn(ImageHandle, u64, usize, *const c_char, CompletionHandle) -> c_int = "rbd_aio_write",
        discard: unsafe extern "C" fn(ImageHandle, u64, u64, CompletionHandle) -> c_int = "rbd_aio_discard",
        write_zeroes: unsafe extern "C" fn(ImageHandle, u64, usize, CompletionHandle, c_int, c_int) -> c_int = "rbd_aio_write_zeroes",
        flush: unsafe extern "C" fn(ImageHandle, CompletionHandle) -> c_int = "rbd_aio_flush",
    }
}

/// Returns `librados`, loaded once.
///
/// # Errors
/// `NotFound` with the package.
pub(crate) fn rados() -> Result<&'static RadosLibrary> {
    static LOADED: OnceLock<Result<RadosLibrary, String>> = OnceLock::new();
    LOADED.get_or_init(RadosLibrary::load).as_ref().map_err(|reason| missing(reason, "librados2"))
}

/// Returns `librbd`, loaded once.
///
/// # Errors
/// `NotFound` with the package.
pub(crate) fn rbd() -> Result<&'static RbdLibrary> {
    static LOADED: OnceLock<Result<RbdLibrary, String>> = OnceLock::new();
    LOADED.get_or_init(RbdLibrary::load).as_ref().map_err(|reason| missing(reason, "librbd1"))
}

fn missing(reason: &str, package: &str) -> Error {
    let message = format!("this machine lacks a client library of Ceph: {reason}");
    Error::new(ErrorKind::NotFound, message).hint(format!("install the package {package}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_names_its_package() {
        let error = missing("librbd.so.1: cannot open shared object file", "librbd1");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("librbd.so.1"), "{error}");
        assert_eq!(error.hint_text(), Some("install the package librbd1"));
    }
}
