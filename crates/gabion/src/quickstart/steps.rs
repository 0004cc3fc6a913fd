//! The steps of a quickstart, one after the other.

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

use super::data::{self, Data, Mover};
use super::place::{self, Found, Place};
use super::report::{self, Report};
use crate::cli::{Global, QuickstartArgs};
use crate::own_daemon::Daemon;
use crate::progress::follow;

const POOL: &str = "quick";
const DRIVES: u16 = 5;
const SCHEME: &str = "4+1";
/// The drive that fails.
const VICTIM: u16 = 2;
/// Bytes that the jobs work on, at most.
const BENCH_MAX: u64 = 1 << 30;
/// Bytes of the plain file that the same jobs run on.
const RAW_MAX: u64 = 512 << 20;
/// Threads of a job, at most: the document's six are for servers.
const THREADS: u32 = 2;

/// Says what goes on.
struct Talk {
    quiet: bool,
    step: u32,
}

const STEPS: u32 = 9;

impl Talk {
    fn say(&self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }

    /// Announces a step.
    fn step(&mut self, what: &str) {
        self.step += 1;
        self.say(&format!("[{}/{STEPS}] {what}", self.step));
    }

    /// A result within a step.
    fn detail(&self, what: &str) {
        self.say(&format!("      {what}"));
    }

    /// Runs something that blocks, with a spinner if it takes a while, and gives how long it took.
    async fn during<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, f64)> {
        let shown = !self.quiet && std::io::stderr().is_terminal();
        let spinner = if shown { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("      {spinner} {msg} {elapsed}") {
            spinner.set_style(style);
        }
        spinner.set_message(what.to_owned());
        spinner.enable_steady_tick(Duration::from_millis(100));
        let started = Instant::now();
        let result = tokio::task::spawn_blocking(work).await;
        spinner.finish_and_clear();
        Ok((result.with_context(|| format!("{what}: ended early"))?, started.elapsed().as_secs_f64()))
    }
}

/// Everything; gives what was measured, and what to print at the end.
///
/// # Errors
/// What went wrong.
pub(super) async fn all(global: &Global, arguments: &QuickstartArgs) -> Result<(Report, String)> {
    let mut talk = Talk { quiet: global.quiet, step: 0 };
    let directory = arguments.dir.clone().unwrap_or_else(place::default_directory);
    let (mut place, found) = Place::make(&directory, arguments.fresh)?;
    if matches!(found, Found::Leftover) {
        talk.say(&format!("took away what an earlier run had left in {}", directory.display()));
    }
    let drive_bytes = place.drive_size(arguments.drive_size)?;
    let client = Client::unix(place.path("gabion.sock"));

    talk.step(&format!(
        "starting a daemon; {DRIVES} sparse file drives of {} in {}",
        Size(drive_bytes),
        place.show("drives")
    ));
    let daemon = Daemon::start(place.directory(), &place.path("daemon.log"), &[], None, &client).await?;
    let pool = create_pool(&client, &place, drive_bytes).await?;
    let free = pool.space.as_ref().map_or(0, |space| space.free);
    talk.detail(&format!("pool '{POOL}' ({SCHEME}, any one drive may fail) with room for {}", Size(free)));

    talk.step("making two volumes and serving them by NBD");
    let bench_bytes = (free / 3).min(BENCH_MAX) >> 20 << 20;
    export(&client, "data", data::BYTES).await?;
    export(&client, "bench", bench_bytes).await?;
    let mover = Mover::find(arguments.built_in);
    let data = Data {
        file: place.path("data.img"),
        socket: place.path("nbd.sock"),
        export: format!("{POOL}/data"),
        mover,
    };
    talk.detail(&data.uri());

    talk.step(&format!(
        "writing {} of real data with {}, and reading it back",
        Size(data::BYTES),
        mover.name()
    ));
    data::make(&data.file)?;
    let data = std::sync::Arc::new(data);
    write_data(&talk, &data).await?;
    verify_data(&talk, &data).await?;

    let load = Load {
        fio: (!arguments.built_in).then(fio::with_nbd).flatten(),
        seconds: arguments.seconds,
        results: place.path("results"),
        socket: place.path("nbd.sock"),
        bench_bytes,
    };
    let suite = super::suite();
    talk.step(&format!("measuring a plain file of the same file system ({})", load.runner()));
    let raw = raw_jobs(&talk, &load, &place, &suite.jobs).await?;

    talk.step(&format!("reference benchmark '{}' on the volume: {}", suite.name, suite.title));
    let mut results = Vec::new();
    load.fill(&talk, "filled").await?;
    let mut random_before = false;
    for job in suite.jobs.iter().filter(|job| !job.degraded) {
        // A log keeps blocks in the order in which they were written: large reads are to meet large writes.
        if !job.random && random_before {
            load.fill(&talk, "written anew from end to end:").await?;
        }
        random_before = job.random;
        results.push(load.run(&talk, job).await?);
    }

    talk.step(&format!("failing drive {VICTIM}, and the degraded part of the benchmark"));
    let pool = client.fail_drive(POOL, VICTIM).await.context("failing a drive")?;
    pool.problems.iter().for_each(|problem| talk.detail(&problem.message));
    for job in suite.jobs.iter().filter(|job| job.degraded) {
        results.push(load.run(&talk, job).await?);
    }

    talk.step("verifying the data with the drive lost, and again after a restart of the daemon");
    verify_data(&talk, &data).await?;
    daemon.stop()?;
    let daemon = Daemon::start(place.directory(), &place.path("daemon.log"), &[], None, &client).await?;
    verify_data(&talk, &data).await?;

    talk.step("closing the pool, and checking all of it offline");
    daemon.stop()?;
    check(&talk, &place).await?;

    talk.step("done");
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
    };
    let mut text = format!("\n{}\n{}\n", report::table(&report, &suite), report::notes(&report, &suite));
    if arguments.keep {
        std::fs::write(place.path("results/report.json"), crate::commands::to_json(&report)?)?;
        place.keep()?;
    }
    text.push_str(&where_next(&place, arguments.keep));
    Ok((report, text))
}

