//! Shell scripts on hosts: this machine, a network namespace of it, or SSH.
//!
//! Always true: a script runs in `sh -eu`; its output is returned only if it succeeded. SSH never
//! asks: keys and host keys are those that the system's `ssh` is configured with.

use std::ffi::OsStr;
use std::fmt;
use std::io::Write;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::thread;

use ceph::{Error, ErrorKind, Result};

/// Directory of named network namespaces, as `ip netns` uses it.
const NAMESPACES: &str = "/run/netns";

/// The way to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// This machine.
    Local,
    /// A network namespace of this machine, by name.
    Namespace(String),
    /// Another machine, by the destination for `ssh`.
    Ssh(String),
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_word = |word: &str| {
            !word.starts_with('-') && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.@:".contains(c))
        };
        match text.strip_prefix("local:") {
            Some("") => Ok(Self::Local),
            Some(namespace) if is_word(namespace) => Ok(Self::Namespace(namespace.to_owned())),
            None if !text.is_empty() && is_word(text) => Ok(Self::Ssh(text.to_owned())),
            _ => Err(format!(
                "address '{text}' is neither 'local:', 'local:NAMESPACE' nor an SSH destination such as root@host"
            )),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local:"),
            Self::Namespace(name) => write!(f, "local:{name}"),
            Self::Ssh(destination) => f.write_str(destination),
        }
    }
}

impl Transport {
    /// Returns true if the host is this machine or a part of it: same clock, files and packages.
    pub(crate) fn is_local(&self) -> bool {
        !matches!(self, Self::Ssh(_))
    }

    /// Runs a script and returns its standard output.
    ///
    /// # Errors
    /// `Unreachable` when the host does not answer; `Io` with the last lines of standard error when
    /// the script fails.
    pub(crate) fn run(&self, script: &str) -> Result<Vec<u8>> {
        self.run_with_input(script, b"")
    }

    /// Like [`Transport::run`], with the network links of the host in `/sys`. There, the mounts of
    /// this process have the links of this machine.
    ///
    /// # Errors
    /// As [`Transport::run`].
    pub(crate) fn run_with_links(&self, script: &str) -> Result<Vec<u8>> {
        if !matches!(self, Self::Namespace(_)) {
            return self.run(script);
        }
        let script = quote(&format!("mount -t sysfs sysfs /sys\n{script}"));
        self.run(&format!("exec unshare --mount sh -euc {script}"))
    }

    /// Like [`Transport::run`], with `input` as the script's standard input.
    ///
    /// # Errors
    /// As [`Transport::run`].
    pub(crate) fn run_with_input(&self, script: &str, input: &[u8]) -> Result<Vec<u8>> {
        let mut command = self.command(script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = command.get_program().to_string_lossy().into_owned();
        let failed =
            |error: &std::io::Error| Error::new(ErrorKind::Io, format!("cannot run {program}: {error}"));
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let stdin = child.stdin.take();
        let output = thread::scope(|scope| {
            // A script may end before it reads its input: a broken pipe is no error of its own.
            scope.spawn(move || stdin.map(|mut pipe| pipe.write_all(input)));
            child.wait_with_output()
        });
        let output = output.map_err(|error| failed(&error))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let text = without_colours(&String::from_utf8_lossy(&output.stderr));
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines.get(lines.len().saturating_sub(3)..).unwrap_or_default().join("; ");
        if matches!(self, Self::Ssh(_)) && output.status.code() == Some(255) {
            let hint = format!("'ssh {self} true' must succeed without a password");
            return Err(Error::new(ErrorKind::Unreachable, format!("cannot reach {self}: {last}")).hint(hint));
        }
        let reason = if last.is_empty() { output.status.to_string() } else { last };
        Err(Error::new(ErrorKind::Io, format!("{self}: {reason}")))
    }

    fn command(&self, script: &str) -> Command {
        let mut command;
        match self {
            Self::Local => {
                command = Command::new("sh");
                command.args(["-euc", script]);
            }
            Self::Namespace(name) => {
                command = namespace_command(name, "sh");
                command.args(["-euc", script]);
            }
            Self::Ssh(destination) => {
                command = Command::new("ssh");
                let options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", destination];
                command.args(options).arg(format!("sh -euc {}", quote(script)));
            }
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
        if let Ok(path) = std::env::join_paths(directories) {
            command.env("PATH", <_ as AsRef<OsStr>>::as_ref(&path));
        }
        command.env("LC_ALL", "C");
        command
    }
}

/// Returns a command that runs a program in a named network namespace.
///
/// The program has the mounts of this process. `ip netns exec` would give it a copy of them, in
/// which a daemon would keep the host's file systems mounted, and their devices open, where mounts
/// do not propagate.
pub(crate) fn namespace_command(namespace: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={NAMESPACES}/{namespace}")).arg("--").arg(program);
    command
}

/// Removes the escape sequences by which programs colour their messages (ECMA-48, CSI ... m).
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut plain, part| {
        let parameters = part.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
        plain.push_str(part.get(parameters..).and_then(|rest| rest.strip_prefix('m')).unwrap_or(part));
        plain
    })
}

