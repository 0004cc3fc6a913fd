//! Exports over NBD.

use std::time::Duration;

use serde_json::json;

use super::harness::{DaemonHome, until};
use super::nbd::{Client, pattern};

#[test]
fn a_volume_is_exported_by_name() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--nbd-listen", "127.0.0.1:0", "--threads", "2"]);
    daemon.make_pool();
    assert!(Client::connect(&home.nbd_socket(), "fast/vm01").is_err());
    let export = daemon.json(&["export", "create", "fast/vm01", "--nbd"]);
    let uris: Vec<&str> =
        export["uris"].as_array().unwrap().iter().map(|uri| uri.as_str().unwrap()).collect();
    let socket = home.nbd_socket();
    assert_eq!(uris[0], format!("nbd+unix:///fast/vm01?socket={}", socket.display()));
    assert!(uris[1].starts_with("nbd://127.0.0.1:") && uris[1].ends_with("/fast/vm01"), "{uris:?}");

    // There are more clients than reactors; all of them see the same volume.
    let mut clients: Vec<_> = (0..5).map(|_| Client::connect(&socket, "fast/vm01").unwrap()).collect();
    let data = pattern(1, 300_000 / 512 * 512);
    for (index, client) in (0u64..).zip(&mut clients) {
        assert_eq!((client.size, client.read_only), (1 << 30, false));
        client.write(index * 512 + (index << 20), &data).unwrap();
    }
    for client in &mut clients {
        for index in 0..5u64 {
            assert!(client.read(index * 512 + (index << 20), data.len()).unwrap() == data);
        }
    }
    assert_eq!(daemon.json(&["export", "list"])[0]["connections"], 5);
    drop(clients);
    until("the clients are gone", || daemon.json(&["export", "list"])[0]["connections"] == 0);
    daemon.stop();
}

#[test]
fn a_trimmed_range_reads_as_zeros_and_frees_space() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    client.write(0, &pattern(3, 1 << 20)).unwrap();
    client.trim(4096, (1 << 20) - 4096).unwrap();
    assert_eq!(client.read(4096, 8192).unwrap(), vec![0; 8192]);
    assert_eq!(daemon.json(&["volume", "show", "fast/vm01"])["stored"], 4096);
    drop(client);
    daemon.stop();
}

#[test]
fn a_read_only_export_refuses_writes() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd", "--read-only"]);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    assert!(client.read_only);
    assert_eq!(client.write(0, &[1; 512]), Err(1));
    assert_eq!(client.read(0, 512).unwrap(), [0; 512]);
    drop(client);
    daemon.stop();
}

#[test]
fn an_exported_volume_is_removed_by_force_only() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let refusal = daemon.refused(&["export", "create", "fast/vm01", "--nbd"]);
    assert!(refusal.contains("exported already"), "{refusal}");
    for arguments in [
        &["volume", "delete", "fast/vm01", "--yes"][..],
        &["pool", "destroy", "fast", "--yes"],
        &["pool", "close", "fast"],
    ] {
        let refusal = daemon.refused(arguments);
        assert!(refusal.contains("exported") && refusal.contains("export delete"), "{refusal}");
    }
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    client.write(0, &[5; 4096]).unwrap();

    // With --force, clients get errors, and the export returns with the pool.
    daemon.ok(&["pool", "close", "fast", "--force"]);
    assert!(client.read(0, 4096).is_err());
    drop(client);
    let listed = daemon.json(&["export", "list"]);
    assert_eq!(
        (&listed[0]["state"], &listed[0]["reason"]),
        (&json!("waiting"), &json!("its pool is not open"))
    );
    assert!(Client::connect(&home.nbd_socket(), "fast/vm01").is_err());
    daemon.ok(&["pool", "open", "fast"]);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    assert_eq!(client.read(0, 4096).unwrap(), [5; 4096]);

    // The volume of a deleted export can be deleted while a client is connected.
    daemon.ok(&["export", "delete", "fast/vm01"]);
    assert!(client.read(0, 4096).is_err());
    daemon.ok(&["volume", "delete", "fast/vm01", "--yes"]);
    assert_eq!(daemon.json(&["export", "list"]), json!([]));
    daemon.stop();
}

#[test]
fn exports_of_missing_volumes_are_refused() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    for (name, expected) in [("fast/vm02", "no volume 'vm02'"), ("slow/vm01", "no pool 'slow'")] {
        let refusal = daemon.refused(&["export", "create", name, "--nbd"]);
        assert!(refusal.contains(expected), "{refusal}");
    }
    let refusal = daemon.refused(&["export", "delete", "fast/vm01"]);
    assert!(refusal.contains("is not exported"), "{refusal}");
    daemon.stop();
}

/// Returns the CPU time of a process in units of 10 ms.
pub(crate) fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn an_idle_daemon_uses_no_cpu_time() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    client.write(0, &pattern(3, 1 << 20)).unwrap();
    client.flush().unwrap();
    // At most 1 % of a core with a connected client.
    until("the daemon is idle for a second", || {
        let before = ticks(daemon.pid());
        std::thread::sleep(Duration::from_secs(1));
        ticks(daemon.pid()) <= before + 1
    });
    drop(client);
    daemon.stop();
}

