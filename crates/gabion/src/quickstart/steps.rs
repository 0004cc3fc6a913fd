//! The steps of the quickstart, in order.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::Size;
use api::client::Client;
use api::types::{CreateExport, CreatePool, CreateVolume, FileDrives, Pool, Protocol};
use bench::fio::FioRun;
use bench::load::Target;
use bench::{Job, JobResult, fio, nbd};
use indicatif::{ProgressBar, ProgressStyle};
use server::offline;

use super::data::{self, NbdTool, TestData};
use super::objects::{self, ObjectRates, QuickBucket, S3Tool};
use super::report::{self, Report};
use super::work_dir::{self, EarlierRun, WorkDir};
use crate::child_daemon::ChildDaemon;
use crate::cli::{Global, QuickstartArgs};
use crate::progress::follow;

const POOL: &str = "quick";
const DRIVES: u16 = 5;
const SCHEME: &str = "4+1";
/// Index of the drive that is marked as failed.
const FAILED_DRIVE: u16 = 2;
/// Maximum size of the benchmark volume in bytes.
const BENCH_MAX: u64 = 1 << 30;
/// Maximum size of the plain file in bytes.
const RAW_MAX: u64 = 512 << 20;
/// Maximum number of threads per job. The document's six are for servers.
const THREADS: u32 = 2;

/// Prints the steps to standard error.
struct StepPrinter {
    quiet: bool,
    step: u32,
}

const STEPS: u32 = 10;

impl StepPrinter {
    fn print(&self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }

    /// Prints the start of a step.
    fn step(&mut self, message: &str) {
        self.step += 1;
        self.print(&format!("[{}/{STEPS}] {message}", self.step));
    }

    /// Prints a result of the current step.
    fn detail(&self, message: &str) {
        self.print(&format!("      {message}"));
    }

    /// Runs a blocking function with a spinner. Returns its duration in seconds as well.
    async fn during<T: Send + 'static>(
        &self,
        message: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, f64)> {
        let shown = !self.quiet && std::io::stderr().is_terminal();
        let spinner = if shown { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("      {spinner} {msg} {elapsed}") {
            spinner.set_style(style);
        }
        spinner.set_message(message.to_owned());
        spinner.enable_steady_tick(Duration::from_millis(100));
        let started = Instant::now();
        let result = tokio::task::spawn_blocking(work).await;
        spinner.finish_and_clear();
        Ok((result.with_context(|| format!("{message}: the task failed"))?, started.elapsed().as_secs_f64()))
    }
}

