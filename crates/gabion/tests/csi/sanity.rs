//! The conformance tests of the Kubernetes project, `csi-sanity`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::driver::{CleanUp, Driver, is_possible, log, loops_below, mounts_below};
use super::harness::DaemonHome;

/// Returns a program that `./run setup` installs next to cargo's build directories.
pub(crate) fn find_go_program(name: &str) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_BIN_EXE_gabion"));
    let mut candidates = built.ancestors().map(|path| path.join("go").join(name));
    let found = candidates.find(|path| path.is_file()).or_else(|| test_support::find_program(name));
    let available = found.is_some().then_some(()).ok_or_else(|| "it was not installed".to_owned());
    if test_support::has(name, available) { found } else { None }
}

#[test]
fn csi_sanity_passes() {
    if !is_possible() {
        return;
    }
    let Some(program) = find_go_program("csi-sanity") else { return };
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
