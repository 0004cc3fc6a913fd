//! Loading of the libraries, and the types of their functions.
//!
//! Contains unsafe code: the functions of a shared library have the types that its headers
//! declare (`rados/librados.h` of Ceph 16.2), which stay compatible within a
//! version of the library's name.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;

use crate::error::{Error, ErrorKind, Result};

pub(super) type RadosT = *mut c_void;
pub(super) type CommandFn = unsafe extern "C" fn(
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
        pub(super) struct $table {
            $(pub(super) $name: $type,)*
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
    }
}

/// Returns `librados`, loaded once.
///
/// # Errors
/// `NotFound` with the package.
pub(super) fn rados() -> Result<&'static RadosLibrary> {
    static LOADED: OnceLock<Result<RadosLibrary, String>> = OnceLock::new();
    LOADED.get_or_init(RadosLibrary::load).as_ref().map_err(|reason| missing(reason))
}

fn missing(reason: &str) -> Error {
    let message = format!("this machine lacks a client library of Ceph: {reason}");
    Error::new(ErrorKind::NotFound, message).hint("install the package librados2")
}
