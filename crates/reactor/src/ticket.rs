//! Identifiers of operations in flight.
//!
//! Invariant: a ticket identifies one operation, even after the operation has ended and its slot is
//! reused.

use std::cell::Cell;

/// Identifies an operation in flight by its slot and the slot's generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    generation: u32,
    key: u32,
}

impl Ticket {
    /// Returns the slot of the operation.
    pub(crate) fn key(self) -> usize {
        self.key as usize
    }

    /// Returns the ticket in the form that the kernel carries (`user_data`). At least 2^32.
    pub(crate) fn to_mark(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.key)
    }

    pub(crate) fn from_mark(mark: u64) -> Self {
        Self { generation: (mark >> 32) as u32, key: mark as u32 }
    }
}

/// Issues tickets.
pub(crate) struct Tickets {
    generation: Cell<u32>,
}

impl Tickets {
    pub(crate) fn new() -> Self {
        Self { generation: Cell::new(0) }
    }

    /// Returns a new ticket for an operation in slot `key`.
    pub(crate) fn issue(&self, key: usize) -> Ticket {
        // Never 0. Wraps after 2^32 operations, when none of the first is left.
        let generation = self.generation.get().checked_add(1).unwrap_or(1);
        self.generation.set(generation);
        Ticket { generation, key: key as u32 }
    }
}
