//! Every frontend over a volume in memory, by the same test: check, start, use, status, stop,
//! restart, release. Frontends that need privileges run where these are available; ublk is tested
//! in virtual machines.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

use std::ffi::CString;
use std::fs::OpenOptions;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use export::fuse::FuseFrontend;
use export::iscsi::{ChapAccount, IscsiConfig, IscsiFrontend, IscsiLimits};
use export::nbd::client::{BlockingClient, Replies};
use export::nbd::{Limits, NbdConfig, NbdFrontend};
use export::nvme::{DhChapSecrets, NvmeConfig, NvmeDiscovery, NvmeFrontend, NvmeLimits, NvmeTlsKey};
use export::ublk::{UblkConfig, UblkFrontend};
use export::vhost::{VhostConfig, VhostFrontend};
use export::{
    ExportConfig, ExportErrorKind, ExportName, Frontend, FrontendContext, MemorySource, NetworkConfig,
    ReservationRegistry, StopMode,
};
use reactor::Backend;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use support::{ReactorThread, TIMEOUT, block_on};

#[path = "../vhost/front_end.rs"]
#[allow(dead_code, reason = "the driver of the vhost tests, of which this uses less")]
mod front_end;
#[path = "../nvme/initiator.rs"]
#[allow(dead_code, reason = "the initiator of the NVMe/TCP tests, of which this uses less")]
mod initiator;
#[path = "../iscsi/initiator.rs"]
#[allow(dead_code, reason = "the initiator of the iSCSI tests, of which this uses less")]
#[allow(clippy::big_endian_bytes, reason = "the protocol's numbers are big-endian")]
mod iscsi_initiator;
#[path = "../support/mod.rs"]
mod support;
#[path = "../../src/vhost/testing.rs"]
mod testing;

const SIZE: u64 = 8 << 20;
/// A client that has an export open.
trait User {
    /// Writes a block of `byte` at the start. Returns false if the export refuses it.
    fn write(&mut self, byte: u8) -> bool;

    /// Reads the first block. `None` if the export fails it.
    fn read(&mut self) -> Option<Vec<u8>>;
}

/// A frontend under test, and how it is used.
struct Case {
    frontend: Box<dyn Frontend<MemorySource>>,
    /// Opens an export, given its first listener and name.
    open: fn(&str, &ExportName) -> Box<dyn User>,
    /// Options that the frontend refuses.
    invalid: ExportConfig,
    /// An open export refuses an orderly stop.
    is_local: bool,
}

impl User for BlockingClient {
    fn write(&mut self, byte: u8) -> bool {
        BlockingClient::write(self, 0, &[byte; 4096]).is_ok()
    }

    fn read(&mut self) -> Option<Vec<u8>> {
        let mut data = vec![0; 4096];
        BlockingClient::read(self, 0, &mut data).ok().map(|()| data)
    }
}

impl User for front_end::FrontEnd {
    fn write(&mut self, byte: u8) -> bool {
        self.run_on(0, &front_end::Io::write(0, &[byte; 4096])).status == front_end::OK
    }

    fn read(&mut self) -> Option<Vec<u8>> {
        if self.frontend.get_features_ok() { Some(front_end::FrontEnd::read(self, 0, 4096)) } else { None }
    }
}

/// True if a device still answers messages.
trait Connected {
    fn get_features_ok(&mut self) -> bool;
}

impl Connected for vhost::vhost_user::Frontend {
    fn get_features_ok(&mut self) -> bool {
        vhost::VhostBackend::get_features(self).is_ok()
    }
}

/// An open file.
struct OpenFile(std::fs::File);

impl User for OpenFile {
    fn write(&mut self, byte: u8) -> bool {
        self.0.write_all_at(&[byte; 4096], 0).is_ok()
    }

    fn read(&mut self) -> Option<Vec<u8>> {
        let mut data = vec![0; 4096];
        self.0.read_exact_at(&mut data, 0).ok().map(|()| data)
    }
}

/// A host that is connected over NVMe/TCP.
struct NvmeHost {
    _admin: initiator::Queue,
    queue: initiator::Queue,
}

impl NvmeHost {
    /// Runs a command on the first block. `None` if the target closes the connection instead.
    fn run(&mut self, sqe: initiator::Sqe, data: &[u8]) -> Option<initiator::Completion> {
        self.queue.submit(sqe.blocks(0, 8), data, self.queue.wire.capsule);
        match self.queue.stream.peek(&mut [0]) {
            Ok(1..) => Some(self.queue.complete(data)),
            _ => None,
        }
    }
}

