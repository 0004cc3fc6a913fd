//! Buffers that are used again, by any thread.
//!
//! One thread receives or reads a piece of a body, another one drops it. Memory that one thread
//! allocates and another one frees is returned to the kernel and cleared again; the buffers of this
//! list are not.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of free buffers that a list keeps.
const FREE_MAX: usize = 64;

/// A list of free buffers. Clones are the same list.
pub struct FreeList<T>(Arc<Mutex<Vec<T>>>);

impl<T> FreeList<T> {
    /// Returns a free buffer, or that of `allocate`.
    pub fn take(&self, allocate: impl FnOnce() -> T) -> T {
        let free = self.lock().pop();
        free.unwrap_or_else(allocate)
    }

    /// Keeps a buffer for the next [`FreeList::take`], or drops it when the list is full.
    pub fn give_back(&self, buffer: T) {
        let mut free = self.lock();
        if free.len() < FREE_MAX {
            free.push(buffer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for FreeList<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for FreeList<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> fmt::Debug for FreeList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FreeList({} buffers)", self.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_another_thread_gave_back_is_taken() {
        let list = FreeList::default();
        let buffer = list.take(|| vec![1, 2, 3]);
        let other = list.clone();
        std::thread::spawn(move || other.give_back(buffer)).join().unwrap();
        assert_eq!(list.take(|| panic!("no free buffer")), [1, 2, 3]);
        assert_eq!(list.take(Vec::new), [0; 0]);
    }

    #[test]
    fn free_buffers_are_limited() {
        let list = FreeList::default();
        for _ in 0..FREE_MAX + 3 {
            list.give_back(0);
        }
        assert_eq!(list.lock().len(), FREE_MAX);
    }
}
