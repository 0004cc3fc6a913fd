//! A block device or file opened as a drive of one reactor.
//!
//! Checks each operation before it is submitted. Invariants: no operation reaches past
//! the end; memory that direct I/O cannot access goes through a bounce buffer.

use std::rc::Rc;
use std::sync::Arc;

use super::open_drive::OpenDrive;
use super::probe::DriveKind;
use crate::operation::{Allocate, Allocation, Direction, Operation, Transfer};
use crate::target::{BoundFile, Target};
use crate::{Drive, DriveProperties, Io, IoError, IoErrorKind, Platform, Span};

/// A block device or file as a drive of one reactor, made by [`crate::DriveHandle::open_on`].
pub struct FileDrive {
    opened: Arc<OpenDrive>,
    platform: Rc<Platform>,
    bound: Rc<BoundFile>,
}

impl FileDrive {
    pub(super) fn new(opened: Arc<OpenDrive>, platform: Rc<Platform>) -> Self {
        let bound = Rc::new(platform.bind(opened.file.clone(), opened.is_synchronous));
        Self { opened, platform, bound }
    }

    fn submit(&self, operation: Operation) -> Io {
        self.platform.submit(Target::File(self.bound.clone()), operation)
    }

    fn transfer(&self, direction: Direction, offset: u64, spans: &[Span]) -> Io {
        let length: usize = spans.iter().map(Span::len).sum();
        if let Err(refusal) = self.check(offset, length as u64, direction == Direction::Out) {
            return Io::ready(Err(refusal));
        }
        if length == 0 {
            return Io::ready(Ok(0));
        }
        let unit = self.opened.alignment.offset;
        let transfer = if spans.iter().all(|span| self.supports_direct_io(span)) {
            Transfer::new(direction, offset, spans, unit)
        } else {
            Transfer::bounced(direction, offset, spans, unit)
        };
        self.submit(Operation::Transfer(transfer))
    }

    fn check(&self, offset: u64, length: u64, changes: bool) -> Result<(), IoError> {
        let end = offset.checked_add(length);
        if end.is_none_or(|end| end > self.opened.properties.size) {
            return Err(IoError::new(IoErrorKind::OutOfRange));
        }
        if changes && self.opened.options.read_only {
            return Err(IoError::new(IoErrorKind::ReadOnly));
        }
        Ok(())
    }

    /// True if direct I/O can access these bytes.
    fn supports_direct_io(&self, span: &Span) -> bool {
        let alignment = self.opened.alignment;
        (span.as_ptr() as usize).is_multiple_of(alignment.memory)
            && span.len().is_multiple_of(alignment.offset)
    }

    fn allocate(&self, action: Allocation, offset: u64, length: u64) -> Io {
        if length == 0 {
            return Io::ready(Ok(0));
        }
        self.submit(Operation::Allocate(Allocate { action, offset, length }))
    }
}

impl Drive for FileDrive {
    fn properties(&self) -> DriveProperties {
        self.opened.properties
    }

    fn read(&self, offset: u64, into: &[Span]) -> Io {
        self.transfer(Direction::In, offset, into)
    }

    fn write(&self, offset: u64, from: &[Span]) -> Io {
        self.transfer(Direction::Out, offset, from)
    }

    fn flush(&self) -> Io {
        if self.opened.options.read_only {
            return Io::ready(Ok(0));
        }
        self.submit(Operation::Sync)
    }

    fn discard(&self, offset: u64, length: u64) -> Io {
        if let Err(refusal) = self.check(offset, length, true) {
            return Io::ready(Err(refusal));
        }
        if !self.opened.properties.discard {
            return Io::ready(Err(IoError::new(IoErrorKind::Unsupported)));
        }
        let action = match self.opened.kind {
            DriveKind::BlockDevice => Allocation::Discard,
            DriveKind::File => Allocation::Punch,
        };
        self.allocate(action, offset, length)
    }

    fn reserve(&self, offset: u64, length: u64) -> Io {
        if let Err(refusal) = self.check(offset, length, true) {
            return Io::ready(Err(refusal));
        }
        match self.opened.kind {
            DriveKind::BlockDevice => Io::ready(Ok(0)),
            DriveKind::File => self.allocate(Allocation::Reserve, offset, length),
        }
    }
}
