//! Identify commands and log pages.

use std::net::SocketAddr;

use super::admin::AdminResult;
use super::controller::VERSION;
use super::limits::{
    ABORTS, CAPSULE_DATA, COPY_MAX, COPY_RANGES, EVENT_REQUESTS, KEEP_ALIVE_UNITS, NAMESPACES, QUEUE_ENTRIES,
    TRANSFER_MAX, TRANSFER_PAGES_LOG,
};
use super::queue_control::NvmeEvent;
use super::session::NvmeSession;
use super::target::DISCOVERY_NAME;
use super::wire::{
    ControllerProperties, DiscoveryEntry, NamespaceProperties, NvmeCommand, NvmeStatus, access_log,
    changed_log, discovery_log, effects_log, firmware_log, health_log, log, namespace_list, reservation_log,
};
use crate::fnv::fnv1a;
use crate::reservation::ReservationNotice;
use crate::{Volume, VolumeSource};

/// The version of the program, for hosts.
const FIRMWARE: &str = env!("CARGO_PKG_VERSION");

/// Optional commands: compare, dataset management, write zeroes, reservations, verify, copy.
const OPTIONAL_COMMANDS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 7 | 1 << 8;

/// Structures of identify commands.
mod structure {
    pub(super) const NAMESPACE: u8 = 0x00;
    pub(super) const CONTROLLER: u8 = 0x01;
    pub(super) const ACTIVE_NAMESPACES: u8 = 0x02;
    pub(super) const DESCRIPTORS: u8 = 0x03;
}

impl<S: VolumeSource> NvmeSession<S> {
    /// Answers an identify command.
    pub(super) fn identify(&self, command: &NvmeCommand) -> Result<AdminResult, NvmeStatus> {
        let (structure, id) = (command.byte(40), command.namespace());
        let is_discovery = self.identity.subsystem.is_none();
        if is_discovery && structure != structure::CONTROLLER {
            return Err(NvmeStatus::INVALID_FIELD);
        }
        Ok(AdminResult::Data(match structure {
            structure::CONTROLLER => self.controller_properties(),
            structure::NAMESPACE => match self.namespace_properties(id) {
                Some(facts) => facts.encode(),
                // An id without a namespace is described by zeros.
                None if (1..=NAMESPACES).contains(&id) => vec![0; 4096],
                None => return Err(NvmeStatus::INVALID_NAMESPACE),
            },
            structure::ACTIVE_NAMESPACES if id >= u32::MAX - 1 => return Err(NvmeStatus::INVALID_NAMESPACE),
            structure::ACTIVE_NAMESPACES => namespace_list(self.namespace_ids(), id),
            structure::DESCRIPTORS => {
                self.namespace_properties(id).ok_or(NvmeStatus::INVALID_NAMESPACE)?.descriptors()
            }
            _ => return Err(NvmeStatus::INVALID_FIELD),
        }))
    }

    fn namespace_ids(&self) -> Vec<u32> {
        let Some(subsystem) = &self.identity.subsystem else { return Vec::new() };
        let namespaces = subsystem.namespaces(&self.identity.controller.host.name);
        namespaces.iter().map(|namespace| namespace.id).collect()
    }

    fn controller_properties(&self) -> Vec<u8> {
        let (name, identity) = (self.identity.name(), &self.identity);
        let is_discovery = identity.subsystem.is_none();
        let event = if is_discovery { NvmeEvent::Discovery } else { NvmeEvent::Namespace };
        // The same in every release and on every reactor.
        let serial = format!("{:08x}{:08x}", fnv1a(name.as_bytes()), fnv1a(format!("{name}:2").as_bytes()));
        let facts = ControllerProperties {
            is_discovery,
            id: identity.controller.id,
            subsystem: name,
            serial: &serial,
            firmware: FIRMWARE,
            version: VERSION,
            transfer_pages_log: TRANSFER_PAGES_LOG,
            capsule_data: CAPSULE_DATA,
            queue_entries: QUEUE_ENTRIES,
            aborts: ABORTS,
            event_requests: EVENT_REQUESTS,
            events: event.mask().unwrap_or(0),
            keep_alive_units: KEEP_ALIVE_UNITS,
            namespaces: NAMESPACES,
            optional_commands: OPTIONAL_COMMANDS,
        };
        facts.encode()
    }

    fn namespace_properties(&self, id: u32) -> Option<NamespaceProperties> {
        let subsystem = self.identity.subsystem.as_ref()?;
        let namespace = subsystem.namespace(id, &self.identity.controller.host.name)?;
        let volume = self.volumes.get(&self.identity, id)?;
        Some(NamespaceProperties {
            size: volume.size(),
            sector: volume.sector(),
            read_only: volume.read_only(),
            identity: namespace.identity,
            atomic: volume.atomic_limits(),
            copy_ranges: COPY_RANGES,
            copy_max: COPY_MAX,
        })
    }

