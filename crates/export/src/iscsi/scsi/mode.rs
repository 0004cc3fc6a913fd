//! MODE SENSE.

use super::super::open_units::OpenUnit;
use super::super::wire::WideWriter;
use super::opcodes::opcode;
use super::outcome::ScsiOutcome;
use super::request::ScsiRequest;
use super::sense::Sense;
use crate::{Volume, VolumeSource};

/// Pages.
mod page {
    pub(super) const ERROR_RECOVERY: u8 = 0x01;
    pub(super) const CACHING: u8 = 0x08;
    pub(super) const CONTROL: u8 = 0x0a;
    pub(super) const EXCEPTIONS: u8 = 0x1c;
    pub(super) const ALL: u8 = 0x3f;
}

/// Values of a page.
mod control {
    pub(super) const CHANGEABLE: u8 = 1;
    pub(super) const SAVED: u8 = 3;
}

/// A page of the current values; of the changeable ones, which are none, without contents.
fn page_of(code: u8, is_changeable: bool) -> Option<Vec<u8>> {
    let (length, fields): (usize, &[(usize, u8)]) = match code {
        page::ERROR_RECOVERY => (0x0a, &[(2, 0xc0)]),
        // A volatile write cache.
        page::CACHING => (0x12, &[(2, 0x04)]),
        // Commands are reordered without restriction, and time out never.
        page::CONTROL => (0x0a, &[(3, 0x10), (8, 0xff), (9, 0xff)]),
        page::EXCEPTIONS => (0x0a, &[]),
        _ => return None,
    };
    let mut data = WideWriter::new(length + 2);
    data.u8(0, code).u8(1, length as u8);
    for (at, value) in fields.iter().filter(|_| !is_changeable) {
        data.u8(*at, *value);
    }
    Some(data.finish())
}

impl<S: VolumeSource> OpenUnit<S> {
    pub(super) fn mode_sense(&self, request: &ScsiRequest) -> Result<ScsiOutcome, Sense> {
        let is_short = request.opcode() == opcode::MODE_SENSE_6;
        let length = if is_short { request.byte(4).into() } else { u32::from(request.short(7)) };
        let (values, code, subpage) = (request.byte(2) >> 6, request.byte(2) & 0x3f, request.byte(3));
        if values == control::SAVED {
            return Err(Sense::NO_SAVED_VALUES);
        }
        if subpage != 0 && subpage != 0xff {
            return Err(Sense::invalid_field(3));
        }
        let is_changeable = values == control::CHANGEABLE;
        let pages = match code {
            page::ALL => [page::ERROR_RECOVERY, page::CACHING, page::CONTROL, page::EXCEPTIONS]
                .into_iter()
                .filter_map(|code| page_of(code, is_changeable))
                .flatten()
                .collect(),
            code => page_of(code, is_changeable).ok_or(Sense::invalid_field(2))?,
        };
        let descriptor = if request.byte(1) & 0x08 != 0 { Vec::new() } else { self.block_descriptor() };
        // Write protection, and durable writes.
        let properties = if self.volume.read_only() { 0x80 } else { 0 } | 0x10;
        let rest = descriptor.len() + pages.len();
        let mut data = WideWriter::new(if is_short { 4 } else { 8 });
        match is_short {
            true => data.u8(0, (rest + 3) as u8).u8(2, properties).u8(3, descriptor.len() as u8),
            false => data.u16(0, (rest + 6) as u16).u8(3, properties).u16(6, descriptor.len() as u16),
        };
        Ok(ScsiOutcome::bytes(data.append(descriptor).append(pages).finish(), length))
    }

    /// The short block descriptor.
    fn block_descriptor(&self) -> Vec<u8> {
        let sector = self.volume.sector();
        let blocks = u32::try_from(self.volume.size() / u64::from(sector)).unwrap_or(u32::MAX);
        WideWriter::new(8).u32(0, blocks).u32(4, sector & 0xff_ffff).finish()
    }
}
