//! The client of the agent in a guest: sends a script, and returns its output and exit status.
//!
//! A request is a line with its number and the script in hexadecimal digits. A response is a line
//! with the number, the exit status and the length of the output in bytes, followed by the output.
//! Responses to other clients, which did not wait, are skipped.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum length of a response in bytes.
const ANSWER_MAX: u64 = 256 << 20;
/// Interval at which a waiting client checks for an interruption.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum run time of a script.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(7200);

static NEXT: AtomicU64 = AtomicU64::new(1);

/// The address of a guest's agent.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    socket: PathBuf,
}

/// The output and exit status of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScriptOutput {
    pub(crate) status: i32,
    pub(crate) output: Vec<u8>,
}

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    #[error("cannot reach the agent in the guest: {0}")]
    Io(#[from] std::io::Error),
    #[error("malformed response of the agent in the guest: {0}")]
    Malformed(String),
    #[error("in the guest: {0}")]
    Failed(String),
    #[error("the agent in the guest does not respond")]
    Unresponsive,
    #[error("interrupted")]
    Interrupted,
}

impl ScriptOutput {
    /// Returns the output if the script succeeded.
    pub(crate) fn text(self) -> Result<String, AgentError> {
        let text = String::from_utf8_lossy(&self.output).into_owned();
        if self.status == 0 {
            return Ok(text);
        }
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines.get(lines.len().saturating_sub(3)..).unwrap_or_default();
        let message =
            if last.is_empty() { format!("a script exited with {}", self.status) } else { last.join("; ") };
        Err(AgentError::Failed(message))
    }
}

impl Agent {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.into() }
    }

    /// Returns the path of the agent's socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// True if the agent responds within this time.
    pub(crate) fn answers(&self, patience: Duration) -> bool {
        self.run_script_within("true", &AtomicBool::new(false), patience)
            .is_ok_and(|output| output.status == 0)
    }

    /// Runs a script to completion.
    pub(crate) fn run_script(&self, script: &str, stop: &AtomicBool) -> Result<ScriptOutput, AgentError> {
        self.run_script_within(script, stop, SCRIPT_TIMEOUT)
    }

    fn run_script_within(
        &self,
        script: &str,
        stop: &AtomicBool,
        patience: Duration,
    ) -> Result<ScriptOutput, AgentError> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        stream.set_write_timeout(Some(patience))?;
        let digits: String = script.bytes().map(|byte| format!("{byte:02x}")).collect();
        stream.write_all(format!("{number} {digits}\n").as_bytes())?;
        let until = Deadline { stop, deadline: Instant::now() + patience };
        let mut answers = BufReader::new(DeadlineReader { stream, until });
        loop {
            let mut line = Vec::new();
            answers.by_ref().take(100).read_until(b'\n', &mut line).map_err(of)?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let mut fields = line.split_whitespace().map(str::parse::<u64>);
            let mut field = || fields.next()?.ok();
            let (Some(of_number), Some(status), Some(length)) = (field(), field(), field()) else {
                return Err(AgentError::Malformed(line));
            };
            if length > ANSWER_MAX {
                return Err(AgentError::Malformed(line));
            }
            let mut output = Vec::new();
            answers.by_ref().take(length).read_to_end(&mut output).map_err(of)?;
            if output.len() as u64 != length {
                return Err(AgentError::Unresponsive);
            }
            if of_number == number {
                let status = i32::try_from(status).unwrap_or(i32::MAX);
                return Ok(ScriptOutput { status, output });
            }
        }
    }
}

fn of(error: std::io::Error) -> AgentError {
    match error.kind() {
        ErrorKind::TimedOut => AgentError::Unresponsive,
        // Use the own error kind: a reader retries on the standard `Interrupted` kind.
        ErrorKind::Other => AgentError::Interrupted,
        _ => AgentError::Io(error),
    }
}

struct Deadline<'a> {
    stop: &'a AtomicBool,
    deadline: Instant,
}

/// A reader that stops on interruption or timeout.
struct DeadlineReader<'a> {
    stream: UnixStream,
    until: Deadline<'a>,
}

impl Read for DeadlineReader<'_> {
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

    /// An agent that responds to each request with the result of `answer` for its number and
    /// script.
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
                // The client may have disconnected.
                let _ = reader.get_mut().write_all(&answer(number.parse().unwrap(), &script));
            }
        });
        Agent::new(&socket)
    }

    #[test]
    fn scripts_run_and_return_their_output() {
        let place = tempfile::tempdir().unwrap();
        let go = AtomicBool::new(false);
        let agent = machine(place.path(), |number, script| {
            // First a response to a client that has disconnected.
            format!("0 7 3\nold{number} 0 {}\n{script}", script.len()).into_bytes()
        });
        let script = "echo 'ü'\nexit 0";
        assert_eq!(agent.run_script(script, &go).unwrap().text().unwrap(), script);
        assert!(agent.answers(Duration::from_secs(10)));
    }

    #[test]
    fn failures_malformed_responses_and_timeouts_are_distinguished() {
        let place = |name: &str| {
            let place = tempfile::tempdir().unwrap();
            std::fs::write(place.path().join(name), "").unwrap();
            place
        };
        let go = AtomicBool::new(false);
        let (one, other, third) = (place("a"), place("b"), place("c"));
        let failing = machine(one.path(), |number, _| format!("{number} 2 9\nno luck\n\n").into_bytes());
        let error = failing.run_script("x", &go).unwrap().text().unwrap_err().to_string();
        assert_eq!(error, "in the guest: no luck");
        let silly = machine(other.path(), |_, _| b"what?\n".to_vec());
        assert!(matches!(silly.run_script("x", &go), Err(AgentError::Malformed(_))));
        assert!(!silly.answers(Duration::from_secs(10)));
        let cut = machine(third.path(), |number, _| format!("{number} 0 99\nshort").into_bytes());
        assert!(matches!(cut.run_script("x", &go), Err(AgentError::Unresponsive)));
        assert!(matches!(cut.run_script("x", &AtomicBool::new(true)), Err(AgentError::Interrupted)));
        assert!(matches!(
            Agent::new(Path::new("/nonexistent/x")).run_script("x", &go),
            Err(AgentError::Io(_))
        ));
    }
}
