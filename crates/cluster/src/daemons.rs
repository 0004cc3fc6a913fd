//! Daemons on hosts: which run, with which configuration, and how they start and stop.
//!
//! Always true: only processes whose command line names the `ceph.conf` of this cluster are
//! signalled. A process id alone is never enough, because it may have been reused.

use crate::steps::DaemonKind;
use crate::transport::{Transport, quote};
use ceph::Result;

/// Shell functions of the scripts, for a host whose directory is `$root`.
///
/// `alive NAME` succeeds if the daemon runs, and sets `pid`.
pub(crate) const FUNCTIONS: &str = r#"
alive() {
  pid=$(cat "$root/run/$1.pid" 2>/dev/null || true)
  case $pid in ''|*[!0-9]*) return 1 ;; esac
  tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -qxF -- "$root/ceph.conf"
}
# A process that ends loses its command line before it closes its drives.
wait_for_end() { # process, tenths of a second
  for _ in $(seq "$2"); do
    case $(sed -n 's/^State:[^A-Z]*//p' "/proc/$1/status" 2>/dev/null || true) in ''|Z*|X*) return 0 ;; esac
    sleep 0.1
  done
  return 1
}
kill_daemon() {
  alive "$1" || return 0
  kill -9 "$pid" || true
  wait_for_end "$pid" 300 || { echo "$1 (process $pid) does not end after SIGKILL" >&2; return 1; }
}
stop_daemon() {
  alive "$1" || return 0
  kill "$pid" || true
  wait_for_end "$pid" 300 || kill_daemon "$1"
}
start_daemon() { # program, name, id, argument
  mkdir -p "$root/run" "$root/log" "$root/crash" "$root/boot"
  echo "$1 $4 $3" >"$root/boot/$2"
  rm -f "$root/run/$2.pid"
  cksum <"$root/ceph.conf" >"$root/run/$2.conf"
  "$1" $4 "$3" -c "$root/ceph.conf" </dev/null >"$root/log/$2.start" 2>&1 9>&- || {
    cat "$root/log/$2.start" >&2; tail -n 3 "$root/log/$2.log" >&2; return 1
  }
  for _ in $(seq 100); do alive "$2" && return 0; sleep 0.1; done
  tail -n 3 "$root/log/$2.log" >&2
  echo "$2 ended after its start" >&2; return 1
}
"#;

/// Waits for a script of a killed command: scripts survive it, and two must not create one daemon.
/// Daemons do not inherit the lock.
const LOCK: &str = r#"
(umask 077; mkdir -p "$root")
exec 9>"$root/lock"
flock -w 300 9 || { echo "another script changes $root" >&2; exit 1; }
"#;

/// The directory of a cluster's daemons on a host.
#[derive(Clone, Debug)]
pub(crate) struct HostDaemons {
    transport: Transport,
    root: String,
}

impl HostDaemons {
    pub(crate) fn new(transport: Transport, root: String) -> Self {
        Self { transport, root }
    }

    /// The directory on the host.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// Returns true for a network namespace of this machine.
    pub(crate) fn is_namespace(&self) -> bool {
        matches!(self.transport, Transport::Namespace(_))
    }

