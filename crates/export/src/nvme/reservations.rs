//! Reservation commands: register, acquire, release, report (NVMe base specification, 8.19).
//!
//! Always true: a host is registered by its identifier, for all its controllers. Must not know
//! iSCSI, whose initiators share the table of a volume.

use std::rc::Rc;

use super::opcodes::opcode;
use super::open_volumes::OpenVolume;
use super::queue_control::QueueControl;
use super::registrant::host_id_of;
use super::request::RequestData;
use super::session::NvmeSession;
use super::wire::{NvmeCommand, NvmeStatus, RegistrantEntry, reservation_report, u64_at};
use crate::VolumeSource;
use crate::context::call_object;
use crate::reservation::{ReservationChange, ReservationFailure, ReservationType};
use crate::transport::Charge;

fn status_of(failure: ReservationFailure) -> NvmeStatus {
    match failure {
        ReservationFailure::Conflict => NvmeStatus::RESERVATION_CONFLICT,
        ReservationFailure::InvalidKey | ReservationFailure::InvalidRelease => NvmeStatus::INVALID_FIELD,
        ReservationFailure::TooMany | ReservationFailure::NotStored => NvmeStatus::INTERNAL,
    }
}

/// The change that a command asks for. `registered`: the key of the host. `None` if there is
/// nothing to change.
fn change_of(
    command: &NvmeCommand,
    keys: &[u8; 16],
    registered: Option<u64>,
) -> Result<Option<ReservationChange>, NvmeStatus> {
    let (current, other) = (u64_at(keys, 0), u64_at(keys, 8));
    let (action, ignores_key) = (command.byte(40) & 7, command.byte(40) & 1 << 3 != 0);
    let kind = || ReservationType::from_number(command.byte(41)).ok_or(NvmeStatus::INVALID_FIELD);
    let key = if ignores_key { registered.unwrap_or(0) } else { current };
    Ok(Some(match (command.opcode(), action) {
        (opcode::RESERVATION_REGISTER, 0..=2) => return register(command, keys, registered),
        (opcode::RESERVATION_ACQUIRE, 0) => ReservationChange::Reserve { key, kind: kind()? },
        (opcode::RESERVATION_ACQUIRE, 1 | 2) => {
            ReservationChange::Preempt { key, victim: other, kind: kind()? }
        }
        (opcode::RESERVATION_RELEASE, 0) => ReservationChange::Release { key, kind: kind()? },
        (opcode::RESERVATION_RELEASE, 1) => ReservationChange::Clear { key },
        _ => return Err(NvmeStatus::INVALID_FIELD),
    }))
}

fn register(
    command: &NvmeCommand,
    keys: &[u8; 16],
    registered: Option<u64>,
) -> Result<Option<ReservationChange>, NvmeStatus> {
    let (current, new) = (u64_at(keys, 0), u64_at(keys, 8));
    let ignores_key = command.byte(40) & 1 << 3 != 0;
    let persist = match command.word(10) >> 30 {
        0 => None,
        2 => Some(false),
        3 => Some(true),
        _ => return Err(NvmeStatus::INVALID_FIELD),
    };
    let is_known = ignores_key || registered == Some(current);
    match (command.byte(40) & 7, registered) {
        // A key of 0 would end the registration.
        (0 | 2, _) if new == 0 => Err(NvmeStatus::INVALID_FIELD),
        (0, Some(key)) if key != new => Err(NvmeStatus::RESERVATION_CONFLICT),
        (0, Some(_)) if persist.is_none() => Ok(None),
        (0, _) => Ok(Some(ReservationChange::Register { current: registered.or(Some(0)), new, persist })),
        (_, None) => Err(NvmeStatus::RESERVATION_CONFLICT),
        _ if !is_known => Err(NvmeStatus::RESERVATION_CONFLICT),
        (1, _) => Ok(Some(ReservationChange::Register { current: registered, new: 0, persist })),
        _ => Ok(Some(ReservationChange::Register { current: registered, new, persist })),
    }
}

impl<S: VolumeSource> NvmeSession<S> {
    /// Executes a register, acquire or release command.
    pub(super) async fn change_reservation(
        self: Rc<Self>,
        command: NvmeCommand,
        data: Option<RequestData>,
        charge: Charge,
    ) {
        let status = self.change(&command, data).await.err().unwrap_or(NvmeStatus::SUCCESS);
        self.complete(command.id(), status, charge);
    }

