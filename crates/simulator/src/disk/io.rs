//! A simulated drive as the engine uses it: each operation completes after its latency, with or
//! without effect.
//!
//! [`Disk`] owns the content and applies the effect of an operation. This module decides when that
//! happens and which result the engine gets.

use std::rc::Rc;

use engine::DriveSource;
use reactor::{Completer, Drive, DriveProperties, Io, IoError, IoErrorKind, Span, completion};

use super::{Disk, PAGE};

/// A drive source that claims to be usable from any thread. The simulation has only one.
pub(super) struct SimulatedDriveSource {
    disk: SameThread<Rc<Disk>>,
}

/// A value of this thread in a type that must be `Send`. The simulation never uses it on another
/// thread.
struct SameThread<T>(T);

impl SimulatedDriveSource {
    pub(super) fn new(disk: Rc<Disk>) -> Self {
        Self { disk: SameThread(disk) }
    }

    fn disk(&self) -> &Rc<Disk> {
        &self.disk.0
    }
}

mod same_thread {
    //! The one guarantee of the simulation that the compiler does not check: it has one thread.
    #![allow(unsafe_code)]

    use super::SameThread;

    // SAFETY: a run of the simulator makes, uses and drops its drives on the thread it runs on;
    // sources are handed to the engine, which runs on that same thread.
    unsafe impl<T> Send for SameThread<T> {}
    // SAFETY: as above.
    unsafe impl<T> Sync for SameThread<T> {}
}

impl DriveSource for SimulatedDriveSource {
    fn open(&self) -> Rc<dyn Drive> {
        Rc::new(OpenDisk { disk: self.disk().clone() })
    }

    fn path(&self) -> String {
        self.disk().name.clone()
    }
}

/// A drive as the engine uses it. Its operations end when the run drops it.
struct OpenDisk {
    disk: Rc<Disk>,
}

impl OpenDisk {
    /// Starts an operation on `length` bytes that completes with the result of `effect` after the
    /// drive's latency.
    fn complete_later(
        &self,
        length: usize,
        effect: impl FnOnce(&Disk) -> Result<usize, IoError> + 'static,
    ) -> Io {
        let (completer, io) = completion();
        let disk = self.disk.clone();
        let pending = PendingCompletion { completer: Some(completer) };
        let delay = self.disk.transfer(length) + self.disk.latency();
        let ends = move |failing: bool| {
            let error = match failing {
                _ if disk.is_dead() => Some(IoErrorKind::Gone),
                true => Some(IoErrorKind::Medium),
                false => None,
            };
            pending.complete(error.map_or_else(|| effect(&disk), |kind| Err(IoError::new(kind))));
        };
        let disk = self.disk.clone();
        self.disk.events.schedule(delay, move || disk.complete_or_hold(Box::new(ends)));
        io
    }

    /// Returns an operation that never completes, because the power is off.
    fn pending_forever(&self) -> Io {
        let (completer, io) = completion();
        drop(PendingCompletion { completer: Some(completer) });
        io
    }
}

/// A completer that completes nothing when it is dropped with the event queue at a power cut.
struct PendingCompletion {
    completer: Option<Completer>,
}

impl PendingCompletion {
    fn complete(mut self, result: Result<usize, IoError>) {
        if let Some(completer) = self.completer.take() {
            completer.complete(result);
        }
    }
}

impl Drop for PendingCompletion {
    #[allow(clippy::mem_forget)]
    fn drop(&mut self) {
        if let Some(completer) = self.completer.take() {
            std::mem::forget(completer);
        }
    }
}

impl Drive for OpenDisk {
    fn properties(&self) -> DriveProperties {
        DriveProperties {
            size: self.disk.size.get(),
            logical_sector: self.disk.options.sector,
            physical_sector: 4096,
            volatile_cache: self.disk.options.volatile_cache,
            discard: true,
            sparse: true,
            rotational: false,
        }
    }

    fn read(&self, offset: u64, into: &[Span]) -> Io {
        let length: usize = into.iter().map(Span::len).sum();
        if !self.disk.count_operation() {
            return self.pending_forever();
        }
        if let Err(error) = self.disk.check(offset, length as u64) {
            return Io::ready(Err(error));
        }
        if let Some(timeout) = self.disk.read_timeout.get() {
            let (completer, io) = completion();
            let pending = PendingCompletion { completer: Some(completer) };
            self.disk
                .events
                .schedule(timeout, move || pending.complete(Err(IoError::new(IoErrorKind::Gone))));
            return io;
        }
        let into = into.to_vec();
        self.complete_later(length, move |disk| {
            let mut page = offset / PAGE as u64;
            for span in &into {
                for at in (0..span.len()).step_by(PAGE) {
                    disk.apply_read_faults(page);
                    span.copy_from(at, &disk.read_page(page)?[..]);
                    page += 1;
                }
            }
            Ok(length)
        })
    }

    fn write(&self, offset: u64, from: &[Span]) -> Io {
        let length: usize = from.iter().map(Span::len).sum();
        let on = self.disk.count_operation();
        if let Err(error) = self.disk.check(offset, length as u64) {
            return Io::ready(Err(error));
        }
        let fails = self.disk.count_store();
        // The write that the power cut hits may also have reached the medium.
        let (order, touched) = self.disk.submit_write(offset, from, fails);
        if !on {
            return self.pending_forever();
        }
        self.complete_later(length, move |disk| {
            disk.complete_write(order, &touched);
            if fails { Err(IoError::new(IoErrorKind::Medium)) } else { Ok(length) }
        })
    }

    fn flush(&self) -> Io {
        if !self.disk.count_operation() {
            return self.pending_forever();
        }
        if let Err(error) = self.disk.check(0, 0) {
            return Io::ready(Err(error));
        }
        let order = self.disk.order.get();
        let fails = self.disk.count_store();
        self.complete_later(0, move |disk| {
            if fails {
                disk.fail_flush(order);
                return Err(IoError::new(IoErrorKind::Medium));
            }
            disk.complete_flush(order);
            Ok(0)
        })
    }

    fn discard(&self, offset: u64, length: u64) -> Io {
        if !self.disk.count_operation() {
            return self.pending_forever();
        }
        if let Err(error) = self.disk.check(offset, length) {
            return Io::ready(Err(error));
        }
        self.complete_later(0, move |disk| {
            // The content of a discarded page is undefined: its old bytes, zeros or garbage.
            let mut state = disk.state.borrow_mut();
            for page in offset / PAGE as u64..(offset + length) / PAGE as u64 {
                match disk.random.below(3) {
                    0 => {}
                    1 => {
                        state.durable.remove(&page);
                        state.cache.remove(&page);
                    }
                    _ => {
                        if let Some(bytes) = state.durable.get_mut(&page) {
                            disk.random.fill(Rc::make_mut(bytes).split_at_mut(64).0);
                        }
                    }
                }
            }
            Ok(0)
        })
    }

    fn reserve(&self, _offset: u64, _length: u64) -> Io {
        if !self.disk.count_operation() {
            return self.pending_forever();
        }
        let refused = self.disk.count_reservation();
        self.complete_later(0, move |_| if refused { Err(IoError::new(IoErrorKind::NoSpace)) } else { Ok(0) })
    }
}
