//! Start, stop, console and deletion of a machine.

use std::time::Duration;

use anyhow::Result;
use api::types;
use api::{Error, ErrorKind};
use vm::{ConsoleExit, Machine, Pin, StartOptions};

use super::super::confirm;
use super::VmContext;
use super::disks::parse_volume;
use crate::output;
use api::VolumeName;

impl VmContext<'_> {
    /// Starts a machine.
    pub(super) async fn start(&self, name: &str, pin: Option<Pin>) -> Result<()> {
        let lock = self.store.lock(name)?;
        let machine = self.store.get(name)?;
        if let Some(running) = self.store.running(name)? {
            let message = format!("machine '{name}' is already running, as process {}", running.pid);
            return Err(Error::new(ErrorKind::Busy, message).into());
        }
        let disks = self.sockets(&machine, true).await?;
        let daemon = self.ctx.client.get_daemon().await?;
        let pinned = Machine { pin: pin.unwrap_or_else(|| machine.pin.clone()), ..machine.clone() };
        let placement = self.placement(&pinned, &daemon)?;
        vm::start(
            &self.store,
            StartOptions { machine: &machine, disks, placement, environment: Vec::new() },
        )?;
        drop(lock);
        self.ctx.done(&self.status(machine)?, output::machine_started)
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
            None if !self.ctx.quiet => eprintln!("machine '{name}' is not running"),
            None => {}
        }
        drop(lock);
        self.ctx.done(&self.status(machine)?, |status| format!("machine '{}' stopped", status.machine.name))
    }

    /// Connects the terminal to a machine's console, or prints the console log.
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
            let message = format!("machine '{name}' is not running");
            return Err(Error::new(ErrorKind::Busy, message)
                .hint(format!("'gabion vm start {name}' starts it; --log prints the last console output"))
                .into());
        }
        if !self.ctx.quiet {
            eprintln!("console of '{name}'; Ctrl-] disconnects");
        }
        match vm::attach(&self.store.console(name), std::io::stdin(), std::io::stdout())? {
            ConsoleExit::Detached => eprintln!("\r\ndisconnected; the machine keeps running"),
            ConsoleExit::MachineStopped => eprintln!("\r\nthe machine has stopped"),
        }
        Ok(())
    }

    /// Deletes a machine.
    pub(super) async fn delete(&self, name: &str, volumes: bool, yes: bool) -> Result<()> {
        let lock = self.store.lock(name)?;
        let machine = self.store.get(name)?;
        if self.store.running(name)?.is_some() {
            return Err(Error::new(ErrorKind::Busy, format!("machine '{name}' is running"))
                .hint(format!("'gabion vm stop {name}' stops it"))
                .into());
        }
        let created: Vec<&str> = machine
            .disks
            .iter()
            .filter(|disk| volumes && disk.made)
            .map(|disk| disk.volume.as_str())
            .collect();
        if !created.is_empty() {
            confirm(yes, &format!("deletes machine '{name}' and its volumes {}", created.join(", ")))?;
        }
        let exports = self.ctx.client.list_exports().await?;
        for disk in &machine.disks {
            let name: VolumeName = parse_volume(&disk.volume)?;
            let own = exports.iter().filter(|export| {
                export.protocol == types::Protocol::VhostUser
                    && export.owner.is_none()
                    && export.pool == name.pool
                    && export.volume == name.volume
            });
            if let Some(export) = own.min_by_key(|export| export.connections) {
                self.ctx.delete_export(export).await?;
            }
            // The volume may have been deleted by another command.
            if volumes && disk.made && self.ctx.client.find_volume(&name).await?.is_some() {
                self.ctx.delete_volume(&name).await?;
            }
        }
        self.store.delete(name, lock)?;
        let left: Vec<&str> = machine
            .disks
            .iter()
            .map(|disk| disk.volume.as_str())
            .filter(|volume| !created.contains(volume))
            .collect();
        self.ctx.done(&machine, |machine| match left.as_slice() {
            [] => format!("machine '{}' deleted", machine.name),
            left => format!("machine '{}' deleted; its volumes are kept: {}", machine.name, left.join(", ")),
        })
    }
}
