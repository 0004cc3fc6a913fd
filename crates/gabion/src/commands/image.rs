//! `gabion volume export-image` and `import`, and the copies of images into volumes of machines.
//!
//! Always true: temporary snapshots and exports of a command are deleted when it ends, by success,
//! failure or interruption.

use std::path::Path;

use anyhow::{Context, Result};
use api::types::{CreateSnapshot, CreateVolume, Protocol};
use api::{Error, ErrorKind, Size, VolumeName};

use super::CommandContext;
use super::calls::ExportOptions;
use crate::cli::{ExportImageArgs, ImportArgs};
use crate::failure::ExitReason;
use crate::image::{self, AtomicFile, Copied, Format, Image, Interrupt, NbdEndpoint};
use crate::output::{self, ImageCopy};

/// Volume sizes are multiples of this many bytes.
const BLOCK: u64 = 4096;

fn image_copy(volume: &VolumeName, file: &Path, format: &str, size: u64, copied: Copied) -> ImageCopy {
    ImageCopy {
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

/// Runs `gabion volume export-image`.
pub(super) async fn export(ctx: &CommandContext, arguments: ExportImageArgs) -> Result<ExitReason> {
    let ExportImageArgs { name, file, format, force } = arguments;
    let format = format.map_or_else(|| Format::to_write(&file), Ok)?;
    let volume = ctx.client.get_volume(&name).await?;
    image::can_write(format)?;
    let mut interrupt = Interrupt::new()?;
    let output_file = AtomicFile::new(&file, force)?;
    ctx.print_step(|| format!("copying {name} ({}) to {}", Size(volume.size), file.display()));
    let (copied, size) = if volume.snapshot {
        ctx.export_snapshot(&name, &output_file, format, &mut interrupt).await?
    } else {
        let suffix = format!("image-{}", random_suffix()?);
        let snapshot = VolumeName { pool: name.pool.clone(), volume: format!("{}@{suffix}", name.volume) };
        ctx.client.create_snapshot(&name, &CreateSnapshot { name: suffix }).await?;
        let copied = ctx.export_snapshot(&snapshot, &output_file, format, &mut interrupt).await;
        if let Err(error) = ctx.delete_volume(&snapshot).await {
            eprintln!("gabion: temporary snapshot {snapshot} could not be deleted: {error}");
        }
        copied?
    };
    let mut result = image_copy(&name, output_file.target(), format.name(), size, copied);
    result.taken = Some(output_file.disk_usage()?);
    // A signal that arrived after the copy.
    interrupt.or(async { Ok(()) }).await?;
    output_file.persist()?;
    ctx.done(&result, output::image_exported)?;
    Ok(ExitReason::Success)
}

/// Runs `gabion volume import`.
pub(super) async fn import(ctx: &CommandContext, arguments: ImportArgs) -> Result<ExitReason> {
    let ImportArgs { name, file, format, size, sector } = arguments;
    let image = Image::inspect(&file, format)?;
    let size = match size.map(Size::bytes) {
        Some(size) if size < image.size => {
            let message =
                format!("--size {size} is smaller than the disk in the image ({} bytes)", image.size);
            return Err(Error::new(ErrorKind::Invalid, message)
                .hint("omit --size, or give a larger one")
                .into());
        }
        Some(size) => size,
        None => image.size.next_multiple_of(BLOCK),
    };
    let mut interrupt = Interrupt::new()?;
    let request = CreateVolume { sector: Some(sector), ..CreateVolume::new(&name.volume, size) };
    let created = ctx.client.create_volume(&name.pool, &request).await?;
    let result = match ctx.fill(&image, &name, &mut interrupt).await {
        Ok(copied) => interrupt.or(async { Ok(copied) }).await,
        Err(error) => Err(error),
    };
    let copied = match result {
        Ok(copied) => copied,
        Err(error) => {
            if let Err(error) = ctx.delete_volume(&name).await {
                eprintln!(
                    "gabion: volume {name} holds a part of the image and could not be deleted: {error}"
                );
            }
            return Err(error);
        }
    };
    let result = image_copy(&name, &file, image.format(), created.size, copied);
    ctx.done(&result, output::image_imported)?;
    Ok(ExitReason::Success)
}

/// Returns a random suffix for the name of a temporary snapshot.
fn random_suffix() -> Result<String> {
    let path = "/proc/sys/kernel/random/uuid";
    let uuid = std::fs::read_to_string(path).with_context(|| format!("'{path}'"))?;
    Ok(uuid.chars().take_while(|c| *c != '-').collect())
}

impl CommandContext {
    /// Prints the current step to standard error, unless `--quiet` is set.
    fn print_step(&self, line: impl FnOnce() -> String) {
        if !self.quiet {
            eprintln!("{}", line());
        }
    }

    /// Returns the address of an NBD export.
    async fn nbd_endpoint(&self, name: &VolumeName) -> Result<NbdEndpoint> {
        let daemon = self.client.get_daemon().await?;
        let export = name.to_string();
        match (daemon.nbd_socket, daemon.nbd_listen.into_iter().next()) {
            (Some(socket), _) => Ok(NbdEndpoint::Socket { path: socket.into(), export }),
            (None, Some(address)) => Ok(NbdEndpoint::Address { address, export }),
            (None, None) => {
                let message = "images are copied over NBD, which the daemon does not serve";
                Err(Error::new(ErrorKind::Invalid, message)
                    .hint("set nbd.socket in the daemon's configuration and restart it")
                    .into())
            }
        }
    }

    /// Copies a snapshot. Returns its size in bytes as well.
    async fn export_snapshot(
        &self,
        name: &VolumeName,
        to: &AtomicFile,
        format: Format,
        interrupt: &mut Interrupt,
    ) -> Result<(Copied, u64)> {
        let endpoint = self.nbd_endpoint(name).await?;
        let volume = self.client.get_volume(name).await?;
        let exports = self.client.list_exports().await?;
        let export_name = name.to_string();
        let exported =
            exports.iter().any(|export| export.protocol == Protocol::Nbd && export.name == export_name);
        // A snapshot is read-only, so a further NBD export is allowed next to any other export.
        let temporary = if exported {
            None
        } else {
            let options = ExportOptions { protocol: Protocol::Nbd, read_only: true, reactors: Vec::new() };
            Some(self.export(name, options).await?)
        };
        let copied = interrupt.or(image::export(&endpoint, to, format, volume.size, self.quiet)).await;
        if let Some(temporary) = temporary {
            let deleted = self.delete_export(&temporary).await;
            if copied.is_ok() {
                deleted?;
            }
        }
        Ok((copied?, volume.size))
    }

    /// Copies an image into a new volume without other users.
    ///
    /// # Errors
    /// If the copy fails; the volume then holds part of the image, and is not exported.
    pub(super) async fn fill(
        &self,
        image: &Image,
        name: &VolumeName,
        interrupt: &mut Interrupt,
    ) -> Result<Copied> {
        let endpoint = self.nbd_endpoint(name).await?;
        let options = ExportOptions { protocol: Protocol::Nbd, read_only: false, reactors: Vec::new() };
        let export = self.export(name, options).await?;
        self.print_step(|| format!("copying {} into {name}", image.description()));
        let copied = interrupt.or(image::fill(image, &endpoint, self.quiet)).await;
        let deleted = self.delete_export(&export).await;
        let copied = copied?;
        deleted.map(|()| copied)
    }
}
