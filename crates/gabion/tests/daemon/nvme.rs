//! Exports over NVMe/TCP.

use std::net::{SocketAddr, TcpListener};

use super::harness::{DaemonHome, until};
use super::initiator::{DISCOVERY, HOST, PLAIN, Queue, Sqe, u32_of};
use super::openssl_tunnel::openssl_tunnel;
use super::tls_identity::TlsIdentity;

const SUBSYSTEM: &str = "nqn.2014-08.org.example:disk";

/// An address that no process uses now.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The identity of a namespace: its NGUID.
fn identity(admin: &mut Queue, namespace: u32) -> Vec<u8> {
    admin.fetch(Sqe::new(6, namespace).word(10, 0), 4096).unwrap()[104..120].to_vec()
}

#[test]
fn an_export_survives_a_kill_of_the_daemon() {
    let home = DaemonHome::new();
    let address = free_address();
    let daemon = home.start();
    daemon.make_pool();
    let port = address.port();
    let listen = format!("--listen={address}");
    let printed = daemon.ok(&["export", "create", "fast/vm01", "--nvme-tcp", &listen]);
    let name = printed.trim().rsplit_once(' ').unwrap().1.to_owned();
    assert!(name.starts_with("nqn.2014-08.org.nvmexpress:uuid:"), "{printed}");
    assert_eq!(printed.trim(), format!("nvme connect -t tcp -a 127.0.0.1 -s {port} -n {name}"));
    let mut admin = Queue::admin(address, &name, PLAIN);
    let mut queue = admin.io(&name, 1);
    let data: Vec<u8> = (0..1u32 << 20).map(|at| (at >> 9 ^ at) as u8).collect();
    assert_eq!(queue.write(3, &data), 0);
    assert_eq!(queue.run(Sqe::new(0, 1)).status, 0);
    assert_eq!(daemon.json(&["export", "list"])[0]["connections"], 1);
    let before = identity(&mut admin, 1);
    daemon.kill();
    assert_eq!(queue.read_to_end(), 0);

    let daemon = home.start();
    let active = || daemon.json(&["export", "list"])[0]["state"] == "active";
    until("the export is active again", active);
    let uri = daemon.json(&["export", "list"])[0]["uris"][0].as_str().unwrap().to_owned();
    assert_eq!(uri, format!("nvme+tcp://{address}/{name}"));
    let mut admin = Queue::admin(address, &name, PLAIN);
    assert_eq!(identity(&mut admin, 1), before);
    assert_eq!(admin.io(&name, 1).read(3, 2048).unwrap(), data);

    // A resize is reported, and visible at once.
    assert_eq!(admin.run(Sqe::new(9, 0).word(10, 0x0b).word(11, 1 << 8)).status, 0);
    admin.submit(Sqe::new(0x0c, 0), &[], 0);
    daemon.ok(&["volume", "resize", "fast/vm01", "--size", "2G"]);
    assert_eq!(admin.complete(&[]).result, 2 | 4 << 16);
    let facts = admin.fetch(Sqe::new(6, 1).word(10, 0), 4096).unwrap();
    assert_eq!(u64::from(u32_of(&facts, 0)) * 512, 2 << 30);
    drop(admin);
    daemon.ok(&["export", "delete", "fast/vm01"]);
    // Exported again, the volume has the same identity in another subsystem.
    let other = format!("--subsystem={SUBSYSTEM}");
    daemon.ok(&["export", "create", "fast/vm01", "--nvme-tcp", &listen, &other, "--namespace=7"]);
    assert_eq!(identity(&mut Queue::admin(address, SUBSYSTEM, PLAIN), 7), before);
    daemon.stop();
}

#[test]
fn only_the_named_hosts_connect() {
    let home = DaemonHome::new();
    let address = free_address();
    let daemon = home.start_with(&["--nvme-listen", &address.to_string()]);
    daemon.make_pool();
    let subsystem = format!("--subsystem={SUBSYSTEM}");
    let host = format!("--host={HOST}");
    daemon.ok(&["export", "create", "fast/vm01", "--nvme-tcp", &subsystem, &host]);
    let mut other = Queue::negotiated(address, PLAIN);
    let stranger = "nqn.2014-08.org.example:stranger";
    assert_eq!(other.connect(SUBSYSTEM, stranger, 0, 0xffff, 0).status, 0x184);
    let admin = Queue::admin(address, SUBSYSTEM, PLAIN);
    assert_eq!(admin.io(SUBSYSTEM, 1).write(0, &[1; 512]), 0);
    drop(admin);
    daemon.stop();
}