/// Quotes a word for the shell.
pub(crate) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_printed() {
        for text in ["local:", "local:gabion-a", "root@osd1.example", "osd1"] {
            assert_eq!(text.parse::<Transport>().unwrap().to_string(), text);
        }
        for text in ["", "local:a b", "-oProxyCommand=x", "local:-x", "a;b"] {
            assert!(text.parse::<Transport>().is_err(), "{text}");
        }
    }

    #[test]
    fn scripts_get_their_input_and_report_their_errors() {
        let output = Transport::Local.run_with_input("tr a-z A-Z", b"it's").unwrap();
        assert_eq!(output, b"IT'S");
        let error = Transport::Local.run("echo reason >&2; exit 3").unwrap_err();
        assert!(error.to_string().contains("reason"), "{error}");
        assert!(Transport::Local.run("false; true").is_err(), "a failing command ends the script");
    }

    /// A network namespace, deleted on drop.
    struct TestNamespace(String);

    impl TestNamespace {
        fn ip(&self, verb: &str) -> bool {
            Command::new("ip").args(["netns", verb, &self.0]).status().unwrap().success()
        }
    }

    impl Drop for TestNamespace {
        fn drop(&mut self) {
            self.ip("delete");
        }
    }

    #[test]
    fn scripts_in_a_namespace_have_its_links_and_the_mounts_of_this_machine() {
        if !test_support::has_root() || !test_support::has_programs(&["ip", "nsenter", "unshare"]) {
            return;
        }
        let namespace = TestNamespace(format!("gabion-test-{}", std::process::id()));
        assert!(namespace.ip("add"));
        let transport = Transport::Namespace(namespace.0.clone());
        let mounts = transport.run("readlink /proc/self/ns/mnt").unwrap();
        let own = std::fs::read_link("/proc/self/ns/mnt").unwrap();
        assert_eq!(String::from_utf8(mounts).unwrap().trim(), own.to_str().unwrap());
        assert_eq!(transport.run_with_links("ls /sys/class/net").unwrap(), b"lo\n");
        let error = transport.run_with_links("echo 'no reason' >&2; false; true").unwrap_err();
        assert!(error.to_string().ends_with(": no reason"), "{error}");
    }

    #[test]
    fn messages_lose_their_colours() {
        let text = "\u{1b}[0;31m ** ERROR: osd init failed\u{1b}[0m\u{1b}[K [m";
        assert_eq!(without_colours(text), " ** ERROR: osd init failedK [m");
        let error = Transport::Local.run("printf '\\033[31mred\\033[0m' >&2; exit 1").unwrap_err();
        assert_eq!(error.to_string(), "local:: red");
    }

    #[test]
    fn quoted_words_survive_the_shell() {
        for word in ["", "a b", "it's", "$HOME `x` \"y\" \\", "line\nbreak"] {
            let output = Transport::Local.run(&format!("printf %s {}", quote(word))).unwrap();
            assert_eq!(String::from_utf8(output).unwrap(), word);
        }
    }
}
