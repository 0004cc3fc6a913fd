//! Persistent storage of machines: a directory for each, with its definition and runtime files.
//!
//! Always true: files are replaced atomically; the directory of a machine is accessible to one user
//! only, since its seed may contain passwords; only one command at a time changes a machine.

use std::path::{Path, PathBuf};

use file_lock::FileLock;

use crate::atomic_file::{make_directory, write};
use crate::error::{Error, ErrorKind, Result};
use crate::machine::{Machine, check_name};
use crate::process::Running;
use crate::template::Templates;

const DEFINITION: &str = "machine.json";
const RUNNING: &str = "running.json";
/// Bytes of the longest path of a Unix socket.
const PATH_MAX: usize = 107;

/// The machines in a directory.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

/// The exclusive lock of a machine, held until dropped.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "its drop ends the lock")] FileLock);

impl Store {
    /// Returns the store in `directory`, which need not exist.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Returns the templates, stored next to the machines.
    pub fn templates(&self) -> Templates {
        Templates::new(self.directory.join("templates"))
    }

    /// Returns the directory of a machine.
    pub fn machine_dir(&self, name: &str) -> PathBuf {
        self.directory.join("machines").join(name)
    }

    /// Returns the QMP socket of a machine's QEMU.
    pub fn qmp(&self, name: &str) -> PathBuf {
        self.machine_dir(name).join("qmp.sock")
    }

    /// Returns the socket of a machine's serial console.
    pub fn console(&self, name: &str) -> PathBuf {
        self.machine_dir(name).join("console.sock")
    }

    /// Returns the log of a machine's console since its last start.
    pub fn console_log(&self, name: &str) -> PathBuf {
        self.machine_dir(name).join("console.log")
    }

    /// Returns the log of a machine's QEMU since its last start.
    pub fn qemu_log(&self, name: &str) -> PathBuf {
        self.machine_dir(name).join("qemu.log")
    }

    /// Returns the cloud-init seed disk of a machine.
    pub fn seed(&self, name: &str) -> PathBuf {
        self.machine_dir(name).join("seed.img")
    }

    /// Locks a machine for changes.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while another command holds the lock.
    pub fn lock(&self, name: &str) -> Result<Lock> {
        self.get(name)?;
        self.acquire_lock(name)
    }

    fn acquire_lock(&self, name: &str) -> Result<Lock> {
        let path = self.machine_dir(name).join("lock");
        let lock = FileLock::acquire(&path, 0o600).map_err(|error| Error::file(&path, &error))?;
        let lock = lock.ok_or_else(|| {
            Error::new(ErrorKind::Busy, format!("machine '{name}' is being changed by another command"))
        })?;
        Ok(Lock(lock))
    }

    /// Stores a new machine and returns its lock.
    ///
    /// # Errors
    /// `Exists`; the errors of [`Machine::check`]; I/O errors.
    pub fn create(&self, machine: &Machine) -> Result<Lock> {
        machine.check()?;
        let directory = self.machine_dir(&machine.name);
        for path in [self.qmp(&machine.name), self.console(&machine.name)] {
            if path.as_os_str().len() > PATH_MAX {
                let message = format!("socket path {} is longer than {PATH_MAX} bytes", path.display());
                return Err(Error::new(ErrorKind::Invalid, message)
                    .hint("use a shorter name, or a shorter --state-dir of the daemon"));
            }
        }
        make_directory(&directory)?;
        let lock = self.acquire_lock(&machine.name)?;
        if directory.join(DEFINITION).exists() {
            let message = format!("machine '{}' already exists", machine.name);
            return Err(Error::new(ErrorKind::Exists, message).hint("'gabion vm list' lists the machines"));
        }
        self.save(machine)?;
        Ok(lock)
    }

    /// Stores a changed machine.
    ///
    /// # Errors
    /// The errors of [`Machine::check`]; I/O errors.
    pub fn save(&self, machine: &Machine) -> Result<()> {
        machine.check()?;
        write_json(&self.machine_dir(&machine.name).join(DEFINITION), machine)
    }

