//! What a user has already: devices, files, exports, disks behind sockets.
//!
//! Always true: nothing is written to it unless he said so.

use std::process::{Command, Stdio};

use super::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent, file_size};
use crate::load::Target;
use crate::vhost;

/// Devices, files or exports that are there already.
#[derive(Debug)]
pub struct Given {
    name: String,
    targets: Vec<Target>,
    spots: Vec<TargetExtent>,
    processes: Vec<u32>,
}

impl Given {
    /// What a user names: paths or NBD addresses, several with commas between them.
    ///
    /// # Errors
    /// When it is nothing that can be measured.
    pub fn parse(name: &str, text: &str) -> Result<Self, SystemError> {
        let one = |part: &str| {
            if part.starts_with("nbd://") || part.starts_with("nbd+unix://") || part.starts_with("nbds") {
                Ok(Target::Nbd(part.into()))
            } else if let Some(socket) = part.strip_prefix("vhost:").filter(|path| path.starts_with('/')) {
                Ok(Target::Vhost(socket.into()))
            } else if part.starts_with('/') {
                Ok(Target::File(part.into()))
            } else {
                let message = format!(
                    "'{part}' is no absolute path, no NBD address (nbd://, nbd+unix://) and no vhost:/SOCKET"
                );
                Err(SystemError::new(name, "finding it", message))
            }
        };
        let targets = text.split(',').map(one).collect::<Result<Vec<Target>, SystemError>>()?;
        let ours = targets.iter().filter(|target| matches!(target, Target::Vhost(_))).count();
        if ours > 0 && ours < targets.len() {
            let message = "sockets of machines cannot be one target with files or exports: name two targets";
            return Err(SystemError::new(name, "finding it", message));
        }
        Ok(Self { name: name.into(), targets, spots: Vec::new(), processes: Vec::new() })
    }
}

impl System for Given {
    fn about(&self) -> SystemInfo {
        let shown = |target: &Target| match target {
            Target::Nbd(uri) => uri.clone(),
            Target::File(path) => path.display().to_string(),
            Target::Vhost(socket) => format!("vhost-user, {}", socket.display()),
            Target::Machine { device, .. } => device.clone(),
        };
        let unknown = || "not known: it was given as it is".to_owned();
        SystemInfo {
            name: self.name.clone(),
            what: self.targets.iter().map(shown).collect::<Vec<_>>().join(", "),
            promises: Guarantees { flush: unknown(), checksums: unknown(), protection: unknown() },
            takes_drives: false,
            degrades: false,
            layout: None,
            remark: None,
        }
    }

    fn set_up(&mut self, _wish: &Requirements<'_>) -> Result<(), SystemError> {
        (self.spots, self.processes) = (Vec::new(), Vec::new());
        for target in &self.targets {
            let (bytes, process) =
                look(target).map_err(|error| SystemError::new(&self.name, "looking at it", error))?;
            self.spots.push(TargetExtent { target: target.clone(), bytes });
            self.processes.extend(process.filter(|process| !self.processes.contains(process)));
        }
        Ok(())
    }

    fn spots(&self) -> Vec<TargetExtent> {
        self.spots.clone()
    }

    fn processes(&self) -> Vec<u32> {
        self.processes.clone()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        Err(SystemError::new(
            &self.name,
            "losing a drive",
            "it was given as it is, and its drives are not ours",
        ))
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        Ok(())
    }
}

/// Bytes of a target, and whose it is if that is known; an error for what is in use.
fn look(target: &Target) -> Result<(u64, Option<u32>), Box<dyn std::error::Error + Send + Sync>> {
    match target {
        Target::Nbd(uri) => {
            let output = Command::new("nbdinfo").args(["--size", uri]).stdin(Stdio::null()).output()?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
            }
            Ok((String::from_utf8_lossy(&output.stdout).trim().parse()?, None))
        }
        Target::File(path) => Ok((file_size(path)?, None)),
        Target::Machine { .. } => Err("a device within a machine is nobody's to give".into()),
        Target::Vhost(socket) => {
            let disk = vhost::disk(socket)?;
            Ok((disk.bytes, disk.process))
        }
    }
}
