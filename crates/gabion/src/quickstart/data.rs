//! Test data, written and verified with an NBD client.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use bench::nbd;

/// Size of the test data in bytes.
pub(super) const BYTES: u64 = 64 << 20;
/// Request size of the built-in client in bytes.
const CHUNK: usize = 1 << 20;

/// The NBD client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NbdTool {
    Nbdcopy,
    QemuImg,
    BuiltIn,
}

/// The test data and its export.
pub(super) struct TestData {
    /// File with the test data.
    pub(super) file: PathBuf,
    pub(super) socket: PathBuf,
    pub(super) export: String,
    pub(super) tool: NbdTool,
}

impl NbdTool {
    /// Returns the preferred installed client.
    pub(super) fn find(built_in: bool) -> Self {
        let is_installed = |program: &str| {
            let run =
                Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            run.is_ok_and(|status| status.success())
        };
        match () {
            () if built_in => Self::BuiltIn,
            () if is_installed("nbdcopy") => Self::Nbdcopy,
            () if is_installed("qemu-img") => Self::QemuImg,
            () => Self::BuiltIn,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nbdcopy => "nbdcopy",
            Self::QemuImg => "qemu-img",
            Self::BuiltIn => "the built-in client (install libnbd-bin for nbdcopy)",
        }
    }
}

/// Writes a file of [`BYTES`] bytes that repeats the bytes of this program: barely compressible
/// data without zero blocks.
pub(super) fn generate(file: &Path) -> Result<()> {
    let program = std::env::current_exe().and_then(std::fs::read).context("reading this program")?;
    let length = usize::try_from(BYTES)?;
    let bytes: Vec<u8> = program.iter().copied().cycle().take(length).collect();
    std::fs::write(file, bytes).with_context(|| file.display().to_string())
}

impl TestData {
    /// Returns the URI of the export.
    pub(super) fn uri(&self) -> String {
        format!("nbd+unix:///{}?socket={}", self.export, self.socket.display())
    }

    /// Writes the data and flushes it.
    pub(super) fn write(&self) -> Result<()> {
        let file = self.file.display().to_string();
        match self.tool {
            NbdTool::Nbdcopy => run(Command::new("nbdcopy").args(["--flush", &file, &self.uri()])),
            NbdTool::QemuImg => run(Command::new("qemu-img").args([
                "convert",
                "-n",
                "-f",
                "raw",
                "-O",
                "raw",
                "-t",
                "none",
                &file,
                &self.uri(),
            ])),
            NbdTool::BuiltIn => {
                let mut client = self.connect()?;
                let bytes = std::fs::read(&self.file)?;
                for (index, chunk) in bytes.chunks(CHUNK).enumerate() {
                    client.write((index * CHUNK) as u64, chunk).context("writing over NBD")?;
                }
                client.flush().context("flushing over NBD")
            }
        }
    }

    /// Reads the data and compares it with the file.
    ///
    /// # Errors
    /// If the data cannot be read or differs.
    pub(super) fn verify(&self) -> Result<()> {
        match self.tool {
            NbdTool::Nbdcopy => {
                let mut child = Command::new("nbdcopy")
                    .args([&self.uri(), "-"])
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .spawn()
                    .context("starting nbdcopy")?;
                let Some(out) = child.stdout.take() else { bail!("nbdcopy has no output") };
                let same = compare(out, std::fs::File::open(&self.file)?);
                let status = child.wait().context("waiting for nbdcopy")?;
                if !status.success() {
                    bail!("nbdcopy failed ({status})");
                }
                same
            }
            NbdTool::QemuImg => {
                let file = self.file.display().to_string();
                run(Command::new("qemu-img").args(["compare", "-f", "raw", "-F", "raw", &file, &self.uri()]))
            }
            NbdTool::BuiltIn => {
                let mut client = self.connect()?;
                let bytes = std::fs::read(&self.file)?;
                let mut read = vec![0; CHUNK];
                for (index, chunk) in bytes.chunks(CHUNK).enumerate() {
                    let Some(into) = read.get_mut(..chunk.len()) else { continue };
                    client.read((index * CHUNK) as u64, into).context("reading over NBD")?;
                    if into != chunk {
                        bail!("the data read at offset {} MiB differs from the written data", index);
                    }
                }
                Ok(())
            }
        }
    }

    fn connect(&self) -> Result<nbd::BlockingClient> {
        nbd::connect(&self.socket, &self.export)
            .with_context(|| format!("connecting to {}", self.socket.display()))
    }
}

/// Runs a client and waits for its success.
fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {name}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        let out = String::from_utf8_lossy(&output.stdout);
        bail!("{name} failed ({}): {}{}", output.status, error.trim(), out.trim());
    }
    Ok(())
}

fn compare(mut left: impl Read, mut right: impl Read) -> Result<()> {
    let (mut a, mut b) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut at = 0u64;
    loop {
        let length = fill(&mut left, &mut a)?;
        if fill(&mut right, &mut b)? != length || a.get(..length) != b.get(..length) {
            bail!("the data read in the MiB at byte {at} differs from the written data");
        }
        if length == 0 {
            return Ok(());
        }
        at += length as u64;
    }
}

/// Reads until the buffer is full or the input ends.
fn fill(from: &mut impl Read, into: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest).context("reading the data")? {
            0 => break,
            length => filled += length,
        }
    }
    Ok(filled)
}
