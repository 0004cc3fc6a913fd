//! A machine's serial console on the current terminal.
//!
//! Always true: the terminal's settings are restored on every exit.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::error::{Error, ErrorKind, Result};

/// The key that detaches from the console: Ctrl-].
const ESCAPE: u8 = 0x1D;

/// The reason why a console session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleExit {
    /// The machine stopped.
    MachineStopped,
    /// The user detached.
    Detached,
}

/// A terminal in raw mode, which passes on each key immediately; restored on drop.
struct RawTerminal<'a> {
    terminal: BorrowedFd<'a>,
    before: Termios,
}

impl<'a> RawTerminal<'a> {
    /// Enables raw mode; returns `None` if `terminal` is not a terminal.
    fn enable(terminal: BorrowedFd<'a>) -> Option<Self> {
        let before = tcgetattr(terminal).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(terminal, OptionalActions::Now, &raw).ok()?;
        Some(Self { terminal, before })
    }
}

impl Drop for RawTerminal<'_> {
    fn drop(&mut self) {
        // The terminal may be closed; then there is nothing to restore.
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

/// Connects `input` and `output` to a machine's console until Ctrl-] is pressed at a terminal or
/// the machine stops. End of input does not end the session.
///
/// # Errors
/// `Busy` if the console socket does not accept the connection; I/O errors of this terminal.
pub fn attach(socket: &Path, input: impl AsFd, mut output: impl Write) -> Result<ConsoleExit> {
    let mut console = UnixStream::connect(socket).map_err(|error| {
        Error::new(ErrorKind::Busy, format!("cannot connect to the console: {error}")).hint(
            "check that the machine is running ('gabion vm list') and that no other session uses its console",
        )
    })?;
    let failed = |error: std::io::Error| Error::new(ErrorKind::Io, format!("terminal I/O failed: {error}"));
    let raw = RawTerminal::enable(input.as_fd());
    let mut input_open = true;
    let mut bytes = [0; 4096];
    loop {
        let mut poll_fds = vec![PollFd::new(&console, PollFlags::IN)];
        if input_open {
            poll_fds.push(PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN));
        }
        match poll(&mut poll_fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(failed(error.into())),
            Ok(_) => {}
        }
        let ready = |index: usize| poll_fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        let (console_ready, input_ready) = (ready(0), ready(1));
        drop(poll_fds);
        if console_ready {
            match console.read(&mut bytes) {
                Ok(0) | Err(_) => return Ok(ConsoleExit::MachineStopped),
                Ok(read) => {
                    let text = bytes.get(..read).unwrap_or_default();
                    output.write_all(text).and_then(|()| output.flush()).map_err(failed)?;
                }
            }
        }
        if input_ready {
            // Reads without a buffer: poll would not report bytes that are already buffered.
            let read = rustix::io::read(input.as_fd(), &mut bytes).map_err(|error| failed(error.into()))?;
            let keys = bytes.get(..read).unwrap_or_default();
            input_open = read > 0;
            if raw.is_some() && keys.contains(&ESCAPE) {
                return Ok(ConsoleExit::Detached);
            }
            if console.write_all(keys).is_err() {
                return Ok(ConsoleExit::MachineStopped);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn input_and_output_are_forwarded() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("console");
        let listener = UnixListener::bind(&path).unwrap();
        let machine = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut received = [0; 5];
            stream.read_exact(&mut received).unwrap();
            stream.write_all(b"hello to you").unwrap();
            received
        });
        let (mut keys, input) = UnixStream::pair().unwrap();
        keys.write_all(b"he\x1Dlo").unwrap();
        drop(keys);
        let mut printed = Vec::new();
        assert_eq!(attach(&path, input, &mut printed).unwrap(), ConsoleExit::MachineStopped);
        assert_eq!((machine.join().unwrap(), printed.as_slice()), (*b"he\x1Dlo", &b"hello to you"[..]));
        let refused = attach(&home.path().join("none"), UnixStream::pair().unwrap().0, Vec::new());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Busy);
    }
}
