//! Existing targets: devices, files, NBD exports, vhost-user sockets.
//!
//! Invariant: nothing is written to them unless the user permits it.

use std::process::{Command, Stdio};

use super::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent, file_size};
use crate::load::Target;
use crate::vhost;

/// An existing set of devices, files or exports.
#[derive(Debug)]
pub struct ExternalSystem {
    name: String,
    targets: Vec<Target>,
    spots: Vec<TargetExtent>,
    processes: Vec<u32>,
}

impl ExternalSystem {
    /// Parses paths or NBD addresses, separated by commas.
    ///
    /// # Errors
    /// If a part is not a valid target.
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
                    "invalid target '{part}': expected an absolute path, an NBD address (nbd://, nbd+unix://) or vhost:/SOCKET"
                );
                Err(SystemError::new(name, "parse the target", message))
            }
        };
        let targets = text.split(',').map(one).collect::<Result<Vec<Target>, SystemError>>()?;
        let ours = targets.iter().filter(|target| matches!(target, Target::Vhost(_))).count();
        if ours > 0 && ours < targets.len() {
            let message = "vhost-user sockets cannot be combined with files or exports; use two targets";
            return Err(SystemError::new(name, "parse the target", message));
        }
        Ok(Self { name: name.into(), targets, spots: Vec::new(), processes: Vec::new() })
    }
}

impl System for ExternalSystem {
    fn info(&self) -> SystemInfo {
        let shown = |target: &Target| match target {
            Target::Nbd(uri) => uri.clone(),
            Target::File(path) => path.display().to_string(),
            Target::Vhost(socket) => format!("vhost-user, {}", socket.display()),
            Target::Machine { device, .. } => device.clone(),
        };
        let unknown = || "unknown: an external target".to_owned();
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
                inspect(target).map_err(|error| SystemError::new(&self.name, "inspect it", error))?;
            self.spots.push(TargetExtent { target: target.clone(), bytes });
            self.processes.extend(process.filter(|process| !self.processes.contains(process)));
        }
        Ok(())
    }

    fn targets(&self) -> Vec<TargetExtent> {
        self.spots.clone()
    }

    fn processes(&self) -> Vec<u32> {
        self.processes.clone()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        Err(SystemError::new(&self.name, "fail a drive", "the drives of an external target cannot be failed"))
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        Ok(())
    }
}

/// Returns the size of a target and its process, if known. Fails if it is in use.
fn inspect(target: &Target) -> Result<(u64, Option<u32>), Box<dyn std::error::Error + Send + Sync>> {
    match target {
        Target::Nbd(uri) => {
            let output = Command::new("nbdinfo").args(["--size", uri]).stdin(Stdio::null()).output()?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
            }
            Ok((String::from_utf8_lossy(&output.stdout).trim().parse()?, None))
        }
        Target::File(path) => Ok((file_size(path)?, None)),
        Target::Machine { .. } => Err("a device in a guest cannot be an external target".into()),
        Target::Vhost(socket) => {
            let disk = vhost::disk(socket)?;
            Ok((disk.bytes, disk.process))
        }
    }
}
