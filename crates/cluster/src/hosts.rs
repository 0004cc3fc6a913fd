//! The hosts file: names of the hosts, how to reach them, and which drives belong to them.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::transport::Transport;
use ceph::{Error, ErrorKind, Result};

/// A host of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostEntry {
    /// Name of the host, unique in the cluster.
    pub name: String,
    /// `local:`, `local:NAMESPACE` or an SSH destination.
    pub address: String,
    /// Drives and files that may be used; all empty drives of the machine if absent. Required for
    /// several hosts on one machine, so that no two of them use one drive.
    #[serde(default)]
    pub drives: Option<Vec<String>>,
}

/// The hosts file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostsFile {
    /// The hosts.
    #[serde(default, rename = "host")]
    pub hosts: Vec<HostEntry>,
}

impl HostsFile {
    /// Reads and checks a hosts file.
    ///
    /// # Errors
    /// `NotFound`; `Invalid`, which names every mistake.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::file(path, &error))?;
        Self::parse(&text)
            .map_err(|message| Error::new(ErrorKind::Invalid, format!("{}: {message}", path.display())))
    }

    /// Parses and checks a hosts file.
    ///
    /// # Errors
    /// All mistakes, separated by semicolons.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let file: Self = toml::from_str(text).map_err(|error| error.to_string().trim().replace('\n', " "))?;
        let mistakes = file.mistakes();
        if mistakes.is_empty() { Ok(file) } else { Err(mistakes.join("; ")) }
    }

    fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        if self.hosts.is_empty() {
            mistakes.push("the file has no [[host]]".to_owned());
        }
        let (mut names, mut drives) = (BTreeSet::new(), BTreeSet::new());
        let mut everything = BTreeSet::new();
        for host in &self.hosts {
            if !is_name(&host.name) {
                mistakes.push(format!("'{}' is not a host name: letters, digits, '-' and '.'", host.name));
            }
            if !names.insert(&host.name) {
                mistakes.push(format!("host '{}' occurs twice", host.name));
            }
            let machine = match host.address.parse::<Transport>() {
                Ok(Transport::Ssh(destination)) => destination,
                Ok(_) => "local:".to_owned(),
                Err(error) => {
                    mistakes.push(format!("host '{}': {error}", host.name));
                    continue;
                }
            };
            for drive in host.drives.iter().flatten() {
                if !drive.starts_with('/') || drive.contains(char::is_whitespace) {
                    mistakes.push(format!("host '{}': drive '{drive}' is not an absolute path", host.name));
                }
                if !drives.insert((machine.clone(), drive)) {
                    mistakes.push(format!("drive {drive} belongs to two hosts"));
                }
            }
            if host.drives.is_none() && !everything.insert(machine.clone()) {
                mistakes.push(format!(
                    "two hosts at '{machine}' claim all of its drives; list 'drives' for each"
                ));
            }
        }
        mistakes
    }
}

/// Returns true if the text is a name of a cluster or a host.
pub(crate) fn is_name(text: &str) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    (1..=48).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(valid)
}

impl HostEntry {
    /// Returns the way to the host.
    ///
    /// # Errors
    /// `Invalid` for a malformed address.
    pub(crate) fn transport(&self) -> Result<Transport> {
        self.address.parse().map_err(|message: String| Error::new(ErrorKind::Invalid, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_is_named() {
        let text = r#"
            [[host]]
            name = "a"
            address = "local:"
            [[host]]
            name = "a"
            address = "local:ns"
            [[host]]
            name = "-"
            address = "a b"
            [[host]]
            name = "c"
            address = "local:c"
            drives = ["x", "/d", "/d"]
        "#;
        let message = HostsFile::parse(text).unwrap_err();
        for part in ["'a' occurs twice", "claim all", "'-' is not", "'a b'", "'x' is not", "/d belongs"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(HostsFile::parse("").unwrap_err().contains("no [[host]]"));
        assert!(HostsFile::parse("[[host]]\nname = 'a'\naddress = 'local:'\ncolour = 'red'").is_err());
    }
}
