//! Deletes volumes while other tasks open them and wait for their QoS limits.
//!
//! A deletion is refused while the volume is open. After its acknowledgement, no write to the
//! volume is acknowledged. No such write appears in a volume created afterwards, which may reuse
//! the layer number.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use engine::{ErrorKind, Pool, VolumeService};
use reactor::Reactor;

use super::Life;
use super::errors::NO_SPACE;
use super::opening::read_all;
use crate::stretch::Stretched;

/// Milliseconds that a deletion has to free a volume before the next one is created.
const FREED_WITHIN: u64 = 100;

/// The state of a deletion, for the tasks that write to the volume.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deletion {
    Coming,
    Begun,
    Acknowledged,
}

impl Life {
    /// Deletes a volume with a QoS limit while writers open it, and creates another volume.
    pub(super) async fn delete_in_use(self: &Rc<Self>, pool: &Pool) {
        let Some(name) = self.claim() else { return };
        if self.has_snapshots(&name) {
            self.uncertain.borrow_mut().remove(&name);
            return;
        }
        let limit =
            VolumeService { operations: *self.extra.choose(&[5, 50, 500]), ..VolumeService::default() };
        self.set_service(pool, &name, limit).await;
        let deletion = Rc::new(Cell::new(Deletion::Coming));
        // Most writers start after the deletion has begun.
        let begins = self.extra.between(1, 1_000);
        let writers: Vec<_> = (0..self.extra.between(2, 12))
            .map(|_| {
                let delay = self.extra.below(2_000) + if self.extra.once_in(16) { 0 } else { begins };
                let (life, pool, name, deletion) =
                    (self.clone(), pool.clone(), name.clone(), deletion.clone());
                let write = async move { life.write_while_deleted(&pool, &name, &deletion, delay).await };
                Reactor::current().spawn(write)
            })
            .collect();
        Reactor::current().sleep(Duration::from_micros(begins)).await;
        if self.delete_beside(pool, &name, &deletion).await {
            self.count(|stats| stats.deleted_in_use += 1);
            let next = self.create_next(pool, &name).await;
            for writer in writers {
                writer.await;
            }
            if let Some(next) = next {
                self.compare_whole(pool, &next).await;
            }
        } else {
            for writer in writers {
                writer.await;
            }
        }
    }

    /// Deletes a volume. Returns true if the deletion is acknowledged.
    async fn delete_beside(&self, pool: &Pool, name: &str, deletion: &Cell<Deletion>) -> bool {
        deletion.set(Deletion::Begun);
        let used = self.users.mark(name);
        let result = pool.delete_volume(name).await;
        self.say(|| format!("delete {name}, in use: {result:?}"));
        match &result {
            Ok(()) => {
                deletion.set(Deletion::Acknowledged);
                self.volumes.borrow_mut().remove(name);
                self.uncertain.borrow_mut().remove(name);
                return true;
            }
            Err(error) if error.kind() == ErrorKind::Busy && self.users.since(name, used) => {
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
    async fn write_while_deleted(&self, pool: &Pool, name: &str, deletion: &Cell<Deletion>, delay: u64) {
        Reactor::current().sleep(Duration::from_micros(delay)).await;
        let _user = self.users.begin(name);
        let volume = match pool.open_volume(name).await {
            Ok(volume) => Stretched::new(volume.attach(), self.plan.stretch),
            Err(error) => {
                self.say(|| format!("open {name}, which is being deleted: {error:?}"));
                let may: &[ErrorKind] = match deletion.get() {
                    Deletion::Coming => &[],
                    Deletion::Begun | Deletion::Acknowledged => &[ErrorKind::NotFound, ErrorKind::Busy],
                };
                return self.tolerate("open", Err(error), may);
            }
        };
        for _ in 0..2 {
            let result = self.write_somewhere(name, &volume).await;
            match (deletion.get(), &result) {
                (Deletion::Acknowledged, Ok(())) => {
                    return self.fail(format!("a write to {name} was acknowledged after its deletion"));
                }
                (Deletion::Begun | Deletion::Acknowledged, Err(error))
                    if error.kind() == ErrorKind::Closed =>
                {
                    return;
                }
                _ => self.tolerate("write", result, NO_SPACE),
            }
        }
    }

    /// Reads an entire volume and compares it with its model.
    async fn compare_whole(&self, pool: &Pool, name: &str) {
        let _user = self.users.begin(name);
        let start = self.tick();
        let read = async {
            let volume = pool.open_volume(name).await?;
            read_all(&Stretched::new(volume.attach(), self.plan.stretch)).await
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
