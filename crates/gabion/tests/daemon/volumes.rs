//! Volumes.

use super::harness::{DaemonHome, until};
use super::nbd::{Client, pattern};

#[test]
fn a_volume_is_created_resized_and_deleted() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let shown = daemon.json(&["volume", "show", "fast/vm01"]);
    assert_eq!(
        (&shown["size"], &shown["sector"], &shown["stored"]),
        (&(1u64 << 30).into(), &512.into(), &0.into())
    );
    daemon.ok(&["volume", "create", "fast/db", "--size", "1.5TiB", "--sector", "4096"]);
    assert_eq!(daemon.json(&["volume", "show", "fast/db"])["size"], 3u64 << 39);
    assert_eq!(daemon.ok(&["volume", "list", "-q"]), "fast/db\nfast/vm01\n");
    daemon.ok(&["volume", "resize", "fast/db", "--size", "2T"]);
    let refusal = daemon.refused(&["volume", "resize", "fast/db", "--size", "1T"]);
    assert!(refusal.contains("2 TiB") && refusal.contains("--shrink"), "{refusal}");
    daemon.ok(&["volume", "resize", "fast/db", "--size", "1T", "--shrink"]);
    assert_eq!(daemon.json(&["volume", "list", "fast"])[0]["size"], 1u64 << 40);
    daemon.ok(&["volume", "delete", "fast/db", "--yes"]);
    let refusal = daemon.refused(&["volume", "show", "fast/db"]);
    assert!(refusal.contains("no volume 'db'"), "{refusal}");
    daemon.stop();
}

#[test]
fn a_cluster_that_does_not_answer_hides_no_volume() {
    let home = DaemonHome::new();
    let cluster = home.path("clusters").join("dead");
    std::fs::create_dir_all(cluster.join("proposals")).unwrap();
    let configuration = "[global]\nfsid = 97e11b5d-2b9b-4966-be20-059b49eead4a\nmon host = 127.0.0.99:6789\n";
    std::fs::write(cluster.join("ceph.conf"), configuration).unwrap();
    let keyring = "[client.gabion]\n\tkey = AQBSdFhncqS5GRAA1DZ2x9V3KcFJ1N2zQ0bq8w==\n";
    std::fs::write(cluster.join("gabion.keyring"), keyring).unwrap();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let listed = home.gabion(&["volume", "list", "-q"]);
    assert_eq!((listed.code, listed.out.as_str()), (Some(1), "fast/vm01\n"), "{listed:?}");
    assert!(listed.err.contains("gabion cluster status dead"), "{listed:?}");
    assert_eq!(daemon.ok(&["volume", "list", "fast", "-q"]), "fast/vm01\n");
    daemon.stop();

    // Exports of its volumes wait for it, which is no error: 'stop' refuses a log with errors.
    let file = home.path("state/state.json");
    let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    state["exports"][0]["pool"] = "dead".into();
    std::fs::write(&file, state.to_string()).unwrap();
    let daemon = home.start();
    until("the attempt is logged", || daemon.log().contains("cannot serve an export yet: trying again"));
    assert_eq!(daemon.json(&["export", "list"])[0]["pool"], "dead");
    daemon.stop();
}

#[test]
fn a_volume_uses_the_requested_number_of_shards() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let files = home.arg("drives");
    let pool = ["pool", "create", "fast", "--scheme", "2+1", "--shards", "3", "--files", &files];
    daemon.ok(&[&pool[..], &["--file-size", "64M", "--count", "3"]].concat());
    let on = |name: &str| {
        let shown = daemon.json(&["volume", "show", name]);
        (shown["first_shard"].as_u64().unwrap(), shown["shards"].as_u64().unwrap())
    };
    daemon.ok(&["volume", "create", "fast/all", "--size", "1G"]);
    daemon.ok(&["volume", "create", "fast/one", "--size", "1G", "--shards", "1"]);
    assert_eq!((on("fast/all"), on("fast/one")), ((0, 3), (0, 1)));
    // One queue per vCPU; the least used shards.
    daemon.ok(&["vm", "create", "web", "--boot", "fast/web", "--size", "1G", "--cpus", "2"]);
    assert_eq!(on("fast/web"), (1, 2));
    daemon.ok(&["vm", "create", "large", "--boot", "fast/large", "--size", "1G", "--cpus", "4"]);
    daemon.ok(&["vm", "create", "tied", "--boot", "fast/tied", "--size", "1G", "--reactors", "0"]);
    assert_eq!((on("fast/large"), on("fast/tied")), ((0, 3), (0, 3)));
    daemon.ok(&["volume", "snapshot", "fast/web@a"]);
    daemon.ok(&["volume", "clone", "fast/web@a", "copy"]);
    assert_eq!((on("fast/web@a"), on("fast/copy")), ((1, 2), (1, 2)));
    assert!(daemon.ok(&["volume", "show", "fast/web"]).contains("2, starting at number 1"));
    for wrong in ["0", "4"] {
        let create = ["volume", "create", "fast/x", "--size", "1G", "--shards", wrong];
        let refusal = daemon.refused(&create);
        assert!(refusal.contains(wrong) && refusal.contains("the pool has 3"), "{refusal}");
    }
    daemon.stop();
}

#[test]
fn deleting_a_volume_frees_its_space() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    for index in 0..16 {
        client.write(index << 20, &pattern(index, 1 << 20)).unwrap();
    }
    client.flush().unwrap();
    drop(client);
    assert_eq!(daemon.json(&["volume", "show", "fast/vm01"])["stored"], 16u64 << 20);
    daemon.ok(&["export", "delete", "fast/vm01"]);
    daemon.ok(&["volume", "delete", "fast/vm01", "--yes"]);
    let space = &daemon.pool("fast")["space"];
    assert_eq!((&space["stored"], &space["volumes"]), (&0.into(), &0.into()));
    daemon.stop();
}

#[test]
fn destructive_commands_require_yes_without_a_terminal() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    for arguments in [
        &["volume", "delete", "fast/vm01"][..],
        &["pool", "destroy", "fast"],
        &["drive", "fail", "fast", "0"],
    ] {
        let ran = home.gabion(arguments);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains("--yes"), "{ran:?}");
    }
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    assert_eq!(daemon.ok(&["volume", "list", "-q"]), "fast/vm01\n");
    daemon.stop();
}
