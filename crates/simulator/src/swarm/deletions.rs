//! Deletes volumes while other tasks open them and wait for their QoS limits.
//!
//! A deletion is refused while the volume is open. After its acknowledgement, no write to the
//! volume is acknowledged. No such write appears in a volume created afterwards, which may reuse
//! the layer number.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use engine::{ErrorKind, Pool, QosLimits};
use reactor::Reactor;

use super::SwarmRun;
use super::errors::NO_SPACE;
use super::opening::read_all;
use crate::sparse_layout::SparseVolume;

/// Milliseconds that a deletion has to free a volume before the next one is created.
const FREED_WITHIN: u64 = 100;

/// The state of a deletion, for the tasks that write to the volume.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeletePhase {
    Pending,
    Started,
    Acknowledged,
}

impl SwarmRun {
    /// Deletes a volume with a QoS limit while writers open it, and creates another volume.
    pub(super) async fn delete_in_use(self: &Rc<Self>, pool: &Pool) {
        let Some(name) = self.claim_idle_volume() else { return };
        if self.has_snapshots(&name) {
            self.uncertain.borrow_mut().remove(&name);
            return;
        }
        let limit =
            QosLimits { operations: *self.extras_random.choose(&[5, 50, 500]), ..QosLimits::default() };
        self.set_service(pool, &name, limit).await;
        let deletion = Rc::new(Cell::new(DeletePhase::Pending));
        // Most writers start after the deletion has begun.
        let begins = self.extras_random.between(1, 1_000);
        let writers: Vec<_> = (0..self.extras_random.between(2, 12))
            .map(|_| {
                let delay =
                    self.extras_random.below(2_000) + if self.extras_random.once_in(16) { 0 } else { begins };
                let (run, pool, name, deletion) =
                    (self.clone(), pool.clone(), name.clone(), deletion.clone());
                let write = async move { run.write_while_deleted(&pool, &name, &deletion, delay).await };
                Reactor::current().spawn(write)
            })
            .collect();
        Reactor::current().sleep(Duration::from_micros(begins)).await;
        if self.delete_with_writers(pool, &name, &deletion).await {
            self.count(|stats| stats.deleted_in_use += 1);
            let next = self.create_next(pool, &name).await;
            for writer in writers {
                writer.await;
            }
            if let Some(next) = next {
                self.compare_volume(pool, &next).await;
            }
        } else {
            for writer in writers {
                writer.await;
            }
        }
    }

    /// Deletes a volume. Returns true if the deletion is acknowledged.
    async fn delete_with_writers(&self, pool: &Pool, name: &str, deletion: &Cell<DeletePhase>) -> bool {
        deletion.set(DeletePhase::Started);
        let used = self.uses.mark(name);
        let result = pool.delete_volume(name).await;
        self.trace(|| format!("delete {name}, in use: {result:?}"));
        match &result {
            Ok(()) => {
                deletion.set(DeletePhase::Acknowledged);
                self.volumes.borrow_mut().remove(name);
                self.uncertain.borrow_mut().remove(name);
                return true;
            }
            Err(error) if error.kind() == ErrorKind::Busy && self.uses.used_since(name, used) => {
                self.uncertain.borrow_mut().remove(name);
                return false;
            }
            Err(_) => {}
        }
        self.tolerate("delete", result, NO_SPACE);
        false
    }

    /// Creates a volume once `deleted` is freed, and returns its name.
    async fn create_next(&self, pool: &Pool, deleted: &str) -> Option<String> {
        for _ in 0..FREED_WITHIN {
            let volumes = pool.volumes().await.ok()?;
            if volumes.iter().all(|info| info.name != deleted) {
                break;
            }
            Reactor::current().sleep(Duration::from_millis(1)).await;
        }
        let name = format!("v{}", self.names.get());
        self.create(pool).await;
        self.volumes.borrow().contains_key(&name).then_some(name)
    }

    /// Opens a volume that is being deleted, and writes to it.
    async fn write_while_deleted(&self, pool: &Pool, name: &str, deletion: &Cell<DeletePhase>, delay: u64) {
        Reactor::current().sleep(Duration::from_micros(delay)).await;
        let _use = self.uses.begin(name);
        let volume = match pool.open_volume(name).await {
            Ok(volume) => SparseVolume::new(volume.attach(), self.plan.stretch),
            Err(error) => {
                self.trace(|| format!("open {name}, which is being deleted: {error:?}"));
                let allowed: &[ErrorKind] = match deletion.get() {
                    DeletePhase::Pending => &[],
                    DeletePhase::Started | DeletePhase::Acknowledged => {
                        &[ErrorKind::NotFound, ErrorKind::Busy]
                    }
                };
                return self.tolerate("open", Err(error), allowed);
            }
        };
        for _ in 0..2 {
            let result = self.write_somewhere(name, &volume).await;
            match (deletion.get(), &result) {
                (DeletePhase::Acknowledged, Ok(())) => {
                    return self.fail(format!("a write to {name} was acknowledged after its deletion"));
                }
                (DeletePhase::Started | DeletePhase::Acknowledged, Err(error))
                    if error.kind() == ErrorKind::Closed =>
                {
                    return;
                }
                _ => self.tolerate("write", result, NO_SPACE),
            }
        }
    }

    /// Reads an entire volume and compares it with its model.
    async fn compare_volume(&self, pool: &Pool, name: &str) {
        let _use = self.uses.begin(name);
        let start = self.tick();
        let read = async {
            let volume = pool.open_volume(name).await?;
            read_all(&SparseVolume::new(volume.attach(), self.plan.stretch)).await
        };
        let read = read.await;
        let end = self.tick();
        match (read, self.volumes.borrow().get(name)) {
            (Ok(bytes), Some(model)) if model.size() == bytes.len() as u64 => {
                if let Err(message) = model.check_read(0, &bytes, start, end) {
                    self.fail(format!("read of {name}, created after a deletion: {message}"));
                }
            }
            // Another worker has changed or deleted the volume.
            _ => {}
        }
    }
}