impl User for NvmeHost {
    fn write(&mut self, byte: u8) -> bool {
        self.run(initiator::Sqe::new(1, 1), &[byte; 4096]).is_some_and(|done| done.status == 0)
    }

    fn read(&mut self) -> Option<Vec<u8>> {
        let read = initiator::Sqe::new(2, 1).put(32, &4096u32.to_le_bytes());
        self.run(read, &[]).filter(|done| done.status == 0).map(|done| done.data)
    }
}

fn open_nvme(uri: &str, _: &ExportName) -> Box<dyn User> {
    let (address, subsystem) = uri.strip_prefix("nvme+tcp://").unwrap().split_once('/').unwrap();
    let admin = initiator::Queue::admin(address.parse().unwrap(), subsystem, initiator::PLAIN);
    let queue = admin.io(subsystem, 1);
    Box::new(NvmeHost { _admin: admin, queue })
}

/// Runs a command at unit 0. `None` if the target announces the end of the session instead.
fn run_iscsi(
    session: &mut iscsi_initiator::Session,
    block: &[u8],
    data: iscsi_initiator::Data<'_>,
) -> Option<iscsi_initiator::Done> {
    session.submit(0, block, data);
    let mut opcode = [0];
    match session.stream.peek(&mut opcode) {
        Ok(1..) if opcode != [0x32] => Some(session.complete()),
        _ => None,
    }
}

impl User for iscsi_initiator::Session {
    fn write(&mut self, byte: u8) -> bool {
        let block = iscsi_initiator::block_16(0x8a, 0, 8);
        run_iscsi(self, &block, iscsi_initiator::Data::Out(&[byte; 4096]))
            .is_some_and(|done| done.status == 0)
    }

    fn read(&mut self) -> Option<Vec<u8>> {
        let block = iscsi_initiator::block_16(0x88, 0, 8);
        run_iscsi(self, &block, iscsi_initiator::Data::In(4096)).map(iscsi_initiator::Done::good)
    }
}

fn open_iscsi(uri: &str, _: &ExportName) -> Box<dyn User> {
    let (address, name) = uri.strip_prefix("iscsi://").unwrap().split_once('/').unwrap();
    let target = name.strip_suffix("/0").unwrap();
    let wire = iscsi_initiator::PLAIN;
    Box::new(iscsi_initiator::Session::log_in(address.parse().unwrap(), wire, Some(target), None).unwrap())
}

fn open_nbd(uri: &str, name: &ExportName) -> Box<dyn User> {
    let (_, socket) = uri.split_once("?socket=").unwrap();
    let client = BlockingClient::connect_unix(Path::new(socket), name.as_str(), Replies::Simple, TIMEOUT);
    Box::new(client.unwrap())
}

fn open_vhost(uri: &str, _: &ExportName) -> Box<dyn User> {
    let path = uri.strip_prefix("unix:").unwrap();
    Box::new(front_end::FrontEnd::new(Path::new(path), &front_end::DeviceSetup::default()))
}

fn open_fuse(path: &str, _: &ExportName) -> Box<dyn User> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    // A read-only file cannot be opened for writing.
    Box::new(OpenFile(file.or_else(|_| std::fs::File::open(path)).unwrap()))
}

fn cases(directory: &Path, context: &FrontendContext) -> Vec<Case> {
    let socket: Option<PathBuf> = Some(directory.join("nbd.sock"));
    let config = NbdConfig { socket, listen: Vec::new(), limits: Limits::default() };
    let nbd = block_on(NbdFrontend::start(config, context)).unwrap();
    let polling = Duration::ZERO;
    let config = VhostConfig { directory: directory.join("vhost"), poll: polling, coalesce_delay: polling };
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let reservations = ReservationRegistry::new(None);
    let limits = IscsiLimits::default();
    let iscsi = IscsiConfig { listen: vec![free()], limits, reservations: reservations.clone() };
    let iscsi = block_on(IscsiFrontend::start(iscsi, context)).unwrap();
    let nvme = NvmeConfig {
        listen: vec![free()],
        discovery: NvmeDiscovery::ExportsOnly,
        limits: NvmeLimits::default(),
        reservations,
    };
    let nvme = block_on(NvmeFrontend::start(nvme, context)).unwrap();
    let queues = |queues| ExportConfig { queues: Some(queues), ..ExportConfig::default() };
    let mut cases = vec![
        Case { frontend: Box::new(nbd), open: open_nbd, invalid: queues(1), is_local: false },
        Case { frontend: Box::new(iscsi), open: open_iscsi, invalid: queues(1), is_local: false },
        Case { frontend: Box::new(nvme), open: open_nvme, invalid: queues(1), is_local: false },
        Case {
            frontend: Box::new(VhostFrontend::new(config, context.clone())),
            open: open_vhost,
            invalid: queues(0),
            is_local: false,
        },
    ];
    if test_support::has_fuse() {
        let fuse = FuseFrontend::new(directory.join("fuse"), context.clone());
        cases.push(Case { frontend: Box::new(fuse), open: open_fuse, invalid: queues(1), is_local: true });
    }
    cases
}

