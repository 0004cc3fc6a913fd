//! A connection to a cluster: monitor and manager commands.
//!
//! Contains unsafe code: calls of `librados`, whose handles are usable from any thread.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use serde_json::Value;

use super::library::{self, CommandFn, RadosLibrary, RadosT};
use crate::error::{Error, ErrorKind, Result};

/// The way to a cluster.
#[derive(Clone)]
pub(crate) struct RadosOptions {
    /// Name of the cluster, for messages.
    pub(crate) cluster: String,
    /// Addresses of the monitors, as in `mon_host`.
    pub(crate) monitors: String,
    /// Name of the user, such as `admin`.
    pub(crate) user: String,
    /// Secret of the user.
    pub(crate) secret: String,
    /// Limit for connecting and for monitor commands, in seconds.
    pub(crate) timeout: u32,
}

/// A connection. Closed when it is dropped.
pub(crate) struct RadosClient {
    library: &'static RadosLibrary,
    handle: RadosT,
    cluster: String,
}

// SAFETY: librados documents its handles as safe for use by several threads.
unsafe impl Send for RadosClient {}
// SAFETY: as above.
unsafe impl Sync for RadosClient {}

impl RadosClient {
    /// Connects to a cluster.
    ///
    /// # Errors
    /// `NotFound` without the library; `Unreachable` when no monitor answers in time.
    pub(crate) fn connect(options: &RadosOptions) -> Result<Arc<Self>> {
        let library = library::rados()?;
        let user = text(&format!("client.{}", options.user))?;
        let mut handle = ptr::null_mut();
        // SAFETY: the strings end in NUL and outlive the call, which initialises the handle.
        let code = unsafe { (library.create2)(&raw mut handle, c"ceph".as_ptr(), user.as_ptr(), 0) };
        check(code, "cannot create a client of Ceph")?;
        let client = Self { library, handle, cluster: options.cluster.clone() };
        let timeout = options.timeout.to_string();
        for (key, value) in [
            ("mon_host", options.monitors.as_str()),
            ("key", &options.secret),
            ("client_mount_timeout", &timeout),
            ("rados_mon_op_timeout", &timeout),
            ("log_to_stderr", "false"),
            ("err_to_stderr", "false"),
            ("log_file", ""),
            ("admin_socket", ""),
        ] {
            let (key, value) = (text(key)?, text(value)?);
            // SAFETY: the handle is valid; the strings end in NUL and outlive the call.
            let code = unsafe { (library.conf_set)(client.handle, key.as_ptr(), value.as_ptr()) };
            check(code, &format!("cannot set {key:?} of a client of Ceph"))?;
        }
        // SAFETY: the handle is valid and not connected yet.
        let code = unsafe { (library.connect)(client.handle) };
        if code < 0 {
            let reason = std::io::Error::from_raw_os_error(-code);
            let message = format!(
                "no monitor of cluster '{}' answers at {}: {reason}",
                options.cluster, options.monitors
            );
            let hint = "start the monitors with 'gabion cluster deploy'";
            return Err(Error::new(ErrorKind::Unreachable, message).hint(hint));
        }
        Ok(Arc::new(client))
    }

    /// Executes a monitor command and returns its output.
    ///
    /// # Errors
    /// `Unreachable` without a quorum; `Io` with the monitor's message.
    pub(crate) fn monitor(&self, command: &Value) -> Result<Vec<u8>> {
        self.monitor_with_input(command, b"")
    }

    /// Like [`RadosClient::monitor`], with input.
    ///
    /// # Errors
    /// As [`RadosClient::monitor`].
    pub(crate) fn monitor_with_input(&self, command: &Value, input: &[u8]) -> Result<Vec<u8>> {
        self.command(self.library.mon_command, command, input)
    }

    /// Like [`RadosClient::monitor`], and parses the output as JSON.
    ///
    /// # Errors
    /// As [`RadosClient::monitor`]; `Io` for another format.
    pub(crate) fn monitor_json(&self, command: &Value) -> Result<Value> {
        self.parse(command, &self.monitor(command)?)
    }

    /// Executes a command of the active manager, and parses the output as JSON.
    ///
    /// # Errors
    /// As [`RadosClient::monitor_json`].
    pub(crate) fn manager_json(&self, command: &Value) -> Result<Value> {
        self.parse(command, &self.command(self.library.mgr_command, command, b"")?)
    }

    fn parse(&self, command: &Value, output: &[u8]) -> Result<Value> {
        // Some commands print nothing on success.
        if output.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Null);
        }
        serde_json::from_slice(output).map_err(|error| {
            let message =
                format!("cluster '{}': unexpected answer to {}: {error}", self.cluster, prefix(command));
            Error::new(ErrorKind::Io, message)
        })
    }

    fn command(&self, function: CommandFn, command: &Value, input: &[u8]) -> Result<Vec<u8>> {
        let line = text(&command.to_string())?;
        let lines = [line.as_ptr()];
        let (mut output, mut output_length) = (ptr::null_mut(), 0);
        let (mut status, mut status_length) = (ptr::null_mut(), 0);
        // SAFETY: the handle is connected; the inputs outlive the call; the outputs are initialised
        // by it, and belong to this function then.
        let code = unsafe {
            function(
                self.handle,
                lines.as_ptr(),
                lines.len(),
                input.as_ptr().cast(),
                input.len(),
                &raw mut output,
                &raw mut output_length,
                &raw mut status,
                &raw mut status_length,
            )
        };
        let (output, status) = (self.take(output, output_length), self.take(status, status_length));
        if code >= 0 {
            return Ok(output);
        }
        let reason = std::io::Error::from_raw_os_error(-code);
        let kind = match reason.kind() {
            std::io::ErrorKind::TimedOut => ErrorKind::Unreachable,
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::ResourceBusy => ErrorKind::Busy,
            _ => ErrorKind::Io,
        };
        let status = String::from_utf8_lossy(&status).trim().to_owned();
        let reason = if status.is_empty() { reason.to_string() } else { status };
        Err(Error::new(kind, format!("cluster '{}': {} failed: {reason}", self.cluster, prefix(command))))
    }

    /// Copies and frees a buffer of the library.
    fn take(&self, buffer: *mut c_char, length: usize) -> Vec<u8> {
        if buffer.is_null() {
            return Vec::new();
        }
        // SAFETY: the library returned this buffer with this length, and it is freed only here.
        unsafe {
            let bytes = std::slice::from_raw_parts(buffer.cast::<u8>(), length).to_vec();
            (self.library.buffer_free)(buffer);
            bytes
        }
    }
}

impl Drop for RadosClient {
    fn drop(&mut self) {
        // SAFETY: the client has no other references.
        unsafe { (self.library.shutdown)(self.handle) };
    }
}

/// Returns the name of a command, without its arguments, which may be secret.
fn prefix(command: &Value) -> String {
    format!("'{}'", command.get("prefix").and_then(Value::as_str).unwrap_or("command"))
}

fn text(value: &str) -> Result<CString> {
    CString::new(value)
        .map_err(|_| Error::new(ErrorKind::Invalid, "a text for Ceph contains a NUL character"))
}

fn check(code: c_int, what: &str) -> Result<()> {
    if code >= 0 {
        return Ok(());
    }
    let reason = std::io::Error::from_raw_os_error(-code);
    let kind = match reason.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        std::io::ErrorKind::AlreadyExists => ErrorKind::Exists,
        std::io::ErrorKind::ResourceBusy => ErrorKind::Busy,
        _ => ErrorKind::Io,
    };
    Err(Error::new(kind, format!("{what}: {reason}")))
}