/// Runs all steps. Returns the results, and the text to print at the end.
///
/// # Errors
/// The error of a step.
pub(super) async fn run_all(global: &Global, arguments: &QuickstartArgs) -> Result<(Report, String)> {
    let mut printer = StepPrinter { quiet: global.quiet, step: 0 };
    let directory = arguments.dir.clone().unwrap_or_else(work_dir::default_directory);
    let (mut work_dir, earlier) = WorkDir::create(&directory, arguments.fresh)?;
    if matches!(earlier, EarlierRun::Interrupted) {
        printer.print(&format!("removed the files of an interrupted run in {}", directory.display()));
    }
    let drive_bytes = work_dir.drive_size(arguments.drive_size)?;
    let client = Client::unix(work_dir.path("gabion.sock"));

    printer.step(&format!(
        "starting a daemon; {DRIVES} sparse file drives of {} in {}",
        Size(drive_bytes),
        work_dir.display_path("drives")
    ));
    let daemon =
        ChildDaemon::start(work_dir.directory(), &work_dir.path("daemon.log"), &[], None, &client).await?;
    let pool = create_pool(&client, &work_dir, drive_bytes).await?;
    let free = pool.space.as_ref().map_or(0, |space| space.free);
    printer.detail(&format!(
        "pool '{POOL}' ({SCHEME}, tolerates the failure of one drive), {} free",
        Size(free)
    ));

    printer.step("creating two volumes and exporting them over NBD");
    let bench_bytes = (free / 3).min(BENCH_MAX) >> 20 << 20;
    export(&client, "data", data::BYTES).await?;
    export(&client, "bench", bench_bytes).await?;
    let tool = NbdTool::find(arguments.built_in);
    let data = TestData {
        file: work_dir.path("data.img"),
        socket: work_dir.path("nbd.sock"),
        export: format!("{POOL}/data"),
        tool,
    };
    printer.detail(&data.uri());

    printer.step(&format!("writing and verifying {} of data with {}", Size(data::BYTES), tool.name()));
    data::generate(&data.file)?;
    let data = std::sync::Arc::new(data);
    write_data(&printer, &data).await?;
    verify_data(&printer, &data).await?;

    let tool = S3Tool::find(arguments.built_in);
    printer.step(&format!("storing and reading an object over S3 with {}", tool.name()));
    let objects = object_step(&printer, &client, tool, &work_dir, &data.file).await?;

    let load = JobRunner {
        fio: (!arguments.built_in).then(fio::with_nbd).flatten(),
        seconds: arguments.seconds,
        results: work_dir.path("results"),
        socket: work_dir.path("nbd.sock"),
        bench_bytes,
    };
    let suite = super::suite();
    printer.step(&format!("measuring a plain file on the same file system ({})", load.runner()));
    let raw = plain_file_jobs(&printer, &load, &work_dir, &suite.jobs).await?;

    printer.step(&format!("reference benchmark '{}' on the volume: {}", suite.name, suite.title));
    let mut results = Vec::new();
    load.fill(&printer, "filled").await?;
    let mut previous_random = false;
    for job in suite.jobs.iter().filter(|job| !job.degraded) {
        // The log stores blocks in write order: large reads must meet large writes.
        if !job.random && previous_random {
            load.fill(&printer, "rewritten sequentially:").await?;
        }
        previous_random = job.random;
        results.push(load.run(&printer, job).await?);
    }

    printer.step(&format!("failing drive {FAILED_DRIVE}, and running the jobs in degraded mode"));
    let pool = client.fail_drive(POOL, FAILED_DRIVE).await.context("failing a drive")?;
    pool.problems.iter().for_each(|problem| printer.detail(&problem.message));
    for job in suite.jobs.iter().filter(|job| job.degraded) {
        results.push(load.run(&printer, job).await?);
    }

    printer.step("verifying the data in degraded mode, and again after a daemon restart");
    verify_data(&printer, &data).await?;
    daemon.stop()?;
    let daemon =
        ChildDaemon::start(work_dir.directory(), &work_dir.path("daemon.log"), &[], None, &client).await?;
    verify_data(&printer, &data).await?;

    printer.step("closing the pool, and verifying it offline");
    daemon.stop()?;
    check(&printer, &work_dir).await?;

    printer.step("done");
    let report = Report {
        suite: suite.name.clone(),
        machine: bench::machine(),
        runner: load.runner(),
        drive_bytes,
        drives: DRIVES,
        scheme: SCHEME.into(),
        seconds: arguments.seconds,
        raw,
        gabion: results,
        objects,
    };
    let mut text = format!("\n{}\n{}\n", report::table(&report, &suite), report::notes(&report, &suite));
    if arguments.keep {
        std::fs::write(work_dir.path("results/report.json"), crate::terminal::to_json(&report)?)?;
        work_dir.keep()?;
    }
    text.push_str(&next_steps(&work_dir, arguments.keep));
    Ok((report, text))
}

async fn create_pool(client: &Client, work_dir: &WorkDir, bytes: u64) -> Result<Pool> {
    let files = FileDrives { directory: work_dir.display_path("drives"), size: bytes, count: DRIVES };
    let request = CreatePool {
        name: POOL.into(),
        scheme: Some(SCHEME.into()),
        files: Some(files),
        ..CreatePool::default()
    };
    let started = client.create_pool(&request).await?;
    follow(client, started, true).await?;
    Ok(client.get_pool(POOL).await?)
}

async fn export(client: &Client, volume: &str, size: u64) -> Result<()> {
    let request = CreateVolume { sector: Some(4096), ..CreateVolume::new(volume, size) };
    client.create_volume(POOL, &request).await?;
    client.create_export(&CreateExport::new(POOL, volume, Protocol::Nbd)).await?;
    Ok(())
}

