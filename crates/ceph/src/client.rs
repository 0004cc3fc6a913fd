//! A connection to a cluster: monitor and manager commands.
//!
//! Contains unsafe code: calls of `librados`, whose handles are usable from any thread.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::library::{self, CommandFn, IoContext, RadosLibrary, RadosT};

/// The way to a cluster.
#[derive(Clone)]
pub struct RadosOptions {
    /// Name of the cluster, for messages.
    pub cluster: String,
    /// Addresses of the monitors, as in `mon_host`.
    pub monitors: String,
    /// Name of the user, such as `admin`.
    pub user: String,
    /// Secret of the user.
    pub secret: String,
    /// Limit for connecting and for monitor commands, in seconds.
    pub timeout: u32,
}

/// Returns the error of a connection that failed with an error number of the system.
fn connect_error(options: &RadosOptions, code: c_int) -> Error {
    let RadosOptions { cluster, monitors, user, .. } = options;
    let reason = std::io::Error::from_raw_os_error(code);
    match reason.kind() {
        std::io::ErrorKind::PermissionDenied => {
            let message = format!("cluster '{cluster}' refuses the key of user 'client.{user}'");
            let hint = format!("compare the keyring with 'ceph auth get client.{user}' on a monitor's host");
            Error::new(ErrorKind::Invalid, message).hint(hint)
        }
        std::io::ErrorKind::InvalidInput | std::io::ErrorKind::NotFound => {
            let message = format!(
                "cannot connect to cluster '{cluster}': the monitors' addresses ({monitors}) or the key of user 'client.{user}' cannot be used: {reason}"
            );
            Error::new(ErrorKind::Invalid, message).hint("compare the cluster's ceph.conf and keyring")
        }
        _ => {
            let message = format!("no monitor of cluster '{cluster}' answers at {monitors}: {reason}");
            let hint = "start the monitors with 'gabion cluster deploy'";
            Error::new(ErrorKind::Unreachable, message).hint(hint)
        }
    }
}

/// A connection. Closed when it is dropped.
pub struct RadosClient {
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
    /// `NotFound` without the library; `Unreachable` when no monitor answers in time; `Invalid` if
    /// the monitors refuse the user or its key, or the key cannot be decoded.
    pub fn connect(options: &RadosOptions) -> Result<Arc<Self>> {
        Self::connect_with(options, &[])
    }

