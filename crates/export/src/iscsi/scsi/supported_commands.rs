//! The commands of the target, and the command that reports them.

use super::super::wire::WideWriter;
use super::opcodes::{action, opcode};
use super::outcome::ScsiOutcome;
use super::request::ScsiRequest;
use super::sense::Sense;

/// A command, its service action, and the bits of its descriptor block that the target evaluates,
/// from its second byte on.
struct SupportedCommand(u8, Option<u16>, &'static [u8]);

const RW_6: &[u8] = &[0x1f, 0xff, 0xff, 0xff, 0x00];
const NONE_6: &[u8] = &[0, 0, 0, 0, 0];
const RW_10: &[u8] = &[0xf8, 0xff, 0xff, 0xff, 0xff, 0x00, 0xff, 0xff, 0x00];
const VERIFY_10: &[u8] = &[0xf6, 0xff, 0xff, 0xff, 0xff, 0x00, 0xff, 0xff, 0x00];
const SYNC_10: &[u8] = &[0x02, 0xff, 0xff, 0xff, 0xff, 0x00, 0xff, 0xff, 0x00];
const RW_12: &[u8] = &[0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00];
const VERIFY_12: &[u8] = &[0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00];
const RW_16: &[u8] =
    &[0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00];
const VERIFY_16: &[u8] =
    &[0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00];
const SYNC_16: &[u8] =
    &[0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00];
const SAME_16: &[u8] =
    &[0xf9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00];
const SWAP_16: &[u8] =
    &[0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0xff, 0x00, 0x00];
const STATUS_16: &[u8] =
    &[0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00];
const CAPACITY_16: &[u8] = &[0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00];
const IN_10: &[u8] = &[0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0x00];
const OUT_10: &[u8] = &[0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x00];
const LUNS_12: &[u8] = &[0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
const OPCODES_12: &[u8] = &[0x1f, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0];

/// The commands in the order of their codes.
const COMMANDS: &[SupportedCommand] = &[
    SupportedCommand(opcode::TEST_UNIT_READY, None, NONE_6),
    SupportedCommand(opcode::REQUEST_SENSE, None, &[0x01, 0, 0, 0xff, 0]),
    SupportedCommand(opcode::READ_6, None, RW_6),
    SupportedCommand(opcode::WRITE_6, None, RW_6),
    SupportedCommand(opcode::INQUIRY, None, &[0x01, 0xff, 0xff, 0xff, 0]),
    SupportedCommand(opcode::RESERVE_6, None, NONE_6),
    SupportedCommand(opcode::RELEASE_6, None, NONE_6),
    SupportedCommand(opcode::MODE_SENSE_6, None, &[0x08, 0xff, 0xff, 0xff, 0]),
    SupportedCommand(opcode::START_STOP_UNIT, None, &[0x01, 0, 0x0f, 0xf7, 0]),
    SupportedCommand(opcode::PREVENT_ALLOW, None, &[0, 0, 0, 0x03, 0]),
    SupportedCommand(opcode::READ_CAPACITY_10, None, &[0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]),
    SupportedCommand(opcode::READ_10, None, RW_10),
    SupportedCommand(opcode::WRITE_10, None, RW_10),
    SupportedCommand(opcode::WRITE_VERIFY_10, None, VERIFY_10),
    SupportedCommand(opcode::VERIFY_10, None, VERIFY_10),
    SupportedCommand(opcode::PREFETCH_10, None, SYNC_10),
    SupportedCommand(opcode::SYNCHRONIZE_10, None, SYNC_10),
    SupportedCommand(opcode::WRITE_SAME_10, None, RW_10),
    SupportedCommand(opcode::UNMAP, None, &[0x01, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    SupportedCommand(opcode::MODE_SENSE_10, None, &[0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0]),
    SupportedCommand(opcode::RESERVE_IN, Some(0), IN_10),
    SupportedCommand(opcode::RESERVE_IN, Some(1), IN_10),
    SupportedCommand(opcode::RESERVE_IN, Some(2), IN_10),
    SupportedCommand(opcode::RESERVE_IN, Some(3), IN_10),
    SupportedCommand(opcode::RESERVE_OUT, Some(0), OUT_10),
    SupportedCommand(opcode::RESERVE_OUT, Some(1), OUT_10),
    SupportedCommand(opcode::RESERVE_OUT, Some(2), OUT_10),
    SupportedCommand(opcode::RESERVE_OUT, Some(3), OUT_10),
    SupportedCommand(opcode::RESERVE_OUT, Some(4), OUT_10),
    SupportedCommand(opcode::RESERVE_OUT, Some(5), OUT_10),
    SupportedCommand(opcode::RESERVE_OUT, Some(6), OUT_10),
    SupportedCommand(opcode::READ_16, None, RW_16),
    SupportedCommand(opcode::COMPARE_AND_WRITE, None, SWAP_16),
    SupportedCommand(opcode::WRITE_16, None, RW_16),
    SupportedCommand(opcode::WRITE_VERIFY_16, None, VERIFY_16),
    SupportedCommand(opcode::VERIFY_16, None, VERIFY_16),
    SupportedCommand(opcode::PREFETCH_16, None, SYNC_16),
    SupportedCommand(opcode::SYNCHRONIZE_16, None, SYNC_16),
    SupportedCommand(opcode::WRITE_SAME_16, None, SAME_16),
    SupportedCommand(opcode::SERVICE_IN_16, Some(action::READ_CAPACITY_16 as u16), CAPACITY_16),
    SupportedCommand(opcode::SERVICE_IN_16, Some(action::GET_LBA_STATUS as u16), STATUS_16),
    SupportedCommand(opcode::REPORT_LUNS, None, LUNS_12),
    SupportedCommand(opcode::MAINTENANCE_IN, Some(action::REPORT_OPCODES as u16), OPCODES_12),
    SupportedCommand(opcode::READ_12, None, RW_12),
    SupportedCommand(opcode::WRITE_12, None, RW_12),
    SupportedCommand(opcode::WRITE_VERIFY_12, None, VERIFY_12),
    SupportedCommand(opcode::VERIFY_12, None, VERIFY_12),
];

/// Answers REPORT SUPPORTED OPERATION CODES.
pub(super) fn report_opcodes(request: &ScsiRequest) -> Result<ScsiOutcome, Sense> {
    let with_timeouts = request.byte(2) & 0x80 != 0;
    let (opcode, action, length) = (request.byte(3), request.short(4), request.word(6));
    let data = match request.byte(2) & 7 {
        0 => all_commands(with_timeouts),
        1 => {
            if COMMANDS.iter().any(|command| command.0 == opcode && command.1.is_some()) {
                return Err(Sense::invalid_field(2));
            }
            one_command(COMMANDS.iter().find(|command| command.0 == opcode), with_timeouts)
        }
        2 => {
            if COMMANDS.iter().any(|command| command.0 == opcode && command.1.is_none()) {
                return Err(Sense::invalid_field(2));
            }
            let found = COMMANDS.iter().find(|command| command.0 == opcode && command.1 == Some(action));
            one_command(found, with_timeouts)
        }
        3 => {
            let fits = |command: &&SupportedCommand| {
                command.0 == opcode && command.1.map_or(action == 0, |own| own == action)
            };
            one_command(COMMANDS.iter().find(fits), with_timeouts)
        }
        _ => return Err(Sense::invalid_field(2)),
    };
    Ok(ScsiOutcome::bytes(data, length))
}

fn all_commands(with_timeouts: bool) -> Vec<u8> {
    let mut data = WideWriter::new(4);
    for SupportedCommand(opcode, action, usage) in COMMANDS {
        let mut entry = WideWriter::new(8);
        let flags = if with_timeouts { 2 } else { 0 } | u8::from(action.is_some());
        entry.u8(0, *opcode).u16(2, action.unwrap_or(0)).u8(5, flags).u16(6, usage.len() as u16 + 1);
        data.append(entry.finish());
        if with_timeouts {
            data.append(no_timeouts());
        }
    }
    let length = data.len() as u32 - 4;
    data.u32(0, length).finish()
}

fn one_command(command: Option<&SupportedCommand>, with_timeouts: bool) -> Vec<u8> {
    let mut data = WideWriter::new(4);
    let Some(SupportedCommand(opcode, action, usage)) = command else {
        // The command is not supported.
        return data.u8(1, 1).finish();
    };
    let timeouts = if with_timeouts { 0x80 } else { 0 };
    // Supported as the standard specifies it.
    data.u8(1, 3 | timeouts).u16(2, usage.len() as u16 + 1);
    data.append([*opcode]).append(usage);
    if let Some(action) = action {
        let bits = usage.first().copied().unwrap_or(0) & !0x1f | (*action as u8 & 0x1f);
        data.u8(5, bits);
    }
    if with_timeouts {
        data.append(no_timeouts());
    }
    data.finish()
}

/// A descriptor of command timeouts that indicates none.
fn no_timeouts() -> Vec<u8> {
    WideWriter::new(12).u16(0, 10).finish()
}
