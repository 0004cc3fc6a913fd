//! The number of machines that run at once: one for each processor of the host.

use std::sync::{Condvar, Mutex};

/// Machines that run.
static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// The right to run a machine. Emulated machines beyond the host's processors delay each other.
pub(crate) struct Turn(());

impl Turn {
    /// Waits until fewer machines run than the host has processors.
    pub(crate) fn wait() -> Self {
        let processors = std::thread::available_parallelism().unwrap().get();
        let mut running =
            ENDED.wait_while(RUNNING.lock().unwrap(), |running| *running >= processors).unwrap();
        *running += 1;
        Self(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap() -= 1;
        ENDED.notify_one();
    }
}
