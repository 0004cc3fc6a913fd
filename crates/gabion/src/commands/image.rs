//! `gabion volume export-image` and `import`, and the volumes that machines' images become.
//!
//! Always true: what a command made on its way is taken back when it ends, whether it succeeded, failed or was interrupted.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::types::{CreateSnapshot, CreateVolume, Protocol};
use api::{Error, ErrorKind, Size, VolumeName};
use serde::Serialize;

use super::Setting;
use super::calls::ExportOptions;
use crate::cli::{ExportImageArgs, ImportArgs};
use crate::failure::Outcome;
use crate::image::{self, Beside, Copied, Format, Image, Interrupt, Place};
use crate::output;

/// Volumes have whole blocks of this many bytes.
const BLOCK: u64 = 4096;

/// An image and a volume of which one was made of the other.
#[derive(Serialize)]
pub(crate) struct Moved {
    /// The volume or snapshot.
    pub(crate) volume: String,
    pub(crate) file: PathBuf,
    pub(crate) format: String,
    /// Bytes of the volume.
    pub(crate) size: u64,
    /// Bytes that were copied; none if another program did that, which does not say.
    pub(crate) data: Option<u64>,
    /// Bytes that a new image takes where it is.
    pub(crate) taken: Option<u64>,
    pub(crate) seconds: f64,
    pub(crate) bytes_per_second: Option<u64>,
}

impl Moved {
    fn new(volume: &VolumeName, file: &Path, format: &str, size: u64, copied: Copied) -> Self {
        Self {
            volume: volume.to_string(),
            file: file.to_owned(),
            format: format.to_owned(),
            size,
            data: copied.data,
            taken: None,
            seconds: copied.time.as_secs_f64(),
            bytes_per_second: copied.rate(),
        }
    }
}

/// Writes a volume or snapshot to an image.
pub(super) async fn export(setting: &Setting, arguments: ExportImageArgs) -> Result<Outcome> {
    let ExportImageArgs { name, file, format, force } = arguments;
    let format = format.map_or_else(|| Format::to_write(&file), Ok)?;
    let volume = setting.client.get_volume(&name).await?;
    image::can_write(format)?;
    let mut interrupt = Interrupt::new()?;
    let beside = Beside::new(&file, force)?;
    setting.say(|| format!("copying {name} ({}) to {}", Size(volume.size), file.display()));
    let (copied, size) = if volume.snapshot {
        setting.export_snapshot(&name, &beside, format, &mut interrupt).await?
    } else {
        let own = format!("image-{}", own_word()?);
        let snapshot = VolumeName { pool: name.pool.clone(), volume: format!("{}@{own}", name.volume) };
        setting.client.create_snapshot(&name, &CreateSnapshot { name: own }).await?;
        let copied = setting.export_snapshot(&snapshot, &beside, format, &mut interrupt).await;
        if let Err(error) = setting.delete_volume(&snapshot).await {
            eprintln!("gabion: snapshot {snapshot} was taken for this and is left: {error}");
        }
        copied?
    };
    let mut moved = Moved::new(&name, beside.target(), format.word(), size, copied);
    moved.taken = Some(beside.taken()?);
    // One that came after the copy.
    interrupt.or(async { Ok(()) }).await?;
    beside.place()?;
    setting.done(&moved, output::image_exported)?;
    Ok(Outcome::Done)
}

