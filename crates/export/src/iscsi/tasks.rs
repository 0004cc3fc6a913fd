//! The tasks of a session: commands without a response.
//!
//! Always true: a tag names one task at a time; an aborted task has no response, and is complete
//! once it is no longer in the table.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use reactor::WaitList;

use super::wire::InitiatorHeader;

/// A command without a response.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) tag: u32,
    /// The logical unit; `None` if it is addressed in an unknown form.
    pub(super) unit: Option<u16>,
    /// The logical unit, as the initiator addresses it.
    pub(super) unit_field: u64,
    /// True for a command that the window does not count.
    pub(super) is_immediate: bool,
    aborted: Cell<bool>,
}

impl Task {
    /// True if the task has no response.
    pub(super) fn is_aborted(&self) -> bool {
        self.aborted.get()
    }
}

/// The tasks that an abort means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskFilter {
    Tag(u32),
    Unit(u16),
    All,
}

impl TaskFilter {
    fn fits(self, task: &Task) -> bool {
        match self {
            Self::Tag(tag) => task.tag == tag,
            Self::Unit(unit) => task.unit == Some(unit),
            Self::All => true,
        }
    }
}

/// The tasks of a session.
#[derive(Default)]
pub(super) struct TaskTable {
    tasks: RefCell<BTreeMap<u32, Rc<Task>>>,
    /// Tasks that the window counts.
    windowed: Cell<u32>,
    ended: WaitList,
}

impl TaskTable {
    /// Adds the task of a command. `None` if its tag is in use.
    pub(super) fn begin(&self, header: &InitiatorHeader) -> Option<Rc<Task>> {
        let (tag, is_immediate) = (header.tag(), header.is_immediate());
        let mut tasks = self.tasks.borrow_mut();
        if tasks.contains_key(&tag) {
            return None;
        }
        let (unit, unit_field) = (header.unit(), header.unit_field());
        let task = Rc::new(Task { tag, unit, unit_field, is_immediate, aborted: Cell::new(false) });
        tasks.insert(tag, task.clone());
        if !is_immediate {
            self.windowed.set(self.windowed.get() + 1);
        }
        Some(task)
    }

    /// Removes a task that has a response, or that will have none.
    pub(super) fn end(&self, task: &Task) {
        if self.tasks.borrow_mut().remove(&task.tag).is_none() {
            return;
        }
        if !task.is_immediate {
            self.windowed.set(self.windowed.get() - 1);
        }
        if task.is_aborted() {
            self.ended.wake_all();
        }
    }

    /// Ends all tasks: the connection has ended.
    pub(super) fn clear(&self) {
        self.tasks.take();
        self.ended.wake_all();
    }

    /// Tasks that the window of commands counts.
    pub(super) fn windowed(&self) -> u32 {
        self.windowed.get()
    }

    /// All tasks.
    pub(super) fn len(&self) -> usize {
        self.tasks.borrow().len()
    }

    /// Aborts tasks. Returns their number.
    pub(super) fn abort(&self, filter: TaskFilter) -> usize {
        let tasks = self.tasks.borrow();
        let aborted = tasks.values().filter(|task| filter.fits(task));
        aborted.map(|task| task.aborted.set(true)).count()
    }

    /// Waits until no aborted task that fits is in execution.
    pub(super) async fn aborted(&self, filter: TaskFilter) {
        let is_aborting = |task: &Rc<Task>| task.is_aborted() && filter.fits(task);
        self.ended.until(|| (!self.tasks.borrow().values().any(is_aborting)).then_some(())).await;
    }
}
