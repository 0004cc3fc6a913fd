//! Admin and fabrics commands.
//!
//! Always true: a discovery controller executes only the commands that discovery needs; a queue for
//! I/O executes only fabrics commands here.

use std::rc::Rc;

use super::controller::PropertyChange;
use super::limits::ABORTS;
use super::opcodes::FABRICS;
use super::queue_control::{NvmeEvent, QueueControl};
use super::request::{ReadyRequest, RequestData};
use super::session::NvmeSession;
use super::wire::{NvmeCommand, NvmeStatus};
use crate::VolumeSource;
use crate::context::call_object;
use crate::transport::Charge;

/// Opcodes.
mod admin_opcode {
    pub(super) const GET_LOG_PAGE: u8 = 0x02;
    pub(super) const IDENTIFY: u8 = 0x06;
    pub(super) const ABORT: u8 = 0x08;
    pub(super) const SET_FEATURES: u8 = 0x09;
    pub(super) const GET_FEATURES: u8 = 0x0a;
    pub(super) const EVENT_REQUEST: u8 = 0x0c;
    pub(super) const KEEP_ALIVE: u8 = 0x18;
}

/// Types of fabrics commands.
mod fabrics {
    pub(super) const PROPERTY_SET: u8 = 0x00;
    pub(super) const PROPERTY_GET: u8 = 0x04;
    pub(super) const DISCONNECT: u8 = 0x08;
}

/// Feature identifiers.
mod feature {
    pub(super) const ARBITRATION: u8 = 0x01;
    pub(super) const POWER: u8 = 0x02;
    pub(super) const TEMPERATURE: u8 = 0x04;
    pub(super) const ERROR_RECOVERY: u8 = 0x05;
    pub(super) const WRITE_CACHE: u8 = 0x06;
    pub(super) const QUEUES: u8 = 0x07;
    pub(super) const WRITE_ATOMICITY: u8 = 0x0a;
    pub(super) const EVENTS: u8 = 0x0b;
    pub(super) const KEEP_ALIVE: u8 = 0x0f;
    pub(super) const HOST_ID: u8 = 0x81;
    pub(super) const RESERVATION_NOTICES: u8 = 0x82;
    pub(super) const RESERVATION_PERSISTENCE: u8 = 0x83;
}

/// The data of a response, or the result of a command without data.
pub(super) enum AdminResult {
    Result(u64),
    Data(Vec<u8>),
    /// The command is answered later.
    Later,
}

/// The answer of a command without data and without a result.
const DONE: Result<AdminResult, NvmeStatus> = Ok(AdminResult::Result(0));

impl<S: VolumeSource> NvmeSession<S> {
    /// Executes an admin or fabrics command.
    pub(super) async fn execute_admin(self: Rc<Self>, request: ReadyRequest) {
        let ReadyRequest { command, charge, data } = request;
        let sets_persistence = command.opcode() == admin_opcode::SET_FEATURES
            && command.byte(40) == feature::RESERVATION_PERSISTENCE
            && self.identity.subsystem.is_some();
        let answer = if command.opcode() == FABRICS {
            self.execute_fabrics(&command).await
        } else if command.opcode() == admin_opcode::ABORT && self.identity.subsystem.is_some() {
            self.abort(&command).await
        } else if sets_persistence {
            let set = self.set_persistence(command.namespace(), command.word(11) & 1 != 0).await;
            set.map(|()| AdminResult::Result(0))
        } else {
            self.answer_admin(&command, data)
        };
        self.respond(&command, answer, charge);
    }

    fn respond(&self, command: &NvmeCommand, answer: Result<AdminResult, NvmeStatus>, charge: Charge) {
        let id = command.id();
        match answer {
            Ok(AdminResult::Result(result)) => self.complete_with(id, NvmeStatus::SUCCESS, result, charge),
            Ok(AdminResult::Data(data)) => {
                let length = command.data().length() as usize;
                if length == 0 {
                    return self.complete(id, NvmeStatus::SGL_LENGTH, charge);
                }
                self.complete_bytes(id, &data, length, charge);
            }
            Ok(AdminResult::Later) => {}
            Err(status) => self.complete(id, status, charge),
        }
    }

    async fn execute_fabrics(&self, command: &NvmeCommand) -> Result<AdminResult, NvmeStatus> {
        match (command.fabrics_type(), self.identity.is_admin()) {
            (fabrics::PROPERTY_GET, true) => self.property_get(command),
            (fabrics::PROPERTY_SET, true) => self.property_set(command).await,
            (fabrics::DISCONNECT, false) => {
                self.disconnected.raise();
                DONE
            }
            (fabrics::PROPERTY_GET | fabrics::PROPERTY_SET | fabrics::DISCONNECT, _) => {
                Err(NvmeStatus::SEQUENCE)
            }
            _ => Err(NvmeStatus::INVALID_OPCODE),
        }
    }

    fn property_get(&self, command: &NvmeCommand) -> Result<AdminResult, NvmeStatus> {
        let (is_long, offset) = (command.byte(40) & 7 == 1, command.word(11));
        match self.identity.controller.property(offset) {
            Some((value, long)) if long == is_long => Ok(AdminResult::Result(value)),
            _ => Err(NvmeStatus::INVALID_FIELD),
        }
    }

    async fn property_set(&self, command: &NvmeCommand) -> Result<AdminResult, NvmeStatus> {
        if command.byte(40) & 7 != 0 {
            return Err(NvmeStatus::INVALID_FIELD);
        }
        match self.identity.controller.set_property(command.word(11), command.long(48)) {
            PropertyChange::Refused => Err(NvmeStatus::INVALID_FIELD),
            PropertyChange::Accepted => DONE,
            PropertyChange::Reset => {
                // The host may use its data buffers for other purposes, or repeat its commands.
                self.identity.fence_reset().await;
                DONE
            }
        }
    }

