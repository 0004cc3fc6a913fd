//! `gabion bench run` and `gabion bench resume`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use bench::lab::{Lab, LabError, LabPlan};
use bench::objects::warp_version;
use bench::run::{
    Environment, Event, Measured, Missing, Run, RunPlan, Store, TargetSpec, new_id, with_own_lab,
};
use bench::system::System;
use bench::{DirectionFigures, ObjectGenerator, Scaling, Suite, Workload};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{format, target};
use crate::cli::{DrivesArgs, Global, ResultsArgs, RunArgs, ScaleArgs};
use crate::commands::lab::run_until_signal;
use crate::failure::{ExitReason, Usage};
use crate::terminal::{print, to_json};

/// Number of drives of a temporary lab, for suites that do not specify it.
const DRIVES: u32 = 10;
const MODEL: &str = "kioxia-cm7";

/// Starts a run and executes it.
///
/// # Errors
/// If the run cannot be started or completed.
pub(crate) fn run(global: &Global, arguments: &RunArgs) -> Result<ExitReason> {
    let results_dir = super::results_dir(&arguments.results_dir)?;
    let plan = plan(arguments, &results_dir)?;
    // Invalid targets are reported before anything is created.
    systems(&plan)?;
    let store = Store::create(&results_dir, &plan)?;
    execute(global, store, plan, arguments.report)
}

/// Resumes a run.
///
/// # Errors
/// If the run cannot be resumed or completed.
pub(crate) fn resume(global: &Global, id: &str, report: bool, arguments: &ResultsArgs) -> Result<ExitReason> {
    let mut store = Store::open(&super::results_dir(arguments)?, id)?;
    store.lock(id)?;
    let plan = store.plan()?;
    systems(&plan)?;
    execute(global, store, plan, report)
}

fn plan(arguments: &RunArgs, results_dir: &Path) -> Result<RunPlan> {
    let suite = super::suite(&arguments.suite)?;
    let fio = bench::fio::version();
    // Without raw drives, only loads of blocks need fio.
    let has_drives = arguments.drives.lab.is_some() || !arguments.drives.drives.is_empty();
    let needs_fio = suite.workload() == Workload::Blocks || has_drives || arguments.make_lab.is_some();
    if fio.is_none() && needs_fio {
        bail!("fio is not installed: install the package 'fio', or use './run setup'");
    }
    let scaling = scaling(&arguments.scale);
    let mut scaled = suite.scaled(&scaling)?;
    set_generator(&mut scaled, arguments.load)?;
    let repeats = arguments.repeats.unwrap_or(if scaling.quick { 1 } else { suite.repeats });
    if repeats != suite.repeats {
        scaled.differences.push(format!("{repeats} repeats instead of {}", suite.repeats));
    }
    let (lab, drives) = drives(&arguments.drives)?;
    let (mut targets, mut absent) = (Vec::new(), Vec::new());
    for text in &arguments.targets {
        let (specs, missing) = target::specs(text, suite.workload())?;
        targets.extend(specs);
        absent.extend(missing);
    }
    if arguments.vms {
        target::use_machines(&mut targets)?;
    }
    for (index, one) in targets.iter().enumerate() {
        if targets.iter().take(index).any(|other| other.name == one.name) {
            return Err(Usage(format!(
                "two targets have the name '{}': give names, as in NAME=TARGET",
                one.name
            ))
            .into());
        }
    }
    let (id, started) = unused_id(results_dir, &suite.name);
    let own_lab = arguments.make_lab.map(|fraction| LabPlan {
        name: format!("run-{started}"),
        drives: u16::try_from(suite.drives.unwrap_or(DRIVES)).unwrap_or(u16::MAX),
        model: suite.drive_model.clone().unwrap_or_else(|| MODEL.into()),
        fraction,
        drive_bytes: arguments.lab_size.bytes(),
        directory: None,
    });
    if targets.is_empty() && drives.is_empty() && own_lab.is_none() {
        return Err(Usage("nothing to measure: give --target, --drives or --lab".into()).into());
    }
    Ok(RunPlan {
        id,
        scaled,
        scaling,
        targets,
        drives,
        limits: lab.as_ref().map(|lab| lab.limits),
        overwrite: arguments.overwrite,
        lab,
        own_lab,
        absent,
        repeats,
        command: std::env::args().collect(),
        environment: Environment {
            started,
            machine: bench::machine(),
            fio: fio.unwrap_or_else(|| "no fio".into()),
            gabion: env!("CARGO_PKG_VERSION").into(),
        },
        suite,
    })
}

/// Returns the name and the start of a new run. Names have seconds: a run that starts in the same
/// second as another one waits for the next second.
fn unused_id(results_dir: &Path, suite: &str) -> (String, u64) {
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let id = new_id(suite, now.as_secs());
        if !results_dir.join(&id).exists() {
            return (id, now.as_secs());
        }
        std::thread::sleep(
            Duration::from_secs(1).saturating_sub(Duration::from_nanos(now.subsec_nanos().into())),
        );
    }
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
        bail!("lab '{name}' is incomplete: 'gabion lab down {name}' removes it");
    }
    let devices = lab.devices();
    Ok((Some(lab), devices))
}

fn systems(plan: &RunPlan) -> Result<Vec<Box<dyn System>>> {
    let overwrite = plan.overwrite || plan.lab.is_some() || plan.own_lab.is_some();
    plan.targets.iter().map(|spec| open(spec, overwrite, &plan.suite)).collect()
}

