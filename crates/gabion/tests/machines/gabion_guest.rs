//! A guest that runs a daemon, for kernel features that the host may lack.

use std::path::Path;
use std::process::Command;

use super::guest::{Guest, KERNEL_OPTIONS, PROCESSOR};
use super::harness::{Daemon, DaemonHome, command, run};
use super::initramfs::System;

/// Name of the machine.
const NAME: &str = "host";

/// Shell functions of the guest.
const SHELL_FUNCTIONS: &str = r#"cat > /words <<'END'
serve() {
  gabion serve --threads 2 >> /tmp/log 2>&1 &
  echo $! > /tmp/pid
  until gabion pool list > /dev/null 2>&1 && [ "$(gabion pool list --json | grep -c '"state": *"open"')" -ge "$1" ]; do usleep 20000; done
}
refused() { "$@" 2>&1 && echo 'that was not refused'; true; }
load() {
  fio --name=load --filename=$1 --direct=1 --ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --thread \
    --eta=never --output-format=terse --output=/tmp/fio $2 || { cat /tmp/fio; false; }
}
END
"#;

/// A guest with `gabion`; stopped on drop.
pub(crate) struct GabionGuest<'a> {
    guest: Guest,
    home: &'a DaemonHome,
    _daemon: Daemon<'a>,
    _system: System,
}

impl<'a> GabionGuest<'a> {
    /// Starts a guest with the host's `gabion`; returns `None` if tests that need it, or a module,
    /// are skipped.
    pub(crate) fn start(home: &'a DaemonHome, modules: &[&str], memory: &str) -> Option<Self> {
        Self::start_with(home, modules, memory, &[])
    }

    /// Starts a guest with additional programs.
    pub(crate) fn start_with(
        home: &'a DaemonHome,
        modules: &[&str],
        memory: &str,
        programs: &[&Path],
    ) -> Option<Self> {
        let program = home.path("gabion");
        if !test_support::has_program("strip") {
            return None;
        }
        strip(Path::new(env!("CARGO_BIN_EXE_gabion")), &program);
        let system = System::make_with(&[&[program.as_path()][..], programs].concat())?;
        for module in modules {
            let found = if system.has(module) {
                Ok(())
            } else {
                Err("the kernel for guests lacks the module".into())
            };
            if !test_support::has(module, found) {
                return None;
            }
        }
        let daemon = home.start();
        let (kernel, initramfs) = (system.kernel.to_str().unwrap(), system.initramfs.to_str().unwrap());
        let mut create = vec!["vm", "create", NAME, "--kernel", kernel, "--initramfs", initramfs];
        create.extend(["--append", KERNEL_OPTIONS]);
        create.extend(PROCESSOR);
        create.extend(["--cpus", "2", "--memory", memory, "--accelerator", "tcg", "--network", "none"]);
        let create = daemon.ok(&[&create[..], &["--start"]].concat());
        assert!(create.contains(NAME), "{create}");
        let mut inside = Self { guest: Guest::attach(home, NAME), home, _daemon: daemon, _system: system };
        inside.guest.run(SHELL_FUNCTIONS);
        Some(inside)
    }

    /// Defines more shell functions.
    pub(crate) fn define(&mut self, script: &str) {
        self.guest.run(&format!("cat >> /words <<'END'\n{script}\nEND"));
    }

    /// Runs a script with the shell functions, which must succeed.
    #[track_caller]
    pub(crate) fn sh(&mut self, script: &str) -> String {
        self.guest.run(&format!(". /words; {script}"))
    }

    /// Runs a script until its output contains a text.
    #[track_caller]
    pub(crate) fn until(&mut self, script: &str, expected: &str) -> String {
        let end = std::time::Instant::now() + super::harness::DEADLINE;
        loop {
            let output = self.sh(script);
            if output.contains(expected) {
                return output;
            }
            assert!(std::time::Instant::now() < end, "'{script}' does not print '{expected}': {output}");
        }
    }
}

/// Copies a program without its debug symbols, which are most of the file.
pub(crate) fn strip(program: &Path, copy: &Path) {
    let stripped = Command::new("strip").arg("-o").arg(copy).arg(program).status();
    assert!(stripped.unwrap().success());
}

impl Drop for GabionGuest<'_> {
    fn drop(&mut self) {
        let mut stop = command(&["vm", "stop", NAME, "--force"]);
        stop.env("GABION_STATE_DIR", self.home.path("state")).env("GABION_SOCKET", self.home.socket());
        run(&mut stop);
    }
}
