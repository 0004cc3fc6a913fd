//! Snapshots and clones, with commands and NBD.

use super::harness::DaemonHome;
use super::nbd::{Client, pattern};

const MIB: u64 = 1 << 20;

#[test]
fn a_volume_is_snapshotted_cloned_compared_and_rolled_back() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    client.write(0, &pattern(1, 4 << 20)).unwrap();
    daemon.ok(&["volume", "snapshot", "fast/vm01@one"]);
    client.write(MIB, &pattern(2, 1 << 20)).unwrap();

    // A snapshot can be read and not written.
    daemon.ok(&["export", "create", "fast/vm01@one", "--nbd"]);
    let mut old = Client::connect(&home.nbd_socket(), "fast/vm01@one").unwrap();
    assert!(old.read(0, 4 << 20).unwrap() == pattern(1, 4 << 20));
    assert!(old.write(0, &[7; 4096]).is_err());
    drop(old);
    let export = &daemon.json(&["export", "list"])[1];
    assert_eq!((&export["volume"], &export["read_only"]), (&"vm01@one".into(), &true.into()));

    assert_eq!(daemon.ok(&["volume", "list", "-q"]), "fast/vm01\n");
    assert_eq!(daemon.ok(&["volume", "list", "--snapshots", "-q"]), "fast/vm01\nfast/vm01@one\n");
    assert_eq!(daemon.ok(&["volume", "diff", "fast/vm01@one", "fast/vm01"]), format!("{MIB} {MIB} data\n"));
    let usage = daemon.json(&["volume", "usage", "fast/vm01"]);
    for (index, (shown, alone)) in [(4, 1), (4, 1)].into_iter().enumerate() {
        let usage = &usage[index];
        assert_eq!(
            (&usage["referenced"], &usage["exclusive"]),
            (&(shown * MIB).into(), &(alone * MIB).into()),
            "{usage}"
        );
    }

    daemon.ok(&["volume", "clone", "fast/vm01@one", "copy"]);
    assert_eq!(daemon.json(&["volume", "show", "fast/copy"])["origin"], "vm01@one");
    let refusal = daemon.refused(&["volume", "rollback", "fast/vm01@one", "--yes"]);
    assert!(refusal.contains("is exported"), "{refusal}");
    drop(client);
    daemon.ok(&["export", "delete", "fast/vm01"]);
    daemon.ok(&["volume", "rollback", "fast/vm01@one", "--yes"]);
    assert_eq!(daemon.ok(&["volume", "diff", "fast/vm01@one", "fast/vm01"]), "");

    // A volume is deleted after its snapshots, which are deleted in any order.
    let refusal = daemon.refused(&["volume", "delete", "fast/vm01", "--yes"]);
    assert!(refusal.contains("has snapshots (1)") && refusal.contains("--snapshots"), "{refusal}");
    daemon.ok(&["export", "delete", "fast/vm01@one"]);
    daemon.ok(&["volume", "delete", "fast/vm01@one", "--yes"]);
    daemon.ok(&["volume", "delete", "fast/vm01", "--yes"]);
    daemon.ok(&["export", "create", "fast/copy", "--nbd"]);
    let mut copy = Client::connect(&home.nbd_socket(), "fast/copy").unwrap();
    assert!(copy.read(0, 4 << 20).unwrap() == pattern(1, 4 << 20));
    daemon.stop();
}

#[test]
fn invalid_names_are_refused() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    for (arguments, message) in [
        (&["volume", "snapshot", "fast/vm01"][..], "is not the name of a snapshot"),
        (&["volume", "snapshot", "fast/none@one"], "no volume"),
        (&["volume", "snapshot", "fast/vm01@a b"], "name"),
        (&["volume", "clone", "fast/vm01@one", "copy"], "no snapshot 'vm01@one'"),
        (&["volume", "rollback", "fast/vm01@one", "--yes"], "no snapshot 'vm01@one'"),
        (&["volume", "create", "fast/a@b", "--size", "1M"], "name"),
        (&["volume", "diff", "fast/vm01@one", "fast/vm01"], "no snapshot 'vm01@one'"),
        (&["volume", "usage", "fast/vm01@one"], "no snapshot 'vm01@one'"),
    ] {
        let refusal = daemon.refused(arguments);
        assert!(refusal.contains(message), "{arguments:?}: {refusal}");
    }
    daemon.ok(&["volume", "snapshot", "fast/vm01@one"]);
    let refusal = daemon.refused(&["volume", "snapshot", "fast/vm01@one"]);
    assert!(refusal.contains("already has a snapshot 'vm01@one'"), "{refusal}");
    daemon.stop();
}
