//! `gabion bench run` and `gabion bench resume`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use bench::lab::{Lab, LabError, LabPlan};
use bench::run::{Environment, Event, Measured, Missing, Run, RunPlan, Store, new_id, with_own_lab};
use bench::system::System;
use bench::{DirectionFigures, Scaling};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{show, target};
use crate::cli::{DrivesArgs, Global, ResultsArgs, RunArgs, ScaleArgs};
use crate::commands::lab::until_signal;
use crate::commands::{print, to_json};
use crate::failure::{Outcome, Usage};

/// Drives of a lab that a run makes for a suite which says nothing of any.
const DRIVES: u32 = 10;
const MODEL: &str = "kioxia-cm7";

/// Begins a run and does it.
///
/// # Errors
/// Why it could not be begun or done to its end.
pub(crate) fn run(global: &Global, arguments: &RunArgs) -> Result<Outcome> {
    let plan = plan(arguments)?;
    // What makes no sense is told before anything is made.
    systems(&plan)?;
    let place = super::results(&arguments.results_dir);
    let store = Store::create(&place, &plan)?;
    go(global, store, plan, arguments.report)
}

/// Goes on with a run.
///
/// # Errors
/// Why it could not be gone on with or done to its end.
pub(crate) fn resume(global: &Global, id: &str, report: bool, arguments: &ResultsArgs) -> Result<Outcome> {
    let mut store = Store::open(&super::results(arguments), id)?;
    store.lock(id)?;
    let plan = store.plan()?;
    systems(&plan)?;
    go(global, store, plan, report)
}

fn plan(arguments: &RunArgs) -> Result<RunPlan> {
    let suite = super::suite(&arguments.suite)?;
    let Some(fio) = bench::fio::version() else {
        bail!("fio is not installed: './run setup' or your distribution's package 'fio' does that");
    };
    let scaling = scaling(&arguments.scale);
    let scaled = suite.scaled(&scaling)?;
    let (lab, drives) = drives(&arguments.drives)?;
    let (mut targets, mut absent) = (Vec::new(), Vec::new());
    for text in &arguments.targets {
        let (found, missing) = target::specs(text)?;
        targets.extend(found);
        absent.extend(missing);
    }
    if arguments.vms {
        target::in_machines(&mut targets)?;
    }
    for (index, one) in targets.iter().enumerate() {
        if targets.iter().take(index).any(|other| other.name == one.name) {
            return Err(Usage(format!(
                "two targets are called '{}': name them, as in NAME=TARGET",
                one.name
            ))
            .into());
        }
    }
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let own_lab = arguments.make_lab.map(|fraction| LabPlan {
        name: format!("run-{started}"),
        drives: u16::try_from(suite.drives.unwrap_or(DRIVES)).unwrap_or(u16::MAX),
        model: suite.drive_model.clone().unwrap_or_else(|| MODEL.into()),
        fraction,
        drive_bytes: arguments.lab_size.bytes(),
        directory: None,
    });
    if targets.is_empty() && drives.is_empty() && own_lab.is_none() {
        return Err(Usage("nothing to measure: name a --target, --drives or a --lab".into()).into());
    }
    Ok(RunPlan {
        id: new_id(&suite.name, started),
        scaled,
        scaling,
        targets,
        drives,
        limits: lab.as_ref().map(|lab| lab.limits),
        overwrite: arguments.overwrite,
        lab,
        own_lab,
        absent,
        repeats: arguments.repeats,
        command: std::env::args().collect(),
        environment: Environment {
            started,
            machine: bench::machine(),
            fio,
            gabion: env!("CARGO_PKG_VERSION").into(),
        },
        suite,
    })
}

fn scaling(arguments: &ScaleArgs) -> Scaling {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Scaling {
        factor: arguments.scale,
        quick: arguments.quick,
        seconds: arguments.seconds,
        instances: arguments.instances.clone(),
        threads: arguments.threads,
        profile: arguments.profile.clone(),
        only: arguments.only.clone(),
        cpus: u32::try_from(std::thread::available_parallelism().map_or(1, usize::from)).unwrap_or(1),
        buffer_bytes: kib.map_or(1 << 30, |kib| kib * 1024 / 8),
    }
}

fn drives(arguments: &DrivesArgs) -> Result<(Option<Lab>, Vec<std::path::PathBuf>)> {
    let Some(name) = &arguments.lab else {
        let paths = arguments.drives.iter().map(std::path::absolute).collect::<std::io::Result<_>>()?;
        return Ok((None, paths));
    };
    let lab = Lab::find(name)?.ok_or_else(|| LabError::Unknown(name.clone()))?;
    if !lab.complete {
        bail!("lab '{name}' is not complete: 'gabion lab down {name}' takes it away");
    }
    let devices = lab.devices();
    Ok((Some(lab), devices))
}

