//! `gabion volume export-image` and `import`.
//!
//! The daemon copies. An interruption of the command cancels the operation, which rolls all changes
//! back.

use anyhow::Result;
use api::types::{ExportImage, ImageCopy, ImportImage, Operation};
use api::{Error, ErrorKind, Size};

use super::{CommandContext, absolute_one};
use crate::cli::{ExportImageArgs, ImageFormatArg, ImportArgs};
use crate::failure::ExitReason;
use crate::image::Interrupt;
use crate::output::{self, CopiedImage};
use crate::progress::follow;

/// Runs `gabion volume export-image`.
pub(super) async fn export(ctx: &CommandContext, arguments: ExportImageArgs) -> Result<ExitReason> {
    let ExportImageArgs { name, file, format, force } = arguments;
    let format = format.map(ImageFormatArg::to_wire);
    let request = ExportImage { file: absolute_one(&file)?, format, replace: force };
    let mut interrupt = Interrupt::new()?;
    let started = ctx.client.export_image(&name, &request).await?;
    let (copy, seconds) = ctx.copied(started, &mut interrupt).await?;
    ctx.done(&CopiedImage::new(name.to_string(), copy, seconds), output::image_exported)?;
    Ok(ExitReason::Success)
}

/// Runs `gabion volume import`.
pub(super) async fn import(ctx: &CommandContext, arguments: ImportArgs) -> Result<ExitReason> {
    let ImportArgs { name, file, format, size, sector } = arguments;
    let request = ImportImage {
        name: name.volume.clone(),
        file: absolute_one(&file)?,
        format: format.map(ImageFormatArg::to_wire),
        size: size.map(Size::bytes),
        sector: Some(sector),
        shards: None,
    };
    let (copy, seconds) = ctx.import_image(&name.pool, &request).await?;
    ctx.done(&CopiedImage::new(name.to_string(), copy, seconds), output::image_imported)?;
    Ok(ExitReason::Success)
}

impl CommandContext {
    /// Creates a volume from an image. Returns the result and the duration in seconds.
    ///
    /// # Errors
    /// If the import fails or the command is interrupted; the volume does not exist then.
    pub(super) async fn import_image(&self, pool: &str, request: &ImportImage) -> Result<(ImageCopy, f64)> {
        let mut interrupt = Interrupt::new()?;
        let started = self.client.import_image(pool, request).await?;
        self.copied(started, &mut interrupt).await
    }

    /// Waits for the end of a copy. An interruption cancels it.
    async fn copied(&self, started: Operation, interrupt: &mut Interrupt) -> Result<(ImageCopy, f64)> {
        let id = started.id;
        let ended = tokio::select! {
            ended = follow(&self.client, started, self.quiet) => ended?,
            () = interrupt.wait() => {
                let cancelled = self.client.cancel_operation(id).await?;
                follow(&self.client, cancelled, self.quiet).await?
            }
        };
        let copy = ended.image.ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("operation {id} succeeded without a result"))
        })?;
        Ok((copy, ended.seconds))
    }
}
