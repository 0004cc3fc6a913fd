//! The common part of the benchmarks on a temporary pool: setup text, progress and result.

use anyhow::{Result, bail};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::cli::Global;
use crate::failure::ExitReason;

/// A running benchmark.
pub(super) struct Measurement {
    json: bool,
    /// True if text is printed, instead of JSON or nothing.
    pub(super) table: bool,
    pub(super) spinner: ProgressBar,
}

impl Measurement {
    /// Prints the setup of the benchmark and the host.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(super) fn start(global: &Global, setup: &str) -> Result<Self> {
        let table = !global.json && !global.quiet;
        if table {
            super::print(&format!("{setup}\nmachine: {}\n", bench::machine()))?;
        }
        let spinner = if global.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        Ok(Self { json: global.json, table, spinner })
    }

    /// Shows the current step. There is no ticking thread, which would take CPU time from the
    /// measurement.
    pub(super) fn set_step(&self, step: &str) {
        self.spinner.set_message(step.to_owned());
        self.spinner.tick();
    }

    /// Shows the completed share of a step.
    pub(super) fn set_progress(&self, step: &str, share: f64) {
        self.set_step(&format!("{step}: {:.0} %", share * 100.0));
    }

    /// Prints the result. `wrong` is the number of blocks with wrong contents.
    ///
    /// # Errors
    /// If there are wrong blocks, or standard output cannot be written.
    pub(super) fn finish<T: Serialize>(
        self,
        result: &T,
        to_text: impl FnOnce(&T) -> String,
        wrong: u64,
    ) -> Result<ExitReason> {
        self.spinner.finish_and_clear();
        if self.json {
            super::print(&super::to_json(result)?)?;
        } else if self.table {
            super::print(&to_text(result))?;
        }
        if wrong > 0 {
            bail!("{wrong} blocks have wrong contents: the results are invalid");
        }
        Ok(ExitReason::Success)
    }
}

impl Drop for Measurement {
    fn drop(&mut self) {
        self.spinner.finish_and_clear();
    }
}
