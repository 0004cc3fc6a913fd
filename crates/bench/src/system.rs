//! What is measured: the trait behind which every system stands, and those that a user has already.
//!
//! Always true: nothing is written to what a user named unless he said so; what is mounted or held is refused.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use crate::bounds::Layout;
use crate::fio::Target;
use crate::lab;

/// What a system says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Its name in tables.
    pub name: String,
    /// What it is and how it is set up.
    pub what: String,
    /// What it promises for what it does.
    pub promises: Promises,
    /// It takes the run's drives for itself: others must wait until it is taken down.
    pub takes_drives: bool,
    /// It can lose a drive on request.
    pub degrades: bool,
    /// How it lies on the drives, which bounds depend on; nothing if that is not known.
    #[serde(default)]
    pub layout: Option<Layout>,
}

/// What a figure is worth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promises {
    /// When data is safe.
    pub flush: String,
    /// What is verified.
    pub checksums: String,
    /// What may be lost.
    pub protection: String,
}

/// What a run wants of a system.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// Instances that will work at the same time, at most.
    pub instances: u32,
    /// Bytes for each, at most.
    pub instance_bytes: Option<u64>,
    /// The run's drives.
    pub drives: &'a [PathBuf],
    /// Protection that the suite asks for, as k+m.
    pub scheme: Option<&'a str>,
    /// Pools side by side that the suite asks for.
    pub pools: u32,
    /// A folder for files and logs.
    pub folder: &'a Path,
    /// Set when it is to end early.
    pub stop: &'a AtomicBool,
}

/// A place that instances work on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Where fio finds it.
    pub target: Target,
    /// Its bytes.
    pub bytes: u64,
}

/// Something that was wrong with a system.
#[derive(Debug, thiserror::Error)]
#[error("{system}: {doing}: {source}")]
pub struct SystemError {
    /// Which.
    pub system: String,
    /// What it was to do.
    pub doing: &'static str,
    /// Why it failed.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl SystemError {
    /// An error of the system `system` in `doing` something.
    pub fn new(
        system: &str,
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { system: system.into(), doing, source: source.into() }
    }
}

/// A system under measurement. Dropping one takes it down.
pub trait System: Send {
    /// What it says of itself.
    fn about(&self) -> About;

    /// Makes it ready for a run.
    ///
    /// # Errors
    /// Why that cannot be; nothing is left behind then.
    fn set_up(&mut self, wish: &Wish<'_>) -> Result<(), SystemError>;

    /// Where the instances work.
    fn spots(&self) -> Vec<Spot>;

    /// Its processes.
    fn processes(&self) -> Vec<u32>;

    /// Loses a drive of each of its pools; says what was done.
    ///
    /// # Errors
    /// When it cannot.
    fn degrade(&mut self) -> Result<String, SystemError>;

    /// Takes away what was made.
    ///
    /// # Errors
    /// What is left, and why.
    fn tear_down(&mut self) -> Result<(), SystemError>;
}

/// Devices, files or exports that are there already.
#[derive(Debug)]
pub struct Given {
    name: String,
    targets: Vec<Target>,
    spots: Vec<Spot>,
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
            } else if part.starts_with('/') {
                Ok(Target::File(part.into()))
            } else {
                let message =
                    format!("'{part}' is no absolute path and no NBD address (nbd://, nbd+unix://)");
                Err(SystemError::new(name, "finding it", message))
            }
        };
        let targets: Result<Vec<Target>, SystemError> = text.split(',').map(one).collect();
        Ok(Self { name: name.into(), targets: targets?, spots: Vec::new() })
    }
}

impl System for Given {
    fn about(&self) -> About {
        let shown = |target: &Target| match target {
            Target::Nbd(uri) => uri.clone(),
            Target::File(path) => path.display().to_string(),
        };
        let unknown = || "not known: it was given as it is".to_owned();
        About {
            name: self.name.clone(),
            what: self.targets.iter().map(shown).collect::<Vec<_>>().join(", "),
            promises: Promises { flush: unknown(), checksums: unknown(), protection: unknown() },
            takes_drives: false,
            degrades: false,
            layout: None,
        }
    }

    fn set_up(&mut self, _wish: &Wish<'_>) -> Result<(), SystemError> {
        let spot = |target: &Target| {
            let bytes = size(target).map_err(|error| SystemError::new(&self.name, "looking at it", error))?;
            Ok(Spot { target: target.clone(), bytes })
        };
        self.spots = self.targets.iter().map(spot).collect::<Result<_, SystemError>>()?;
        Ok(())
    }

    fn spots(&self) -> Vec<Spot> {
        self.spots.clone()
    }

    fn processes(&self) -> Vec<u32> {
        Vec::new()
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

/// Bytes of a target; an error for what is in use.
fn size(target: &Target) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    match target {
        Target::Nbd(uri) => {
            let output = Command::new("nbdinfo").args(["--size", uri]).stdin(Stdio::null()).output()?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
            }
            Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
        }
        Target::File(path) => file_size(path),
    }
}

/// Bytes of a file or block device that nobody has mounted.
pub(crate) fn file_size(path: &Path) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    use std::io::{Seek, SeekFrom};
    if let Some(user) = lab::user_of(path)? {
        return Err(format!("{} is in use by {user}", path.display()).into());
    }
    let at = |error: std::io::Error| format!("{}: {error}", path.display());
    let bytes = std::fs::File::open(path).map_err(at)?.seek(SeekFrom::End(0)).map_err(at)?;
    if bytes == 0 {
        return Err(format!("{} has no bytes", path.display()).into());
    }
    Ok(bytes)
}