async fn create_pool(client: &Client, place: &Place, bytes: u64) -> Result<Pool> {
    let files = FileDrives { directory: place.show("drives"), size: bytes, count: DRIVES };
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
    let request = CreateExport {
        pool: POOL.into(),
        volume: volume.into(),
        protocol: Protocol::Nbd,
        read_only: false,
        shared: false,
        queues: None,
        reactors: Vec::new(),
    };
    client.create_export(&request).await?;
    Ok(())
}

async fn write_data(talk: &Talk, data: &std::sync::Arc<Data>) -> Result<()> {
    let data = data.clone();
    let (written, took) = talk.during("writing", move || data.write()).await?;
    written?;
    talk.detail(&format!("written and flushed in {took:.1} s"));
    Ok(())
}

async fn verify_data(talk: &Talk, data: &std::sync::Arc<Data>) -> Result<()> {
    let data = data.clone();
    let (verified, took) = talk.during("verifying", move || data.verify()).await?;
    verified.context("the data did not come back")?;
    talk.detail(&format!("every byte came back as it was written ({took:.1} s)"));
    Ok(())
}

/// What runs the jobs.
struct Load {
    fio: Option<String>,
    seconds: u64,
    results: std::path::PathBuf,
    socket: std::path::PathBuf,
    bench_bytes: u64,
}

impl Load {
    fn runner(&self) -> String {
        self.fio.clone().unwrap_or_else(|| "built-in load, one connection (install fio for its own)".into())
    }

    /// Writes the volume once from end to end, so that reads meet data.
    async fn fill(&self, talk: &Talk, said: &str) -> Result<()> {
        let (socket, bytes) = (self.socket.clone(), self.bench_bytes);
        let fill = move || -> std::io::Result<()> {
            let mut client = nbd::connect(&socket, &format!("{POOL}/bench"))?;
            let mut data = vec![0u8; 1 << 20];
            for offset in (0..bytes).step_by(1 << 20) {
                stamp(&mut data, offset);
                client.write(offset, &data)?;
            }
            Ok(client.flush()?)
        };
        let (filled, took) = talk.during("filling the volume", fill).await?;
        filled.context("filling the volume")?;
        talk.detail(&format!("{said} {} in {took:.1} s", Size(self.bench_bytes)));
        Ok(())
    }

