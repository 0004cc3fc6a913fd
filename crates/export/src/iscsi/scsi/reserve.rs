//! PERSISTENT RESERVE IN and OUT, RESERVE and RELEASE.

use super::super::open_units::OpenUnit;
use super::super::session::IscsiSession;
use super::super::tasks::TaskFilter;
use super::super::wire::{WideWriter, u64_at};
use super::blocks::part_of;
use super::outcome::ScsiOutcome;
use super::request::ScsiRequest;
use super::sense::Sense;
use crate::VolumeSource;
use crate::reservation::{ReservationChange, ReservationFailure, ReservationType};
use crate::transport::Payload;

/// Bytes of the list of PERSISTENT RESERVE OUT.
const LIST: u64 = 24;

/// The type of a reservation, as SCSI numbers it.
fn type_of(number: u8) -> Option<ReservationType> {
    Some(match number {
        1 => ReservationType::WriteExclusive,
        3 => ReservationType::ExclusiveAccess,
        5 => ReservationType::WriteExclusiveRegistrants,
        6 => ReservationType::ExclusiveAccessRegistrants,
        7 => ReservationType::WriteExclusiveAll,
        8 => ReservationType::ExclusiveAccessAll,
        _ => return None,
    })
}

fn number_of(kind: ReservationType) -> u8 {
    match kind {
        ReservationType::WriteExclusive => 1,
        ReservationType::ExclusiveAccess => 3,
        ReservationType::WriteExclusiveRegistrants => 5,
        ReservationType::ExclusiveAccessRegistrants => 6,
        ReservationType::WriteExclusiveAll => 7,
        ReservationType::ExclusiveAccessAll => 8,
    }
}

/// Service actions of PERSISTENT RESERVE OUT.
mod action {
    pub(super) const REGISTER: u8 = 0;
    pub(super) const RESERVE: u8 = 1;
    pub(super) const RELEASE: u8 = 2;
    pub(super) const CLEAR: u8 = 3;
    pub(super) const PREEMPT: u8 = 4;
    pub(super) const PREEMPT_AND_ABORT: u8 = 5;
    pub(super) const REGISTER_ANY: u8 = 6;
}

/// The change that a command asks for.
fn change_of(request: &ScsiRequest, list: &[u8]) -> Result<ReservationChange, Sense> {
    let (key, new, flags) = (u64_at(list, 0), u64_at(list, 8), list.get(20).copied().unwrap_or(0));
    let code = request.byte(1) & 0x1f;
    let kind = || {
        // The scope is the unit.
        let kind = if request.byte(2) >> 4 == 0 { type_of(request.byte(2) & 15) } else { None };
        kind.ok_or(Sense::invalid_field(2))
    };
    let persist = Some(flags & 1 != 0);
    Ok(match code {
        // Registrations of other ports are not made by this one.
        action::REGISTER | action::REGISTER_ANY if flags & 0x08 != 0 => return Err(Sense::INVALID_LIST),
        action::REGISTER => ReservationChange::Register { current: Some(key), new, persist },
        action::REGISTER_ANY => ReservationChange::Register { current: None, new, persist },
        action::RESERVE => ReservationChange::Reserve { key, kind: kind()? },
        action::RELEASE => ReservationChange::Release { key, kind: kind()? },
        action::CLEAR => ReservationChange::Clear { key },
        action::PREEMPT | action::PREEMPT_AND_ABORT => {
            ReservationChange::Preempt { key, victim: new, kind: kind()? }
        }
        _ => return Err(Sense::invalid_field(1)),
    })
}

impl<S: VolumeSource> IscsiSession<S> {
    pub(super) async fn reserve_out(
        &self,
        open: &OpenUnit<S>,
        request: &ScsiRequest,
        data: Option<Payload>,
    ) -> Result<ScsiOutcome, Sense> {
        if u64::from(request.word(5)) != LIST {
            return Err(Sense::LIST_LENGTH);
        }
        let list = part_of(data.as_ref(), 0, LIST)?.peek(<[u8]>::to_vec);
        drop(data);
        let change = change_of(request, &list)?;
        let (port, reservations) = (&self.nexus.port, &open.unit.reservations);
        let affected = match self.shared.reservations.change(reservations, port, change).await {
            Ok(affected) => affected,
            Err(ReservationFailure::Conflict) => return Ok(ScsiOutcome::Conflict),
            Err(ReservationFailure::InvalidKey) => return Err(Sense::INVALID_LIST),
            Err(ReservationFailure::InvalidRelease) => return Err(Sense::INVALID_RELEASE),
            Err(ReservationFailure::TooMany) => return Err(Sense::NO_REGISTRATION),
            Err(ReservationFailure::NotStored) => return Err(Sense::INTERNAL),
        };
        if request.byte(1) & 0x1f == action::PREEMPT_AND_ABORT {
            self.abort_of(&affected.unregistered, open.unit.number).await;
        }
        Ok(ScsiOutcome::Done(LIST))
    }