/// Opens a target that serves the requests of the suite.
fn open(spec: &TargetSpec, overwrite: bool, suite: &Suite) -> Result<Box<dyn System>> {
    let system = target::open(spec, overwrite)?;
    if system.serves(suite.workload()) {
        return Ok(system);
    }
    let what = match suite.workload() {
        Workload::Blocks => "reads and writes of blocks",
        Workload::Objects => "S3 requests; use gabion, minio, versitygw or s3:http://HOST:PORT",
    };
    Err(Usage(format!("target '{}' does not serve suite '{}': it needs {what}", spec.name, suite.name))
        .into())
}

/// Sets the generator of the loads of S3 requests.
fn set_generator(scaled: &mut bench::ScaledSuite, wanted: Option<ObjectGenerator>) -> Result<()> {
    let has_warp = warp_version().is_some();
    if wanted == Some(ObjectGenerator::Warp) && !has_warp {
        let message = "warp is not available: put warp and zstd on the PATH, or use --load own";
        return Err(Usage(message.into()).into());
    }
    let available = if has_warp { ObjectGenerator::Warp } else { ObjectGenerator::Own };
    for objects in scaled.cases.iter_mut().filter_map(|case| case.job.objects.as_mut()) {
        objects.generator = wanted.unwrap_or(available);
    }
    Ok(())
}

/// Executes the remaining measurements of a run, and prints all results.
fn execute(global: &Global, store: Store, plan: RunPlan, report: bool) -> Result<ExitReason> {
    let (id, folder, shown) = (plan.id.clone(), store.folder().display().to_string(), plan.clone());
    let run_dir = store.folder().to_owned();
    let printer = RunPrinter::new(global.quiet);
    printer.print_line(&format!("run {id} in {folder}"));
    plan.scaled.differences.iter().for_each(|one| printer.print_line(&format!("  scaled: {one}")));
    plan.absent.iter().for_each(|absent| printer.print_line(&format!("  unavailable: {absent}")));
    let results = run_until_signal(move |stop: &Arc<AtomicBool>| {
        let mut on_event = |event: Event| printer.event(&event);
        with_own_lab(store, plan, stop, |store, plan| {
            let systems = systems(&plan)?;
            anyhow::Ok(Run::new(store, plan, systems, stop, &mut on_event).go()?)
        })
    })??;
    let written =
        if report { super::report::write(&results_dir(&run_dir)?, &id, None)? } else { String::new() };
    let text = if global.json {
        to_json(&Summary {
            run: &id,
            folder: &folder,
            results: results.iter().map(ResultLine::of).collect(),
        })?
    } else {
        format!("{}\nresults in {folder}\n{written}", format::results(&shown, &results))
    };
    print(&text)?;
    let failed = results.iter().filter(|one| matches!(one.missing, Some(Missing::Failed(_)))).count();
    if failed > 0 {
        bail!("{failed} of {} measurements failed: 'gabion bench resume {id}' repeats them", results.len());
    }
    Ok(ExitReason::Success)
}

/// Returns the directory of all runs from that of one run.
fn results_dir(of: &Path) -> Result<PathBuf> {
    Ok(of.parent().context("the directory of a run has no parent")?.to_owned())
}

/// The JSON summary of a run; all details are in its directory.
#[derive(Serialize)]
struct Summary<'a> {
    run: &'a str,
    folder: &'a str,
    results: Vec<ResultLine<'a>>,
}

#[derive(Serialize)]
struct ResultLine<'a> {
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

impl<'a> ResultLine<'a> {
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

/// Prints the progress of a run to standard error.
struct RunPrinter {
    quiet: bool,
    bar: ProgressBar,
}

impl RunPrinter {
    fn new(quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        let bar = if shown { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { quiet, bar }
    }

    fn print_line(&self, text: &str) {
        if !self.quiet {
            self.bar.suspend(|| eprintln!("{text}"));
        }
    }

    fn event(&self, event: &Event) {
        match event {
            Event::Step(number, total, key) => self.bar.set_message(format!("[{number}/{total}] {key}")),
            Event::Preparing(step) => self.print_line(&format!("  {step}")),
            Event::Note(note) => self.print_line(&format!("  {note}")),
            Event::Done(one) => self.print_line(&done(one)),
        }
    }
}

fn done(one: &Measured) -> String {
    let title = format!("{} {}", one.target, one.case.name);
    let all = match (&one.all, &one.missing) {
        (Some(all), _) => all,
        (None, Some(Missing::Failed(reason))) => return format!("{title}: failed: {reason}"),
        (None, Some(Missing::LeftOut(reason))) => return format!("{title}: skipped: {reason}"),
        (None, None) => return title,
    };
    let bandwidth = one.case.job.is_bandwidth();
    let rates: Vec<String> = all
        .figures()
        .map(|side| {
            let rate = format::rate(if bandwidth { side.bytes_per_s } else { side.iops }, bandwidth);
            let tail = match side.p9995_us {
                0.0 => String::new(),
                tail => format!(", 99.95 % {tail:.0} us"),
            };
            format!("{rate} (mean {:.0} us{tail})", side.mean_us)
        })
        .collect();
    let disturbed: String = one.observation.disturbed.iter().map(|by| format!("; disturbed: {by}")).collect();
    format!("{title}: {}{disturbed}", rates.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_the_same_second_have_different_names() {
        let results = tempfile::tempdir().unwrap();
        let (first, started) = unused_id(results.path(), "sweep");
        std::fs::create_dir(results.path().join(&first)).unwrap();
        let (second, later) = unused_id(results.path(), "sweep");
        assert_ne!(first, second);
        assert!(later > started);
    }
}
