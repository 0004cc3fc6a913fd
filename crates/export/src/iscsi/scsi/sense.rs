//! Sense data: the reason why a command failed, or a unit attention.

/// A sense key with its additional codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::iscsi) struct Sense {
    key: u8,
    code: u8,
    qualifier: u8,
    information: Option<u32>,
    /// The first byte of the command that is invalid.
    field: Option<u16>,
}

const MEDIUM_ERROR: u8 = 0x3;
const HARDWARE_ERROR: u8 = 0x4;
const ILLEGAL_REQUEST: u8 = 0x5;
const UNIT_ATTENTION: u8 = 0x6;
const DATA_PROTECT: u8 = 0x7;
const ABORTED_COMMAND: u8 = 0xb;
const MISCOMPARE: u8 = 0xe;
const NOT_READY: u8 = 0x2;

impl Sense {
    pub(in crate::iscsi) const NONE: Self = Self::new(0, 0, 0);
    pub(in crate::iscsi) const NOT_READY: Self = Self::new(NOT_READY, 0x04, 0x00);
    pub(in crate::iscsi) const WRITE_ERROR: Self = Self::new(MEDIUM_ERROR, 0x0c, 0x00);
    pub(in crate::iscsi) const UNREADABLE: Self = Self::new(MEDIUM_ERROR, 0x11, 0x00);
    pub(in crate::iscsi) const INTERNAL: Self = Self::new(HARDWARE_ERROR, 0x44, 0x00);
    pub(in crate::iscsi) const LIST_LENGTH: Self = Self::new(ILLEGAL_REQUEST, 0x1a, 0x00);
    pub(in crate::iscsi) const INVALID_OPCODE: Self = Self::new(ILLEGAL_REQUEST, 0x20, 0x00);
    pub(in crate::iscsi) const BEYOND_END: Self = Self::new(ILLEGAL_REQUEST, 0x21, 0x00);
    pub(in crate::iscsi) const INVALID_FIELD: Self = Self::new(ILLEGAL_REQUEST, 0x24, 0x00);
    pub(in crate::iscsi) const NO_UNIT: Self = Self::new(ILLEGAL_REQUEST, 0x25, 0x00);
    pub(in crate::iscsi) const INVALID_LIST: Self = Self::new(ILLEGAL_REQUEST, 0x26, 0x00);
    pub(in crate::iscsi) const INVALID_RELEASE: Self = Self::new(ILLEGAL_REQUEST, 0x26, 0x04);
    pub(in crate::iscsi) const NO_SAVED_VALUES: Self = Self::new(ILLEGAL_REQUEST, 0x39, 0x00);
    pub(in crate::iscsi) const NO_REGISTRATION: Self = Self::new(ILLEGAL_REQUEST, 0x55, 0x04);
    pub(in crate::iscsi) const WRITE_PROTECTED: Self = Self::new(DATA_PROTECT, 0x27, 0x00);
    pub(in crate::iscsi) const NO_SPACE: Self = Self::new(DATA_PROTECT, 0x27, 0x07);
    /// The data of a write did not arrive in order.
    pub(in crate::iscsi) const DATA_PHASE: Self = Self::new(ABORTED_COMMAND, 0x4b, 0x00);
    pub(in crate::iscsi) const UNIT_RESET: Self = Self::new(UNIT_ATTENTION, 0x29, 0x03);
    pub(in crate::iscsi) const COMMANDS_CLEARED: Self = Self::new(UNIT_ATTENTION, 0x2f, 0x00);
    pub(in crate::iscsi) const CAPACITY_CHANGED: Self = Self::new(UNIT_ATTENTION, 0x2a, 0x09);
    pub(in crate::iscsi) const RESERVATIONS_PREEMPTED: Self = Self::new(UNIT_ATTENTION, 0x2a, 0x03);
    pub(in crate::iscsi) const RESERVATIONS_RELEASED: Self = Self::new(UNIT_ATTENTION, 0x2a, 0x04);
    pub(in crate::iscsi) const REGISTRATIONS_PREEMPTED: Self = Self::new(UNIT_ATTENTION, 0x2a, 0x05);
    pub(in crate::iscsi) const UNITS_CHANGED: Self = Self::new(UNIT_ATTENTION, 0x3f, 0x0e);

    const fn new(key: u8, code: u8, qualifier: u8) -> Self {
        Self { key, code, qualifier, information: None, field: None }
    }

    /// Data differs at this byte of the command's data.
    pub(in crate::iscsi) fn miscompare(at: u64) -> Self {
        let information = Some(u32::try_from(at).unwrap_or(u32::MAX));
        Self { information, ..Self::new(MISCOMPARE, 0x1d, 0x00) }
    }

    /// A field of the command that begins at this byte is invalid.
    pub(in crate::iscsi) fn invalid_field(at: u16) -> Self {
        Self { field: Some(at), ..Self::INVALID_FIELD }
    }

    /// The sense data in fixed format.
    pub(in crate::iscsi) fn encode(&self) -> [u8; 18] {
        let valid = if self.information.is_some() { 0x80 } else { 0 };
        let information = self.information.unwrap_or(0).to_be_bytes();
        let [high, low] = self.field.unwrap_or(0).to_be_bytes();
        // The field pointer is valid, and points at the command.
        let specific = if self.field.is_some() { 0xc0 } else { 0 };
        let [a, b, c, d] = information;
        [
            0x70 | valid,
            0,
            self.key,
            a,
            b,
            c,
            d,
            10,
            0,
            0,
            0,
            0,
            self.code,
            self.qualifier,
            0,
            specific,
            high,
            low,
        ]
    }
}