async fn write_data(printer: &StepPrinter, data: &std::sync::Arc<TestData>) -> Result<()> {
    let data = data.clone();
    let (written, seconds) = printer.during("writing", move || data.write()).await?;
    written?;
    printer.detail(&format!("written and flushed in {seconds:.1} s"));
    Ok(())
}

async fn verify_data(printer: &StepPrinter, data: &std::sync::Arc<TestData>) -> Result<()> {
    let data = data.clone();
    let (verified, seconds) = printer.during("verifying", move || data.verify()).await?;
    verified.context("verifying the data")?;
    printer.detail(&format!("all data verified ({seconds:.1} s)"));
    Ok(())
}

/// Puts and gets an object in a new bucket, and compares it.
async fn object_step(
    printer: &StepPrinter,
    client: &Client,
    tool: S3Tool,
    work_dir: &WorkDir,
    file: &Path,
) -> Result<ObjectRates> {
    let bucket = QuickBucket::create(client, POOL, tool).await?;
    printer.detail(&bucket.address());
    let (source, copy) = (file.to_owned(), work_dir.path("object.img"));
    let (writer, from) = (bucket.clone(), source.clone());
    let (put, put_seconds) = printer.during("storing the object", move || writer.put(&from)).await?;
    put.context("storing an object")?;
    let (reader, into) = (bucket.clone(), copy.clone());
    let (got, get_seconds) = printer.during("reading the object", move || reader.get(&into)).await?;
    got.context("reading an object")?;
    let same = copy.clone();
    printer.during("comparing the object", move || objects::compare(&source, &same)).await?.0?;
    std::fs::remove_file(copy)?;
    #[allow(clippy::cast_precision_loss, reason = "a size for a rate")]
    let rate = |seconds: f64| data::BYTES as f64 / seconds.max(1e-9);
    let rates = ObjectRates {
        client: tool.name(),
        bytes: data::BYTES,
        put_bytes_per_s: rate(put_seconds),
        get_bytes_per_s: rate(get_seconds),
    };
    printer.detail(&format!(
        "bucket '{}': {} put at {:.0} MB/s and durable, got at {:.0} MB/s, every byte compared",
        objects::BUCKET,
        Size(rates.bytes),
        rates.put_bytes_per_s / 1e6,
        rates.get_bytes_per_s / 1e6
    ));
    Ok(rates)
}

/// Runs benchmark jobs, with fio or the built-in load generator.
struct JobRunner {
    fio: Option<String>,
    seconds: u64,
    results: std::path::PathBuf,
    socket: std::path::PathBuf,
    bench_bytes: u64,
}

impl JobRunner {
    fn runner(&self) -> String {
        self.fio
            .clone()
            .unwrap_or_else(|| "built-in load generator, one connection (install fio to use it)".into())
    }

    /// Writes the whole volume once, so that reads return data.
    async fn fill(&self, printer: &StepPrinter, prefix: &str) -> Result<()> {
        let (socket, bytes) = (self.socket.clone(), self.bench_bytes);
        let fill = move || -> std::io::Result<()> {
            let mut client = nbd::connect(&socket, &format!("{POOL}/bench"))?;
            let mut data = vec![0u8; 1 << 20];
            for offset in (0..bytes).step_by(1 << 20) {
                fill_pattern(&mut data, offset);
                client.write(offset, &data)?;
            }
            Ok(client.flush()?)
        };
        let (filled, seconds) = printer.during("filling the volume", fill).await?;
        filled.context("filling the volume")?;
        printer.detail(&format!("{prefix} {} in {seconds:.1} s", Size(self.bench_bytes)));
        Ok(())
    }

    async fn run(&self, printer: &StepPrinter, job: &Job) -> Result<JobResult> {
        let uri = format!("nbd+unix:///{POOL}/bench?socket={}", self.socket.display());
        let result = match &self.fio {
            Some(_) => self.fio(printer, job, Target::Nbd(uri), self.bench_bytes, &self.results).await?,
            None => {
                let (socket, job, bytes, seconds) =
                    (self.socket.clone(), job.clone(), self.bench_bytes, self.seconds);
                let name = job.name.clone();
                let run = move || nbd::run_job(&socket, &format!("{POOL}/bench"), &job, bytes, seconds);
                printer.during(&name, run).await?.0.with_context(|| name.clone())?
            }
        };
        let [rate, format_mean] = [report::rate(job, &result), format_mean(&result)];
        printer.detail(&format!("{:<31} {rate:>16}   mean {format_mean} us", job.name));
        Ok(result)
    }

