//! NBD over TCP under floods of connections that send nothing or stop halfway, next to working
//! clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::harness::{Daemon, DaemonHome, until};
use super::nbd::Client;

/// Number of connections, more than the daemon accepts in the test.
const FLOOD: u64 = 10_000;
/// Timeout of a client.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the TCP address of the NBD export.
fn address(daemon: &Daemon<'_>) -> SocketAddr {
    let export = &daemon.json(&["export", "list"])[0];
    let uri = export["uris"][1].as_str().unwrap().strip_prefix("nbd://").unwrap().to_owned();
    uri.split_once('/').unwrap().0.parse().unwrap()
}

/// Returns the resident memory of the daemon in MiB.
fn memory(daemon: &Daemon<'_>) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() / 1024
}

fn descriptors(daemon: &Daemon<'_>) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}

/// Raises the descriptor limit of this process, and returns the number of connections for a flood.
fn connections() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    // Leaves descriptors for other tests of this process.
    limit.maximum.unwrap_or(u64::MAX).saturating_sub(512).min(FLOOD)
}

/// Connects and sends `bytes`.
fn connect(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    // The connection may already be closed.
    let _ = stream.write_all(bytes);
    stream
}

#[test]
fn a_connection_flood_leaves_resources_for_clients() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--nbd-listen", "127.0.0.1:0", "--threads", "1"]);
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let address = address(&daemon);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    client.write(0, &[7; 4096]).unwrap();
    let (memory_before, descriptors_before) = (memory(&daemon), descriptors(&daemon));
    // Nothing, half of a greeting, and an incomplete option, which uses the most memory.
    let option = [&b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\x01\0\0"[..], &[b'x'; 60_000]].concat();
    for bytes in [&b""[..], b"\0\0\0\x03IHAVE", &option] {
        let flood: Vec<TcpStream> = (0..connections()).map(|_| connect(address, bytes)).collect();
        // An old client and new ones, over TCP and the local socket.
        assert_eq!(client.read(0, 4096).unwrap(), [7; 4096]);
        assert_eq!(
            Client::connect(&home.nbd_socket(), "fast/vm01").unwrap().read(0, 4096).unwrap(),
            [7; 4096]
        );
        assert_eq!(Client::connect_tcp(address, "fast/vm01").unwrap().read(0, 4096).unwrap(), [7; 4096]);
        assert_eq!(daemon.json(&["volume", "list", "fast"]).as_array().unwrap().len(), 1);
        assert!(descriptors(&daemon) < descriptors_before + 1100, "{} descriptors", descriptors(&daemon));
        assert!(memory(&daemon) < memory_before + 400, "{} MiB after {memory_before}", memory(&daemon));
        drop(flood);
        until("the flood is over", || descriptors(&daemon) < descriptors_before + 20);
    }
    let log = daemon.stop();
    let lines = log.lines().filter(|line| line.contains(r#""level":"WARN""#)).count();
    assert!(lines < 300, "{lines} log lines about refused clients");
}

#[test]
fn local_clients_connect_when_a_host_uses_all_its_connections() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--nbd-listen", "127.0.0.1:0", "--threads", "1"]);
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let address = address(&daemon);
    let mut clients = Vec::new();
    // Working clients that never disconnect.
    while let Ok(client) = Client::connect_tcp(address, "fast/vm01") {
        clients.push(client);
        assert!((clients.len() as u64) < FLOOD, "the number of connections is not limited");
    }
    assert!(clients.len() >= 8, "{} places", clients.len());
    let mut refused = connect(address, b"");
    assert_eq!(refused.read(&mut [0; 1]).unwrap_or(0), 0, "the host exceeded its limit");
    let mut local = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    local.write(0, &[1; 4096]).unwrap();
    for client in &mut clients {
        assert_eq!(client.read(0, 512).unwrap(), [1; 512]);
    }
    drop(clients);
    until("a connection is available", || Client::connect_tcp(address, "fast/vm01").is_ok());
    drop(local);
    daemon.stop();
}
