//! Machines on file: a directory for each, with what it is made of and the files of its running.
//!
//! Always true: what is there was written whole (a new file takes the old one's place); a machine's directory is one user's
//! alone, since its seed may hold passwords; one command at a time changes a machine.

use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, ErrorKind, Result};
use crate::machine::{Machine, check_name};
use crate::process::Running;
use crate::template::Templates;

const DEFINITION: &str = "machine.json";
const RUNNING: &str = "running.json";
/// Bytes of the longest path that a Unix socket can have.
const PATH_MAX: usize = 107;

/// The machines of a directory.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

/// The right to change a machine, until it is dropped.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "closing it gives the lock back")] File);

impl Store {
    /// Those in `directory`, which need not be there.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The templates, which are beside the machines.
    pub fn templates(&self) -> Templates {
        Templates::new(self.directory.join("templates"))
    }

    /// The directory of a machine.
    pub fn place(&self, name: &str) -> PathBuf {
        self.directory.join("machines").join(name)
    }

    /// The socket on which a machine's QEMU is told what to do.
    pub fn qmp(&self, name: &str) -> PathBuf {
        self.place(name).join("qmp.sock")
    }

    /// The socket of a machine's serial console.
    pub fn console(&self, name: &str) -> PathBuf {
        self.place(name).join("console.sock")
    }

    /// What a machine has printed on its console since it was started.
    pub fn console_log(&self, name: &str) -> PathBuf {
        self.place(name).join("console.log")
    }

    /// What a machine's QEMU has complained about since it was started.
    pub fn qemu_log(&self, name: &str) -> PathBuf {
        self.place(name).join("qemu.log")
    }

    /// The disk for cloud-init.
    pub fn seed(&self, name: &str) -> PathBuf {
        self.place(name).join("seed.img")
    }

    /// Takes the right to change a machine.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while another command has it.
    pub fn lock(&self, name: &str) -> Result<Lock> {
        self.get(name)?;
        self.take(name)
    }

    fn take(&self, name: &str) -> Result<Lock> {
        let path = self.place(name).join("lock");
        let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = file.map_err(|error| Error::file(&path, &error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                Err(Error::new(ErrorKind::Busy, format!("another command is at work on machine '{name}'")))
            }
            Err(error) => Err(Error::file(&path, &error.into())),
        }
    }

    /// Keeps a new machine. The right to change it is the caller's.
    ///
    /// # Errors
    /// `Exists`, or as [`Machine::check`]; when there is no place for it.
    pub fn create(&self, machine: &Machine) -> Result<Lock> {
        machine.check()?;
        let place = self.place(&machine.name);
        for path in [self.qmp(&machine.name), self.console(&machine.name)] {
            if path.as_os_str().len() > PATH_MAX {
                let message = format!(
                    "{} is longer than the {PATH_MAX} bytes that a socket's path may have",
                    path.display()
                );
                return Err(Error::new(ErrorKind::Invalid, message)
                    .hint("choose a shorter name, or a shorter --state-dir of the daemon"));
            }
        }
        make_directory(&place)?;
        let lock = self.take(&machine.name)?;
        if place.join(DEFINITION).exists() {
            let message = format!("there is a machine '{}' already", machine.name);
            return Err(Error::new(ErrorKind::Exists, message).hint("'gabion vm list' lists them"));
        }
        self.save(machine)?;
        Ok(lock)
    }

    /// Keeps a machine that has changed.
    ///
    /// # Errors
    /// As [`Machine::check`]; when it cannot be written.
    pub fn save(&self, machine: &Machine) -> Result<()> {
        machine.check()?;
        write_json(&self.place(&machine.name).join(DEFINITION), machine)
    }

    /// A machine.
    ///
    /// # Errors
    /// `NotFound`, or when what is kept of it does not read.
    pub fn get(&self, name: &str) -> Result<Machine> {
        check_name(name)?;
        read_json(&self.place(name).join(DEFINITION))?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no machine '{name}'"))
                .hint("'gabion vm list' lists them, 'gabion vm create' makes one")
        })
    }

    /// All machines, by name.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn list(&self) -> Result<Vec<Machine>> {
        let directory = self.place("");
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::file(&directory, &error)),
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut machines = Vec::new();
        for name in names.filter(|name| check_name(name).is_ok()) {
            // One that has just been deleted is no error.
            machines.extend(read_json::<Machine>(&self.place(&name).join(DEFINITION))?);
        }
        machines.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(machines)
    }

    /// Forgets a machine, with all files of its directory.
    ///
    /// # Errors
    /// When that fails.
    pub fn delete(&self, name: &str, lock: Lock) -> Result<()> {
        let place = self.place(name);
        // First what makes it a machine: the rest is of no use without.
        let definition = place.join(DEFINITION);
        std::fs::remove_file(&definition).map_err(|error| Error::file(&definition, &error))?;
        std::fs::remove_dir_all(&place).map_err(|error| Error::file(&place, &error))?;
        drop(lock);
        Ok(())
    }

    /// The process of a machine, if it runs.
    ///
    /// # Errors
    /// When what is kept of it does not read.
    pub fn running(&self, name: &str) -> Result<Option<Running>> {
        let running: Option<Running> = read_json(&self.place(name).join(RUNNING))?;
        Ok(running.filter(Running::lives))
    }

    /// Keeps which process a machine is.
    pub(crate) fn set_running(&self, name: &str, running: &Running) -> Result<()> {
        write_json(&self.place(name).join(RUNNING), running)
    }
}

fn make_directory(path: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| Error::file(path, &error))
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

/// Writes a file whole, in place of what was there, for this user alone.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |error: std::io::Error| Error::file(path, &error);
    let directory = path.parent().unwrap_or(Path::new("/"));
    make_directory(directory)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    // With a dot in front, it is neither a machine nor a template.
    let new = directory.join(format!(".{}", name.to_string_lossy()));
    let mut file =
        File::options().create(true).truncate(true).write(true).mode(0o600).open(&new).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&new, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::testing::machine;

    #[test]
    fn machines_are_kept_by_name_for_one_user() {
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
        let mode = std::fs::metadata(store.place("web")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let lock = store.lock("web").unwrap();
        store.delete("web", lock).unwrap();
        assert!(!store.place("web").exists());
        assert_eq!(store.lock("web").unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn what_cannot_be_kept_is_refused_before_anything_is_made() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::new(home.path().join("x".repeat(90)));
        assert!(store.create(&machine()).unwrap_err().to_string().contains("longer than"));
        let store = Store::new(home.path().join("state"));
        let nameless = Machine { name: "../x".into(), ..machine() };
        assert_eq!(store.create(&nameless).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_does_not_read_is_named() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::new(home.path().into());
        drop(store.create(&machine()).unwrap());
        std::fs::write(store.place("web").join(DEFINITION), "{").unwrap();
        assert!(store.get("web").unwrap_err().to_string().contains("machine.json"));
        assert!(store.list().is_err());
    }
}