    /// Answers a request for a log page.
    pub(super) fn log_page(&self, command: &NvmeCommand) -> Result<AdminResult, NvmeStatus> {
        let page = command.byte(40);
        let words = u64::from(command.short(42)) | u64::from(command.short(44)) << 16;
        let (length, offset) = ((words + 1) * 4, command.long(48));
        if length > TRANSFER_MAX.into() || offset & 3 != 0 {
            return Err(NvmeStatus::INVALID_FIELD);
        }
        if length > command.data().length().into() {
            return Err(NvmeStatus::SGL_LENGTH);
        }
        let retains_event = command.byte(41) & 1 << 7 != 0;
        let data = match self.identity.subsystem {
            Some(_) if page == log::ACCESS => self.access_log(command.byte(41) & 1 != 0),
            Some(_) => self.io_log(page, offset == 0 && !retains_event)?,
            None if page == log::DISCOVERY => self.discovery_entries(),
            None => return Err(NvmeStatus::INVALID_LOG),
        };
        if !retains_event {
            self.identity.control.events.page_was_read(page);
            if page == log::RESERVATION && !self.identity.controller.notices.is_empty() {
                // The page describes one event at a time.
                self.identity.control.events.raise(NvmeEvent::Reservation);
            }
        }
        let start = usize::try_from(offset).ok().filter(|start| *start <= data.len());
        let mut part = data.get(start.ok_or(NvmeStatus::INVALID_FIELD)?..).unwrap_or(&[]).to_vec();
        part.resize(length as usize, 0);
        Ok(AdminResult::Data(part))
    }

    fn io_log(&self, page: u8, takes_changes: bool) -> Result<Vec<u8>, NvmeStatus> {
        Ok(match page {
            log::ERRORS => vec![0; 64],
            log::HEALTH => health_log(),
            log::FIRMWARE => firmware_log(FIRMWARE),
            log::CHANGED_NAMESPACES => {
                let controller = &self.identity.controller;
                let changed = if takes_changes { controller.take_changed() } else { controller.changed() };
                changed_log(changed.into_iter())
            }
            log::RESERVATION => {
                let oldest = self.identity.controller.notices.oldest(takes_changes);
                let kind_of = |notice| match notice {
                    ReservationNotice::RegistrationPreempted => 1,
                    ReservationNotice::ReservationReleased => 2,
                    ReservationNotice::ReservationPreempted => 3,
                };
                let event = oldest.map(|event| (event.count, kind_of(event.notice), event.namespace));
                reservation_log(event, oldest.map_or(0, |event| event.further))
            }
            log::EFFECTS => effects_log(
                &[0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18],
                &[
                    (0x00, true),
                    (0x01, true),
                    (0x02, false),
                    (0x05, false),
                    (0x08, true),
                    (0x09, true),
                    (0x0c, false),
                    (0x0d, false),
                    (0x0e, false),
                    (0x11, false),
                    (0x15, false),
                    (0x19, true),
                ],
            ),
            _ => return Err(NvmeStatus::INVALID_LOG),
        })
    }

    /// The log of asymmetric access as this host sees it.
    fn access_log(&self, only_groups: bool) -> Vec<u8> {
        let generation = self.identity.subsystem.as_ref().map_or(0, |subsystem| subsystem.generation());
        access_log(generation, &if only_groups { Vec::new() } else { self.namespace_ids() })
    }

    /// The discovery log as this host sees it.
    fn discovery_entries(&self) -> Vec<u8> {
        let (identity, host) = (&self.identity, &self.identity.controller.host.name);
        let generation = identity.target.generation();
        identity.controller.set_discovered_generation(generation);
        let mut entries = vec![DiscoveryEntry {
            subsystem: DISCOVERY_NAME.to_owned(),
            address: identity.reached,
            is_discovery: true,
            requires_tls: false,
        }];
        for subsystem in identity.target.all() {
            let all = subsystem.addresses(host);
            let requires_tls = subsystem.tls_key(host).is_some();
            for address in all.into_iter().filter_map(|address| reachable(address, identity.reached)) {
                let subsystem = subsystem.name.clone();
                entries.push(DiscoveryEntry { subsystem, address, is_discovery: false, requires_tls });
            }
        }
        discovery_log(generation, &entries)
    }
}

/// The address at which a host reaches a listener, if it can. `reached`: an address by which it has
/// reached this server.
fn reachable(listener: SocketAddr, reached: SocketAddr) -> Option<SocketAddr> {
    let (listens, reached) = (listener.ip(), reached.ip().to_canonical());
    match listens.is_unspecified() {
        // A listener at [::] receives connections of IPv4 too, and one at 0.0.0.0 no others.
        true if listens.is_ipv4() && reached.is_ipv6() => None,
        true => Some(SocketAddr::new(reached, listener.port())),
        false => Some(listener),
    }
}

#[cfg(test)]
#[path = "inquiry_tests.rs"]
mod tests;
