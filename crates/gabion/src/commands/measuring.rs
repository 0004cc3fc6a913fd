//! What the commands have in common that measure on a pool of their own: what is promised, how far it is, what was found.

use anyhow::{Result, bail};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::cli::Global;
use crate::failure::Outcome;

/// A measurement, from its beginning on.
pub(super) struct Measuring {
    json: bool,
    /// A table is printed, for people.
    pub(super) table: bool,
    pub(super) spinner: ProgressBar,
}

impl Measuring {
    /// Says what is promised, and where it is measured.
    ///
    /// # Errors
    /// When nobody reads it.
    pub(super) fn begin(global: &Global, promises: &str) -> Result<Self> {
        let table = !global.json && !global.quiet;
        if table {
            super::print(&format!("{promises}\nmachine: {}\n", bench::machine()))?;
        }
        let spinner = if global.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        Ok(Self { json: global.json, table, spinner })
    }

    /// Says what is being done. No ticking thread: it would take its time from what is measured.
    pub(super) fn tell(&self, step: &str) {
        self.spinner.set_message(step.to_owned());
        self.spinner.tick();
    }

    /// Says how much of it is done.
    pub(super) fn tell_share(&self, step: &str, share: f64) {
        self.tell(&format!("{step}: {:.0} %", share * 100.0));
    }

    /// Prints what was found; with `wrong` blocks it means nothing.
    ///
    /// # Errors
    /// With wrong blocks, or when nobody reads it.
    pub(super) fn end<T: Serialize>(
        self,
        found: &T,
        as_text: impl FnOnce(&T) -> String,
        wrong: u64,
    ) -> Result<Outcome> {
        self.spinner.finish_and_clear();
        if self.json {
            super::print(&super::to_json(found)?)?;
        } else if self.table {
            super::print(&as_text(found))?;
        }
        if wrong > 0 {
            bail!("{wrong} blocks did not hold what was written: the figures mean nothing");
        }
        Ok(Outcome::Done)
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        self.spinner.finish_and_clear();
    }
}
