//! The words of `gabion bench`.

use clap::{Args, Subcommand};

/// Measure: the engine and the codec alone, on this machine's memory
///
/// A figure counts only with what was promised for it; each command prints that first. Every operation's result is
/// checked, and a wrong one makes the command fail.
#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    /// The storage engine on one core and memory drives: random and sequential, healthy and with a drive lost
    #[command(after_long_help = "\
Examples:
  gabion bench engine
  gabion bench engine --seconds 5 --only 'random read' --json > engine.json

It takes 11 GiB of memory: five drives of 2 GiB, and the volume's map.")]
    Engine(BenchArgs),
    /// Checksums, parity and reconstruction on one core
    Codec(BenchArgs),
}

/// What both understand.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// How long each job runs, in seconds
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Only the jobs whose name contains this
    #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
    pub(crate) only: String,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err("a number of seconds above 0, at most 3600".into()),
    }
}
