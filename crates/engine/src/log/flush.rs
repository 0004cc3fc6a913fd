//! Making what has landed durable.

use std::rc::Rc;

use format::Sequence;

use super::Log;
use crate::error::Result;

impl Log {
    /// Makes every record that has landed by now durable. Calls that come together share one round of flushes.
    ///
    /// # Errors
    /// When so many drives fail their flush that the pool fails. A drive that fails one alone is lost instead, and
    /// what it held counts as never written (promise 4).
    pub(crate) async fn flush(self: &Rc<Self>) -> Result<()> {
        self.flush_to(self.applied.get()).await
    }

    /// Makes every record up to `target`, which has landed, durable.
    async fn flush_to(self: &Rc<Self>, target: Sequence) -> Result<()> {
        loop {
            if let Some(error) = self.failure() {
                return Err(error);
            }
            if self.durable.get() >= target {
                return Ok(());
            }
            if self.flushing.get() {
                self.flushed.until(|| (!self.flushing.get()).then_some(())).await;
                continue;
            }
            self.flushing.set(true);
            let result = self.flush_round().await;
            self.flushing.set(false);
            self.flushed.wake_all();
            if let Err(error) = result {
                self.fail(&error);
                return Err(error);
            }
        }
    }

    /// Flushes every drive that was written, whether or not its records have landed.
    async fn flush_round(&self) -> Result<()> {
        let upto = self.applied.get();
        let mark = self.rows.segments.borrow().flush_mark();
        let mut failed = Vec::new();
        for (drive, io) in self.rows.drives.flush_dirty() {
            if let Err(error) = io.await {
                failed.push((drive, error));
            }
        }
        for (drive, error) in failed {
            self.link.drive_failed(drive, "a flush failed", error).await?;
        }
        self.rows.segments.borrow_mut().flushed(&mark);
        self.durable.set(self.durable.get().max(upto));
        Ok(())
    }
}