    /// Aborts the tasks of other ports at a unit.
    async fn abort_of(&self, ports: &[String], unit: u16) {
        let Some(target) = &self.target else { return };
        let sessions = target.sessions_with_tasks();
        for nexus in sessions.iter().filter(|nexus| ports.contains(&nexus.port)) {
            nexus.abort(TaskFilter::Unit(unit)).await;
        }
    }

    pub(super) fn reserve_6(&self, open: &OpenUnit<S>) -> Result<ScsiOutcome, Sense> {
        let table = open.unit.reservations.table();
        // The two kinds of reservations exclude each other.
        if !table.registrants.is_empty() {
            let is_own = table.key_of(&self.nexus.port).is_some() && table.is_holder(&self.nexus.port);
            return Ok(if is_own { ScsiOutcome::Done(0) } else { ScsiOutcome::Conflict });
        }
        match open.unit.reserve(&self.nexus.port) {
            true => Ok(ScsiOutcome::Done(0)),
            false => Ok(ScsiOutcome::Conflict),
        }
    }

    pub(super) fn release_6(&self, open: &OpenUnit<S>) -> Result<ScsiOutcome, Sense> {
        open.unit.unreserve(Some(&self.nexus.port));
        Ok(ScsiOutcome::Done(0))
    }
}

impl<S: VolumeSource> OpenUnit<S> {
    pub(super) fn reserve_in(&self, request: &ScsiRequest) -> Result<ScsiOutcome, Sense> {
        let table = self.unit.reservations.table();
        let mut data = WideWriter::new(8);
        match request.byte(1) & 0x1f {
            0 => {
                for registrant in &table.registrants {
                    data.append(registrant.key.to_be_bytes());
                }
            }
            1 => {
                if let Some(held) = &table.held {
                    let key =
                        if held.kind.is_held_by_all() { 0 } else { table.key_of(&held.holder).unwrap_or(0) };
                    let kind = number_of(held.kind);
                    data.append(WideWriter::new(16).u64(0, key).u8(13, kind).finish());
                }
            }
            2 => return Ok(ScsiOutcome::bytes(capabilities(table.persistent), request.short(7).into())),
            3 => {
                for registrant in &table.registrants {
                    let kind = table.held.as_ref().filter(|_| table.is_holder(&registrant.name));
                    let name = transport_id(&registrant.name);
                    let mut status = WideWriter::new(24);
                    // Registered through all ports of the target.
                    let flags = 0x02 | u8::from(kind.is_some());
                    status.u64(0, registrant.key).u8(12, flags);
                    status.u8(13, kind.map_or(0, |held| number_of(held.kind)));
                    status.u32(20, name.len() as u32);
                    data.append(status.append(name).finish());
                }
            }
            _ => return Err(Sense::invalid_field(1)),
        }
        let length = data.len() as u32 - 8;
        data.u32(0, table.generation).u32(4, length);
        Ok(ScsiOutcome::bytes(data.finish(), request.short(7).into()))
    }
}

/// The capabilities: compatible with RESERVE, persistent through power loss, all types.
fn capabilities(is_persistent: bool) -> Vec<u8> {
    let mut data = WideWriter::new(8);
    data.u16(0, 8).u8(2, 0x10 | 0x01).u8(3, 0x80 | u8::from(is_persistent));
    data.u8(4, 0x80 | 0x40 | 0x20 | 0x08 | 0x02).u8(5, 0x01);
    data.finish()
}

/// The identifier of an initiator port, or of a host of another protocol.
fn transport_id(name: &str) -> Vec<u8> {
    let port = name.strip_prefix("iscsi:").unwrap_or(name);
    let mut text = port.as_bytes().to_vec();
    text.resize((text.len() + 1).next_multiple_of(4).max(20), 0);
    // The name of the initiator, with its session.
    WideWriter::new(4).u8(0, 0x45).u16(2, text.len() as u16).append(text).finish()
}
