//! The numbers of the target's commands and of their service actions.

/// Operation codes.
pub(in crate::iscsi) mod opcode {
    pub(in crate::iscsi) const TEST_UNIT_READY: u8 = 0x00;
    pub(in crate::iscsi) const REQUEST_SENSE: u8 = 0x03;
    pub(in crate::iscsi) const READ_6: u8 = 0x08;
    pub(in crate::iscsi) const WRITE_6: u8 = 0x0a;
    pub(in crate::iscsi) const INQUIRY: u8 = 0x12;
    pub(in crate::iscsi) const RESERVE_6: u8 = 0x16;
    pub(in crate::iscsi) const RELEASE_6: u8 = 0x17;
    pub(in crate::iscsi) const MODE_SENSE_6: u8 = 0x1a;
    pub(in crate::iscsi) const START_STOP_UNIT: u8 = 0x1b;
    pub(in crate::iscsi) const PREVENT_ALLOW: u8 = 0x1e;
    pub(in crate::iscsi) const READ_CAPACITY_10: u8 = 0x25;
    pub(in crate::iscsi) const READ_10: u8 = 0x28;
    pub(in crate::iscsi) const WRITE_10: u8 = 0x2a;
    pub(in crate::iscsi) const WRITE_VERIFY_10: u8 = 0x2e;
    pub(in crate::iscsi) const VERIFY_10: u8 = 0x2f;
    pub(in crate::iscsi) const PREFETCH_10: u8 = 0x34;
    pub(in crate::iscsi) const SYNCHRONIZE_10: u8 = 0x35;
    pub(in crate::iscsi) const WRITE_SAME_10: u8 = 0x41;
    pub(in crate::iscsi) const UNMAP: u8 = 0x42;
    pub(in crate::iscsi) const MODE_SENSE_10: u8 = 0x5a;
    pub(in crate::iscsi) const RESERVE_IN: u8 = 0x5e;
    pub(in crate::iscsi) const RESERVE_OUT: u8 = 0x5f;
    pub(in crate::iscsi) const READ_16: u8 = 0x88;
    pub(in crate::iscsi) const COMPARE_AND_WRITE: u8 = 0x89;
    pub(in crate::iscsi) const WRITE_16: u8 = 0x8a;
    pub(in crate::iscsi) const WRITE_VERIFY_16: u8 = 0x8e;
    pub(in crate::iscsi) const VERIFY_16: u8 = 0x8f;
    pub(in crate::iscsi) const PREFETCH_16: u8 = 0x90;
    pub(in crate::iscsi) const SYNCHRONIZE_16: u8 = 0x91;
    pub(in crate::iscsi) const WRITE_SAME_16: u8 = 0x93;
    pub(in crate::iscsi) const SERVICE_IN_16: u8 = 0x9e;
    pub(in crate::iscsi) const REPORT_LUNS: u8 = 0xa0;
    pub(in crate::iscsi) const MAINTENANCE_IN: u8 = 0xa3;
    pub(in crate::iscsi) const READ_12: u8 = 0xa8;
    pub(in crate::iscsi) const WRITE_12: u8 = 0xaa;
    pub(in crate::iscsi) const WRITE_VERIFY_12: u8 = 0xae;
    pub(in crate::iscsi) const VERIFY_12: u8 = 0xaf;
}

/// Service actions.
pub(super) mod action {
    pub(in crate::iscsi) const READ_CAPACITY_16: u8 = 0x10;
    pub(in crate::iscsi) const GET_LBA_STATUS: u8 = 0x12;
    pub(in crate::iscsi) const REPORT_OPCODES: u8 = 0x0c;
}