    async fn fio(
        &self,
        printer: &StepPrinter,
        job: &Job,
        target: Target,
        size: u64,
        folder: &Path,
    ) -> Result<JobResult> {
        let (job, seconds, folder) = (job.clone(), self.seconds, folder.to_owned());
        let name = job.name.clone();
        let run = move || {
            FioRun { job: &job, target: &target, size, seconds, threads: THREADS, folder: &folder }.run()
        };
        Ok(printer.during(&name, run).await?.0?)
    }
}

fn format_mean(result: &JobResult) -> String {
    result.figures().map(|side| format!("{:.0}", side.mean_us)).collect::<Vec<_>>().join(" / ")
}

/// Fills a buffer with data that is different for each block.
fn fill_pattern(data: &mut [u8], offset: u64) {
    for (index, word) in data.chunks_exact_mut(8).enumerate() {
        let value = (offset + index as u64 * 8 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// Runs the jobs on a plain file with fio. Returns no results without fio or direct I/O.
async fn plain_file_jobs(
    printer: &StepPrinter,
    load: &JobRunner,
    work_dir: &WorkDir,
    jobs: &[Job],
) -> Result<Vec<JobResult>> {
    if load.fio.is_none() {
        printer.detail("skipped: fio is not installed");
        return Ok(Vec::new());
    }
    let folder = work_dir.path("results/raw");
    std::fs::create_dir_all(&folder)?;
    let (file, bytes) = (work_dir.path("raw.img"), load.bench_bytes.min(RAW_MAX));
    let path = file.clone();
    let fill = move || -> std::io::Result<()> {
        let mut data = vec![0u8; 1 << 20];
        let mut out = std::fs::File::create(&path)?;
        for offset in (0..bytes).step_by(1 << 20) {
            fill_pattern(&mut data, offset);
            std::io::Write::write_all(&mut out, &data)?;
        }
        out.sync_all()
    };
    printer.during("writing the plain file", fill).await?.0.context("writing a plain file")?;
    let mut results = Vec::new();
    for job in jobs.iter().filter(|job| !job.degraded) {
        match load.fio(printer, job, Target::File(file.clone()), bytes, &folder).await {
            Ok(result) => {
                printer.detail(&format!("{:<31} {:>16}", job.name, report::rate(job, &result)));
                results.push(result);
            }
            Err(error) => {
                printer.detail(&format!("skipped: {error:#}"));
                break;
            }
        }
    }
    std::fs::remove_file(&file)?;
    Ok(results)
}

/// Verifies the closed pool, as `gabion check` does.
async fn check(printer: &StepPrinter, work_dir: &WorkDir) -> Result<()> {
    let mut drives: Vec<_> =
        std::fs::read_dir(work_dir.path("drives"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    drives.sort();
    let (report, seconds) = printer.during("verifying the pool", move || offline::check(&drives)).await?;
    let report = report?;
    if let Some(finding) = report.findings.first() {
        anyhow::bail!("the pool is damaged: {}", finding.message);
    }
    printer.detail(&format!(
        "{} of data and {} rows of parity verified: no damage, one drive failed as expected ({seconds:.1} s)",
        Size(report.data_bytes),
        report.rows
    ));
    Ok(())
}

fn next_steps(work_dir: &WorkDir, kept: bool) -> String {
    let mut text = String::from("\nNext steps:\n");
    if kept {
        text.push_str(&format!(
            "  kept files   {}: drives, results (report.json, output of fio), log of the daemon\n\
             \x20 serve again  {}\n\
             \x20 remove       gabion quickstart --fresh, or rm -r {0}\n",
            work_dir.directory().display(),
            work_dir::serve_command(work_dir.directory())
        ));
    } else {
        text.push_str("  keep the pool at the end         gabion quickstart --keep\n");
    }
    text.push_str(
        "  create a pool on real drives     gabion pool create --help\n\
         \x20 benchmark the engine in memory   gabion bench engine\n\
         \x20 read about the design            ARCHITECTURE.md, docs/\n",
    );
    text
}
