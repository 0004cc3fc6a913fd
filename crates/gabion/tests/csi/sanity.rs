//! The conformance tests of the Kubernetes project, `csi-sanity`.

use std::process::Command;

use super::driver::{CleanUp, Driver, is_possible, log, loops_below, mounts_below};
use super::harness::DaemonHome;

/// Returns the program `csi-sanity`, which `./run setup` installs next to cargo's build
/// directories.
fn program() -> Option<std::path::PathBuf> {
    let built = std::path::Path::new(env!("CARGO_BIN_EXE_gabion"));
    let mut candidates = built.ancestors().map(|path| path.join("go/csi-sanity"));
    let found = candidates.find(|path| path.is_file()).or_else(|| test_support::find_program("csi-sanity"));
    let available = found.is_some().then_some(()).ok_or_else(|| "it was not installed".to_owned());
    if test_support::has("csi-sanity", available) { found } else { None }
}

#[test]
fn csi_sanity_passes() {
    if !is_possible() {
        return;
    }
    let Some(program) = program() else { return };
    let home = DaemonHome::new();
    let _clean = CleanUp(home.path(""));
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["volume", "delete", "fast/vm01", "--yes"]);
    let driver = Driver::start(&home);
    let class = home.path("class.yaml");
    std::fs::write(&class, "pool: fast\n").unwrap();
    let output = Command::new(program)
        .arg(format!("--csi.endpoint=unix://{}", home.arg("csi.sock")))
        .arg(format!("--csi.mountdir={}", home.arg("target")))
        .arg(format!("--csi.stagingdir={}", home.arg("staging")))
        .arg(format!("--csi.testvolumeparameters={}", class.display()))
        .args(["--csi.testvolumesize=1073741824", "--csi.testvolumeexpandsize=2147483648"])
        .args(["--ginkgo.no-color", "--ginkgo.succinct"])
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}\n{}", log(&home));
    assert!(report.contains("Passed") || report.contains("SUCCESS"), "{report}");
    drop(driver);
    assert_eq!(mounts_below(&home.path("target")), Vec::<String>::new());
    assert_eq!(loops_below(&home.path("")), Vec::<String>::new());
    assert_eq!(daemon.ok(&["volume", "list", "fast", "--snapshots", "--quiet"]).trim(), "");
}
