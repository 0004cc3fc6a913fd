//! A machine's serial console on this terminal.
//!
//! Always true: the terminal is as it was before when this ends, however it ends.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::error::{Error, ErrorKind, Result};

/// What ends it at a terminal: Ctrl-].
const ESCAPE: u8 = 0x1D;

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The machine ended.
    Machine,
    /// Whoever used it left.
    User,
}

/// A terminal that hands on each key as it is pressed, until this is dropped.
struct Raw<'a> {
    terminal: BorrowedFd<'a>,
    before: Termios,
}

impl<'a> Raw<'a> {
    /// Of a terminal; none if it is something else.
    fn of(terminal: BorrowedFd<'a>) -> Option<Self> {
        let before = tcgetattr(terminal).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(terminal, OptionalActions::Now, &raw).ok()?;
        Some(Self { terminal, before })
    }
}

impl Drop for Raw<'_> {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

/// Connects what is typed and printed here with a machine's console: until Ctrl-] is pressed at a terminal, or the machine
/// ends. Input that ends does not end it.
///
/// # Errors
/// `Busy` when the machine does not listen; when this end fails.
pub fn attach(socket: &Path, input: impl AsFd, mut output: impl Write) -> Result<Ended> {
    let mut console = UnixStream::connect(socket).map_err(|error| {
        Error::new(ErrorKind::Busy, format!("the console cannot be reached: {error}"))
            .hint("does the machine run ('gabion vm list')? One at a time uses its console")
    })?;
    let failed = |error: std::io::Error| Error::new(ErrorKind::Io, format!("this terminal: {error}"));
    let raw = Raw::of(input.as_fd());
    let mut typed = true;
    let mut bytes = [0; 4096];
    loop {
        let mut waiting = vec![PollFd::new(&console, PollFlags::IN)];
        if typed {
            waiting.push(PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN));
        }
        match poll(&mut waiting, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(failed(error.into())),
            Ok(_) => {}
        }
        let ready = |index: usize| waiting.get(index).is_some_and(|fd| !fd.revents().is_empty());
        let (said, pressed) = (ready(0), ready(1));
        drop(waiting);
        if said {
            match console.read(&mut bytes) {
                Ok(0) | Err(_) => return Ok(Ended::Machine),
                Ok(read) => {
                    let text = bytes.get(..read).unwrap_or_default();
                    output.write_all(text).and_then(|()| output.flush()).map_err(failed)?;
                }
            }
        }
        if pressed {
            // Past any buffer: what it held back would not be polled for.
            let read = rustix::io::read(input.as_fd(), &mut bytes).map_err(|error| failed(error.into()))?;
            let keys = bytes.get(..read).unwrap_or_default();
            typed = read > 0;
            if raw.is_some() && keys.contains(&ESCAPE) {
                return Ok(Ended::User);
            }
            if console.write_all(keys).is_err() {
                return Ok(Ended::Machine);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_is_typed_goes_in_and_what_is_said_comes_out() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("console");
        let listener = UnixListener::bind(&path).unwrap();
        let machine = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = [0; 5];
            stream.read_exact(&mut heard).unwrap();
            stream.write_all(b"hello to you").unwrap();
            heard
        });
        let (mut keys, input) = UnixStream::pair().unwrap();
        keys.write_all(b"he\x1Dlo").unwrap();
        drop(keys);
        let mut printed = Vec::new();
        assert_eq!(attach(&path, input, &mut printed).unwrap(), Ended::Machine);
        assert_eq!((machine.join().unwrap(), printed.as_slice()), (*b"he\x1Dlo", &b"hello to you"[..]));
        let nobody = attach(&home.path().join("none"), UnixStream::pair().unwrap().0, Vec::new());
        assert_eq!(nobody.unwrap_err().kind(), ErrorKind::Busy);
    }
}