    async fn run(&self, talk: &Talk, job: &Job) -> Result<JobResult> {
        let uri = format!("nbd+unix:///{POOL}/bench?socket={}", self.socket.display());
        let result = match &self.fio {
            Some(_) => self.fio(talk, job, Target::Nbd(uri), self.bench_bytes, &self.results).await?,
            None => {
                let (socket, job, bytes, seconds) =
                    (self.socket.clone(), job.clone(), self.bench_bytes, self.seconds);
                let name = job.name.clone();
                let run = move || nbd::run_job(&socket, &format!("{POOL}/bench"), &job, bytes, seconds);
                talk.during(&name, run).await?.0.with_context(|| name.clone())?
            }
        };
        let [rate, mean] = [report::rate(job, &result), mean(&result)];
        talk.detail(&format!("{:<31} {rate:>16}   mean {mean} us", job.name));
        Ok(result)
    }

    async fn fio(
        &self,
        talk: &Talk,
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
        Ok(talk.during(&name, run).await?.0?)
    }
}

fn mean(result: &JobResult) -> String {
    result.figures().map(|side| format!("{:.0}", side.mean_us)).collect::<Vec<_>>().join(" / ")
}

/// Fills a MiB with bytes that no two blocks share.
fn stamp(data: &mut [u8], offset: u64) {
    for (index, word) in data.chunks_exact_mut(8).enumerate() {
        let value = (offset + index as u64 * 8 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// The same jobs on one plain file, by fio. Without fio, or where direct I/O is refused, there is nothing to compare with.
async fn raw_jobs(talk: &Talk, load: &Load, place: &Place, jobs: &[Job]) -> Result<Vec<JobResult>> {
    if load.fio.is_none() {
        talk.detail("left out: it takes fio");
        return Ok(Vec::new());
    }
    let folder = place.path("results/raw");
    std::fs::create_dir_all(&folder)?;
    let (file, bytes) = (place.path("raw.img"), load.bench_bytes.min(RAW_MAX));
    let path = file.clone();
    let fill = move || -> std::io::Result<()> {
        let mut data = vec![0u8; 1 << 20];
        let mut out = std::fs::File::create(&path)?;
        for offset in (0..bytes).step_by(1 << 20) {
            stamp(&mut data, offset);
            std::io::Write::write_all(&mut out, &data)?;
        }
        out.sync_all()
    };
    talk.during("writing the plain file", fill).await?.0.context("writing a plain file")?;
    let mut results = Vec::new();
    for job in jobs.iter().filter(|job| !job.degraded) {
        match load.fio(talk, job, Target::File(file.clone()), bytes, &folder).await {
            Ok(result) => {
                talk.detail(&format!("{:<31} {:>16}", job.name, report::rate(job, &result)));
                results.push(result);
            }
            Err(error) => {
                talk.detail(&format!("left out: {error:#}"));
                break;
            }
        }
    }
    std::fs::remove_file(&file)?;
    Ok(results)
}

/// Verifies the closed pool as `gabion check` does.
async fn check(talk: &Talk, place: &Place) -> Result<()> {
    let mut drives: Vec<_> =
        std::fs::read_dir(place.path("drives"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    drives.sort();
    let (report, took) = talk.during("reading everything", move || offline::check(&drives)).await?;
    let report = report?;
    if let Some(finding) = report.findings.first() {
        anyhow::bail!("the pool is damaged: {}", finding.message);
    }
    talk.detail(&format!(
        "{} of data and {} rows of parity verified, no damage; one drive is lost as it should be ({took:.1} s)",
        Size(report.data_bytes),
        report.rows
    ));
    Ok(())
}

fn where_next(place: &Place, kept: bool) -> String {
    let mut text = String::from("\nWhere next:\n");
    if kept {
        text.push_str(&format!(
            "  kept      {}: drives, results (report.json, fio's own output), the daemon's log\n\
             \x20 go on     {}\n\
             \x20 take away gabion quickstart --fresh, or rm -r {0}\n",
            place.directory().display(),
            place::serve_command(place.directory())
        ));
    } else {
        text.push_str("  keep the pool next time      gabion quickstart --keep\n");
    }
    text.push_str(
        "  a pool on real drives        gabion pool create --help\n\
         \x20 the engine without the disk  gabion bench engine\n\
         \x20 what a pool is made of       ARCHITECTURE.md, docs/\n",
    );
    text
}
