//! Open serial consoles of machines.
//!
//! Invariants: the number of open consoles is bounded; a console belongs to the client that opened
//! it; it is closed when its output is no longer read, or was never read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::error::{Error, ErrorKind, Result};

/// Most open consoles.
const CONSOLES_MAX: usize = 32;
/// Time after which a console is closed whose output nobody reads.
const UNREAD_MAX: Duration = Duration::from_secs(30);
/// Longest time for input that the machine does not take.
const INPUT_TIMEOUT: Duration = Duration::from_secs(5);

struct OpenConsole {
    owner: String,
    opened: Instant,
    /// `None` once a client reads the output.
    output: Option<OwnedReadHalf>,
    /// `None` while input is written.
    input: Option<OwnedWriteHalf>,
}

/// The open consoles by number.
#[derive(Default)]
pub(crate) struct Consoles(Mutex<ConsoleTable>);

#[derive(Default)]
struct ConsoleTable {
    next: u64,
    open: BTreeMap<u64, OpenConsole>,
}

impl Consoles {
    fn lock(&self) -> MutexGuard<'_, ConsoleTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects to a console. Returns its number.
    ///
    /// # Errors
    /// `NoSpace` with too many consoles; when the socket refuses the connection.
    pub(crate) async fn open(&self, socket: &Path, owner: &str) -> Result<u64> {
        let stream = UnixStream::connect(socket)
            .await
            .map_err(|error| Error::new(ErrorKind::Io, format!("cannot connect to the console: {error}")))?;
        let (output, input) = stream.into_split();
        let mut table = self.lock();
        table.open.retain(|_, console| console.output.is_none() || console.opened.elapsed() < UNREAD_MAX);
        if table.open.len() >= CONSOLES_MAX {
            return Err(Error::new(ErrorKind::NoSpace, format!("{CONSOLES_MAX} consoles are open"))
                .hint("close the pages of other consoles"));
        }
        table.next += 1;
        let number = table.next;
        let (output, input) = (Some(output), Some(input));
        let console = OpenConsole { owner: owner.to_owned(), opened: Instant::now(), output, input };
        table.open.insert(number, console);
        Ok(number)
    }

    /// Takes the output of a console, once.
    ///
    /// # Errors
    /// `NotFound` for an unknown console and for one of another client.
    pub(crate) fn take_output(&self, number: u64, owner: &str) -> Result<OwnedReadHalf> {
        let mut table = self.lock();
        let console = table.open.get_mut(&number).filter(|console| console.owner == owner);
        console.and_then(|console| console.output.take()).ok_or_else(|| no_console(number))
    }

    /// Sends input to a console.
    ///
    /// # Errors
    /// As [`Consoles::take_output`]; `Busy` while other input is written; when the console closes.
    pub(crate) async fn send(&self, number: u64, owner: &str, data: &[u8]) -> Result<()> {
        let mut input = {
            let mut table = self.lock();
            let console = table.open.get_mut(&number).filter(|console| console.owner == owner);
            let console = console.ok_or_else(|| no_console(number))?;
            console
                .input
                .take()
                .ok_or_else(|| Error::new(ErrorKind::Busy, "the console takes other input"))?
        };
        let sent = tokio::time::timeout(INPUT_TIMEOUT, input.write_all(data)).await;
        if let Some(console) = self.lock().open.get_mut(&number) {
            console.input = Some(input);
        }
        let failed =
            |reason: String| Error::new(ErrorKind::Io, format!("cannot write to the console: {reason}"));
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("the machine takes no input".into())),
        }
    }

    /// Closes a console.
    pub(crate) fn close(&self, number: u64) {
        self.lock().open.remove(&number);
    }
}

fn no_console(number: u64) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no open console {number}")).hint("open it again")
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_console_belongs_to_its_client_and_is_read_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("console");
        let listener = UnixListener::bind(&path).unwrap();
        let consoles = Consoles::default();
        let number = consoles.open(&path, "alice").await.unwrap();
        let (mut machine, _) = listener.accept().await.unwrap();
        assert_eq!(consoles.take_output(number, "bob").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(consoles.send(number, "bob", b"x").await.unwrap_err().kind(), ErrorKind::NotFound);
        let mut output = consoles.take_output(number, "alice").unwrap();
        assert!(consoles.take_output(number, "alice").is_err());
        consoles.send(number, "alice", b"ls\n").await.unwrap();
        let mut received = [0; 3];
        machine.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"ls\n");
        machine.write_all(b"file").await.unwrap();
        let mut shown = [0; 4];
        output.read_exact(&mut shown).await.unwrap();
        assert_eq!(&shown, b"file");
        consoles.close(number);
        assert!(consoles.send(number, "alice", b"x").await.is_err());
        drop(output);
        assert_eq!(machine.read(&mut received).await.unwrap(), 0, "the connection is closed");
    }

    #[tokio::test]
    async fn the_number_of_consoles_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("console");
        let _listener = UnixListener::bind(&path).unwrap();
        let consoles = Consoles::default();
        for _ in 0..CONSOLES_MAX {
            consoles.open(&path, "alice").await.unwrap();
        }
        assert_eq!(consoles.open(&path, "alice").await.unwrap_err().kind(), ErrorKind::NoSpace);
        // One that nobody reads makes room.
        consoles.lock().open.get_mut(&1).unwrap().opened -= UNREAD_MAX;
        consoles.open(&path, "alice").await.unwrap();
    }
}