    fn answer_admin(
        &self,
        command: &NvmeCommand,
        data: Option<RequestData>,
    ) -> Result<AdminResult, NvmeStatus> {
        match command.opcode() {
            admin_opcode::IDENTIFY => self.identify(command),
            admin_opcode::GET_LOG_PAGE => self.log_page(command),
            admin_opcode::EVENT_REQUEST => match self.identity.control.events.request(command.id()) {
                true => Ok(AdminResult::Later),
                false => Err(NvmeStatus::EVENT_LIMIT),
            },
            admin_opcode::KEEP_ALIVE => DONE,
            admin_opcode::SET_FEATURES => self.set_feature(command, data),
            admin_opcode::GET_FEATURES => self.get_feature(command),
            _ => Err(NvmeStatus::INVALID_OPCODE),
        }
    }

    /// Aborts a request for an event, or an I/O command that has not begun. Others end by
    /// themselves, which the result tells.
    async fn abort(&self, command: &NvmeCommand) -> Result<AdminResult, NvmeStatus> {
        /// The results for a command that was aborted, and for one that was not.
        const ABORTED: u64 = 0;
        const NOT_ABORTED: u64 = 1;
        let (queue, aborted) = (command.short(40), command.short(42));
        if queue == 0 {
            if !self.identity.control.events.abort(aborted) {
                return Ok(AdminResult::Result(NOT_ABORTED));
            }
            self.complete(aborted, NvmeStatus::ABORTED, self.budget.empty_charge());
            return Ok(AdminResult::Result(ABORTED));
        }
        let running = self.aborts.get();
        if running >= ABORTS {
            return Err(NvmeStatus::ABORT_LIMIT);
        }
        let Some(handle) = self.identity.controller.queue(queue) else {
            return Ok(AdminResult::Result(NOT_ABORTED));
        };
        self.aborts.set(running + 1);
        let abort = move |control: Rc<QueueControl>| async move { control.abort(aborted).await };
        // The queue may have been closed meanwhile.
        let is_aborted = call_object(&handle, abort).await.unwrap_or(false);
        self.aborts.set(self.aborts.get() - 1);
        Ok(AdminResult::Result(if is_aborted { ABORTED } else { NOT_ABORTED }))
    }

    fn set_feature(&self, command: &NvmeCommand, _: Option<RequestData>) -> Result<AdminResult, NvmeStatus> {
        let (controller, value) = (&self.identity.controller, command.word(11));
        if command.word(10) & 1 << 31 != 0 {
            return Err(NvmeStatus::FEATURE_NOT_SAVEABLE);
        }
        match command.byte(40) {
            feature::EVENTS => {
                controller.enable_events(value);
                self.report_changes_since_connect();
                DONE
            }
            feature::KEEP_ALIVE => {
                controller.set_keep_alive(value);
                DONE
            }
            feature::QUEUES if self.identity.subsystem.is_some() => {
                let (submission, completion) = (value & 0xffff, value >> 16);
                if submission == 0xffff || completion == 0xffff {
                    return Err(NvmeStatus::INVALID_FIELD);
                }
                let count = controller.set_queue_count((submission.min(completion) + 1) as u16);
                Ok(AdminResult::Result(queue_counts(count)))
            }
            feature::RESERVATION_NOTICES if self.identity.subsystem.is_some() => {
                let namespace = command.namespace();
                // A host may use the namespaces that it can open.
                self.persistence(namespace)?;
                controller.notices.set_mask(namespace, value);
                DONE
            }
            feature::WRITE_CACHE
            | feature::HOST_ID
            | feature::ARBITRATION
            | feature::POWER
            | feature::TEMPERATURE
            | feature::ERROR_RECOVERY
            | feature::WRITE_ATOMICITY => Err(NvmeStatus::FEATURE_NOT_CHANGEABLE),
            _ => Err(NvmeStatus::INVALID_FIELD),
        }
    }

    /// Reports a change of the discovery log that happened after the host read it.
    fn report_changes_since_connect(&self) {
        let (seen, controller) =
            (self.identity.controller.discovered_generation(), &self.identity.controller);
        if self.identity.subsystem.is_none() && seen != 0 && seen != self.identity.target.generation() {
            controller.raise(NvmeEvent::Discovery);
        }
    }

    fn get_feature(&self, command: &NvmeCommand) -> Result<AdminResult, NvmeStatus> {
        let controller = &self.identity.controller;
        Ok(match command.byte(40) {
            feature::EVENTS => AdminResult::Result(controller.enabled_events().into()),
            feature::KEEP_ALIVE => AdminResult::Result(controller.keep_alive().into()),
            feature::QUEUES => AdminResult::Result(queue_counts(controller.queue_count())),
            feature::WRITE_CACHE => AdminResult::Result(1),
            feature::RESERVATION_NOTICES if self.identity.subsystem.is_some() => {
                AdminResult::Result(controller.notices.mask(command.namespace()).into())
            }
            feature::RESERVATION_PERSISTENCE if self.identity.subsystem.is_some() => {
                AdminResult::Result(self.persistence(command.namespace())?.into())
            }
            feature::HOST_ID => AdminResult::Data(controller.host.id.to_vec()),
            feature::ARBITRATION
            | feature::POWER
            | feature::TEMPERATURE
            | feature::ERROR_RECOVERY
            | feature::WRITE_ATOMICITY => AdminResult::Result(0),
            _ => return Err(NvmeStatus::INVALID_FIELD),
        })
    }
}

/// The result of the feature for the number of queues: both numbers, less one.
fn queue_counts(count: u16) -> u64 {
    let number = u64::from(count - 1);
    number | number << 16
}