fn systems(plan: &RunPlan) -> Result<Vec<Box<dyn System>>> {
    let overwrite = plan.overwrite || plan.lab.is_some() || plan.own_lab.is_some();
    plan.targets.iter().map(|spec| target::open(spec, overwrite)).collect()
}

/// Does what is left of a run, and shows all of it.
fn go(global: &Global, store: Store, plan: RunPlan, report: bool) -> Result<Outcome> {
    let (id, folder, shown) = (plan.id.clone(), store.folder().display().to_string(), plan.clone());
    let kept = store.folder().to_owned();
    let told = Told::new(global.quiet);
    told.say(&format!("run {id} in {folder}"));
    plan.scaled.said.iter().for_each(|said| told.say(&format!("  scaled: {said}")));
    plan.absent.iter().for_each(|absent| told.say(&format!("  not there: {absent}")));
    let results = until_signal(move |stop: &Arc<AtomicBool>| {
        let mut tell = |event: Event| told.event(&event);
        with_own_lab(store, plan, stop, |store, plan| {
            let systems = systems(&plan)?;
            anyhow::Ok(Run::new(store, plan, systems, stop, &mut tell).go()?)
        })
    })??;
    let written = if report { super::report::write(&place(&kept)?, &id, None)? } else { String::new() };
    let text = if global.json {
        to_json(&Summary { run: &id, folder: &folder, results: results.iter().map(Line::of).collect() })?
    } else {
        format!("{}\nkept in {folder}\n{written}", show::results(&shown, &results))
    };
    print(&text)?;
    let failed = results.iter().filter(|one| matches!(one.missing, Some(Missing::Failed(_)))).count();
    if failed > 0 {
        bail!(
            "{failed} of {} measurements failed: 'gabion bench resume {id}' tries them again",
            results.len()
        );
    }
    Ok(Outcome::Done)
}

/// The folder of all runs, of that of one.
fn place(of: &Path) -> Result<PathBuf> {
    Ok(of.parent().context("a run's folder is in another one")?.to_owned())
}

/// What a program is told of a run; everything else is in its folder.
#[derive(Serialize)]
struct Summary<'a> {
    run: &'a str,
    folder: &'a str,
    results: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    target: &'a str,
    case: &'a str,
    repeat: u32,
    block_bytes: u64,
    read: Option<DirectionFigures>,
    write: Option<DirectionFigures>,
    cpu_busy: f64,
    cpu: &'a std::collections::BTreeMap<String, f64>,
    settled: Option<bool>,
    disturbed: &'a [String],
    missing: &'a Option<Missing>,
}

impl<'a> Line<'a> {
    fn of(one: &'a Measured) -> Self {
        let side = |pick: fn(&bench::ReadWrite) -> Option<&bench::Direction>| {
            Some(pick(one.all.as_ref()?)?.figures())
        };
        Self {
            target: &one.target,
            case: &one.case.name,
            repeat: one.repeat,
            block_bytes: one.case.job.block_bytes,
            read: side(|both| both.read.as_ref()),
            write: side(|both| both.write.as_ref()),
            cpu_busy: one.observation.cpu_busy,
            cpu: &one.observation.cpu,
            settled: one.steady.map(|steady| steady.steady),
            disturbed: &one.observation.disturbed,
            missing: &one.missing,
        }
    }
}

/// What is said while a run goes on.
struct Told {
    quiet: bool,
    bar: ProgressBar,
}

impl Told {
    fn new(quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        let bar = if shown { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { quiet, bar }
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            self.bar.suspend(|| eprintln!("{text}"));
        }
    }

    fn event(&self, event: &Event) {
        match event {
            Event::Step(number, total, key) => self.bar.set_message(format!("[{number}/{total}] {key}")),
            Event::Preparing(what) => self.say(&format!("  {what}")),
            Event::Note(note) => self.say(&format!("  {note}")),
            Event::Done(one) => self.say(&done(one)),
        }
    }
}

fn done(one: &Measured) -> String {
    let title = format!("{} {}", one.target, one.case.name);
    let all = match (&one.all, &one.missing) {
        (Some(all), _) => all,
        (None, Some(Missing::Failed(why))) => return format!("{title}: failed: {why}"),
        (None, Some(Missing::LeftOut(why))) => return format!("{title}: left out: {why}"),
        (None, None) => return title,
    };
    let bandwidth = one.case.job.is_bandwidth();
    let rates: Vec<String> = all
        .figures()
        .map(|side| {
            let rate = show::rate(if bandwidth { side.bytes_per_s } else { side.iops }, bandwidth);
            format!("{rate} (mean {:.0} us, 99.95 % {:.0} us)", side.mean_us, side.p9995_us)
        })
        .collect();
    let disturbed: String = one.observation.disturbed.iter().map(|by| format!("; disturbed: {by}")).collect();
    format!("{title}: {}{disturbed}", rates.join(", "))
}
