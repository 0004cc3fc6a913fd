//! The execution of a SCSI command: the checks that all commands share, then the command.

use std::rc::Rc;

use super::super::open_units::OpenUnit;
use super::super::session::IscsiSession;
use super::super::tasks::Task;
use super::opcodes::{action, opcode};
use super::outcome::ScsiOutcome;
use super::request::ScsiRequest;
use super::sense::Sense;
use super::supported_commands::report_opcodes;
use crate::VolumeSource;
use crate::reservation::AccessKind;
use crate::transport::{Charge, Payload};

/// The effect of a command that reservations restrict; `None` for commands that every initiator may
/// send.
fn access_of(code: u8) -> Option<AccessKind> {
    match code {
        opcode::READ_6
        | opcode::READ_10
        | opcode::READ_12
        | opcode::READ_16
        | opcode::VERIFY_10
        | opcode::VERIFY_12
        | opcode::VERIFY_16
        | opcode::PREFETCH_10
        | opcode::PREFETCH_16 => Some(AccessKind::Read),
        opcode::WRITE_6
        | opcode::WRITE_10
        | opcode::WRITE_12
        | opcode::WRITE_16
        | opcode::WRITE_VERIFY_10
        | opcode::WRITE_VERIFY_12
        | opcode::WRITE_VERIFY_16
        | opcode::WRITE_SAME_10
        | opcode::WRITE_SAME_16
        | opcode::COMPARE_AND_WRITE
        | opcode::UNMAP
        | opcode::SYNCHRONIZE_10
        | opcode::SYNCHRONIZE_16 => Some(AccessKind::Write),
        _ => None,
    }
}

impl<S: VolumeSource> IscsiSession<S> {
    /// Executes a command and completes its task.
    pub(in crate::iscsi) async fn execute_scsi(
        self: Rc<Self>,
        task: Rc<Task>,
        request: ScsiRequest,
        data: Option<Payload>,
        charge: Charge,
    ) {
        let outcome = match self.execute(&request, data).await {
            Ok(outcome) => outcome,
            Err(sense) => ScsiOutcome::Check(sense),
        };
        if let ScsiOutcome::Check(sense) = &outcome {
            let (target, unit) = (self.target.as_ref().map(|target| &target.name), request.unit);
            tracing::debug!(target_name = target, unit, opcode = request.opcode(), ?sense, "command failed");
        }
        self.complete(&task, &request, outcome, charge);
    }

    async fn execute(&self, request: &ScsiRequest, data: Option<Payload>) -> Result<ScsiOutcome, Sense> {
        let code = request.opcode();
        if code == opcode::REPORT_LUNS {
            return self.report_luns(request);
        }
        let open = request.unit.and_then(|unit| self.units.get(unit));
        let Some(open) = open else { return self.execute_without_unit(request) };
        match code {
            opcode::INQUIRY => return self.inquiry(Some(&open), request),
            opcode::REQUEST_SENSE => {
                let sense = open.attentions.take().unwrap_or(Sense::NONE);
                return request_sense(request, sense);
            }
            _ => {}
        }
        if let Some(attention) = open.attentions.take() {
            return Err(attention);
        }
        if self.is_excluded(&open, code) {
            return Ok(ScsiOutcome::Conflict);
        }
        if code == opcode::RESERVE_OUT {
            return self.reserve_out(&open, request, data).await;
        }
        execute_on(self, &open, request, data).await
    }

    /// A command at a unit that does not exist.
    fn execute_without_unit(&self, request: &ScsiRequest) -> Result<ScsiOutcome, Sense> {
        match request.opcode() {
            opcode::INQUIRY => self.inquiry(None, request),
            opcode::REQUEST_SENSE => request_sense(request, Sense::NO_UNIT),
            _ => Err(Sense::NO_UNIT),
        }
    }