    /// Runs a script with the functions and `$root`.
    ///
    /// # Errors
    /// As [`Transport::run`].
    pub(crate) fn run(&self, script: &str, input: &[u8]) -> Result<String> {
        let script = format!("root={}\n{FUNCTIONS}\n{LOCK}\n{script}", quote(&self.root));
        let output = self.transport.run_with_input(&script, input)?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// Returns true if the script prints `yes`.
    ///
    /// # Errors
    /// As [`Transport::run`].
    pub(crate) fn holds(&self, condition: &str) -> Result<bool> {
        Ok(self.run(&format!("if {condition}; then echo yes; fi"), b"")?.trim() == "yes")
    }

    /// Replaces a file below the directory atomically, with mode 0600.
    ///
    /// # Errors
    /// As [`Transport::run`].
    pub(crate) fn write(&self, file: &str, contents: &str) -> Result<()> {
        let path = quote(&format!("{}/{file}", self.root));
        let script =
            format!("umask 077; mkdir -p \"$(dirname {path})\"; cat >{path}.new; mv {path}.new {path}");
        self.run(&script, contents.as_bytes()).map(drop)
    }

    /// Returns the contents of a file below the directory; empty if it does not exist.
    ///
    /// # Errors
    /// As [`Transport::run`].
    pub(crate) fn read(&self, file: &str) -> Result<String> {
        let path = quote(&format!("{}/{file}", self.root));
        self.run(&format!("if [ -e {path} ]; then cat {path}; fi"), b"")
    }

    /// Returns true if the daemon runs.
    ///
    /// # Errors
    /// As [`Transport::run`].
    pub(crate) fn is_running(&self, kind: DaemonKind, id: &str) -> Result<bool> {
        self.holds(&format!("alive {}.{}", kind.name(), quote(id)))
    }

    /// Starts a daemon.
    ///
    /// # Errors
    /// `Io` with the end of its log.
    pub(crate) fn start(&self, kind: DaemonKind, id: &str) -> Result<()> {
        let (program, name, argument) = (kind.program(), format!("{}.{id}", kind.name()), kind.argument());
        let id = if kind == DaemonKind::Rgw { &name } else { id };
        let script = format!("start_daemon {program} {} {} {argument}", quote(&name), quote(id));
        self.run(&script, b"").map(drop)
    }

    /// Stops a daemon, if it runs.
    ///
    /// # Errors
    /// `Io` if it does not stop.
    pub(crate) fn stop(&self, kind: DaemonKind, id: &str) -> Result<()> {
        self.run(&format!("stop_daemon {}.{}", kind.name(), quote(id)), b"").map(drop)
    }

    /// Returns the running daemons, as `osd.3`, that started with another `ceph.conf`.
    ///
    /// # Errors
    /// As [`Transport::run`].
    pub(crate) fn outdated(&self) -> Result<Vec<String>> {
        let script = "current=$(cksum <\"$root/ceph.conf\")\n\
                      for file in \"$root\"/run/*.conf; do\n\
                      [ -e \"$file\" ] || continue\n\
                      name=$(basename \"$file\" .conf)\n\
                      if alive \"$name\" && [ \"$(cat \"$file\")\" != \"$current\" ]; then echo \"$name\"; fi\n\
                      done";
        Ok(self.run(script, b"")?.lines().map(str::to_owned).collect())
    }

    /// Kills the daemons of the cluster on the host with SIGKILL, or the named one, and waits for
    /// their end. Returns their number.
    ///
    /// # Errors
    /// `Io` if one does not end.
    pub(crate) fn kill(&self, only: Option<&str>) -> Result<usize> {
        let pattern = quote(only.unwrap_or("*"));
        let script = format!(
            "for file in \"$root\"/run/*.pid; do\n\
             [ -e \"$file\" ] || continue\n\
             name=$(basename \"$file\" .pid); only={pattern}\n\
             if [ \"$only\" = '*' ] || [ \"$only\" = \"$name\" ]; then\n\
             if alive \"$name\"; then kill_daemon \"$name\"; echo \"$name\"; fi\n\
             fi\n\
             done"
        );
        Ok(self.run(&script, b"")?.lines().count())
    }

    /// Stops every daemon of the cluster on the host, and returns their number.
    ///
    /// # Errors
    /// `Io` if one does not stop.
    pub(crate) fn stop_all(&self) -> Result<usize> {
        let script = "for file in \"$root\"/run/*.pid; do\n\
                      [ -e \"$file\" ] || continue\n\
                      name=$(basename \"$file\" .pid)\n\
                      if alive \"$name\"; then stop_daemon \"$name\"; echo \"$name\"; fi\n\
                      done";
        Ok(self.run(script, b"")?.lines().count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> (tempfile::TempDir, HostDaemons) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_str().unwrap().to_owned();
        (directory, HostDaemons::new(Transport::Local, root))
    }

    #[test]
    fn a_process_of_another_cluster_is_not_signalled() {
        let (_directory, host) = host();
        let mut other = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        host.write("run/osd.0.pid", &other.id().to_string()).unwrap();
        host.write("ceph.conf", "").unwrap();
        assert!(!host.is_running(DaemonKind::Osd, "0").unwrap());
        host.stop(DaemonKind::Osd, "0").unwrap();
        assert_eq!(host.stop_all().unwrap(), 0);
        assert_eq!(host.kill(None).unwrap(), 0);
        assert_eq!(other.try_wait().unwrap(), None, "the process still runs");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_script_waits_for_a_script_of_a_killed_command() {
        let (_directory, host) = host();
        let other = host.clone();
        let (sender, receiver) = std::sync::mpsc::channel();
        let slow = std::thread::spawn(move || {
            // The script holds the lock until the file is gone.
            other
                .run("touch \"$root/locked\"; while [ -e \"$root/locked\" ]; do sleep 0.05; done", b"")
                .unwrap();
            sender.send("first").unwrap();
        });
        let marker = std::path::Path::new(host.root()).join("locked");
        while !marker.exists() {
            std::thread::yield_now();
        }
        let second = std::thread::spawn(move || host.run("true", b"").unwrap());
        assert!(receiver.try_recv().is_err() && !second.is_finished());
        std::fs::remove_file(marker).unwrap();
        slow.join().unwrap();
        second.join().unwrap();
        assert_eq!(receiver.recv().unwrap(), "first");
    }

    #[test]
    fn files_are_replaced_and_read() {
        let (_directory, host) = host();
        assert_eq!(host.read("a/b").unwrap(), "");
        host.write("a/b", "it's\n").unwrap();
        host.write("a/b", "$two\n").unwrap();
        assert_eq!(host.read("a/b").unwrap(), "$two\n");
    }
}
