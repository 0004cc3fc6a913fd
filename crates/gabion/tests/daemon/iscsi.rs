//! Exports over iSCSI, with the initiator and the conformance tests of libiscsi.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use super::harness::{Daemon, DaemonHome, until};

const TARGET: &str = "iqn.2014-08.org.example:disk";

/// Suites of iscsi-test-cu. The last test of `GetLBAStatus` assumes that physical blocks have the
/// size of logical blocks.
const SUITES: [&str; 42] = [
    "ALL.CompareAndWrite",
    "ALL.GetLBAStatus.Simple",
    "ALL.GetLBAStatus.BeyondEol",
    "ALL.Inquiry",
    "ALL.Mandatory",
    "ALL.ModeSense6",
    "ALL.Prefetch10",
    "ALL.Prefetch16",
    "ALL.PreventAllow",
    "ALL.PrinReadKeys",
    "ALL.PrinReportCapabilities",
    "ALL.PrinServiceactionRange",
    "ALL.ProutClear",
    "ALL.ProutPreempt",
    "ALL.ProutRegister",
    "ALL.ProutReserve",
    "ALL.Read6",
    "ALL.Read10",
    "ALL.Read12",
    "ALL.Read16",
    "ALL.ReadCapacity10",
    "ALL.ReadCapacity16",
    "ALL.ReportSupportedOpcodes",
    "ALL.Reserve6",
    "ALL.StartStopUnit",
    "ALL.TestUnitReady",
    "ALL.Unmap",
    "ALL.Verify10",
    "ALL.Verify12",
    "ALL.Verify16",
    "ALL.Write10",
    "ALL.Write12",
    "ALL.Write16",
    "ALL.WriteSame10",
    "ALL.WriteSame16",
    "ALL.WriteVerify10",
    "ALL.WriteVerify12",
    "ALL.WriteVerify16",
    "ALL.iSCSIResiduals",
    "ALL.iSCSITMF",
    "ALL.iSCSIcmdsn",
    "ALL.iSCSIdatasn",
];

/// Suites that are not run, and the reason.
const EXCLUDED: [(&str, &str); 10] = [
    ("ALL.ExtendedCopy", "EXTENDED COPY is not supported"),
    ("ALL.MultipathIO", "it needs a second path"),
    ("ALL.NoMedia", "the medium of a volume cannot be removed"),
    ("ALL.OrWrite", "ORWRITE is not supported"),
    ("ALL.ReadDefectData10", "volumes have no list of defects"),
    ("ALL.ReadDefectData12", "volumes have no list of defects"),
    ("ALL.ReadOnly", "it needs a read-only unit"),
    ("ALL.ReceiveCopyResults", "EXTENDED COPY is not supported"),
    ("ALL.Sanitize", "SANITIZE is not supported"),
    ("ALL.WriteAtomic16", "WRITE ATOMIC is not supported"),
];

/// An address that no process uses now.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn export(daemon: &Daemon, address: SocketAddr, options: &[&str]) -> String {
    let (listen, target) = (format!("--listen={address}"), format!("--target={TARGET}"));
    let create = ["export", "create", "fast/vm01", "--iscsi", &listen, &target];
    daemon.ok(&[&create[..], options].concat())
}

/// Runs a program of libiscsi. Returns its success and its output.
fn libiscsi(program: &str, arguments: &[&str]) -> (bool, String) {
    assert!(test_support::has_program(program), "{program} is missing");
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn every_suite_of_libiscsi_is_run_or_excluded_for_a_reason() {
    let (success, list) = libiscsi("iscsi-test-cu", &["-l"]);
    let suites = list.lines().map(str::trim).filter(|line| line.split('.').count() == 2);
    let all: Vec<&str> = suites.filter(|suite| suite.starts_with("ALL.")).collect();
    assert!(success && all.len() >= SUITES.len(), "{list}");
    for suite in all {
        let is_run = SUITES.iter().any(|run| *run == suite || run.starts_with(&format!("{suite}.")));
        let reason = EXCLUDED.iter().find(|(excluded, _)| *excluded == suite);
        assert!(is_run != reason.is_some(), "{suite}: {reason:?}");
    }
}

#[test]
fn the_conformance_tests_of_libiscsi_pass() {
    let home = DaemonHome::new();
    let address = free_address();
    let daemon = home.start();
    daemon.make_pool();
    let printed = export(&daemon, address, &[]);
    assert!(printed.contains("iscsiadm") && printed.contains(TARGET), "{printed}");
    let url = format!("iscsi://{address}/{TARGET}/0");
    for suite in SUITES {
        let (success, text) = libiscsi("iscsi-test-cu", &["-d", "-f", "-n", "-t", suite, &url]);
        let asserts = text.lines().find(|line| line.trim_start().starts_with("asserts"));
        let counts: Vec<&str> = asserts.unwrap_or_default().split_whitespace().collect();
        let [_, total, _, _, failed, ..] = counts[..] else { panic!("{suite}: {text}") };
        assert!(success && total != "0" && failed == "0", "{suite}: {text}");
    }
    daemon.stop();
}

#[test]
fn a_target_with_chap_survives_a_kill_and_refuses_others() {
    let home = DaemonHome::new();
    let address = free_address();
    let daemon = home.start();
    daemon.make_pool();
    let secret = home.path("secret");
    std::fs::write(&secret, "a secret of CHAP").unwrap();
    let options = ["--chap-user=ada", "--chap-secret-file", secret.to_str().unwrap()];
    export(&daemon, address, &options);
    let inquire = |user: &str| libiscsi("iscsi-inq", &[&format!("iscsi://{user}{address}/{TARGET}/0")]);
    let good = "ada%a secret of CHAP@";
    let (success, text) = inquire(good);
    assert!(success && text.contains("Peripheral Device Type"), "{text}");
    assert!(!inquire("").0 && !inquire("ada%another secret@").0);
    daemon.kill();

    let daemon = home.start();
    until("the export is active again", || daemon.json(&["export", "list"])[0]["state"] == "active");
    assert!(inquire(good).0 && !inquire("").0);
    daemon.ok(&["export", "delete", "fast/vm01"]);
    assert!(!inquire(good).0);
    let log = daemon.stop();
    assert!(!log.contains("a secret of CHAP"), "the log contains a secret");
}
