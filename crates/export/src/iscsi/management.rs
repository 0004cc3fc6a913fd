//! Requests beside SCSI commands: pings, text, logout and task management.

use std::net::SocketAddr;
use std::rc::Rc;

use super::scsi::Sense;
use super::session::IscsiSession;
use super::tasks::TaskFilter;
use super::wire::{
    InitiatorHeader, NO_TAG, RejectReason, TargetCall, TaskFunction, TaskResponse, TextPairs, TextWriter,
};
use crate::VolumeSource;
use crate::transport::{Charge, Payload, QueuedReply};

/// The tag of a text answer that continues.
const TEXT_TAG: u32 = 1;
/// Reasons of a logout.
const CLOSE_SESSION: u8 = 0;
const CLOSE_CONNECTION: u8 = 1;

impl<S: VolumeSource> IscsiSession<S> {
    /// Answers a ping with its data.
    pub(super) async fn receive_ping(&self, header: &InitiatorHeader, payload: Payload) {
        if header.tag() == NO_TAG {
            // The answer of our own ping.
            return;
        }
        let data = payload.data.peek(<[u8]>::to_vec);
        drop(payload);
        let charge = self.budget.charge_request(data.len()).await;
        let limit = data.len().min(self.parameters.segment_max as usize);
        let data = data.get(..limit).unwrap_or(&[]);
        let (tag, unit) = (header.tag(), header.unit_field());
        let call = TargetCall { tag, target_tag: NO_TAG, unit, length: data.len() as u32 };
        let head = self.encoder.ping(call, self.next_status());
        self.push_with_bytes(head, data, Some(charge));
    }

    /// Asks the initiator for a message.
    pub(super) fn send_ping(&self) {
        let call = TargetCall { tag: NO_TAG, target_tag: 0, unit: 0, length: 0 };
        self.send_queue.push(QueuedReply::part(self.encoder.ping(call, self.sequence())));
    }

    /// Answers a text request: the list of targets, or the next part of it.
    pub(super) async fn receive_text(&self, header: &InitiatorHeader, text: &[u8]) {
        if header.continues() {
            return self.reject(RejectReason::InvalidField, header).await;
        }
        if header.target_tag() == NO_TAG {
            let Some(pairs) = TextPairs::decode(text) else {
                return self.reject(RejectReason::InvalidField, header).await;
            };
            self.text.replace(self.answer_text(&pairs));
        }
        let (part, target_tag) = self.take_text();
        let charge = self.budget.charge_request(part.len()).await;
        let (tag, unit) = (header.tag(), header.unit_field());
        let call = TargetCall { tag, target_tag, unit, length: part.len() as u32 };
        let head = self.encoder.text(call, self.next_status());
        self.push_with_bytes(head, &part, Some(charge));
    }

    /// Takes the next part of a text answer, and the tag for requesting the rest.
    fn take_text(&self) -> (Vec<u8>, u32) {
        let mut rest = self.text.borrow_mut();
        let length = rest.len().min(self.parameters.segment_max as usize);
        let part = rest.drain(..length).collect();
        (part, if rest.is_empty() { NO_TAG } else { TEXT_TAG })
    }

    fn answer_text(&self, pairs: &TextPairs) -> Vec<u8> {
        let mut answer = TextWriter::default();
        for (key, value) in pairs.iter() {
            match (key, &self.target) {
                ("SendTargets", None) => self.list_targets(value, &mut answer),
                ("SendTargets", Some(target)) if value.is_empty() || value == target.name => {
                    self.list_targets(&target.name, &mut answer);
                }
                ("SendTargets", Some(_)) => answer.add(key, "Reject"),
                _ => answer.add(key, "NotUnderstood"),
            }
        }
        answer.finish()
    }

