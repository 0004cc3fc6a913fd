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
use crate::failure::Outcome;
use crate::image::{Interrupt, salvage_image};
use crate::output;

/// Runs `gabion salvage`.
///
/// # Errors
/// When nothing can be read, or an image cannot be written.
pub(crate) fn run(global: &Global, arguments: SalvageArgs) -> Result<Outcome> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(salvage(global, arguments))
}

async fn salvage(global: &Global, arguments: SalvageArgs) -> Result<Outcome> {
    let mut interrupt = Interrupt::new()?;
    let spinner = Spinner::new(global, format!("looking at {} drives", arguments.drives.len()));
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
    let mut found = pool.report().clone();
    found.verified = arguments.verify;
    for volume in &mut found.volumes {
        spinner.say(format!("looking at {}", volume.name));
        let survey = async {
            let survey = pool.survey(&volume.name, arguments.verify, Arc::<AtomicU64>::default());
            Ok(survey.await.map_err(api::Error::from)?)
        };
        *volume = interrupt.or(survey).await?;
    }
    drop(spinner);
    show(global, &found)?;
    Ok(if found.is_whole() { Outcome::Done } else { Outcome::Unwell })
}

fn show(global: &Global, found: &SalvageReport) -> Result<()> {
    let text = match (global.json, global.quiet) {
        (true, _) => super::to_json(found)?,
        (false, true) => found.volumes.iter().map(|volume| format!("{}\n", volume.name)).collect(),
        (false, false) => output::salvaged(found),
    };
    super::print(&text)
}

/// Serves the volumes until a signal comes.
async fn serve(global: &Global, pool: &Salvage, socket: &Path, interrupt: &mut Interrupt) -> Result<Outcome> {
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
    Ok(Outcome::Done)
}

/// Writes images.
async fn write(
    global: &Global,
    pool: &Arc<Salvage>,
    arguments: &SalvageArgs,
    target: &Path,
    interrupt: &mut Interrupt,
) -> Result<Outcome> {
    let mut images: Vec<SalvagedImage> = Vec::new();
    for (name, path) in wanted(pool.report(), arguments, target)? {
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
    let all_found = !arguments.all || pool.report().unowned_layers == 0;
    Ok(if whole && all_found { Outcome::Done } else { Outcome::Unwell })
}

/// The volumes to be written, with the paths of their images.
fn wanted(found: &SalvageReport, arguments: &SalvageArgs, target: &Path) -> Result<Vec<(String, PathBuf)>> {
    if let Some(name) = &arguments.volume {
        // The pool's name may stand before it, as with other commands.
        let own = name.strip_prefix(&found.pool).and_then(|rest| rest.strip_prefix('/')).unwrap_or(name);
        if found.volumes.iter().all(|volume| volume.name != own) {
            let message = format!("no volume or snapshot '{own}' is left of pool '{}'", found.pool);
            return Err(Error::new(ErrorKind::NotFound, message)
                .hint("'gabion salvage --drives ...' lists what is left")
                .into());
        }
        return Ok(vec![(own.to_owned(), target.to_owned())]);
    }
    std::fs::create_dir_all(target)
        .with_context(|| format!("cannot make the directory {}", target.display()))?;
    let names = found.volumes.iter().map(|volume| volume.name.clone());
    Ok(names.map(|name| (name.clone(), target.join(format!("{name}.img")))).collect())
}

/// A line on the terminal that shows the current step, until it is dropped.
struct Spinner(ProgressBar);

impl Spinner {
    fn new(global: &Global, what: String) -> Self {
        let bar = if global.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.enable_steady_tick(Duration::from_millis(100));
        bar.set_message(what);
        Self(bar)
    }

    fn say(&self, what: String) {
        self.0.set_message(what);
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
