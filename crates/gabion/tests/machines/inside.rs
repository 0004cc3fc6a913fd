//! A machine in which a daemon of its own runs: for what this host's kernel may not have.

use std::process::Command;

use super::guest::Guest;
use super::harness::{Daemon, Home, command, run};
use super::initramfs::System;

/// The machine's name.
const NAME: &str = "host";

/// What tests do with the daemon, as the guest's shell has it.
const WORDS: &str = r#"cat > /words <<'END'
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

/// See the module. Dropped, it is stopped.
pub(crate) struct Inside<'a> {
    guest: Guest,
    home: &'a Home,
    _daemon: Daemon<'a>,
}

impl<'a> Inside<'a> {
    /// Starts a machine with this host's `gabion` in it; `None` if tests that need that, or one of the modules, are skipped.
    pub(crate) fn start(home: &'a Home, needs: &[&str], memory: &str) -> Option<Self> {
        // Without what a debugger needs, which is most of it.
        let program = home.path("gabion");
        if !test_support::has_program("strip") {
            return None;
        }
        let stripped =
            Command::new("strip").arg("-o").arg(&program).arg(env!("CARGO_BIN_EXE_gabion")).status();
        assert!(stripped.unwrap().success());
        let system = System::make_with(&[&program])?;
        for module in needs {
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
        create.extend(["--append", "console=ttyS0 quiet loglevel=2 random.trust_cpu=on"]);
        create.extend(["--cpus", "2", "--memory", memory, "--accelerator", "tcg", "--network", "none"]);
        let create = daemon.ok(&[&create[..], &["--start"]].concat());
        assert!(create.contains(NAME), "{create}");
        let mut inside = Self { guest: Guest::attach(home, NAME), home, _daemon: daemon };
        inside.guest.run(WORDS);
        Some(inside)
    }

    /// Defines more words.
    pub(crate) fn define(&mut self, words: &str) {
        self.guest.run(&format!("cat >> /words <<'END'\n{words}\nEND"));
    }

    /// Runs words of the shell above, which must succeed.
    #[track_caller]
    pub(crate) fn say(&mut self, words: &str) -> String {
        self.guest.run(&format!(". /words; {words}"))
    }

    /// The same, until they say something that contains this.
    #[track_caller]
    pub(crate) fn until(&mut self, words: &str, says: &str) -> String {
        let end = std::time::Instant::now() + super::harness::DEADLINE;
        loop {
            let said = self.say(words);
            if said.contains(says) {
                return said;
            }
            assert!(std::time::Instant::now() < end, "'{words}' does not come to say '{says}': {said}");
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut stop = command(&["vm", "stop", NAME, "--force"]);
        stop.env("GABION_STATE_DIR", self.home.path("state")).env("GABION_SOCKET", self.home.socket());
        run(&mut stop);
    }
}
