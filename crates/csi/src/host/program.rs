//! Execution of programs.

use std::cell::Cell;
use std::ffi::OsStr;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tokio::process::Command;

use super::error::HostError;

/// Longest output in an error message, in bytes.
const OUTPUT_MAX: usize = 2000;

tokio::task_local! {
    /// Time that the programs of this task have taken.
    static PROGRAM_TIME: Cell<Duration>;
}

/// Runs work of a task. Returns its output, and the time that its programs took.
pub(crate) async fn measure<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let measured = async move {
        let output = work.await;
        (output, PROGRAM_TIME.with(Cell::get))
    };
    PROGRAM_TIME.scope(Cell::new(Duration::ZERO), measured).await
}

/// The output of a program that has ended.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    command: String,
    status: ExitStatus,
    /// Standard output.
    pub(crate) output: String,
    /// Standard error.
    errors: String,
}

impl ProgramOutput {
    /// Returns the exit status; -1 after a signal.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Returns the error of the program, with its output.
    pub(crate) fn failure(self) -> HostError {
        let text = format!("{} {}", self.output.trim(), self.errors.trim());
        let output: String = text.trim().chars().take(OUTPUT_MAX).collect();
        HostError::Program { command: self.command, status: self.status.to_string(), output }
    }
}

/// Runs a program to its end. The program gets no input, so that it asks no questions.
///
/// # Errors
/// If it cannot be started.
pub(crate) async fn run(program: &str, arguments: &[&OsStr]) -> Result<ProgramOutput, HostError> {
    let shown: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    let command = format!("{program} {}", shown.join(" "));
    tracing::debug!(command, "running");
    let started = Instant::now();
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).env("LC_ALL", "C").output().await;
    // Work outside of a call is not measured.
    let _ = PROGRAM_TIME.try_with(|time| time.set(time.get() + started.elapsed()));
    let output = output.map_err(|error| HostError::Start { program: program.to_owned(), error })?;
    Ok(ProgramOutput {
        command,
        status: output.status,
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Runs a program that must succeed. Returns its output.
///
/// # Errors
/// If it cannot be started, or fails.
pub(crate) async fn succeed(program: &str, arguments: &[&OsStr]) -> Result<String, HostError> {
    let end = run(program, arguments).await?;
    if end.status.success() { Ok(end.output) } else { Err(end.failure()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_time_of_programs_is_summed() {
        let (ran, time) = measure(async {
            for _ in 0..2 {
                succeed("sleep", &[OsStr::new("0.05")]).await?;
            }
            succeed("false", &[]).await
        })
        .await;
        assert!(ran.is_err());
        assert!(time >= Duration::from_millis(100), "{time:?}");
        assert_eq!(measure(async { 7 }).await, (7, Duration::ZERO));
    }
}