    /// Adds the targets that the initiator may use, with their addresses.
    fn list_targets(&self, wanted: &str, answer: &mut TextWriter) {
        let targets = self.shared.targets.all();
        let is_wanted = |name: &str| wanted == "All" || wanted == name;
        for target in targets.iter().filter(|target| is_wanted(&target.name)) {
            let addresses = target.addresses(&self.nexus.initiator);
            if addresses.is_empty() {
                continue;
            }
            answer.add("TargetName", &target.name);
            for address in addresses {
                // The initiator reached this address by the network that it uses now.
                let address = match address.ip().is_unspecified() {
                    true => SocketAddr::new(self.reached.ip().to_canonical(), address.port()),
                    false => address,
                };
                answer.add("TargetAddress", &format!("{address},1"));
            }
        }
    }

    /// Answers a logout, and ends the session.
    pub(super) async fn log_out(&self, header: &InitiatorHeader) {
        let response = match header.byte(1) & 0x7f {
            CLOSE_SESSION => 0,
            CLOSE_CONNECTION if header.connection() == self.connection => 0,
            // There is no such connection.
            CLOSE_CONNECTION => 1,
            // Connections are not recovered.
            _ => 2,
        };
        let charge = self.budget.charge_request(0).await;
        let head = self.encoder.logout(header.tag(), response, self.next_status());
        self.send_queue.push(QueuedReply::last(head, charge));
        if response == 0 {
            self.logged_out.raise();
        }
    }

    /// Executes a task management function, and answers it once the tasks have ended.
    pub(super) async fn manage_tasks(self: Rc<Self>, header: InitiatorHeader, charge: Charge) {
        let response = self.manage(&header).await;
        let head = self.encoder.task(header.tag(), response, self.next_status());
        self.send_queue.push(QueuedReply::last(head, charge));
    }

    async fn manage(&self, header: &InitiatorHeader) -> TaskResponse {
        let unit = header.unit().and_then(|unit| self.units.get(unit));
        match header.function() {
            TaskFunction::AbortTask => {
                match self.control.abort(TaskFilter::Tag(header.referenced_tag())).await {
                    0 => TaskResponse::NoTask,
                    _ => TaskResponse::Complete,
                }
            }
            TaskFunction::AbortTaskSet => {
                let Some(open) = unit else { return TaskResponse::NoUnit };
                self.control.abort(TaskFilter::Unit(open.unit.number)).await;
                TaskResponse::Complete
            }
            TaskFunction::ClearTaskSet | TaskFunction::UnitReset => {
                let Some(open) = unit else { return TaskResponse::NoUnit };
                self.abort_everywhere(TaskFilter::Unit(open.unit.number)).await;
                let is_reset = header.function() == TaskFunction::UnitReset;
                if is_reset {
                    open.unit.unreserve(None);
                }
                let attention = if is_reset { Sense::UNIT_RESET } else { Sense::COMMANDS_CLEARED };
                let except = (!is_reset).then_some(self.nexus.port.as_str());
                open.unit.raise(attention, except);
                TaskResponse::Complete
            }
            TaskFunction::WarmReset | TaskFunction::ColdReset => {
                self.abort_everywhere(TaskFilter::All).await;
                let Some(target) = &self.target else { return TaskResponse::Unsupported };
                for unit in target.all_units() {
                    unit.unreserve(None);
                    unit.raise(Sense::UNIT_RESET, None);
                }
                if header.function() == TaskFunction::ColdReset {
                    target.sessions().iter().for_each(|nexus| nexus.end("the target was reset"));
                }
                TaskResponse::Complete
            }
            TaskFunction::ClearContingentAllegiance | TaskFunction::Other => TaskResponse::Unsupported,
        }
    }

    /// Aborts tasks of all sessions of the target, and waits until none of them is in execution.
    async fn abort_everywhere(&self, filter: TaskFilter) {
        let Some(target) = &self.target else { return };
        for nexus in target.sessions_with_tasks() {
            nexus.abort(filter).await;
        }
    }
}