#[test]
fn several_exports_of_a_volume_are_read_only_or_shared() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    fn create<'a>(extra: &[&'a str]) -> Vec<&'a str> {
        [&["export", "create", "fast/vm01"], extra].concat()
    }
    let created = daemon.json(&create(&["--nbd"]));
    assert_eq!(
        (&created["id"], &created["name"], &created["shared"]),
        (&json!("nbd"), &json!("fast/vm01"), &json!(false))
    );
    for extra in [&["--nbd"][..], &["--vhost-user"], &["--vhost-user", "--shared"], &["--nbd", "--read-only"]]
    {
        let refusal = daemon.refused(&create(extra));
        assert!(refusal.contains("exported already, read-write by nbd"), "{refusal}");
        assert!(refusal.contains("export delete fast/vm01 --id nbd"), "{refusal}");
        assert!(refusal.contains("--shared"), "{refusal}");
    }
    daemon.ok(&["export", "remove", "fast/vm01"]);

    // Read-only exports exclude writable ones only.
    daemon.ok(&create(&["--nbd", "--read-only"]));
    daemon.ok(&create(&["--vhost-user", "--read-only"]));
    let second = daemon.json(&create(&["--vhost-user", "--read-only"]));
    assert_eq!((&second["id"], &second["name"]), (&json!("vhost-user:2"), &json!("fast/vm01:2")));
    assert_eq!(second["uris"], json!([format!("unix:{}", home.path("vhost/fast/vm01:2.sock").display())]));
    let refusal = daemon.refused(&create(&["--nbd"]));
    assert!(refusal.contains("read-only by nbd") && refusal.contains("--read-only"), "{refusal}");
    let refusal = daemon.refused(&["export", "delete", "fast/vm01"]);
    assert!(refusal.contains("several such exports: nbd, vhost-user, vhost-user:2"), "{refusal}");
    let refusal = daemon.refused(&["export", "delete", "fast/vm01", "--protocol", "vhost-user"]);
    assert!(refusal.contains("several such exports: vhost-user, vhost-user:2"), "{refusal}");
    let refusal = daemon.refused(&["export", "delete", "fast/vm01", "--id", "fuse"]);
    assert!(refusal.contains("no such export; it has nbd, vhost-user, vhost-user:2"), "{refusal}");
    let refusal = daemon.refused(&["volume", "delete", "fast/vm01", "--yes"]);
    assert!(refusal.contains("exported by nbd, vhost-user, vhost-user:2"), "{refusal}");
    daemon.ok(&["export", "delete", "fast/vm01", "--id", "vhost-user"]);
    daemon.ok(&["export", "delete", "fast/vm01", "--protocol", "nbd"]);
    let listed = daemon.json(&["export", "list"]);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["id"]), (1, &json!("vhost-user:2")));
    daemon.ok(&["export", "delete", "fast/vm01"]);

    // Shared writable exports see each other's data and survive a restart.
    daemon.ok(&create(&["--nbd", "--shared"]));
    daemon.ok(&create(&["--nbd", "--shared"]));
    daemon.ok(&create(&["--vhost-user", "--shared", "--read-only"]));
    let ids = |daemon: &super::harness::Daemon| -> Vec<String> {
        let listed = daemon.json(&["export", "list"]);
        listed.as_array().unwrap().iter().map(|export| export["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&daemon), ["nbd", "nbd:2", "vhost-user"]);
    daemon.stop();
    let daemon = home.start();
    assert_eq!(ids(&daemon), ["nbd", "nbd:2", "vhost-user"]);
    let mut clients =
        ["fast/vm01", "fast/vm01:2"].map(|name| Client::connect(&home.nbd_socket(), name).unwrap());
    clients[0].write(0, &pattern(7, 4096)).unwrap();
    assert_eq!(clients[1].read(0, 4096).unwrap(), pattern(7, 4096));
    daemon.ok(&["export", "delete", "fast/vm01", "--id", "nbd"]);
    assert!(clients[0].read(0, 4096).is_err());
    assert_eq!(clients[1].read(0, 4096).unwrap(), pattern(7, 4096), "the other export still works");
    drop(clients);
    daemon.stop();
}

/// An owner survives a restart; others delete its export only by force.
#[test]
fn an_export_of_an_owner_is_deleted_by_it_or_by_force() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd", "--owner", "backup program"]);
    daemon.stop();
    let daemon = home.start();
    assert_eq!(daemon.json(&["export", "list"])[0]["owner"], "backup program");
    for other in [&[][..], &["--owner", "another"]] {
        let refused = daemon.refused(&[&["export", "delete", "fast/vm01"], other].concat());
        assert!(refused.contains("export 'nbd' of 'fast/vm01' is managed by backup program"), "{refused}");
    }
    let refused = daemon.refused(&["volume", "delete", "fast/vm01", "--yes"]);
    assert!(refused.contains("backup program manages an export"), "{refused}");
    let refused = daemon.refused(&["export", "create", "fast/vm01", "--vhost-user"]);
    assert!(refused.contains("backup program manages that export"), "{refused}");
    daemon.ok(&["export", "delete", "fast/vm01", "--owner", "backup program"]);
    daemon.ok(&["export", "create", "fast/vm01", "--nbd", "--owner", "backup program"]);
    daemon.ok(&["export", "delete", "fast/vm01", "--force"]);
    let refused = daemon.refused(&["export", "create", "fast/vm01", "--nbd", "--owner", " x"]);
    assert!(refused.contains("1 to 64 printable ASCII characters"), "{refused}");
}

#[test]
fn the_state_file_of_an_older_release_is_read() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    daemon.stop();
    let path = home.path("state/state.json");
    let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let export = state["exports"][0].as_object_mut().unwrap();
    assert!(export.remove("number").is_some() && export.remove("shared").is_some());
    std::fs::write(&path, state.to_string()).unwrap();
    let daemon = home.start();
    let listed = daemon.json(&["export", "list"]);
    assert_eq!((&listed[0]["id"], &listed[0]["state"]), (&json!("nbd"), &json!("active")));
    daemon.ok(&["export", "delete", "fast/vm01"]);
    assert_eq!(daemon.json(&["export", "list"]), json!([]));
    daemon.stop();
}