    /// Returns a machine.
    ///
    /// # Errors
    /// `NotFound`; an error if its definition cannot be read.
    pub fn get(&self, name: &str) -> Result<Machine> {
        check_name(name)?;
        read_json(&self.machine_dir(name).join(DEFINITION))?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no machine '{name}'"))
                .hint("'gabion vm list' lists the machines, 'gabion vm create' creates one")
        })
    }

    /// Returns all machines, sorted by name.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn list(&self) -> Result<Vec<Machine>> {
        let directory = self.machine_dir("");
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::file(&directory, &error)),
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut machines = Vec::new();
        for name in names.filter(|name| check_name(name).is_ok()) {
            // A machine that was deleted meanwhile is skipped.
            machines.extend(read_json::<Machine>(&self.machine_dir(&name).join(DEFINITION))?);
        }
        machines.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(machines)
    }

    /// Deletes a machine with all files of its directory.
    ///
    /// # Errors
    /// I/O errors.
    pub fn delete(&self, name: &str, lock: Lock) -> Result<()> {
        let directory = self.machine_dir(name);
        // The definition first: without it, the remaining files are not a machine.
        let definition = directory.join(DEFINITION);
        std::fs::remove_file(&definition).map_err(|error| Error::file(&definition, &error))?;
        std::fs::remove_dir_all(&directory).map_err(|error| Error::file(&directory, &error))?;
        drop(lock);
        Ok(())
    }

    /// Returns the process of a machine, if it is running.
    ///
    /// # Errors
    /// If its record cannot be read.
    pub fn running(&self, name: &str) -> Result<Option<Running>> {
        let running: Option<Running> = read_json(&self.machine_dir(name).join(RUNNING))?;
        Ok(running.filter(Running::is_alive))
    }

    /// Stores the process of a machine.
    pub(crate) fn set_running(&self, name: &str, running: &Running) -> Result<()> {
        write_json(&self.machine_dir(name).join(RUNNING), running)
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::file(path, &error)),
    };
    let parsed = serde_json::from_slice(&text);
    parsed.map(Some).map_err(|error| Error::new(ErrorKind::Io, format!("{}: {error}", path.display())))
}

fn write_json<T: serde::Serialize>(path: &Path, value: &T) -> Result<()> {
    let text = serde_json::to_vec_pretty(value)
        .map_err(|error| Error::new(ErrorKind::Io, format!("{}: {error}", path.display())))?;
    write(path, &text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::testing::machine;

    #[test]
    fn machines_are_stored_by_name_for_one_user() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::new(home.path().join("state"));
        assert_eq!(store.list().unwrap(), []);
        assert_eq!(store.get("web").unwrap_err().kind(), ErrorKind::NotFound);
        let lock = store.create(&machine()).unwrap();
        assert_eq!(store.lock("web").unwrap_err().kind(), ErrorKind::Busy);
        drop(lock);
        assert_eq!(store.create(&machine()).unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(store.get("web").unwrap(), machine());
        let other = Machine { name: "db".into(), ..machine() };
        drop(store.create(&other).unwrap());
        assert_eq!(store.list().unwrap(), [other, machine()]);
        let mode = std::fs::metadata(store.machine_dir("web")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let lock = store.lock("web").unwrap();
        store.delete("web", lock).unwrap();
        assert!(!store.machine_dir("web").exists());
        assert_eq!(store.lock("web").unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn invalid_machines_are_refused_before_any_file_is_created() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::new(home.path().join("x".repeat(90)));
        assert!(store.create(&machine()).unwrap_err().to_string().contains("longer than"));
        let store = Store::new(home.path().join("state"));
        let nameless = Machine { name: "../x".into(), ..machine() };
        assert_eq!(store.create(&nameless).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn errors_name_an_unreadable_file() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::new(home.path().into());
        drop(store.create(&machine()).unwrap());
        std::fs::write(store.machine_dir("web").join(DEFINITION), "{").unwrap();
        assert!(store.get("web").unwrap_err().to_string().contains("machine.json"));
        assert!(store.list().is_err());
    }
}
