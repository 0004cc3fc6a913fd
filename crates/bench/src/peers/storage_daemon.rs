//! qemu-storage-daemon: each drive exported by itself, by NBD or as a disk of machines. Its drives are reached by libaio: long
//! operations from io_uring do not get all that a lab's drives give.

use crate::load::Target;
use crate::program::{Server, command};
use crate::stale_processes::StateDir;
use crate::system::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent, file_size};

use super::{Failure, Given, bare, is_device, spot};

/// Queues that a machine may use; as many as Gabion offers.
const QUEUES: u32 = 64;

pub(super) struct StorageDaemon {
    given: Given,
    vhost: bool,
    drives: usize,
    up: Option<Up>,
}

struct Up {
    server: Server,
    _place: StateDir,
    spots: Vec<TargetExtent>,
}

impl StorageDaemon {
    pub(super) fn new(given: Given) -> Result<Self, String> {
        let mut vhost = false;
        given.each(|key, value| match (key, value) {
            ("by", "nbd" | "vhost") => {
                vhost = value == "vhost";
                Some(())
            }
            _ => None,
        })?;
        Ok(Self { given, vhost, drives: 0, up: None })
    }

    fn make(&self, wish: &Requirements<'_>) -> Result<Up, Failure> {
        self.given.take(wish.drives)?;
        let place = StateDir::new(wish.folder, &self.given.name)?;
        let mut daemon = command("qemu-storage-daemon");
        // Of NBD it carries everything out on one thread: release 7.2 dies of others when a client leaves.
        let threads =
            if self.vhost { std::thread::available_parallelism().map_or(1, usize::from) } else { 0 };
        for number in 0..threads {
            daemon.args(["--object", &format!("iothread,id=io{number}")]);
        }
        let nbd = place.path().join("nbd.sock");
        if !self.vhost {
            daemon.args(["--nbd-server", &format!("addr.type=unix,addr.path={}", nbd.display())]);
        }
        let (mut sockets, mut spots) = (Vec::new(), Vec::new());
        for (number, drive) in wish.drives.iter().enumerate() {
            let driver = if is_device(drive) { "host_device" } else { "file" };
            daemon.arg("--blockdev").arg(format!(
                "driver={driver},filename={},node-name=d{number},cache.direct=on,aio=native",
                drive.display()
            ));
            let common = format!("id=e{number},node-name=d{number},writable=on");
            let (export, target) = if self.vhost {
                let socket = place.path().join(format!("d{number}.sock"));
                sockets.push(socket.clone());
                let more = format!(
                    "addr.type=unix,addr.path={},num-queues={QUEUES},logical-block-size=4096,iothread=io{}",
                    socket.display(),
                    number % threads.max(1)
                );
                (format!("type=vhost-user-blk,{common},{more}"), Target::Vhost(socket))
            } else {
                let uri = format!("nbd+unix:///d{number}?socket={}", nbd.display());
                (format!("type=nbd,{common},name=d{number}"), Target::Nbd(uri))
            };
            daemon.args(["--export", &export]);
            spots.push(spot(target, file_size(drive)?));
        }
        if !self.vhost {
            sockets.push(nbd);
        }
        // Told when everything is there, sockets included.
        let ready = place.path().join("ready");
        daemon.arg("--pidfile").arg(&ready);
        sockets.push(ready);
        let mut server = Server::start(daemon, wish.folder, &self.given.name)?;
        server.wait_for(&sockets, wish.stop)?;
        Ok(Up { server, _place: place, spots })
    }
}

impl System for StorageDaemon {
    fn about(&self) -> SystemInfo {
        let by = if self.vhost { "vhost-user" } else { "NBD on a Unix socket" };
        SystemInfo {
            name: self.given.name.clone(),
            what: format!(
                "qemu-storage-daemon, {} drives each by itself, direct, libaio, by {by}",
                self.drives
            ),
            promises: Guarantees {
                flush: "what was flushed is on the drive, and its cache is flushed".into(),
                checksums: "none".into(),
                protection: "none: a lost drive is lost data".into(),
            },
            takes_drives: true,
            degrades: false,
            layout: Some(bare(self.drives)),
            remark: None,
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