    async fn change(&self, command: &NvmeCommand, data: Option<RequestData>) -> Result<(), NvmeStatus> {
        let volume = self.reserved_volume(command.namespace())?;
        let length = if command.opcode() == opcode::RESERVATION_RELEASE { 8 } else { 16 };
        let data = data.ok_or(NvmeStatus::SGL_LENGTH)?;
        if data.payload.data.len() < length {
            return Err(NvmeStatus::SGL_LENGTH);
        }
        // A release has one key.
        let mut keys = [0; 16];
        data.payload.data.slice(0..length).peek(|bytes| {
            keys.iter_mut().zip(bytes).for_each(|(key, byte)| *key = *byte);
        });
        drop(data);
        let host = &self.identity.controller.registrant;
        let registered = volume.reservations.table().key_of(host);
        let Some(change) = change_of(command, &keys, registered)? else { return Ok(()) };
        let changed = self.reservations.change(&volume.reservations, host, change).await;
        let affected = changed.map_err(status_of)?;
        let aborts = command.opcode() == opcode::RESERVATION_ACQUIRE && command.byte(40) & 7 == 2;
        if aborts {
            self.await_commands_of(&affected.unregistered).await;
        }
        Ok(())
    }

    fn reserved_volume(&self, namespace: u32) -> Result<OpenVolume<S::Volume>, NvmeStatus> {
        self.volumes.get(&self.identity, namespace).ok_or(NvmeStatus::INVALID_NAMESPACE)
    }

    /// Waits for the commands of other hosts that began before their registration was removed.
    async fn await_commands_of(&self, hosts: &[String]) {
        let Some(subsystem) = &self.identity.subsystem else { return };
        for controller in subsystem.controllers().iter().filter(|one| hosts.contains(&one.registrant)) {
            for queue in controller.queue_handles() {
                let end = |control: Rc<QueueControl>| async move { control.commands_ended().await };
                // A queue that has ended has no commands.
                let _ = call_object(&queue, end).await;
            }
        }
    }

    /// Answers a report command.
    pub(super) fn report_reservation(&self, command: &NvmeCommand, charge: Charge) {
        match self.report(command) {
            Ok(data) => self.complete_bytes(command.id(), &data, command.data().length() as usize, charge),
            Err(status) => self.complete(command.id(), status, charge),
        }
    }

    fn report(&self, command: &NvmeCommand) -> Result<Vec<u8>, NvmeStatus> {
        /// The bit that selects the structure for host identifiers of 128 bits.
        const EXTENDED: u8 = 1;
        if command.byte(44) & EXTENDED == 0 {
            return Err(NvmeStatus::HOST_ID_FORMAT);
        }
        let length = (u64::from(command.word(10)) + 1) * 4;
        if length != u64::from(command.data().length()) {
            return Err(NvmeStatus::SGL_LENGTH);
        }
        let table = self.reserved_volume(command.namespace())?.reservations.table();
        let controllers = self.identity.subsystem.as_ref().map(|subsystem| subsystem.controllers());
        let controllers = controllers.unwrap_or_default();
        let entries: Vec<_> = table
            .registrants
            .iter()
            .map(|registrant| RegistrantEntry {
                controller: controllers
                    .iter()
                    .find(|controller| controller.registrant == registrant.name)
                    .map(|controller| controller.id),
                is_holder: table.is_holder(&registrant.name),
                host_id: host_id_of(&registrant.name),
                key: registrant.key,
            })
            .collect();
        let kind = table.held.as_ref().map_or(0, |held| held.kind.number());
        let mut data = reservation_report(table.generation, kind, table.persistent, &entries);
        data.resize(length as usize, 0);
        Ok(data)
    }

    /// True if the reservations of a namespace survive a restart.
    pub(super) fn persistence(&self, namespace: u32) -> Result<bool, NvmeStatus> {
        Ok(self.reserved_volume(namespace)?.reservations.table().persistent)
    }

    /// Sets whether the reservations of a namespace survive a restart, for a registrant.
    pub(super) async fn set_persistence(&self, namespace: u32, persists: bool) -> Result<(), NvmeStatus> {
        let volume = self.reserved_volume(namespace)?;
        let host = &self.identity.controller.registrant;
        let current = volume.reservations.table().key_of(host).ok_or(NvmeStatus::RESERVATION_CONFLICT)?;
        let change =
            ReservationChange::Register { current: Some(current), new: current, persist: Some(persists) };
        let changed = self.reservations.change(&volume.reservations, host, change).await;
        changed.map(|_| ()).map_err(status_of)
    }
}
