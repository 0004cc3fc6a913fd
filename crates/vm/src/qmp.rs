//! A client of the QEMU Machine Protocol: JSON lines over a Unix socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::error::{Error, ErrorKind, Result};

/// Timeout for a response; the commands used here complete immediately.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of the longest accepted line.
const LINE_MAX: u64 = 1 << 20;

/// A QMP connection.
#[derive(Debug)]
pub(crate) struct Qmp {
    stream: BufReader<UnixStream>,
}

impl Qmp {
    /// Connects to QEMU, which accepts one connection at a time.
    ///
    /// # Errors
    /// If the connection fails, or the peer is not QEMU.
    pub(crate) fn connect(socket: &Path) -> Result<Self> {
        let failed = |error: std::io::Error| Error::file(socket, &error);
        Self::handshake(UnixStream::connect(socket).map_err(failed)?, socket)
    }

    /// Reads the greeting on a connection to `socket`, and enables commands.
    ///
    /// # Errors
    /// The errors of [`Qmp::connect`].
    pub(crate) fn handshake(stream: UnixStream, socket: &Path) -> Result<Self> {
        let failed = |error: std::io::Error| Error::file(socket, &error);
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT)).map_err(failed)?;
        stream.set_write_timeout(Some(RESPONSE_TIMEOUT)).map_err(failed)?;
        let mut qmp = Self { stream: BufReader::new(stream) };
        let greeting = qmp.read_line()?;
        if greeting.get("QMP").is_none() {
            return Err(Error::new(ErrorKind::Qemu, format!("{}: the peer is not QEMU", socket.display())));
        }
        qmp.execute("qmp_capabilities")?;
        Ok(qmp)
    }

    /// Executes a command and returns its result.
    ///
    /// # Errors
    /// If QEMU refuses the command or closes the connection.
    pub(crate) fn execute(&mut self, command: &str) -> Result<Value> {
        let disconnected = |error: std::io::Error| {
            Error::new(ErrorKind::Qemu, format!("lost the connection to QEMU: {error}"))
        };
        let request = format!("{}\n", json!({ "execute": command }));
        self.stream.get_mut().write_all(request.as_bytes()).map_err(disconnected)?;
        loop {
            let response = self.read_line()?;
            // Other messages are events, which are ignored.
            if let Some(value) = response.get("return") {
                return Ok(value.clone());
            }
            if let Some(error) = response.get("error") {
                let text = error.get("desc").and_then(Value::as_str).unwrap_or("no reason given");
                return Err(Error::new(ErrorKind::Qemu, format!("QEMU refused '{command}': {text}")));
            }
        }
    }

    fn read_line(&mut self) -> Result<Value> {
        use std::io::Read;
        let mut line = String::new();
        let read = (&mut self.stream).take(LINE_MAX).read_line(&mut line);
        match read {
            Ok(0) => Err(Error::new(ErrorKind::Qemu, "QEMU closed the connection")),
            Ok(_) => serde_json::from_str(&line)
                .map_err(|error| Error::new(ErrorKind::Qemu, format!("invalid response from QEMU: {error}"))),
            Err(error) => Err(Error::new(ErrorKind::Qemu, format!("no response from QEMU: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use super::*;

    /// Serves one connection: sends each line, and after each line that is not an event reads one
    /// line.
    fn qemu(
        lines: &'static [&'static str],
    ) -> (tempfile::TempDir, PathBuf, std::thread::JoinHandle<Vec<String>>) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let serve = move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let mut received = Vec::new();
            for line in lines {
                stream.get_mut().write_all(line.as_bytes()).unwrap();
                if line.contains("event") {
                    continue;
                }
                let mut text = String::new();
                stream.read_line(&mut text).unwrap();
                received.push(text);
            }
            received
        };
        (home, path, std::thread::spawn(serve))
    }

    #[test]
    fn commands_are_executed_and_events_are_ignored() {
        let (_home, path, served) = qemu(&[
            "{\"QMP\": {}}\n",
            "{\"event\": \"RESUME\"}\n",
            "{\"return\": {}}\n",
            "{\"event\": \"STOP\"}\n",
            "{\"return\": {\"status\": \"paused\"}}\n",
            "{\"error\": {\"class\": \"GenericError\", \"desc\": \"not now\"}}\n",
        ]);
        let mut qmp = Qmp::connect(&path).unwrap();
        assert_eq!(qmp.execute("query-status").unwrap()["status"], "paused");
        assert_eq!(qmp.execute("cont").unwrap_err().to_string(), "QEMU refused 'cont': not now");
        drop(qmp);
        let received = served.join().unwrap();
        let said =
            ["qmp_capabilities", "query-status", "cont"].map(|name| format!("{{\"execute\":\"{name}\"}}\n"));
        assert_eq!(received, [said.as_slice(), &[String::new()]].concat());
    }

    #[test]
    fn a_peer_that_is_not_qemu_is_refused() {
        let (_home, path, _) = qemu(&["{\"hello\": 1}\n"]);
        assert!(Qmp::connect(&path).unwrap_err().to_string().contains("not QEMU"));
        let (_home, path, _) = qemu(&["nonsense\n"]);
        assert_eq!(Qmp::connect(&path).unwrap_err().kind(), ErrorKind::Qemu);
        assert_eq!(Qmp::connect(Path::new("/nowhere")).unwrap_err().kind(), ErrorKind::Io);
    }
}