#[test]
fn every_frontend_serves_a_volume() {
    let (directory, reactor) = (tempfile::tempdir().unwrap(), ReactorThread::start(Backend::Threads));
    for case in cases(directory.path(), &reactor.context()) {
        let source = Arc::new(block_on(MemorySource::create(&reactor.remote, SIZE, 512)).unwrap());
        check_life(&case, &source);
        block_on(case.frontend.shut_down());
    }
}

/// Takes an export through its life.
fn check_life(case: &Case, source: &Arc<MemorySource>) {
    let Case { frontend, open, invalid, is_local } = case;
    let protocol = frontend.name();
    let name = ExportName::new("fast/vm01");
    let config = frontend.complete(ExportConfig::default(), source);
    block_on(frontend.reserve(std::slice::from_ref(&name)));
    frontend.check(&name, &config).unwrap();
    assert_eq!(frontend.check(&name, invalid).unwrap_err().kind(), ExportErrorKind::Invalid, "{protocol}");
    assert!(block_on(frontend.start(&name, invalid, source.clone())).is_err(), "{protocol}");

    let running = block_on(frontend.start(&name, &config, source.clone())).unwrap();
    assert_eq!(running.listeners(), frontend.listeners(&name, &config), "{protocol}");
    assert_eq!(running.status().connections, 0, "{protocol}");
    let mut user = open(&running.listeners()[0], &name);
    assert!(user.write(1), "{protocol}");
    assert_eq!(user.read().unwrap(), [1; 4096], "{protocol}");
    assert_eq!(running.status().connections, 1, "{protocol}");
    block_on(running.resize());

    if *is_local {
        let busy = block_on(running.stop(StopMode::Orderly)).unwrap_err();
        assert_eq!(busy.kind(), ExportErrorKind::Busy, "{protocol}");
        assert_eq!(user.read().unwrap(), [1; 4096], "{protocol}: a refused stop changes nothing");
        block_on(running.stop(StopMode::Forced)).unwrap();
    } else {
        block_on(running.stop(StopMode::Orderly)).unwrap();
    }
    assert_eq!(user.read(), None, "{protocol}: a stopped export has no users");
    block_on(running.stop(StopMode::Forced)).unwrap();
    drop(user);

    let config = ExportConfig { read_only: true, ..ExportConfig::default() };
    let running = block_on(frontend.start(&name, &config, source.clone())).unwrap();
    let mut user = open(&running.listeners()[0], &name);
    assert_eq!(user.read().unwrap(), [1; 4096], "{protocol}: another export of the volume");
    assert!(!user.write(2), "{protocol}: a read-only export");
    drop(user);
    block_on(running.stop(StopMode::Orderly)).unwrap();
    block_on(frontend.release(&name));
}

/// Options of network disks, and the protocols that have them.
fn network_options() -> Vec<(NetworkConfig, &'static [&'static str])> {
    let none = NetworkConfig::default;
    let names = |name: &str| vec![name.to_owned()];
    let (nqn, iqn) = ("nqn.2014-08.org.example:one", "iqn.2026-11.org.example:one");
    let chap = ChapAccount { user: "ada".into(), secret: "a secret of CHAP".into(), target: None };
    let secret = "DHHC-1:00:nR2ru2ZHCXqG3XAyaz0/+gB089FRFL0o838kvct0gfv9vUN3:";
    let dhchap = DhChapSecrets { host: secret.into(), controller: None };
    let key = NvmeTlsKey("NVMeTLSkey-1:01:yBd+GiJlgJu8iLUAYCeAjVyXhTSy87BrQwTIF51WOIhkBl26:".into());
    let listen = vec!["127.0.0.1:4420".parse().unwrap()];
    vec![
        (NetworkConfig { listen, ..none() }, &["nvme-tcp", "iscsi"]),
        (NetworkConfig { unit: Some(1), ..none() }, &["nvme-tcp", "iscsi"]),
        (NetworkConfig { target: Some(nqn.into()), ..none() }, &["nvme-tcp"]),
        (NetworkConfig { target: Some(iqn.into()), ..none() }, &["iscsi"]),
        (NetworkConfig { hosts: names(nqn), ..none() }, &["nvme-tcp"]),
        (NetworkConfig { hosts: names(iqn), ..none() }, &["iscsi"]),
        (NetworkConfig { chap: Some(chap), ..none() }, &["iscsi"]),
        (NetworkConfig { dhchap: Some(dhchap), ..none() }, &["nvme-tcp"]),
        (NetworkConfig { tls_key: Some(key), ..none() }, &["nvme-tcp"]),
    ]
}

