//! INQUIRY, with its pages of vital product data.

use super::super::limits::TRANSFER_MAX;
use super::super::open_units::OpenUnit;
use super::super::session::IscsiSession;
use super::super::wire::WideWriter;
use super::capacity::BLOCK;
use super::outcome::ScsiOutcome;
use super::provisioning::{SAME_MAX, UNMAP_MAX, UNMAP_RANGES};
use super::request::ScsiRequest;
use super::sense::Sense;
use crate::fnv::fnv1a;
use crate::{Volume, VolumeSource};

/// The vendor of all units.
const VENDOR: &str = "GABION";
const PRODUCT: &str = "Gabion volume";
/// The version of the program, for initiators.
const REVISION: &str = env!("CARGO_PKG_VERSION");
/// The peripheral type of a unit that does not exist.
const NO_UNIT: u8 = 0x7f;

/// Pages of vital product data.
mod page {
    pub(super) const SUPPORTED: u8 = 0x00;
    pub(super) const SERIAL: u8 = 0x80;
    pub(super) const IDENTIFICATION: u8 = 0x83;
    pub(super) const BLOCK_LIMITS: u8 = 0xb0;
    pub(super) const CHARACTERISTICS: u8 = 0xb1;
    pub(super) const PROVISIONING: u8 = 0xb2;
}

/// The standards that the target follows: SAM-5, iSCSI, SPC-4, SBC-3.
const STANDARDS: [u16; 4] = [0x00a0, 0x0960, 0x0460, 0x04c0];

impl<S: VolumeSource> IscsiSession<S> {
    pub(super) fn inquiry(
        &self,
        open: Option<&OpenUnit<S>>,
        request: &ScsiRequest,
    ) -> Result<ScsiOutcome, Sense> {
        let (wants_page, code, length) = (request.byte(1) & 1 != 0, request.byte(2), request.short(3));
        if !wants_page && code != 0 {
            return Err(Sense::invalid_field(2));
        }
        let data = match (wants_page, open) {
            (false, _) => standard(open.is_some()),
            (true, Some(open)) => page(code, self.page_of(open, code).ok_or(Sense::invalid_field(2))?),
            (true, None) => return Err(Sense::NO_UNIT),
        };
        Ok(ScsiOutcome::bytes(data, length.into()))
    }

    /// The contents of a page, after its header.
    fn page_of(&self, open: &OpenUnit<S>, code: u8) -> Option<Vec<u8>> {
        Some(match code {
            page::SUPPORTED => vec![
                page::SUPPORTED,
                page::SERIAL,
                page::IDENTIFICATION,
                page::BLOCK_LIMITS,
                page::CHARACTERISTICS,
                page::PROVISIONING,
            ],
            page::SERIAL => hex(&open.unit.identity).into_bytes(),
            page::IDENTIFICATION => self.designators(open),
            page::BLOCK_LIMITS => block_limits(open),
            // The medium does not rotate.
            page::CHARACTERISTICS => WideWriter::new(60).u16(0, 1).finish(),
            // UNMAP, and WRITE SAME of both lengths; unmapped blocks read as zeros; thin.
            page::PROVISIONING => vec![0, 0x80 | 0x40 | 0x20 | 0x04, 2, 0],
            _ => return None,
        })
    }

    /// The names of the unit and of the port through which it is reached.
    fn designators(&self, open: &OpenUnit<S>) -> Vec<u8> {
        let (identity, target) = (open.unit.identity, self.target.as_ref());
        let mut data = Vec::new();
        // A locally assigned name (NAA 3), which initiators derive device names from.
        let local = fnv1a(&identity).to_be_bytes();
        let second = fnv1a(&[&identity[..], b"2"].concat()).to_be_bytes();
        let mut number: Vec<u8> = local.into_iter().chain(second).take(8).collect();
        if let Some(first) = number.first_mut() {
            *first = *first & 0x0f | 0x30;
        }
        data.extend(designator(0x01, 0x03, &number));
        data.extend(designator(0x02, 0x01, format!("{VENDOR:8}{}", hex(&identity)).as_bytes()));
        // A UUID.
        data.extend(designator(0x01, 0x0a, &[&[0x10, 0][..], &identity].concat()));
        // The relative number and the name of the target port.
        data.extend(designator(0x51, 0x14, &[0, 0, 0, 1]));
        if let Some(target) = target {
            let mut name = format!("{},t,0x0001", target.name).into_bytes();
            name.resize((name.len() + 1).next_multiple_of(4), 0);
            data.extend(designator(0x53, 0x18, &name));
        }
        data
    }
}

/// A designation descriptor: code set, and association with type.
fn designator(set: u8, kind: u8, bytes: &[u8]) -> Vec<u8> {
    // A designator of a port names its protocol, iSCSI.
    let is_port = kind & 0x30 != 0;
    let validity = if is_port { 0x80 } else { 0 };
    [&[set, kind | validity, 0, bytes.len() as u8][..], bytes].concat()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn page(code: u8, contents: Vec<u8>) -> Vec<u8> {
    let length = contents.len() as u16;
    WideWriter::new(4).u8(1, code).u16(2, length).append(contents).finish()
}

/// The standard data.
fn standard(exists: bool) -> Vec<u8> {
    let mut data = WideWriter::new(96);
    // SPC-4; hierarchical addressing, and the data format of the standard.
    data.u8(0, if exists { 0 } else { NO_UNIT }).u8(2, 0x06).u8(3, 0x12).u8(4, 91);
    // Commands are queued.
    data.u8(7, 0x02).text(8, 8, VENDOR).text(16, 16, PRODUCT).text(32, 4, REVISION);
    for (at, standard) in (58..).step_by(2).zip(STANDARDS) {
        data.u16(at, standard);
    }
    data.finish()
}

fn block_limits<S: VolumeSource>(open: &OpenUnit<S>) -> Vec<u8> {
    let sector = open.volume.sector();
    let blocks = |bytes: u64| u32::try_from(bytes / u64::from(sector)).unwrap_or(u32::MAX);
    let unit = BLOCK.max(sector) / sector;
    // Offsets are those of the page less its header of four bytes. WRITE SAME needs a length.
    let mut data = WideWriter::new(60);
    data.u8(0, 1).u8(1, open.swap_blocks() as u8).u16(2, unit as u16);
    data.u32(4, blocks(TRANSFER_MAX.into())).u32(8, blocks(128 << 10));
    data.u32(16, blocks(UNMAP_MAX)).u32(20, UNMAP_RANGES).u32(24, unit);
    // The alignment of the unit of unmapping is valid: 0.
    data.u32(28, 1 << 31).u64(32, blocks(SAME_MAX).into());
    data.finish()
}
