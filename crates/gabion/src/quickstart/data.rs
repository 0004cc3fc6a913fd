//! Real data through a real client: what is written, how, and whether it comes back.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use bench::nbd;

/// Bytes that are written and verified.
pub(super) const BYTES: u64 = 64 << 20;
/// Bytes of one request of the client of our own.
const PIECE: usize = 1 << 20;

/// Who moves the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mover {
    Nbdcopy,
    QemuImg,
    BuiltIn,
}

/// The data, and where it goes.
pub(super) struct Data {
    /// The file that holds it.
    pub(super) file: PathBuf,
    pub(super) socket: PathBuf,
    pub(super) export: String,
    pub(super) mover: Mover,
}

impl Mover {
    /// The best that is there.
    pub(super) fn find(built_in: bool) -> Self {
        let there = |program: &str| {
            let ran =
                Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            ran.is_ok_and(|status| status.success())
        };
        match () {
            () if built_in => Self::BuiltIn,
            () if there("nbdcopy") => Self::Nbdcopy,
            () if there("qemu-img") => Self::QemuImg,
            () => Self::BuiltIn,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nbdcopy => "nbdcopy",
            Self::QemuImg => "qemu-img",
            Self::BuiltIn => "the client of its own (install libnbd-bin for nbdcopy)",
        }
    }
}

/// Makes a file of [`BYTES`] bytes out of this very program: real, and hardly compressible to holes.
pub(super) fn make(file: &Path) -> Result<()> {
    let program = std::env::current_exe().and_then(std::fs::read).context("reading this program")?;
    let length = usize::try_from(BYTES)?;
    let bytes: Vec<u8> = program.iter().copied().cycle().take(length).collect();
    std::fs::write(file, bytes).with_context(|| file.display().to_string())
}

impl Data {
    /// The export's URI.
    pub(super) fn uri(&self) -> String {
        format!("nbd+unix:///{}?socket={}", self.export, self.socket.display())
    }

    /// Writes the data, durably.
    pub(super) fn write(&self) -> Result<()> {
        let file = self.file.display().to_string();
        match self.mover {
            Mover::Nbdcopy => ran(Command::new("nbdcopy").args(["--flush", &file, &self.uri()])),
            Mover::QemuImg => ran(Command::new("qemu-img").args([
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
            Mover::BuiltIn => {
                let mut client = self.connect()?;
                let bytes = std::fs::read(&self.file)?;
                for (index, piece) in bytes.chunks(PIECE).enumerate() {
                    client.write((index * PIECE) as u64, piece).context("writing by NBD")?;
                }
                client.flush().context("flushing by NBD")
            }
        }
    }

    /// Reads everything back and compares it.
    ///
    /// # Errors
    /// When it cannot be read or is not what was written.
    pub(super) fn verify(&self) -> Result<()> {
        match self.mover {
            Mover::Nbdcopy => {
                let mut child = Command::new("nbdcopy")
                    .args([&self.uri(), "-"])
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .spawn()
                    .context("starting nbdcopy")?;
                let Some(out) = child.stdout.take() else { bail!("nbdcopy gives no output") };
                let same = compare(out, std::fs::File::open(&self.file)?);
                let status = child.wait().context("waiting for nbdcopy")?;
                if !status.success() {
                    bail!("nbdcopy failed ({status})");
                }
                same
            }
            Mover::QemuImg => {
                let file = self.file.display().to_string();
                ran(Command::new("qemu-img").args(["compare", "-f", "raw", "-F", "raw", &file, &self.uri()]))
            }
            Mover::BuiltIn => {
                let mut client = self.connect()?;
                let bytes = std::fs::read(&self.file)?;
                let mut read = vec![0; PIECE];
                for (index, piece) in bytes.chunks(PIECE).enumerate() {
                    let Some(into) = read.get_mut(..piece.len()) else { continue };
                    client.read((index * PIECE) as u64, into).context("reading by NBD")?;
                    if into != piece {
                        bail!("what was read back at {} MiB is not what was written", index);
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

/// Runs a client to its end.
fn ran(command: &mut Command) -> Result<()> {
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
    let (mut a, mut b) = (vec![0; PIECE], vec![0; PIECE]);
    let mut at = 0u64;
    loop {
        let length = fill(&mut left, &mut a)?;
        if fill(&mut right, &mut b)? != length || a.get(..length) != b.get(..length) {
            bail!("what was read back is not what was written, within the MiB from byte {at} on");
        }
        if length == 0 {
            return Ok(());
        }
        at += length as u64;
    }
}

/// Reads until the buffer is full or there is no more.
fn fill(from: &mut impl Read, into: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest).context("reading back")? {
            0 => break,
            length => filled += length,
        }
    }
    Ok(filled)
}
