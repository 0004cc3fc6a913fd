//! nbdkit with its file plugin: independent drives, exported through the page cache, which the
//! plugin cannot bypass.

use reactor::Access;

use crate::load::Target;
use crate::program::{Server, command};
use crate::stale_processes::StateDir;
use crate::system::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent, file_size};

use super::{Failure, PeerOptions, independent_drives, target_extent};

pub(super) struct Nbdkit {
    options: PeerOptions,
    drives: usize,
    up: Option<RunningNbdkit>,
}

struct RunningNbdkit {
    server: Server,
    _place: StateDir,
    extents: Vec<TargetExtent>,
}

impl Nbdkit {
    pub(super) fn new(options: PeerOptions) -> Result<Self, String> {
        options.each(|_, _| None)?;
        Ok(Self { options, drives: 0, up: None })
    }

    fn make(&self, requirements: &Requirements<'_>) -> Result<RunningNbdkit, Failure> {
        self.options.take(requirements.drives)?;
        let place = StateDir::new(requirements.folder, &self.options.name)?;
        // One server exports the files of a directory by name.
        let (drives, socket) = (place.path().join("drives"), place.path().join("nbd.sock"));
        Access::OWNER.make_directories(&drives)?;
        let mut extents = Vec::new();
        for (number, drive) in requirements.drives.iter().enumerate() {
            std::os::unix::fs::symlink(drive, drives.join(format!("d{number}")))?;
            let uri = format!("nbd+unix:///d{number}?socket={}", socket.display());
            extents.push(target_extent(Target::Nbd(uri), file_size(drive)?));
        }
        let mut server = command("nbdkit");
        server.arg("--foreground").arg("--unix").arg(&socket).arg("file");
        server.arg(format!("dir={}", drives.display()));
        let mut server = Server::start(server, requirements.folder, &self.options.name)?;
        server.wait_for(&[socket], requirements.stop)?;
        Ok(RunningNbdkit { server, _place: place, extents })
    }
}

impl System for Nbdkit {
    fn info(&self) -> SystemInfo {
        SystemInfo {
            name: self.options.name.clone(),
            what: format!("nbdkit's file plugin, {} independent drives, NBD on a Unix socket", self.drives),
            guarantees: Guarantees {
                flush: "flushed data is on the drive; before a flush it is in the page cache, as are reads"
                    .into(),
                checksums: "none".into(),
                protection: "none: a drive failure loses data".into(),
            },
            takes_drives: true,
            own_contents: false,
            degrades: false,
            layout: Some(independent_drives(self.drives)),
            remark: Some("page cache".into()),
            network: None,
            is_remote: false,
        }
    }

    fn set_up(&mut self, requirements: &Requirements<'_>) -> Result<(), SystemError> {
        self.drives = requirements.drives.len();
        self.up = Some(self.make(requirements).map_err(|error| self.options.error("set up", error))?);
        Ok(())
    }

    fn targets(&self) -> Vec<TargetExtent> {
        self.up.as_ref().map(|up| up.extents.clone()).unwrap_or_default()
    }

    fn processes(&self) -> Vec<u32> {
        self.up.iter().map(|up| up.server.process()).collect()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        Err(self.options.error("fail a drive", "it has no redundancy"))
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        let Some(up) = self.up.take() else { return Ok(()) };
        up.server.stop().map_err(|error| self.options.error("tear down", error))
    }
}
