//! A machine's life: start, stop, console, end.

use std::time::Duration;

use anyhow::Result;
use api::types;
use api::{Error, ErrorKind};
use vm::{ConsoleExit, Machine, Pin, StartOptions};

use super::super::confirm;
use super::Work;
use super::disks::parse_volume;
use crate::output;
use api::VolumeName;

impl Work<'_> {
    /// Starts a machine.
    pub(super) async fn start(&self, name: &str, pin: Option<Pin>) -> Result<()> {
        let lock = self.store.lock(name)?;
        let kept = self.store.get(name)?;
        if let Some(running) = self.store.running(name)? {
            let message = format!("machine '{name}' runs already, as process {}", running.pid);
            return Err(Error::new(ErrorKind::Busy, message).into());
        }
        let disks = self.sockets(&kept, true).await?;
        let daemon = self.setting.client.get_daemon().await?;
        let asked = Machine { pin: pin.unwrap_or_else(|| kept.pin.clone()), ..kept.clone() };
        let placement = self.placement(&asked, &daemon)?;
        vm::start(&self.store, StartOptions { machine: &kept, disks, placement, environment: Vec::new() })?;
        drop(lock);
        self.setting.done(&self.shown(kept)?, output::machine_started)
    }

    /// Stops a machine.
    pub(super) fn stop(&self, name: &str, force: bool, timeout: u64) -> Result<()> {
        let lock = self.store.lock(name)?;
        let machine = self.store.get(name)?;
        match self.store.running(name)? {
            Some(running) => {
                let patience = (!force).then(|| Duration::from_secs(timeout));
                vm::stop(name, &running, &self.store.qmp(name), patience)?;
            }
            None if !self.setting.quiet => eprintln!("machine '{name}' does not run"),
            None => {}
        }
        drop(lock);
        self.setting
            .done(&self.shown(machine)?, |shown| format!("machine '{}' is stopped", shown.machine.name))
    }

    /// Connects this terminal with a machine's console, or prints what it said.
    pub(super) fn console(&self, name: &str, log: bool) -> Result<()> {
        self.store.get(name)?;
        if log {
            let path = self.store.console_log(name);
            let text = match std::fs::read(&path) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
                Err(error) => {
                    return Err(Error::new(ErrorKind::Io, format!("{}: {error}", path.display())).into());
                }
            };
            return super::print(&String::from_utf8_lossy(&text));
        }
        if self.store.running(name)?.is_none() {
            let message = format!("machine '{name}' does not run");
            return Err(Error::new(ErrorKind::Busy, message)
                .hint(format!("'gabion vm start {name}' starts it; --log prints what it said last"))
                .into());
        }
        if !self.setting.quiet {
            eprintln!("console of '{name}'; Ctrl-] leaves it");
        }
        match vm::attach(&self.store.console(name), std::io::stdin(), std::io::stdout())? {
            ConsoleExit::Detached => eprintln!("\r\nthe machine goes on"),
            ConsoleExit::MachineStopped => eprintln!("\r\nthe machine has ended"),
        }
        Ok(())
    }

    /// Deletes a machine.
    pub(super) async fn delete(&self, name: &str, volumes: bool, yes: bool) -> Result<()> {
        let lock = self.store.lock(name)?;
        let machine = self.store.get(name)?;
        if self.store.running(name)?.is_some() {
            return Err(Error::new(ErrorKind::Busy, format!("machine '{name}' runs"))
                .hint(format!("'gabion vm stop {name}' stops it"))
                .into());
        }
        let made: Vec<&str> = machine
            .disks
            .iter()
            .filter(|disk| volumes && disk.made)
            .map(|disk| disk.volume.as_str())
            .collect();
        if !made.is_empty() {
            confirm(yes, &format!("Machine '{name}' and all that is in {} will be lost.", made.join(", ")))?;
        }
        let exports = self.setting.client.list_exports().await?;
        for disk in &machine.disks {
            let name: VolumeName = parse_volume(&disk.volume)?;
            let own = exports.iter().filter(|export| {
                export.protocol == types::Protocol::VhostUser
                    && export.pool == name.pool
                    && export.volume == name.volume
            });
            if let Some(export) = own.min_by_key(|export| export.connections) {
                self.setting.end_export(export).await?;
            }
            // One that somebody has deleted already is as it should be.
            if volumes && disk.made && self.setting.client.find_volume(&name).await?.is_some() {
                self.setting.delete_volume(&name).await?;
            }
        }
        self.store.delete(name, lock)?;
        let left: Vec<&str> = machine
            .disks
            .iter()
            .map(|disk| disk.volume.as_str())
            .filter(|volume| !made.contains(volume))
            .collect();
        self.setting.done(&machine, |machine| match left.as_slice() {
            [] => format!("machine '{}' is deleted", machine.name),
            left => format!("machine '{}' is deleted; its volumes stay: {}", machine.name, left.join(", ")),
        })
    }
}
