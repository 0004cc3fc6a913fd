//! The interrupts of queues: a load that has nothing to do waits for one.

use std::io::{ErrorKind, Result};
use std::os::fd::AsRawFd;

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use super::load::QueueLoad;

/// Maximum wait in milliseconds: the load then polls its queues, and may have a request due.
const WAIT_MS: i32 = 20;

/// The interrupts of all queues of a thread.
pub(super) struct QueueCalls(Epoll);

impl QueueCalls {
    pub(super) fn of(loads: &[(usize, QueueLoad)]) -> Result<Self> {
        let calls = Epoll::new()?;
        for (_, load) in loads {
            calls.ctl(
                ControlOperation::Add,
                load.queue.call.as_raw_fd(),
                EpollEvent::new(EventSet::IN, 0),
            )?;
        }
        Ok(Self(calls))
    }

    /// Waits until a queue has a completion. A load with a fixed rate does not wait.
    pub(super) fn wait(&self, loads: &mut [(usize, QueueLoad)]) -> Result<()> {
        if loads.iter().any(|(_, load)| load.has_rate()) {
            return Ok(());
        }
        let mut completed = false;
        for (_, load) in &mut *loads {
            completed |= load.queue.ring.want_interrupt();
        }
        if !completed {
            let mut events = [EpollEvent::default(); 64];
            match self.0.wait(WAIT_MS, &mut events) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        for (_, load) in loads {
            load.queue.ring.want_no_interrupts();
            // Fails if there was no interrupt, because the descriptor does not block.
            let _ = load.queue.call.read();
        }
        Ok(())
    }
}
