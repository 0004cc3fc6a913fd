//! What QEMU is told while it runs: JSON lines over a Unix socket (the QEMU Machine Protocol).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::error::{Error, ErrorKind, Result};

/// How long QEMU may take to answer: what is asked for here is done at once.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of the longest line that is listened to.
const LINE_MAX: u64 = 1 << 20;

/// A connection on which QEMU takes orders.
#[derive(Debug)]
pub(crate) struct Qmp {
    stream: BufReader<UnixStream>,
}

impl Qmp {
    /// Connects, which QEMU allows one at a time.
    ///
    /// # Errors
    /// When nobody listens; when it is not QEMU who does.
    pub(crate) fn connect(socket: &Path) -> Result<Self> {
        let failed = |error: std::io::Error| Error::file(socket, &error);
        Self::greet(UnixStream::connect(socket).map_err(failed)?, socket)
    }

    /// Reads the greeting of a connection to `socket`, and readies it for orders.
    ///
    /// # Errors
    /// As [`Qmp::connect`].
    pub(crate) fn greet(stream: UnixStream, socket: &Path) -> Result<Self> {
        let failed = |error: std::io::Error| Error::file(socket, &error);
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut qmp = Self { stream: BufReader::new(stream) };
        let greeting = qmp.line()?;
        if greeting.get("QMP").is_none() {
            return Err(Error::new(
                ErrorKind::Qemu,
                format!("{}: it is not QEMU who answers", socket.display()),
            ));
        }
        qmp.execute("qmp_capabilities")?;
        Ok(qmp)
    }

    /// Has QEMU do something, and gives what it answers.
    ///
    /// # Errors
    /// When it refuses, or goes away.
    pub(crate) fn execute(&mut self, command: &str) -> Result<Value> {
        let lost = |error: std::io::Error| Error::new(ErrorKind::Qemu, format!("QEMU went away: {error}"));
        let request = format!("{}\n", json!({ "execute": command }));
        self.stream.get_mut().write_all(request.as_bytes()).map_err(lost)?;
        loop {
            let answer = self.line()?;
            // Anything else is news of the machine, which nobody here asked for.
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
            if let Some(error) = answer.get("error") {
                let text = error.get("desc").and_then(Value::as_str).unwrap_or("for no reason");
                return Err(Error::new(ErrorKind::Qemu, format!("QEMU refused '{command}': {text}")));
            }
        }
    }

    fn line(&mut self) -> Result<Value> {
        use std::io::Read;
        let mut line = String::new();
        let read = (&mut self.stream).take(LINE_MAX).read_line(&mut line);
        match read {
            Ok(0) => Err(Error::new(ErrorKind::Qemu, "QEMU went away")),
            Ok(_) => serde_json::from_str(&line).map_err(|error| {
                Error::new(ErrorKind::Qemu, format!("QEMU's answer is not understood: {error}"))
            }),
            Err(error) => Err(Error::new(ErrorKind::Qemu, format!("QEMU does not answer: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use super::*;

    /// Says these lines to the first who comes, one for each that it is told after the first.
    fn qemu(
        lines: &'static [&'static str],
    ) -> (tempfile::TempDir, PathBuf, std::thread::JoinHandle<Vec<String>>) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let serve = move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let mut heard = Vec::new();
            for line in lines {
                stream.get_mut().write_all(line.as_bytes()).unwrap();
                if line.contains("event") {
                    continue;
                }
                let mut text = String::new();
                stream.read_line(&mut text).unwrap();
                heard.push(text);
            }
            heard
        };
        (home, path, std::thread::spawn(serve))
    }

    #[test]
    fn orders_are_given_and_news_is_not_taken_for_an_answer() {
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
        let heard = served.join().unwrap();
        let said =
            ["qmp_capabilities", "query-status", "cont"].map(|name| format!("{{\"execute\":\"{name}\"}}\n"));
        assert_eq!(heard, [said.as_slice(), &[String::new()]].concat());
    }

    #[test]
    fn somebody_else_behind_the_socket_is_told_from_qemu() {
        let (_home, path, _) = qemu(&["{\"hello\": 1}\n"]);
        assert!(Qmp::connect(&path).unwrap_err().to_string().contains("not QEMU"));
        let (_home, path, _) = qemu(&["nonsense\n"]);
        assert_eq!(Qmp::connect(&path).unwrap_err().kind(), ErrorKind::Qemu);
        assert_eq!(Qmp::connect(Path::new("/nowhere")).unwrap_err().kind(), ErrorKind::Io);
    }
}
