//! NBD over TCP, where anybody can connect: floods of connections that say nothing, or stop halfway, and others beside them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::harness::{Daemon, Home, until};
use super::nbd::Client;

/// Connections of a flood: more than the daemon of the test has places for.
const FLOOD: u64 = 3000;
/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the daemon serves NBD over TCP.
fn address(daemon: &Daemon<'_>) -> SocketAddr {
    let export = &daemon.json(&["export", "list"])[0];
    let uri = export["uris"][1].as_str().unwrap().strip_prefix("nbd://").unwrap().to_owned();
    uri.split_once('/').unwrap().0.parse().unwrap()
}

/// MiB of memory that the daemon has.
fn memory(daemon: &Daemon<'_>) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() / 1024
}

fn descriptors(daemon: &Daemon<'_>) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}

/// Lets this process have as many descriptors as it may, and gives how many connections it can hold.
fn connections() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    // Other tests of this process have theirs.
    limit.maximum.unwrap_or(u64::MAX).saturating_sub(512).min(FLOOD)
}

/// Connects, and says `words`.
fn connect(address: SocketAddr, words: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // It may be closed already.
    let _ = stream.write_all(words);
    stream
}

#[test]
fn a_flood_of_connections_leaves_room_for_clients_and_costs_little() {
    let home = Home::new();
    let daemon = home.start_with(&["--nbd-listen", "127.0.0.1:0", "--threads", "1"]);
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let address = address(&daemon);
    let mut before = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    before.write(0, &[7; 4096]).unwrap();
    let (idle, few) = (memory(&daemon), descriptors(&daemon));
    // Nothing at all; half a greeting; and an option that does not come to its end, which takes most memory.
    let option = [&b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\x01\0\0"[..], &[b'x'; 60_000]].concat();
    for words in [&b""[..], b"\0\0\0\x03IHAVE", &option] {
        let flood: Vec<TcpStream> = (0..connections()).map(|_| connect(address, words)).collect();
        // Who was there, and who comes, over TCP and locally.
        assert_eq!(before.read(0, 4096).unwrap(), [7; 4096]);
        assert_eq!(
            Client::connect(&home.nbd_socket(), "fast/vm01").unwrap().read(0, 4096).unwrap(),
            [7; 4096]
        );
        assert_eq!(Client::connect_tcp(address, "fast/vm01").unwrap().read(0, 4096).unwrap(), [7; 4096]);
        assert_eq!(daemon.json(&["volume", "list", "fast"]).as_array().unwrap().len(), 1);
        assert!(descriptors(&daemon) < few + 1100, "{} descriptors", descriptors(&daemon));
        assert!(memory(&daemon) < idle + 400, "{} MiB after {idle}", memory(&daemon));
        drop(flood);
        until("the flood is over", || descriptors(&daemon) < few + 20);
    }
    let log = daemon.stop();
    let lines = log.lines().filter(|line| line.contains(r#""level":"WARN""#)).count();
    assert!(lines < 300, "{lines} lines about strangers");
}

#[test]
fn clients_that_take_every_place_for_their_host_leave_the_local_ones_theirs() {
    let home = Home::new();
    let daemon = home.start_with(&["--nbd-listen", "127.0.0.1:0", "--threads", "1"]);
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let address = address(&daemon);
    let mut clients = Vec::new();
    // They use the export as it is meant to be, and never end.
    while let Ok(client) = Client::connect_tcp(address, "fast/vm01") {
        clients.push(client);
        assert!((clients.len() as u64) < FLOOD, "there is no end to it");
    }
    assert!(clients.len() >= 8, "{} places", clients.len());
    let mut refused = connect(address, b"");
    assert_eq!(refused.read(&mut [0; 1]).unwrap_or(0), 0, "no room is left for this host");
    let mut local = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    local.write(0, &[1; 4096]).unwrap();
    for client in &mut clients {
        assert_eq!(client.read(0, 512).unwrap(), [1; 512]);
    }
    drop(clients);
    until("a place is free", || Client::connect_tcp(address, "fast/vm01").is_ok());
    drop(local);
    daemon.stop();
}