/// An export that ignored such an option would be open to more hosts than its owner knows.
#[test]
fn options_of_other_protocols_are_refused() {
    let (directory, reactor) = (tempfile::tempdir().unwrap(), ReactorThread::start(Backend::Threads));
    let cases = cases(directory.path(), &reactor.context());
    let place = |name| directory.path().join(name);
    let ublk = UblkConfig { directory: place("ublk"), owner: place("owner") };
    let ublk: Box<dyn Frontend<MemorySource>> = Box::new(UblkFrontend::new(ublk, reactor.context()));
    for frontend in cases.into_iter().map(|case| case.frontend).chain([ublk]) {
        let name = ExportName::new("fast/vm01");
        frontend.check(&name, &ExportConfig::default()).unwrap();
        for (network, protocols) in network_options() {
            let config = ExportConfig { network, ..ExportConfig::default() };
            let checked = frontend.check(&name, &config);
            if protocols.contains(&frontend.name()) {
                checked.unwrap();
            } else {
                let kind = checked.map_err(|error| error.kind());
                assert_eq!(kind, Err(ExportErrorKind::Invalid), "{} {config:?}", frontend.name());
            }
        }
        block_on(frontend.shut_down());
    }
}

/// Mounts a file, and ends like a daemon that dies.
fn mount_and_die(place: &Path) {
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    rustix::fs::mknodat(CWD, place, FileType::Socket, Mode::empty(), 0).unwrap();
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR, Mode::empty()).unwrap();
    let file = FileType::RegularFile.as_raw_mode();
    let options = format!("fd={},rootmode={file:o},user_id=0,group_id=0", device.as_raw_fd());
    let options = CString::new(options).unwrap();
    rustix::mount::mount("gone", place, "fuse.gabion", MountFlags::empty(), options.as_c_str()).unwrap();
    drop(device);
    assert_eq!(rustix::fs::stat(place).unwrap_err(), Errno::NOTCONN);
}

/// A daemon that died may have mounted a file of which it had no record yet.
#[test]
fn mounts_of_a_daemon_that_died_are_removed() {
    if !test_support::has_fuse() {
        return;
    }
    let (directory, reactor) = (tempfile::tempdir().unwrap(), ReactorThread::start(Backend::Threads));
    let fuse = directory.path().join("fuse");
    let (recorded, forgotten, outside) =
        (fuse.join("fast/vm01"), fuse.join("fast/vm02"), directory.path().join("fast/vm03"));
    for place in [&recorded, &forgotten, &outside] {
        mount_and_die(place);
    }
    // A file that another daemon serves.
    let other = FuseFrontend::new(fuse.clone(), reactor.context());
    let (served, config) = (ExportName::new("fast/vm04"), ExportConfig::default());
    let source = Arc::new(block_on(MemorySource::create(&reactor.remote, SIZE, 512)).unwrap());
    let running = block_on(other.start(&served, &config, source)).unwrap();

    let frontend: Box<dyn Frontend<MemorySource>> = Box::new(FuseFrontend::new(fuse, reactor.context()));
    block_on(frontend.reserve(&[ExportName::new("fast/vm01")]));
    let node = rustix::fs::lstat(&recorded).unwrap();
    assert_eq!(FileType::from_raw_mode(node.st_mode), FileType::Socket, "a node keeps the place");
    assert_eq!(rustix::fs::lstat(&forgotten).unwrap_err(), Errno::NOENT);
    assert_eq!(rustix::fs::lstat(&outside).unwrap_err(), Errno::NOTCONN, "a mount elsewhere is left alone");
    assert_eq!(open_fuse(&running.listeners()[0], &served).read().unwrap(), [0; 4096]);
    block_on(running.stop(StopMode::Forced)).unwrap();
    rustix::mount::unmount(&outside, UnmountFlags::DETACH).unwrap();
}
