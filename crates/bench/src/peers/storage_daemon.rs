//! qemu-storage-daemon: independent drives, exported over NBD or vhost-user. It accesses the drives
//! with libaio: with io_uring, long operations do not reach the limits of a lab's drives.

use crate::load::Target;
use crate::program::{Server, command};
use crate::stale_processes::StateDir;
use crate::system::{
    Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent, file_size, is_device,
};

use super::{Failure, PeerOptions, independent_drives, target_extent};

/// Number of virtqueues, the same as Gabion offers.
const QUEUES: u32 = 64;

pub(super) struct StorageDaemon {
    options: PeerOptions,
    vhost: bool,
    drives: usize,
    up: Option<RunningDaemon>,
}

struct RunningDaemon {
    server: Server,
    _place: StateDir,
    extents: Vec<TargetExtent>,
}

impl StorageDaemon {
    pub(super) fn new(options: PeerOptions) -> Result<Self, String> {
        let mut vhost = false;
        options.each(|key, value| match (key, value) {
            ("by", "nbd" | "vhost") => {
                vhost = value == "vhost";
                Some(())
            }
            _ => None,
        })?;
        Ok(Self { options, vhost, drives: 0, up: None })
    }

    fn make(&self, requirements: &Requirements<'_>) -> Result<RunningDaemon, Failure> {
        self.options.take(requirements.drives)?;
        let place = StateDir::new(requirements.folder, &self.options.name)?;
        let mut daemon = command("qemu-storage-daemon");
        // For NBD it uses one thread: release 7.2 crashes with more threads when a client
        // disconnects.
        let threads =
            if self.vhost { std::thread::available_parallelism().map_or(1, usize::from) } else { 0 };
        for number in 0..threads {
            daemon.args(["--object", &format!("iothread,id=io{number}")]);
        }
        let nbd = place.path().join("nbd.sock");
        if !self.vhost {
            daemon.args(["--nbd-server", &format!("addr.type=unix,addr.path={}", nbd.display())]);
        }
        let (mut sockets, mut extents) = (Vec::new(), Vec::new());
        for (number, drive) in requirements.drives.iter().enumerate() {
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
            extents.push(target_extent(target, file_size(drive)?));
        }
        if !self.vhost {
            sockets.push(nbd);
        }
        // The daemon reports when everything is ready, including its sockets.
        let ready = place.path().join("ready");
        daemon.arg("--pidfile").arg(&ready);
        sockets.push(ready);
        let mut server = Server::start(daemon, requirements.folder, &self.options.name)?;
        server.wait_for(&sockets, requirements.stop)?;
        Ok(RunningDaemon { server, _place: place, extents })
    }
}

impl System for StorageDaemon {
    fn info(&self) -> SystemInfo {
        let by = if self.vhost { "vhost-user" } else { "NBD on a Unix socket" };
        SystemInfo {
            name: self.options.name.clone(),
            what: format!(
                "qemu-storage-daemon, {} independent drives, direct I/O, libaio, {by}",
                self.drives
            ),
            guarantees: Guarantees {
                flush: "flushed data is on the drive, and its cache is flushed".into(),
                checksums: "none".into(),
                protection: "none: a drive failure loses data".into(),
            },
            takes_drives: true,
            own_contents: false,
            degrades: false,
            layout: Some(independent_drives(self.drives)),
            remark: None,
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
