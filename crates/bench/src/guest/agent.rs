//! Asking the shell of a machine: a script there, what it said and how it ended back.
//!
//! A request is a line with its number and the script in hexadecimal digits; an answer is a line with the number, how the script
//! ended and how many bytes it said, and those. Answers to others, which had asked and did not wait, are passed over.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest answer that is believed.
const ANSWER_MAX: u64 = 256 << 20;
/// How often one who waits looks whether he is to stop.
const STEP: Duration = Duration::from_millis(50);
/// Longest time that a script may take.
const PATIENCE: Duration = Duration::from_secs(7200);

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Where a machine's shell is asked.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    socket: PathBuf,
}

/// What a script said and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) output: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    #[error("the machine cannot be asked: {0}")]
    Io(#[from] std::io::Error),
    #[error("the machine answers what cannot be understood: {0}")]
    Nonsense(String),
    #[error("within the machine: {0}")]
    Failed(String),
    #[error("the machine does not answer")]
    Silent,
    #[error("interrupted")]
    Interrupted,
}

impl Said {
    /// What was said, if it went well.
    pub(crate) fn text(self) -> Result<String, AgentError> {
        let text = String::from_utf8_lossy(&self.output).into_owned();
        if self.status == 0 {
            return Ok(text);
        }
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines.get(lines.len().saturating_sub(3)..).unwrap_or_default();
        let said =
            if last.is_empty() { format!("a script ended with {}", self.status) } else { last.join("; ") };
        Err(AgentError::Failed(said))
    }
}

impl Agent {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.into() }
    }

    /// Where it is.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// True if it answers at all.
    pub(crate) fn answers(&self, patience: Duration) -> bool {
        self.ask_for("true", &AtomicBool::new(false), patience).is_ok_and(|said| said.status == 0)
    }

    /// Has a script run to its end.
    pub(crate) fn ask(&self, script: &str, stop: &AtomicBool) -> Result<Said, AgentError> {
        self.ask_for(script, stop, PATIENCE)
    }

    fn ask_for(&self, script: &str, stop: &AtomicBool, patience: Duration) -> Result<Said, AgentError> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(STEP))?;
        stream.set_write_timeout(Some(patience))?;
        let digits: String = script.bytes().map(|byte| format!("{byte:02x}")).collect();
        stream.write_all(format!("{number} {digits}\n").as_bytes())?;
        let until = Until { stop, deadline: Instant::now() + patience };
        let mut answers = BufReader::new(Waiting { stream, until });
        loop {
            let mut line = Vec::new();
            answers.by_ref().take(100).read_until(b'\n', &mut line).map_err(of)?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let mut fields = line.split_whitespace().map(str::parse::<u64>);
            let mut field = || fields.next()?.ok();
            let (Some(of_number), Some(status), Some(length)) = (field(), field(), field()) else {
                return Err(AgentError::Nonsense(line));
            };
            if length > ANSWER_MAX {
                return Err(AgentError::Nonsense(line));
            }
            let mut output = Vec::new();
            answers.by_ref().take(length).read_to_end(&mut output).map_err(of)?;
            if output.len() as u64 != length {
                return Err(AgentError::Silent);
            }
            if of_number == number {
                let status = i32::try_from(status).unwrap_or(i32::MAX);
                return Ok(Said { status, output });
            }
        }
    }
}

fn of(error: std::io::Error) -> AgentError {
    match error.kind() {
        ErrorKind::TimedOut => AgentError::Silent,
        // Ours, from below; the kind that others have is not passed on by who reads.
        ErrorKind::Other => AgentError::Interrupted,
        _ => AgentError::Io(error),
    }
}

struct Until<'a> {
    stop: &'a AtomicBool,
    deadline: Instant,
}

/// Reads as they come, until one is to stop.
struct Waiting<'a> {
    stream: UnixStream,
    until: Until<'a>,
}

impl Read for Waiting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if self.until.stop.load(Ordering::Relaxed) {
                return Err(std::io::Error::other("interrupted"));
            }
            if Instant::now() > self.until.deadline {
                return Err(ErrorKind::TimedOut.into());
            }
            match self.stream.read(buffer) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                result => return result,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A machine that answers each request with what `answer` makes of its number and script.
    fn machine(place: &Path, answer: fn(u64, &str) -> Vec<u8>) -> Agent {
        let socket = place.join("agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.unwrap());
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let (number, digits) = line.trim().split_once(' ').unwrap();
                let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
                let script = String::from_utf8((0..digits.len()).step_by(2).map(byte).collect()).unwrap();
                // The other side may have gone.
                let _ = reader.get_mut().write_all(&answer(number.parse().unwrap(), &script));
            }
        });
        Agent::new(&socket)
    }

    #[test]
    fn scripts_go_there_and_answers_come_back() {
        let place = tempfile::tempdir().unwrap();
        let go = AtomicBool::new(false);
        let agent = machine(place.path(), |number, script| {
            // An answer to somebody who has gone comes first.
            format!("0 7 3\nold{number} 0 {}\n{script}", script.len()).into_bytes()
        });
        let script = "echo 'ü'\nexit 0";
        assert_eq!(agent.ask(script, &go).unwrap().text().unwrap(), script);
        assert!(agent.answers(Duration::from_secs(10)));
    }

    #[test]
    fn failures_nonsense_and_silence_are_told_apart() {
        let place = |name: &str| {
            let place = tempfile::tempdir().unwrap();
            std::fs::write(place.path().join(name), "").unwrap();
            place
        };
        let go = AtomicBool::new(false);
        let (one, other, third) = (place("a"), place("b"), place("c"));
        let failing = machine(one.path(), |number, _| format!("{number} 2 9\nno luck\n\n").into_bytes());
        let error = failing.ask("x", &go).unwrap().text().unwrap_err().to_string();
        assert_eq!(error, "within the machine: no luck");
        let silly = machine(other.path(), |_, _| b"what?\n".to_vec());
        assert!(matches!(silly.ask("x", &go), Err(AgentError::Nonsense(_))));
        assert!(!silly.answers(Duration::from_secs(10)));
        let cut = machine(third.path(), |number, _| format!("{number} 0 99\nshort").into_bytes());
        assert!(matches!(cut.ask("x", &go), Err(AgentError::Silent)));
        assert!(matches!(cut.ask("x", &AtomicBool::new(true)), Err(AgentError::Interrupted)));
        assert!(matches!(Agent::new(Path::new("/nonexistent/x")).ask("x", &go), Err(AgentError::Io(_))));
    }
}