    /// As [`RadosClient::connect`], with settings of `ceph.conf`.
    ///
    /// # Errors
    /// As [`RadosClient::connect`].
    pub(crate) fn connect_with(options: &RadosOptions, settings: &[(&str, &str)]) -> Result<Arc<Self>> {
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
        ]
        .into_iter()
        .chain(settings.iter().copied())
        {
            let (key, value) = (text(key)?, text(value)?);
            // SAFETY: the handle is valid; the strings end in NUL and outlive the call.
            let code = unsafe { (library.conf_set)(client.handle, key.as_ptr(), value.as_ptr()) };
            check(code, &format!("cannot set {key:?} of a client of Ceph"))?;
        }
        // SAFETY: the handle is valid and not connected yet.
        let code = unsafe { (library.connect)(client.handle) };
        if code < 0 {
            return Err(connect_error(options, -code));
        }
        Ok(Arc::new(client))
    }

    /// Executes a monitor command and returns its output.
    ///
    /// # Errors
    /// `Unreachable` without a quorum; `Io` with the monitor's message.
    pub fn monitor(&self, command: &Value) -> Result<Vec<u8>> {
        self.monitor_with_input(command, b"")
    }

    /// Like [`RadosClient::monitor`], with input.
    ///
    /// # Errors
    /// As [`RadosClient::monitor`].
    pub fn monitor_with_input(&self, command: &Value, input: &[u8]) -> Result<Vec<u8>> {
        self.command(self.library.mon_command, command, input)
    }

    /// Like [`RadosClient::monitor`], and parses the output as JSON.
    ///
    /// # Errors
    /// As [`RadosClient::monitor`]; `Io` for another format.
    pub fn monitor_json(&self, command: &Value) -> Result<Value> {
        self.parse(command, &self.monitor(command)?)
    }

    /// Executes a command of the active manager, and parses the output as JSON.
    ///
    /// # Errors
    /// As [`RadosClient::monitor_json`].
    pub fn manager_json(&self, command: &Value) -> Result<Value> {
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

    /// Returns the addresses of this connection, by which locks name their owners.
    pub(crate) fn addresses(&self) -> String {
        let mut text = ptr::null_mut();
        // SAFETY: the handle is connected; on success the text belongs to this function.
        let code = unsafe { (self.library.addresses)(self.handle, &raw mut text) };
        if code < 0 || text.is_null() {
            return String::new();
        }
        // SAFETY: the text ends in NUL, and is freed only here.
        unsafe {
            let addresses = CStr::from_ptr(text).to_string_lossy().into_owned();
            (self.library.buffer_free)(text);
            addresses
        }
    }

    /// Opens a pool. The caller destroys the context before the client is dropped.
    ///
    /// # Errors
    /// `NotFound` if there is no such pool.
    pub(crate) fn open_pool(&self, pool: &str) -> Result<IoContext> {
        let name = text(pool)?;
        let mut context = ptr::null_mut();
        // SAFETY: the handle is connected; the name outlives the call, which sets the context.
        let code = unsafe { (self.library.ioctx_create)(self.handle, name.as_ptr(), &raw mut context) };
        check(code, &format!("cluster '{}': cannot open pool '{pool}'", self.cluster))?;
        Ok(context)
    }

    /// Destroys the context of a pool, which no image uses.
    pub(crate) fn close_pool(&self, context: IoContext) {
        // SAFETY: a context of this client, which its owner destroys once.
        unsafe { (self.library.ioctx_destroy)(context) };
    }

    /// Returns the number of a pool.
    pub(crate) fn pool_id(&self, context: IoContext) -> i64 {
        // SAFETY: a context of this client that is not destroyed.
        unsafe { (self.library.ioctx_id)(context) }
    }

    /// The name of the cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
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

/// Returns a text as C has it.
///
/// # Errors
/// `Invalid` with a NUL character.
pub(crate) fn text(value: &str) -> Result<CString> {
    CString::new(value)
        .map_err(|_| Error::new(ErrorKind::Invalid, "a text for Ceph contains a NUL character"))
}

/// Returns an error for a negative result.
///
/// # Errors
/// The kind of the error number; `what` is before its text.
pub(crate) fn check(code: c_int, what: &str) -> Result<()> {
    if code >= 0 { Ok(()) } else { Err(errno(code.into(), what)) }
}

/// The error number of a client whose connection was fenced off by the cluster.
const FENCED: i32 = 108;

/// Returns the error of a negative result of the libraries.
pub(crate) fn errno(code: i64, what: &str) -> Error {
    let number = i32::try_from(code.unsigned_abs()).unwrap_or(0);
    let reason = std::io::Error::from_raw_os_error(number);
    let kind = match reason.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        std::io::ErrorKind::AlreadyExists => ErrorKind::Exists,
        std::io::ErrorKind::ResourceBusy | std::io::ErrorKind::DirectoryNotEmpty => ErrorKind::Busy,
        std::io::ErrorKind::InvalidInput => ErrorKind::Invalid,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        std::io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        std::io::ErrorKind::TimedOut => ErrorKind::Unreachable,
        _ => ErrorKind::Io,
    };
    if number == FENCED {
        let message = format!("{what}: the cluster has fenced this client off: another one took its lock");
        return Error::new(kind, message).hint("restart the daemon after the other user has stopped");
    }
    Error::new(kind, format!("{what}: {reason}"))
}
