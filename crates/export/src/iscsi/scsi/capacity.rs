//! READ CAPACITY and REPORT LUNS.

use super::super::open_units::OpenUnit;
use super::super::session::IscsiSession;
use super::super::wire::WideWriter;
use super::outcome::ScsiOutcome;
use super::request::ScsiRequest;
use super::sense::Sense;
use crate::{Volume, VolumeSource};

/// Bytes of the blocks of a volume, the best unit of writes.
pub(super) const BLOCK: u32 = 4096;

impl<S: VolumeSource> OpenUnit<S> {
    /// The number of the last block.
    fn last_block(&self) -> u64 {
        (self.volume.size() / u64::from(self.volume.sector())).saturating_sub(1)
    }

    pub(super) fn read_capacity_10(&self, request: &ScsiRequest) -> Result<ScsiOutcome, Sense> {
        let is_partial = request.byte(8) & 1 != 0;
        if request.word(2) != 0 && !is_partial {
            return Err(Sense::invalid_field(2));
        }
        let last = u32::try_from(self.last_block()).unwrap_or(u32::MAX);
        let data = WideWriter::new(8).u32(0, last).u32(4, self.volume.sector()).finish();
        Ok(ScsiOutcome::bytes(data, 8))
    }

    pub(super) fn read_capacity_16(&self, request: &ScsiRequest) -> Result<ScsiOutcome, Sense> {
        let sector = self.volume.sector();
        let exponent = (BLOCK.max(sector) / sector).trailing_zeros() as u8;
        let mut data = WideWriter::new(32);
        data.u64(0, self.last_block()).u32(8, sector).u8(13, exponent);
        // Thin provisioning; unmapped blocks read as zeros.
        data.u8(14, 0x80 | 0x40);
        Ok(ScsiOutcome::bytes(data.finish(), request.word(10)))
    }
}

impl<S: VolumeSource> IscsiSession<S> {
    pub(super) fn report_luns(&self, request: &ScsiRequest) -> Result<ScsiOutcome, Sense> {
        let (select, length) = (request.byte(2), request.word(6));
        if select > 2 {
            return Err(Sense::invalid_field(2));
        }
        if length < 16 {
            return Err(Sense::invalid_field(6));
        }
        let target = self.target.as_ref();
        let units = target.map(|target| target.units(&self.nexus)).unwrap_or_default();
        let mut data = WideWriter::new(8);
        // There are no well known units.
        if select != 1 {
            for unit in units {
                data.append(WideWriter::new(8).u16(0, unit.number).finish());
            }
        }
        let list = data.len() as u32 - 8;
        Ok(ScsiOutcome::bytes(data.u32(0, list).finish(), length))
    }
}