#[test]
fn the_discovery_service_has_an_address_of_its_own() {
    let home = DaemonHome::new();
    let (address, discovery) = (free_address(), free_address());
    let daemon = home.start_with(&["--nvme-discovery", &discovery.to_string()]);
    let mut admin = Queue::admin(discovery, DISCOVERY, PLAIN);
    let listed = |admin: &mut Queue| {
        let log = admin.fetch(Sqe::new(2, 0).word(10, 0x70 | 767 << 16), 3072).unwrap();
        (u32_of(&log, 8), log[2304..].starts_with(SUBSYSTEM.as_bytes()))
    };
    assert_eq!(listed(&mut admin), (1, false));
    daemon.make_pool();
    let (listen, subsystem) = (format!("--listen={address}"), format!("--subsystem={SUBSYSTEM}"));
    daemon.ok(&["export", "create", "fast/vm01", "--nvme-tcp", &listen, &subsystem]);
    assert_eq!(listed(&mut admin), (2, true));
    drop(admin);
    daemon.stop();
}

#[test]
fn commands_behind_a_rate_limit_are_aborted() {
    const COMMANDS: u64 = 120;
    let home = DaemonHome::new();
    let address = free_address();
    let daemon = home.start();
    daemon.make_pool();
    let (listen, subsystem) = (format!("--listen={address}"), format!("--subsystem={SUBSYSTEM}"));
    daemon.ok(&["export", "create", "fast/vm01", "--nvme-tcp", &listen, &subsystem]);
    let mut admin = Queue::admin(address, SUBSYSTEM, PLAIN);
    let mut queue = admin.io(SUBSYSTEM, 1);
    daemon.ok(&["volume", "set", "fast/vm01", "--iops", "10"]);
    let write = |at: u64| Sqe::new(1, 1).blocks(8 * at, 8);
    let sent: Vec<u16> = (0..COMMANDS).map(|at| queue.submit(write(at), &[7; 4096], 8192)).collect();
    let is_aborted =
        |admin: &mut Queue, id: u16| admin.run(Sqe::new(8, 0).word(10, 1 | u32::from(id) << 16)).result == 0;
    // The last one waits for seconds, once it was received: another connection may be faster.
    let last = *sent.last().unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while !is_aborted(&mut admin, last) {
        assert!(std::time::Instant::now() < end, "the last command was not aborted");
    }
    let mut aborted = vec![last];
    aborted.extend(sent.iter().rev().skip(1).copied().filter(|id| is_aborted(&mut admin, *id)));
    for _ in &sent {
        let done = queue.complete(&[]);
        let expected = if aborted.contains(&done.id) { 0x07 } else { 0 };
        assert_eq!(done.status, expected, "{done:?}");
    }
    daemon.ok(&["volume", "set", "fast/vm01", "--iops", "none"]);
    // Aborted writes had no effect, and the others took place.
    for (at, id) in (0..).zip(&sent) {
        let expected = if aborted.contains(id) { [0; 4096] } else { [7; 4096] };
        assert_eq!(queue.read(8 * at, 8).unwrap(), expected, "command {id}");
    }
    drop(admin);
    daemon.stop();
}

#[test]
fn invalid_options_are_refused() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    for (options, text) in [
        (&[][..], "nvme.listen"),
        (&["--listen", "127.0.0.1:4420", "--subsystem", "disk"][..], "NVMe qualified name"),
        (&["--listen", "127.0.0.1:4420", "--host", "host"][..], "NVMe qualified name"),
        (&["--listen", "127.0.0.1:4420", "--namespace", "0"][..], "namespace id"),
        (&["--listen", "198.51.100.1:4420"][..], "198.51.100.1:4420"),
    ] {
        let arguments = [&["export", "create", "fast/vm01", "--nvme-tcp"][..], options].concat();
        let refusal = daemon.refused(&arguments);
        assert!(refusal.contains(text), "{refusal}");
    }
    assert_eq!(daemon.json(&["export", "list"]).as_array().map(Vec::len), Some(0));
    daemon.stop();
}

