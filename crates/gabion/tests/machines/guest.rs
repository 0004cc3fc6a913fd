//! The shell of a guest on its serial console.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::harness::{DaemonHome, command, until_or};

/// Time limit of a step in a guest, which may be emulated on a busy host.
const DEADLINE: Duration = Duration::from_secs(300);

/// Interval after which a silent guest gets another key: its line discipline may delay input until
/// then.
const KEY_INTERVAL: Duration = Duration::from_millis(50);

/// Options for the kernel of a guest. The kernel would panic if the timer of a busy host were late
/// in its check. The tests need neither page tables of five levels, protection keys nor mitigations
/// of processor vulnerabilities, so that these are not emulated.
pub(crate) const KERNEL_OPTIONS: &str =
    "console=ttyS0 no_timer_check no5lvl nopku mitigations=off random.trust_cpu=on";

/// The processor of guests that run the daemon: it has the instructions that the engine uses, and
/// lacks features that are slow to emulate, such as SMAP.
pub(crate) const PROCESSOR: [&str; 2] =
    ["--qemu-arg=-cpu", "--qemu-arg=qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+pclmulqdq,+aes"];

/// A shell in a guest.
pub(crate) struct Guest {
    console: Child,
    keys: ChildStdin,
    said: Receiver<Vec<u8>>,
    text: String,
    commands: u32,
}

impl Guest {
    /// Connects to the console of a new machine and waits for its shell.
    pub(crate) fn attach(home: &DaemonHome, name: &str) -> Self {
        let mut attach = command(&["vm", "console", name, "--quiet"]);
        attach.env("GABION_STATE_DIR", home.path("state")).env("GABION_CONFIG", "/dev/null");
        let mut console = attach.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keys, mut output) = (console.stdin.take().unwrap(), console.stdout.take().unwrap());
        let (sender, said) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                if sender.send(bytes[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut guest = Self { console, keys, said, text: String::new(), commands: 0 };
        // The line may have been printed before the connection.
        let log = || home.gabion(&["vm", "console", name, "--log"]);
        until_or(
            || format!("the guest is ready: {:?}, {:?}", log(), home.gabion(&["vm", "list"])),
            || log().out.contains("is ready"),
        );
        // The first input may arrive before the kernel reads the line.
        while !guest.text.contains("is here") {
            guest.press("echo is he''re\n");
            guest.listen(4 * KEY_INTERVAL);
        }
        guest.run("true");
        guest
    }

    /// Reads output; returns false if there is none within this time.
    #[track_caller]
    fn listen(&mut self, time: Duration) -> bool {
        match self.said.recv_timeout(time) {
            Ok(bytes) => {
                self.text.push_str(&String::from_utf8_lossy(&bytes));
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => panic!("the guest is gone, having said: {}", self.text),
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Returns the output up to a text, which must appear.
    #[track_caller]
    fn wait_for(&mut self, words: &str) -> String {
        let end = Instant::now() + DEADLINE;
        let mut interval = KEY_INTERVAL;
        loop {
            if let Some(at) = self.text.find(words) {
                let rest = self.text.split_off(at + words.len());
                return std::mem::replace(&mut self.text, rest);
            }
            assert!(Instant::now() < end, "not within {DEADLINE:?}: '{words}' after: {}", self.text);
            if !self.listen(interval) {
                self.press("\n");
                interval = (2 * interval).min(20 * KEY_INTERVAL);
            }
        }
    }

    /// Starts a command, to be finished with [`Guest::end`].
    pub(crate) fn begin(&mut self, words: &str) {
        self.commands += 1;
        // The typed form differs from the printed form.
        let number = self.commands;
        self.press(&format!("echo be''gun {number}.\n{words}\necho en''ded {number} $?.\n"));
        self.wait_for(&format!("begun {number}."));
    }

    /// Waits until a started command has an effect, and sends pending input meanwhile.
    #[track_caller]
    pub(crate) fn until(&mut self, expectation: &str, mut condition: impl FnMut() -> bool) {
        let end = Instant::now() + DEADLINE;
        while !condition() {
            assert!(Instant::now() < end, "not within {DEADLINE:?}: {expectation}, after: {}", self.text);
            if !self.listen(Duration::from_millis(200)) {
                self.press("\n");
            }
        }
    }

    /// Returns the output of the started command, which must succeed.
    #[track_caller]
    pub(crate) fn end(&mut self) -> String {
        let mark = format!("ended {} ", self.commands);
        let printed = self.wait_for(&mark);
        let printed = printed.strip_suffix(&mark).unwrap().trim().to_owned();
        let status = self.wait_for(".");
        assert_eq!(status, "0.", "{printed}");
        printed
    }

    /// Runs a command that must succeed. Returns its output.
    #[track_caller]
    pub(crate) fn run(&mut self, words: &str) -> String {
        self.begin(words);
        self.end()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.console.kill();
        let _ = self.console.wait();
    }
}
