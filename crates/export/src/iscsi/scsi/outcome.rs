//! The results of commands.

use reactor::{Buffer, Span};

use super::sense::Sense;
use crate::{VolumeError, VolumeErrorKind};

/// The result of a command.
pub(in crate::iscsi) enum ScsiOutcome {
    /// Data for the initiator, and the bytes that the command has.
    Data(Span, u64),
    /// Success without data for the initiator; the bytes that the command has.
    Done(u64),
    /// A reservation excludes the initiator.
    Conflict,
    /// The command failed, or a unit attention is reported.
    Check(Sense),
}

impl ScsiOutcome {
    /// Data that the initiator has allocated `length` bytes for.
    pub(super) fn bytes(mut data: Vec<u8>, length: u32) -> Self {
        data.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        let wanted = data.len() as u64;
        Self::Data(Buffer::copy_of(&data).span(), wanted)
    }
}

/// The sense data for an error of a volume.
pub(super) fn sense_of(error: &VolumeError, is_read: bool) -> Sense {
    match error.kind() {
        VolumeErrorKind::NoSpace => Sense::NO_SPACE,
        VolumeErrorKind::Io if is_read => Sense::UNREADABLE,
        VolumeErrorKind::Io => Sense::WRITE_ERROR,
        VolumeErrorKind::Invalid => Sense::INVALID_FIELD,
        VolumeErrorKind::ReadOnly => Sense::WRITE_PROTECTED,
        VolumeErrorKind::Closed => Sense::NOT_READY,
    }
}
