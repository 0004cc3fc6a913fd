//! A slot in a ring's table of registered files: an operation on a registered file saves the kernel
//! a look-up and a reference count.
//!
//! Invariant: a slot is cleared only when no operation uses it, because every operation holds its
//! file.

use std::rc::Weak;

/// A table of registered files.
pub(crate) trait FixedTable {
    /// Clears a slot, which may then be used for another file.
    fn release_slot(&self, index: u32);
}

/// A file's slot in a table, released on drop.
pub(crate) struct FixedSlot {
    pub(crate) index: u32,
    pub(crate) table: Weak<dyn FixedTable>,
}

impl Drop for FixedSlot {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            table.release_slot(self.index);
        }
    }
}