#[test]
fn secrets_survive_a_restart_and_are_not_shown() {
    /// As `nvme gen-dhchap-key` prints it.
    const SECRET: &str = "DHHC-1:00:nR2ru2ZHCXqG3XAyaz0/+gB089FRFL0o838kvct0gfv9vUN3:\n";
    let home = DaemonHome::new();
    let address = free_address();
    let daemon = home.start_with(&["--nvme-listen", &address.to_string()]);
    daemon.make_pool();
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("host.secret");
    std::fs::write(&file, SECRET).unwrap();
    let (subsystem, secret) = (format!("--subsystem={SUBSYSTEM}"), format!("--secret={}", file.display()));
    daemon.ok(&["export", "create", "fast/vm01", "--nvme-tcp", &subsystem, &secret]);
    let requires_authentication = || {
        let done = Queue::negotiated(address, PLAIN).connect(SUBSYSTEM, HOST, 0, 0xffff, 0);
        (done.status, done.result >> 16) == (0, 2)
    };
    assert!(requires_authentication());
    let shown = daemon.json(&["export", "list"]);
    assert!(shown[0]["network"]["dhchap"].is_object() && !shown.to_string().contains("DHHC"), "{shown}");
    daemon.kill();

    let daemon = home.start_with(&["--nvme-listen", &address.to_string()]);
    let active = || daemon.json(&["export", "list"])[0]["state"] == "active";
    until("the export is active again", active);
    assert!(requires_authentication());
    daemon.stop();
}

#[test]
fn tls_keys_survive_a_restart_and_are_not_shown() {
    if !test_support::has_program("openssl") {
        return;
    }
    /// As `nvme gen-tls-key` prints it.
    const KEY: &str = "NVMeTLSkey-1:01:yBd+GiJlgJu8iLUAYCeAjVyXhTSy87BrQwTIF51WOIhkBl26:\n";
    let home = DaemonHome::new();
    let address = free_address();
    let daemon = home.start_with(&["--nvme-listen", &address.to_string()]);
    daemon.make_pool();
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("disk.key");
    let (subsystem, key) = (format!("--subsystem={SUBSYSTEM}"), format!("--tls-key={}", file.display()));
    let create = ["export", "create", "fast/vm01", "--nvme-tcp", &subsystem, &key];
    std::fs::write(&file, KEY.replace("yBd", "yBe")).unwrap();
    let refusal = daemon.refused(&create);
    assert!(refusal.contains("TLS key of export fast/vm01 has a wrong checksum"), "{refusal}");
    assert!(!refusal.contains("yBe"), "{refusal}");
    std::fs::write(&file, KEY).unwrap();
    let printed = daemon.ok(&create);
    assert!(printed.trim_end().ends_with(&format!("-n {SUBSYSTEM} --tls")), "{printed}");
    let requires_tls = || {
        let done = Queue::negotiated(address, PLAIN).connect(SUBSYSTEM, HOST, 0, 0xffff, 0);
        // The host is not allowed to connect without TLS.
        done.status == 0x184
    };
    assert!(requires_tls());
    let text = KEY.trim_end().trim_end_matches(':').rsplit_once(':').unwrap().1;
    let configured = base64_simd::STANDARD.decode_to_vec(text).unwrap();
    let identity = TlsIdentity::new(0, &configured[..32], HOST, SUBSYSTEM);
    let has_session = || {
        let tunnel = openssl_tunnel(address, &identity);
        let admin = Queue::admin(tunnel, SUBSYSTEM, PLAIN);
        assert_eq!(admin.io(SUBSYSTEM, 1).read(0, 8).unwrap(), [0; 4096]);
    };
    has_session();
    let shown = daemon.json(&["export", "list"]);
    assert!(shown[0]["network"]["tls"].is_object() && !shown.to_string().contains("NVMeTLSkey"), "{shown}");
    daemon.kill();

    let daemon = home.start_with(&["--nvme-listen", &address.to_string()]);
    let active = || daemon.json(&["export", "list"])[0]["state"] == "active";
    until("the export is active again", active);
    assert!(requires_tls());
    has_session();
    daemon.stop();
}
