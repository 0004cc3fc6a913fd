//! `gabion salvage`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result};
use api::types::{SalvageReport, SalvagedImage};
use api::{Error, ErrorKind};
use indicatif::ProgressBar;
use server::salvage::Salvage;

use crate::cli::{Global, SalvageArgs};
use crate::failure::ExitReason;
use crate::image::{Interrupt, salvage_image};
use crate::output;

/// Runs `gabion salvage`.
///
/// # Errors
/// If no volume can be read, or an image cannot be written.
pub(crate) fn run(global: &Global, arguments: SalvageArgs) -> Result<ExitReason> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    runtime.block_on(salvage(global, arguments))
}

async fn salvage(global: &Global, arguments: SalvageArgs) -> Result<ExitReason> {
    let mut interrupt = Interrupt::new()?;
    let spinner = Spinner::new(global, format!("reading {} drives", arguments.drives.len()));
    let open = async {
        Ok(Salvage::open(&arguments.drives, arguments.accept_stale).await.map_err(api::Error::from)?)
    };
    let pool = Arc::new(interrupt.or(open).await?);
    if let Some(socket) = &arguments.nbd {
        drop(spinner);
        return serve(global, &pool, socket, &mut interrupt).await;
    }
    if let Some(target) = &arguments.output {
        drop(spinner);
        return write(global, &pool, &arguments, target, &mut interrupt).await;
    }
    let mut report = pool.report().clone();
    report.verified = arguments.verify;
    for volume in &mut report.volumes {
        spinner.set_message(format!("examining {}", volume.name));
        let survey = async {
            let survey = pool.survey(&volume.name, arguments.verify, Arc::<AtomicU64>::default());
            Ok(survey.await.map_err(api::Error::from)?)
        };
        *volume = interrupt.or(survey).await?;
    }
    drop(spinner);
    show(global, &report)?;
    Ok(if report.is_whole() { ExitReason::Success } else { ExitReason::Unhealthy })
}

fn show(global: &Global, report: &SalvageReport) -> Result<()> {
    let text = match (global.json, global.quiet) {
        (true, _) => super::to_json(report)?,
        (false, true) => report.volumes.iter().map(|volume| format!("{}\n", volume.name)).collect(),
        (false, false) => output::salvaged(report),
    };
    super::print(&text)
}

/// Exports the volumes over NBD until a signal arrives.
async fn serve(
    global: &Global,
    pool: &Salvage,
    socket: &Path,
    interrupt: &mut Interrupt,
) -> Result<ExitReason> {
    let socket = std::path::absolute(socket).with_context(|| format!("'{}'", socket.display()))?;
    let serving = pool.serve_nbd(&socket).await.map_err(api::Error::from)?;
    if global.json || !global.quiet {
        let text = match global.json {
            true => super::to_json(&output::salvage_uris(pool.report(), &socket))?,
            false => output::salvage_served(pool.report(), &socket),
        };
        super::print(&text)?;
    }
    interrupt.wait().await;
    serving.shut_down().await;
    Ok(ExitReason::Success)
}

/// Writes images of the selected volumes.
async fn write(
    global: &Global,
    pool: &Arc<Salvage>,
    arguments: &SalvageArgs,
    target: &Path,
    interrupt: &mut Interrupt,
) -> Result<ExitReason> {
    let mut images: Vec<SalvagedImage> = Vec::new();
    let volumes = selected(pool.report(), arguments, target)?;
    if volumes.is_empty() && !global.quiet {
        eprintln!("no volume or snapshot could be recovered from pool '{}'", pool.report().pool);
    }
    let found_any = !volumes.is_empty();
    for (name, path) in volumes {
        if !global.quiet {
            eprintln!("copying {name} to {}", path.display());
        }
        let image = salvage_image(pool, &name, &path, arguments.force, global.quiet, interrupt).await?;
        if !global.json && !global.quiet {
            super::print(&output::salvaged_image(&image))?;
        }
        images.push(image);
    }
    if global.json {
        let text = match images.as_slice() {
            [only] if !arguments.all => super::to_json(only)?,
            all => super::to_json(&all)?,
        };
        super::print(&text)?;
    }
    let whole = images.iter().all(|image| image.lost_bytes == 0 && image.stale_bytes == 0);
    let all_found = found_any && (!arguments.all || pool.report().unowned_layers == 0);
    Ok(if whole && all_found { ExitReason::Success } else { ExitReason::Unhealthy })
}

/// Returns the selected volumes, with the paths of their images.
fn selected(
    report: &SalvageReport,
    arguments: &SalvageArgs,
    target: &Path,
) -> Result<Vec<(String, PathBuf)>> {
    if let Some(name) = &arguments.volume {
        // The name may start with the pool, as in other commands.
        let volume_name =
            name.strip_prefix(&report.pool).and_then(|rest| rest.strip_prefix('/')).unwrap_or(name);
        if report.volumes.iter().all(|volume| volume.name != volume_name) {
            let message = format!(
                "no volume or snapshot '{volume_name}' could be recovered from pool '{}'",
                report.pool
            );
            return Err(Error::new(ErrorKind::NotFound, message)
                .hint("'gabion salvage --drives ...' lists the remaining volumes")
                .into());
        }
        return Ok(vec![(volume_name.to_owned(), target.to_owned())]);
    }
    std::fs::create_dir_all(target)
        .with_context(|| format!("cannot create the directory {}", target.display()))?;
    let names = report.volumes.iter().map(|volume| volume.name.clone());
    Ok(names.map(|name| (name.clone(), target.join(format!("{name}.img")))).collect())
}

/// A line on the terminal that shows the current step, until it is dropped.
struct Spinner(ProgressBar);

impl Spinner {
    fn new(global: &Global, message: String) -> Self {
        let bar = if global.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.enable_steady_tick(Duration::from_millis(100));
        bar.set_message(message);
        Self(bar)
    }

    fn set_message(&self, message: String) {
        self.0.set_message(message);
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
