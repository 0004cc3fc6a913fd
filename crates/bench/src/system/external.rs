//! Existing targets: devices, files, NBD exports, vhost-user sockets.
//!
//! Invariant: nothing is written to them unless the user permits it.

use std::process::{Command, Stdio};

use super::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent, file_size};
use crate::load::{S3Endpoint, Target};
use crate::suite::Workload;
use crate::vhost;

/// An existing set of devices, files or exports.
#[derive(Debug)]
pub struct ExternalSystem {
    name: String,
    targets: Vec<Target>,
    extents: Vec<TargetExtent>,
    processes: Vec<u32>,
}

impl ExternalSystem {
    /// Parses paths or NBD addresses, separated by commas, or the address of an S3 service.
    ///
    /// # Errors
    /// If a part is not a valid target.
    pub fn parse(name: &str, text: &str) -> Result<Self, SystemError> {
        let one = |part: &str| {
            if let Some(url) = part.strip_prefix("s3:") {
                let variable = |key: &str| std::env::var(key).ok().filter(|value| !value.is_empty());
                s3_target(url, variable).map_err(|error| SystemError::new(name, "parse the target", error))
            } else if part.starts_with("nbd://")
                || part.starts_with("nbd+unix://")
                || part.starts_with("nbds")
            {
                Ok(Target::Nbd(part.into()))
            } else if let Some(socket) = part.strip_prefix("vhost:").filter(|path| path.starts_with('/')) {
                Ok(Target::Vhost(socket.into()))
            } else if part.starts_with('/') {
                Ok(Target::File(part.into()))
            } else {
                let message = format!(
                    "invalid target '{part}': expected an absolute path, an NBD address (nbd://, nbd+unix://), vhost:/SOCKET or s3:http://HOST:PORT"
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
        if targets.len() > 1 && targets.iter().any(|target| matches!(target, Target::S3(_))) {
            let message = "S3 services cannot be combined with other targets; use two targets";
            return Err(SystemError::new(name, "parse the target", message));
        }
        Ok(Self { name: name.into(), targets, extents: Vec::new(), processes: Vec::new() })
    }
}

impl System for ExternalSystem {
    fn info(&self) -> SystemInfo {
        let shown = |target: &Target| match target {
            Target::Nbd(uri) => uri.clone(),
            Target::File(path) => path.display().to_string(),
            Target::Vhost(socket) => format!("vhost-user, {}", socket.display()),
            Target::Machine { device: file, .. } | Target::Pod { file, .. } => file.clone(),
            Target::S3(endpoint) => format!("S3, {}", endpoint.url),
            Target::Rados(rados) => format!("pool {}", rados.pool),
        };
        let unknown = || "unknown: an external target".to_owned();
        SystemInfo {
            name: self.name.clone(),
            what: self.targets.iter().map(shown).collect::<Vec<_>>().join(", "),
            guarantees: Guarantees { flush: unknown(), checksums: unknown(), protection: unknown() },
            takes_drives: false,
            own_contents: false,
            degrades: false,
            layout: None,
            remark: None,
            network: None,
            is_remote: self.targets.iter().any(is_remote),
        }
    }

    fn serves(&self, workload: Workload) -> bool {
        let is_s3 = self.targets.iter().any(|target| matches!(target, Target::S3(_)));
        is_s3 == (workload == Workload::Objects)
    }

    fn set_up(&mut self, _requirements: &Requirements<'_>) -> Result<(), SystemError> {
        (self.extents, self.processes) = (Vec::new(), Vec::new());
        for target in &self.targets {
            let (bytes, process) =
                inspect(target).map_err(|error| SystemError::new(&self.name, "inspect it", error))?;
            self.extents.push(TargetExtent { target: target.clone(), bytes });
            self.processes.extend(process.filter(|process| !self.processes.contains(process)));
        }
        Ok(())
    }

    fn targets(&self) -> Vec<TargetExtent> {
        self.extents.clone()
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

/// True if a target is on another host, as far as its address shows.
fn is_remote(target: &Target) -> bool {
    let (Target::Nbd(url) | Target::S3(S3Endpoint { url, .. })) = target else { return false };
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let host = rest.split('/').next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let is_here = ["localhost", "127.", "[::1]"].iter().any(|here| host.starts_with(here));
    !scheme.ends_with("unix") && !host.is_empty() && !is_here
}

/// The size of a target whose size is unknown, in bytes.
const UNKNOWN_BYTES: u64 = 1 << 60;

/// Returns the S3 service at `url` with the keys in the environment variables of AWS clients.
fn s3_target(url: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Target, String> {
    s3_client::Address::parse(url).map_err(|error| error.to_string())?;
    let key = |name: &str| {
        variable(name)
            .ok_or_else(|| format!("the environment variable {name} with the key of {url} is not set"))
    };
    Ok(Target::S3(S3Endpoint {
        url: url.into(),
        region: variable("AWS_REGION").unwrap_or_else(|| "us-east-1".into()),
        access_key: key("AWS_ACCESS_KEY_ID")?,
        secret_key: key("AWS_SECRET_ACCESS_KEY")?,
    }))
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
        Target::Machine { .. } | Target::Pod { .. } => {
            Err("a device in a guest or a pod cannot be an external target".into())
        }
        Target::Rados(_) => Err("a pool cannot be an external target".into()),
        // The size of a service is unknown.
        Target::S3(_) => Ok((UNKNOWN_BYTES, None)),
        Target::Vhost(socket) => {
            let disk = vhost::disk(socket)?;
            Ok((disk.bytes, disk.process))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_other_hosts_are_remote() {
        let nbd = |url: &str| is_remote(&Target::Nbd(url.into()));
        assert!(nbd("nbd://10.0.0.1/disk") && nbd("nbds://user@storage:10809/disk"));
        assert!(!nbd("nbd://localhost/disk") && !nbd("nbd://127.0.0.1:10809") && !nbd("nbd://[::1]/disk"));
        assert!(!nbd("nbd+unix:///disk?socket=/run/nbd.sock"));
        let variable = |_: &str| Some(String::new());
        assert!(is_remote(&s3_target("http://10.0.0.1:9000", variable).unwrap()));
        assert!(!is_remote(&s3_target("http://127.0.0.1:9000", variable).unwrap()));
        assert!(!is_remote(&Target::File("/dev/sda".into())));
    }

    #[test]
    fn the_keys_of_a_service_come_from_the_environment() {
        let variable = |name: &str| (name != "AWS_REGION").then(|| format!("value of {name}"));
        let Target::S3(endpoint) = s3_target("http://127.0.0.1:9000", variable).unwrap() else { panic!() };
        assert_eq!(endpoint.region, "us-east-1");
        assert_eq!(endpoint.secret_key, "value of AWS_SECRET_ACCESS_KEY");
        let stored = serde_json::to_string(&endpoint).unwrap();
        assert!(!stored.contains("SECRET"), "{stored}");
        let error = s3_target("http://127.0.0.1:9000", |_| None).unwrap_err();
        assert!(error.contains("AWS_ACCESS_KEY_ID"), "{error}");
        assert!(s3_target("ftp://x", variable).unwrap_err().contains("http://HOST:PORT"));
    }
}
