//! Standard output and questions at the terminal.

use std::io::{IsTerminal, Write};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::failure::Usage;

/// Returns a result as JSON.
pub(crate) fn to_json<T: Serialize>(result: &T) -> Result<String> {
    serde_json::to_string_pretty(result).context("writing JSON")
}

/// Prints to standard output. A closed pipe is not an error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = if text.is_empty() { Ok(()) } else { writeln!(out, "{}", text.trim_end()) };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("writing to standard output")
        }
        _ => Ok(()),
    }
}

/// Asks for confirmation before data is destroyed, unless `yes` is set. `effect` is the predicate
/// of "this command", for example "erases 5 of 5 drives".
///
/// # Errors
/// `Usage` if standard input is not a terminal; another error if the answer is not "yes".
pub(crate) fn confirm(yes: bool, effect: &str) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        let message =
            format!("--yes is required: standard input is not a terminal, and this command {effect}");
        return Err(Usage(message).into());
    }
    eprint!("This command {effect}. Type 'yes' to continue: ");
    std::io::stderr().flush().context("asking for confirmation")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("reading the answer")?;
    if answer.trim() == "yes" { Ok(()) } else { Err(anyhow::anyhow!("not confirmed: nothing was changed")) }
}