/// Makes a volume of an image.
pub(super) async fn import(setting: &Setting, arguments: ImportArgs) -> Result<Outcome> {
    let ImportArgs { name, file, format, size, sector } = arguments;
    let image = Image::look(&file, format)?;
    let size = match size.map(Size::bytes) {
        Some(size) if size < image.size => {
            let message =
                format!("the image holds a disk of {} bytes, which does not fit {size}", image.size);
            return Err(Error::new(ErrorKind::Invalid, message)
                .hint("leave --size out, or make it larger")
                .into());
        }
        Some(size) => size,
        None => image.size.next_multiple_of(BLOCK),
    };
    let mut interrupt = Interrupt::new()?;
    let wanted = CreateVolume { sector: Some(sector), ..CreateVolume::new(&name.volume, size) };
    let made = setting.client.create_volume(&name.pool, &wanted).await?;
    let filled = match setting.fill(&image, &name, &mut interrupt).await {
        Ok(copied) => interrupt.or(async { Ok(copied) }).await,
        Err(error) => Err(error),
    };
    let copied = match filled {
        Ok(copied) => copied,
        Err(error) => {
            if let Err(error) = setting.delete_volume(&name).await {
                eprintln!("gabion: volume {name} was made, holds part of the image and is left: {error}");
            }
            return Err(error);
        }
    };
    let moved = Moved::new(&name, &file, image.format(), made.size, copied);
    setting.done(&moved, output::image_imported)?;
    Ok(Outcome::Done)
}

/// A word that nobody else uses.
fn own_word() -> Result<String> {
    let path = "/proc/sys/kernel/random/uuid";
    let uuid = std::fs::read_to_string(path).with_context(|| format!("'{path}'"))?;
    Ok(uuid.chars().take_while(|c| *c != '-').collect())
}

impl Setting {
    /// Tells what is done, to who wants to know.
    fn say(&self, line: impl FnOnce() -> String) {
        if !self.quiet {
            eprintln!("{}", line());
        }
    }

    /// Where an export is reached.
    async fn place(&self, name: &VolumeName) -> Result<Place> {
        let daemon = self.client.get_daemon().await?;
        let export = name.to_string();
        match (daemon.nbd_socket, daemon.nbd_listen.into_iter().next()) {
            (Some(socket), _) => Ok(Place::Socket { path: socket.into(), export }),
            (None, Some(address)) => Ok(Place::Address { address, export }),
            (None, None) => {
                let message = "images are copied by NBD, which the daemon serves nowhere";
                Err(Error::new(ErrorKind::Invalid, message)
                    .hint("set nbd.socket in its configuration and restart it")
                    .into())
            }
        }
    }

    /// Copies a snapshot, and tells its size.
    async fn export_snapshot(
        &self,
        name: &VolumeName,
        to: &Beside,
        format: Format,
        interrupt: &mut Interrupt,
    ) -> Result<(Copied, u64)> {
        let place = self.place(name).await?;
        let volume = self.client.get_volume(name).await?;
        let exports = self.client.list_exports().await?;
        let place_name = name.to_string();
        let there =
            exports.iter().any(|export| export.protocol == Protocol::Nbd && export.name == place_name);
        // Snapshots are read-only, so that another export by NBD is possible beside any other one.
        let made = if there {
            None
        } else {
            let options = ExportOptions { protocol: Protocol::Nbd, read_only: true, reactors: Vec::new() };
            Some(self.export(name, options).await?)
        };
        let copied = interrupt.or(image::export(&place, to, format, volume.size, self.quiet)).await;
        if let Some(made) = made {
            let ended = self.end_export(&made).await;
            if copied.is_ok() {
                ended?;
            }
        }
        Ok((copied?, volume.size))
    }

    /// Copies an image into a new volume, which nobody else uses.
    ///
    /// # Errors
    /// When the copy fails; the volume holds part of it then, and is not exported.
    pub(super) async fn fill(
        &self,
        image: &Image,
        name: &VolumeName,
        interrupt: &mut Interrupt,
    ) -> Result<Copied> {
        let place = self.place(name).await?;
        let options = ExportOptions { protocol: Protocol::Nbd, read_only: false, reactors: Vec::new() };
        let export = self.export(name, options).await?;
        self.say(|| format!("copying {} into {name}", image.shown()));
        let copied = interrupt.or(image::fill(image, &place, self.quiet)).await;
        let ended = self.end_export(&export).await;
        let copied = copied?;
        ended.map(|()| copied)
    }
}