    /// True if a reservation of another initiator excludes the command.
    fn is_excluded(&self, open: &OpenUnit<S>, code: u8) -> bool {
        let port = &self.nexus.port;
        let passes_reserve = matches!(code, opcode::RELEASE_6 | opcode::RESERVE_IN);
        if open.unit.is_reserved_by_another(port) && !passes_reserve {
            return true;
        }
        access_of(code).is_some_and(|access| !open.unit.reservations.admits(port, access))
    }
}

/// Answers REQUEST SENSE.
fn request_sense(request: &ScsiRequest, sense: Sense) -> Result<ScsiOutcome, Sense> {
    if request.byte(1) & 1 != 0 {
        // Only sense data of fixed format.
        return Err(Sense::invalid_field(1));
    }
    Ok(ScsiOutcome::bytes(sense.encode().to_vec(), request.byte(4).into()))
}

/// Executes a command that reaches its unit.
async fn execute_on<S: VolumeSource>(
    session: &IscsiSession<S>,
    open: &OpenUnit<S>,
    request: &ScsiRequest,
    data: Option<Payload>,
) -> Result<ScsiOutcome, Sense> {
    match request.opcode() {
        opcode::TEST_UNIT_READY => Ok(ScsiOutcome::Done(0)),
        opcode::READ_6 | opcode::READ_10 | opcode::READ_12 | opcode::READ_16 => open.read(request).await,
        opcode::WRITE_6 | opcode::WRITE_10 | opcode::WRITE_12 | opcode::WRITE_16 => {
            open.write(request, data).await
        }
        opcode::WRITE_VERIFY_10 | opcode::WRITE_VERIFY_12 | opcode::WRITE_VERIFY_16 => {
            open.write_and_verify(request, data).await
        }
        opcode::VERIFY_10 | opcode::VERIFY_12 | opcode::VERIFY_16 => open.verify(request, data).await,
        opcode::COMPARE_AND_WRITE => open.compare_and_write(request, data).await,
        opcode::SYNCHRONIZE_10 | opcode::SYNCHRONIZE_16 => open.synchronize(request).await,
        opcode::PREFETCH_10 | opcode::PREFETCH_16 => open.prefetch(request),
        opcode::UNMAP => open.unmap(request, data).await,
        opcode::WRITE_SAME_10 | opcode::WRITE_SAME_16 => open.write_same(request, data).await,
        opcode::READ_CAPACITY_10 => open.read_capacity_10(request),
        opcode::SERVICE_IN_16 => match request.byte(1) & 0x1f {
            action::READ_CAPACITY_16 => open.read_capacity_16(request),
            action::GET_LBA_STATUS => open.get_lba_status(request).await,
            _ => Err(Sense::INVALID_OPCODE),
        },
        opcode::MODE_SENSE_6 | opcode::MODE_SENSE_10 => open.mode_sense(request),
        opcode::MAINTENANCE_IN => match request.byte(1) & 0x1f {
            action::REPORT_OPCODES => report_opcodes(request),
            _ => Err(Sense::INVALID_OPCODE),
        },
        opcode::RESERVE_IN => open.reserve_in(request),
        opcode::RESERVE_6 => session.reserve_6(open),
        opcode::RELEASE_6 => session.release_6(open),
        opcode::START_STOP_UNIT => start_stop(request),
        // The medium cannot be removed.
        opcode::PREVENT_ALLOW => Ok(ScsiOutcome::Done(0)),
        _ => Err(Sense::INVALID_OPCODE),
    }
}

/// Answers START STOP UNIT: a volume always runs, and has no medium to load.
fn start_stop(request: &ScsiRequest) -> Result<ScsiOutcome, Sense> {
    const LOAD_EJECT: u8 = 0x02;
    let has_condition = request.byte(4) >> 4 != 0;
    match request.byte(4) & LOAD_EJECT != 0 && !has_condition {
        true => Err(Sense::invalid_field(4)),
        false => Ok(ScsiOutcome::Done(0)),
    }
}
