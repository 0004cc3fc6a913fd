//! nbdkit with its file plugin: each drive exported by itself, through the page cache, which the plugin cannot leave out.

use reactor::Access;

use crate::load::Target;
use crate::program::{Server, command};
use crate::stale_processes::StateDir;
use crate::system::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent, file_size};

use super::{Failure, Given, bare, spot};

pub(super) struct Nbdkit {
    given: Given,
    drives: usize,
    up: Option<Up>,
}

struct Up {
    server: Server,
    _place: StateDir,
    spots: Vec<TargetExtent>,
}

impl Nbdkit {
    pub(super) fn new(given: Given) -> Result<Self, String> {
        given.each(|_, _| None)?;
        Ok(Self { given, drives: 0, up: None })
    }

    fn make(&self, wish: &Requirements<'_>) -> Result<Up, Failure> {
        self.given.take(wish.drives)?;
        let place = StateDir::new(wish.folder, &self.given.name)?;
        // One server shows the files of a folder, by their names.
        let (drives, socket) = (place.path().join("drives"), place.path().join("nbd.sock"));
        Access::OWNER.make_directories(&drives)?;
        let mut spots = Vec::new();
        for (number, drive) in wish.drives.iter().enumerate() {
            std::os::unix::fs::symlink(drive, drives.join(format!("d{number}")))?;
            let uri = format!("nbd+unix:///d{number}?socket={}", socket.display());
            spots.push(spot(Target::Nbd(uri), file_size(drive)?));
        }
        let mut server = command("nbdkit");
        server.arg("--foreground").arg("--unix").arg(&socket).arg("file");
        server.arg(format!("dir={}", drives.display()));
        let mut server = Server::start(server, wish.folder, &self.given.name)?;
        server.wait_for(&[socket], wish.stop)?;
        Ok(Up { server, _place: place, spots })
    }
}

impl System for Nbdkit {
    fn about(&self) -> SystemInfo {
        SystemInfo {
            name: self.given.name.clone(),
            what: format!(
                "nbdkit's file plugin, {} drives each by itself, by NBD on a Unix socket",
                self.drives
            ),
            promises: Guarantees {
                flush: "what was flushed is on the drive; before, it is in the page cache, as are reads"
                    .into(),
                checksums: "none".into(),
                protection: "none: a lost drive is lost data".into(),
            },
            takes_drives: true,
            degrades: false,
            layout: Some(bare(self.drives)),
            remark: Some("page cache".into()),
        }
    }

    fn set_up(&mut self, wish: &Requirements<'_>) -> Result<(), SystemError> {
        self.drives = wish.drives.len();
        self.up = Some(self.make(wish).map_err(|error| self.given.error("setting it up", error))?);
        Ok(())
    }

    fn spots(&self) -> Vec<TargetExtent> {
        self.up.as_ref().map(|up| up.spots.clone()).unwrap_or_default()
    }

    fn processes(&self) -> Vec<u32> {
        self.up.iter().map(|up| up.server.process()).collect()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        Err(self.given.error("losing a drive", "it has no protection"))
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        let Some(up) = self.up.take() else { return Ok(()) };
        up.server.stop().map_err(|error| self.given.error("taking it down", error))
    }
}
