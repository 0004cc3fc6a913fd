//! The files with which a client finds a cluster and authenticates: `ceph.conf` and keyrings.
//! Parsing is pure.
//!
//! The directory of a cluster, `DIR/NAME`, has the names of these files from the crate `cluster`
//! that writes them; this is their only definition.

use std::path::{Path, PathBuf};

use crate::client::RadosOptions;
use crate::error::{Error, ErrorKind, Result};

/// The configuration of clients, in the directory of a cluster.
pub const CONF_FILE: &str = "ceph.conf";
/// The administrator.
pub const ADMIN_USER: &str = "admin";
/// The user that reads and writes volumes and has no other rights.
pub const VOLUMES_USER: &str = "gabion";
/// The user that administers the users and buckets of object gateways.
pub const GATEWAY_USER: &str = "gabion-rgw";
/// Limit for connecting and for commands, in seconds.
const TIMEOUT: u32 = 20;

/// Returns the path of a user's keyring in the directory of a cluster.
pub fn keyring_path(directory: &Path, user: &str) -> PathBuf {
    directory.join(if user == ADMIN_USER { "ceph.keyring".into() } else { format!("{user}.keyring") })
}

/// Returns the value of a key of a section of `ceph.conf`. Keys may have spaces or underscores.
pub fn conf_value(text: &str, section: &str, key: &str) -> Option<String> {
    let mut current = String::new();
    let mut value = None;
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.trim().clone_into(&mut current);
        } else if current == section
            && let Some((name, text)) = line.split_once('=')
            && name.trim().replace([' ', '-'], "_") == key
        {
            value = Some(text.trim().trim_matches('"').to_owned());
        }
    }
    value
}

/// Returns the key of a user in a keyring.
pub fn keyring_key(text: &str, user: &str) -> Option<String> {
    conf_value(text, &format!("client.{user}"), "key")
}

/// Returns the way to a cluster, from the files in its directory.
///
/// # Errors
/// `NotFound` if a file or the user is missing; `Denied` as `Io` if a file cannot be read;
/// `Invalid` for a file without monitors.
pub fn options_of(name: &str, directory: &Path, user: &str) -> Result<RadosOptions> {
    let stage = if user == ADMIN_USER { "deploy" } else { "services" };
    let conf = read(name, &directory.join(CONF_FILE), "deploy")?;
    let keyring = keyring_path(directory, user);
    let key = keyring_key(&read(name, &keyring, stage)?, user).ok_or_else(|| {
        Error::new(ErrorKind::Invalid, format!("{} has no key of client.{user}", keyring.display()))
    })?;
    let global = |key: &str| conf_value(&conf, "global", key);
    let monitors = global("mon_host").ok_or_else(|| {
        let path = directory.join(CONF_FILE);
        Error::new(ErrorKind::Invalid, format!("{} has no 'mon_host' in [global]", path.display()))
    })?;
    Ok(RadosOptions {
        cluster: name.to_owned(),
        monitors,
        user: user.to_owned(),
        secret: key,
        timeout: TIMEOUT,
    })
}

fn read(name: &str, path: &Path, stage: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| {
        let failed = Error::file(path, &error);
        match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(ErrorKind::NotFound, format!("cluster '{name}' has no file {}", path.display()))
                    .hint(format!("run 'gabion cluster {stage} {name}'"))
            }
            std::io::ErrorKind::PermissionDenied => {
                failed.hint("let the user of the daemon read it, and search its directory")
            }
            _ => failed,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONF: &str = "# comment\n[global]\nfsid = abc\nmon host = [v2:10.0.0.1:3300,v1:10.0.0.1:6789] 10.0.0.2\n\
                        [client.admin]\nkey = AQ==  ; of the administrator\n[osd]\nfsid = other\n";

    #[test]
    fn values_belong_to_their_section() {
        assert_eq!(conf_value(CONF, "global", "fsid").as_deref(), Some("abc"));
        let monitors = conf_value(CONF, "global", "mon_host").unwrap();
        assert_eq!(monitors, "[v2:10.0.0.1:3300,v1:10.0.0.1:6789] 10.0.0.2");
        assert_eq!(conf_value(CONF, "mon", "fsid"), None);
        assert_eq!(keyring_key(CONF, "admin").as_deref(), Some("AQ=="));
        assert_eq!(keyring_key(CONF, "gabion"), None);
    }

    #[test]
    fn a_missing_file_names_the_stage_that_writes_it() {
        let directory = tempfile::tempdir().unwrap();
        let hint = |user| {
            let error = options_of("prod", directory.path(), user).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            error.hint_text().unwrap().to_owned()
        };
        assert!(hint(ADMIN_USER).contains("cluster deploy prod"));
        std::fs::write(directory.path().join(CONF_FILE), CONF).unwrap();
        assert!(hint(VOLUMES_USER).contains("cluster services prod"));
        std::fs::write(directory.path().join("ceph.keyring"), CONF).unwrap();
        let options = options_of("prod", directory.path(), ADMIN_USER).unwrap();
        assert_eq!((options.user.as_str(), options.secret.as_str()), ("admin", "AQ=="));
    }
}
