//! A shell in namespaces of its own that runs commands one after another.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Separates the outputs of commands.
const MARK: char = '\u{1e}';
/// Directories that are private to a session. /var/tmp has the working directory.
const PRIVATE: [&str; 7] =
    ["/mnt", "/run", "/usr/local/bin", "/var/backups", "/var/lib", "/var/log", "/var/tmp"];
/// Time limit of a session, in seconds.
const LIMIT: &str = "300";

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) output: String,
}

/// The commands of a session.
pub(crate) struct Session {
    directory: TempDir,
    script: String,
}

impl Session {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut script = String::new();
        // A network and a host name of its own, so that pages use fixed addresses and ports.
        // First, because the mounts below hide the directory.
        let hosts = directory.path().join("hosts");
        std::fs::copy("/etc/hosts", &hosts).unwrap();
        script += &format!("mount --bind {} /etc/hosts && ip link set lo up || exit\n", hosts.display());
        for (index, private) in PRIVATE.iter().enumerate() {
            let source = directory.path().join(index.to_string());
            std::fs::create_dir(&source).unwrap();
            script += &format!("[ ! -d {private} ] || mount --bind {} {private} || exit\n", source.display());
            match *private {
                "/usr/local/bin" => {
                    let program = env!("CARGO_BIN_EXE_gabion");
                    let linked = source.join("gabion");
                    if std::fs::hard_link(program, &linked).is_err() {
                        std::fs::copy(program, &linked).unwrap();
                    }
                }
                "/var/tmp" => {
                    std::fs::create_dir(source.join("work")).unwrap();
                    std::fs::create_dir(source.join("home")).unwrap();
                }
                _ => {}
            }
        }
        script += "exec 2>&1; cd /var/tmp/work && set -m\n";
        Self { directory, script }
    }

    /// Adds a command.
    pub(crate) fn add(&mut self, command: &str) {
        self.script += command;
        self.script += &format!("\nprintf '{MARK}%s{MARK}' $?\n");
        if command.contains("gabion serve ") {
            self.script += "until gabion pool list >/dev/null 2>&1; do sleep 0.02; done\n";
        }
    }

    /// Runs the commands, and ends all processes that they started. Returns the results of the
    /// commands that ended.
    pub(crate) fn run(self) -> Vec<Ran> {
        let script = self.directory.path().join("script");
        std::fs::write(&script, &self.script).unwrap();
        let mut shell = Command::new("timeout");
        shell.args(["--kill-after", "1", LIMIT, "unshare", "--mount", "--net", "--uts", "--pid"]);
        shell.args(["--fork", "--kill-child"]);
        shell.args(["--mount-proc", "bash"]).arg(&script);
        shell.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("LANG", "C.UTF-8");
        shell.env("HOME", "/var/tmp/home").env("USER", "root").env("GABION_CONFIG", "/dev/null");
        let output = shell.stdin(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
        assert!(output.status.signal().is_none(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let parts: Vec<&str> = text.split(MARK).collect();
        let ran = |pair: &[&str]| Ran { output: pair[0].to_owned(), status: pair[1].parse().unwrap() };
        let ended: Vec<Ran> = parts.chunks_exact(2).map(ran).collect();
        let rest = parts.chunks_exact(2).remainder().concat();
        if output.status.code() != Some(0) {
            eprintln!("{}: {rest}{}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        ended
    }
}
