//! Names of operations in flight.
//!
//! Always true: a ticket names one operation, also after that has ended and its place has been given to another.

use std::cell::Cell;

/// Names an operation in flight: its place, and which user of that place it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    generation: u32,
    key: u32,
}

impl Ticket {
    /// The place of the operation.
    pub(crate) fn key(self) -> usize {
        self.key as usize
    }

    /// The ticket as the kernel carries it. At least 2^32.
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

    /// A ticket for an operation at the place `key`.
    pub(crate) fn issue(&self, key: usize) -> Ticket {
        // Never 0; comes round after four thousand million operations, when none of the first is left.
        let generation = self.generation.get().checked_add(1).unwrap_or(1);
        self.generation.set(generation);
        Ticket { generation, key: key as u32 }
    }
}
