//! Flushing: makes applied records durable.

use std::rc::Rc;

use format::Sequence;

use super::Log;
use crate::error::Result;

impl Log {
    /// Makes every record applied by now durable. Concurrent calls share one round of flushes.
    ///
    /// # Errors
    /// If so many drives fail their flush that the pool fails. A single drive that fails its flush
    /// is taken out of use, and its cells of the flushed rows count as never written (promise 4).
    pub(crate) async fn flush(self: &Rc<Self>) -> Result<()> {
        self.flush_to(self.appender.applied()).await
    }

    /// Makes every record up to `target`, which is applied, durable.
    async fn flush_to(self: &Rc<Self>, target: Sequence) -> Result<()> {
        loop {
            if let Some(error) = self.failure() {
                return Err(error);
            }
            if self.appender.records.borrow().durable() >= target {
                return Ok(());
            }
            if self.flush_rounds.is_running() {
                self.flush_rounds.ended().await;
                continue;
            }
            self.flush_rounds.start();
            let result = self.flush_round().await;
            self.flush_rounds.end();
            if let Err(error) = result {
                self.fail(&error);
                return Err(error);
            }
        }
    }

    /// Flushes every drive that was written, including for records that are not applied yet.
    async fn flush_round(&self) -> Result<()> {
        let up_to = self.appender.applied();
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
        self.appender.records.borrow_mut().set_durable(up_to);
        Ok(())
    }
}
