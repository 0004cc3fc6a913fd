//! Rate limits of volumes.

use std::time::Instant;

use super::harness::DaemonHome;
use super::nbd::{Client, pattern};

#[test]
fn rate_limits_apply_and_survive_a_restart() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let limits = ["--iops", "50", "--bandwidth", "100M", "--weight", "300"];
    let output = daemon.ok(&[&["volume", "set", "fast/vm01"][..], &limits].concat());
    assert!(output.contains("50 IOPS") && output.contains("weight 300"), "{output}");
    assert!(daemon.refused(&["volume", "set", "fast/vm01", "--iops", "1"]).contains("minimum is 10"));
    assert!(daemon.refused(&["volume", "set", "fast/none", "--iops", "100"]).contains("no volume"));
    daemon.stop();

    let daemon = home.start();
    let qos = &daemon.json(&["volume", "show", "fast/vm01"])["qos"];
    assert_eq!((&qos["iops"], &qos["weight"]), (&50.into(), &300.into()), "{qos}");
    assert_eq!(qos["bandwidth"], 100 << 20);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    let start = Instant::now();
    for block in 0..50 {
        client.write(block * 4096, &pattern(1, 4096)).unwrap();
    }
    // At 50 per second, the last write starts 0.98 s after the first.
    assert!(start.elapsed().as_millis() >= 900, "{:?}", start.elapsed());

    // Options that are not given stay unchanged.
    daemon.ok(&["volume", "set", "fast/vm01", "--iops", "none", "--burst", "2"]);
    let qos = &daemon.json(&["volume", "show", "fast/vm01"])["qos"];
    assert!(qos["iops"].is_null() && qos["burst_ms"] == 2000 && qos["weight"] == 300, "{qos}");
    assert_eq!(qos["bandwidth"], 100 << 20);
    daemon.stop();
}
