//! Test harness: starts daemons and runs commands.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Time limit of any step of a test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(300);
/// Poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

const GABION: &str = env!("CARGO_BIN_EXE_gabion");

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Returns a command without GABION_* variables in its environment.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(GABION);
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("GABION_")) {
        command.env_remove(name);
    }
    command.env_remove("NOTIFY_SOCKET").env("RUST_BACKTRACE", "0");
    command
}

/// Runs a command and waits for its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// The temporary directory of daemons that run one after another.
pub(crate) struct DaemonHome {
    directory: TempDir,
}

impl DaemonHome {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a path as an argument.
    pub(crate) fn arg(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Creates a sparse file.
    pub(crate) fn file(&self, name: &str, size: u64) -> String {
        std::fs::File::create(self.path(name)).unwrap().set_len(size).unwrap();
        self.arg(name)
    }

    pub(crate) fn socket(&self) -> String {
        self.arg("gabion.sock")
    }

    pub(crate) fn nbd_socket(&self) -> PathBuf {
        self.path("nbd.sock")
    }

    /// Returns the command that starts the daemon.
    pub(crate) fn serve(&self, extra: &[&str]) -> Command {
        let mut serve = command(&["serve"]);
        // Flags override these variables.
        serve.args(extra).env("GABION_CONFIG", "/dev/null").env("GABION_SOCKET", self.socket());
        serve.env("GABION_STATE_DIR", self.path("state")).env("GABION_NBD_SOCKET", self.nbd_socket());
        serve
            .env("GABION_VHOST_DIRECTORY", self.path("vhost"))
            .env("GABION_FUSE_DIRECTORY", self.path("fuse"))
            .env("GABION_UBLK_DIRECTORY", self.path("ublk"))
            .env("GABION_CLUSTERS_DIRECTORY", self.path("clusters"));
        serve.env("GABION_NVME_DISCOVERY", "none");
        serve.env("GABION_DRIVE_WAIT", "0").env("GABION_LOG_FORMAT", "json").env("GABION_LOG_LEVEL", "debug");
        serve
    }

    /// Runs a command with this daemon.
    pub(crate) fn gabion(&self, arguments: &[&str]) -> Ran {
        run(&mut self.client(arguments))
    }

    /// Returns a command for this daemon.
    pub(crate) fn client(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.env("GABION_CONFIG", "/dev/null").env("GABION_SOCKET", self.socket());
        command.env("GABION_STATE_DIR", self.path("state"));
        command
    }

    /// Starts the daemon and waits until it is ready.
    pub(crate) fn start(&self) -> Daemon<'_> {
        self.start_with(&[])
    }

    pub(crate) fn start_with(&self, extra: &[&str]) -> Daemon<'_> {
        self.start_by(self.serve(extra))
    }

    /// Starts the daemon with this command and waits until it is ready.
    pub(crate) fn start_by(&self, mut serve: Command) -> Daemon<'_> {
        let mut child = serve.stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (ready, readiness) = mpsc::channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let reader = std::thread::spawn({
            let log = log.clone();
            move || {
                for line in lines {
                    let line = line.unwrap();
                    let is_ready = line.contains(r#""message":"ready""#);
                    log.lock().unwrap().push(line);
                    if is_ready {
                        let _ = ready.send(());
                    }
                }
            }
        });
        let daemon = Daemon { home: self, child, log, reader: Some(reader) };
        if readiness.recv_timeout(DEADLINE).is_err() {
            panic!("the daemon did not start: {:#?}", daemon.log.lock().unwrap());
        }
        daemon
    }
}

/// A running daemon; killed on drop.
pub(crate) struct Daemon<'a> {
    home: &'a DaemonHome,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Daemon<'_> {
    /// Runs a command that must succeed. Returns its output.
    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.home.gabion(arguments);
        assert_eq!(ran.code, Some(0), "gabion {}: {ran:?}\n{}", arguments.join(" "), self.log());
        ran.out
    }

    /// Runs a command with `--json` that must succeed.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let mut with_json = arguments.to_vec();
        with_json.push("--json");
        let out = self.ok(&with_json);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    /// Runs a command that must fail with exit status 1. Returns its standard error.
    #[track_caller]
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let ran = self.home.gabion(arguments);
        assert_eq!(ran.code, Some(1), "gabion {}: {ran:?}\n{}", arguments.join(" "), self.log());
        assert!(ran.out.is_empty(), "a failed command printed a result: {ran:?}");
        assert!(ran.err.lines().any(|line| line.starts_with("gabion: ")), "{ran:?}");
        assert!(!ran.err.contains("panicked") && !ran.err.contains("a bug"), "{ran:?}");
        ran.err
    }

    /// Returns the status of a pool.
    #[track_caller]
    pub(crate) fn pool(&self, name: &str) -> Value {
        let ran = self.home.gabion(&["pool", "status", name, "--json"]);
        let pools: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        pools[0].clone()
    }

    /// Creates a pool of five small files with one volume.
    #[track_caller]
    pub(crate) fn make_pool(&self) {
        let files = self.home.arg("drives");
        self.ok(&[
            "pool",
            "create",
            "fast",
            "--scheme",
            "4+1",
            "--files",
            &files,
            "--file-size",
            "64M",
            "--count",
            "5",
        ]);
        self.ok(&["volume", "create", "fast/vm01", "--size", "1G"]);
    }

    /// Returns the log.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops the daemon and waits for its end. Fails if the log has errors.
    #[track_caller]
    pub(crate) fn stop(mut self) -> String {
        self.signal("TERM");
        let status = self.wait();
        let log = self.log();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(!log.contains(r#""level":"ERROR""#), "{log}");
        log
    }

    /// Kills the daemon and waits for its end.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.wait();
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.pid().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        status
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that keeps a file open until it is dropped.
pub(crate) struct Holder(Child);

impl Holder {
    /// Opens the file with the shell's redirection: `<` for reading, `>>` for writing.
    pub(crate) fn of(path: &str, redirection: &str) -> Self {
        let script = format!("exec 3{redirection}\"$0\"; exec cat");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, path]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        // The process has opened the file when it echoes its input.
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"x").unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        Self(child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a condition is true.
#[track_caller]
pub(crate) fn until(expectation: &str, condition: impl FnMut() -> bool) {
    until_or(|| expectation.to_owned(), condition);
}

/// Waits until a condition is true. The panic describes the expectation and the state.
#[track_caller]
pub(crate) fn until_or(describe: impl FnOnce() -> String, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    loop {
        let start = Instant::now();
        if condition() {
            return;
        }
        if start > end {
            panic!("not within {DEADLINE:?}: {}", describe());
        }
        // The awaited process needs the CPUs, which a condition that starts programs takes.
        std::thread::sleep(POLL_INTERVAL.max(3 * start.elapsed()));
    }
}

/// Returns the names of the files in a directory, sorted.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
