//! A guest's shell, by its console.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::harness::{Home, command, until};

/// Longest time for anything in a guest, whose processors are translated on a busy host.
const DEADLINE: Duration = Duration::from_secs(300);

/// A shell in a guest.
pub(crate) struct Guest {
    console: Child,
    keys: ChildStdin,
    said: Receiver<Vec<u8>>,
    text: String,
    commands: u32,
}

impl Guest {
    /// Connects with the console of a machine that has just been started, and waits for its shell.
    pub(crate) fn attach(home: &Home, name: &str) -> Self {
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
        // It may have said so before anybody listened.
        until("the guest is ready", || {
            home.gabion(&["vm", "console", name, "--log"]).out.contains("is ready")
        });
        // The first that is typed may come before the kernel listens to the line.
        while !guest.text.contains("is here") {
            guest.press("echo is he''re\n");
            guest.listen(Duration::from_secs(1));
        }
        guest.run("true");
        guest
    }

    /// Takes in what is said, and returns then, or false if nothing is within this time.
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

    /// What was said up to these words, which must come.
    #[track_caller]
    fn wait_for(&mut self, words: &str) -> String {
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(at) = self.text.find(words) {
                let rest = self.text.split_off(at + words.len());
                return std::mem::replace(&mut self.text, rest);
            }
            assert!(Instant::now() < end, "not within {DEADLINE:?}: '{words}' after: {}", self.text);
            // What the line holds back of what was typed comes with the next key.
            if !self.listen(Duration::from_secs(1)) {
                self.press("\n");
            }
        }
    }

    /// Begins a command, to be ended with [`Guest::end`].
    pub(crate) fn begin(&mut self, words: &str) {
        self.commands += 1;
        // As it is typed it does not read as it is printed.
        let number = self.commands;
        self.press(&format!("echo be''gun {number}.\n{words}\necho en''ded {number} $?.\n"));
        self.wait_for(&format!("begun {number}."));
    }

    /// Waits until something is so that a command does which was begun: all that was typed reaches the guest meanwhile.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + DEADLINE;
        while !is_so() {
            assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}, after: {}", self.text);
            if !self.listen(Duration::from_millis(200)) {
                self.press("\n");
            }
        }
    }

    /// What the command printed that was begun, which must have succeeded.
    #[track_caller]
    pub(crate) fn end(&mut self) -> String {
        let mark = format!("ended {} ", self.commands);
        let printed = self.wait_for(&mark);
        let printed = printed.strip_suffix(&mark).unwrap().trim().to_owned();
        let status = self.wait_for(".");
        assert_eq!(status, "0.", "{printed}");
        printed
    }

    /// Runs a command, which must succeed, and gives what it printed.
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
