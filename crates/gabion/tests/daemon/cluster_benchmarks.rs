//! Suites of the reference benchmark on a cluster: volumes and files, copies and erasure coding,
//! from one client and from all hosts, and `rados bench`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// A cluster, and a directory of runs.
pub(crate) struct ClusterBench<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) base: &'a Path,
    pub(crate) runs: PathBuf,
}

impl ClusterBench<'_> {
    fn target(&self, name: &str, kind: &str, options: &str) -> String {
        format!("{name}={kind}:{},dir={},network=10{options}", self.cluster, self.base.display())
    }

    /// Runs a suite on targets. Returns its summary and its report.
    fn run(&self, suite: &str, targets: &[String], more: &[&str]) -> (Value, Value) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
        command.args(["bench", "run", suite, "--report", "--json", "--quick", "--seconds", "1"]);
        command.args(targets.iter().flat_map(|target| ["--target", target])).args(more);
        let output = command.arg("--results").arg(&self.runs).stdin(Stdio::null()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        // The paths of the report follow the summary.
        let mut documents = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
        let summary = documents.next().unwrap().unwrap();
        let folder = PathBuf::from(summary["folder"].as_str().unwrap());
        let report = std::fs::read(folder.join("report/report.json")).unwrap();
        // Nothing stays mounted.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(folder.to_str().unwrap()), "{mounts}");
        (summary, serde_json::from_slice(&report).unwrap())
    }
}

impl ClusterBench<'_> {
    /// Returns the names of all images in the pool of volumes.
    fn images(&self) -> String {
        let directory = self.base.join(self.cluster);
        let mut command = Command::new("rbd");
        command.arg("-c").arg(directory.join("ceph.conf")).arg("-k").arg(directory.join("ceph.keyring"));
        let output = command.args(["-p", "rbd", "ls"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Returns the operations per second of the results of a target, or the reasons of missing ones.
fn results(summary: &Value, target: &str) -> Vec<(String, Result<f64, String>)> {
    let lines = summary["results"].as_array().unwrap().iter().filter(|one| one["target"] == target);
    let of = |one: &Value| {
        let sum: f64 = ["read", "write"].iter().filter_map(|side| one[*side]["iops"].as_f64()).sum();
        let rate = if sum > 0.0 { Ok(sum) } else { Err(one["missing"].to_string()) };
        (one["case"].as_str().unwrap().to_owned(), rate)
    };
    lines.map(of).collect()
}

fn assert_all_measured(summary: &Value, target: &str, count: usize) {
    let results = results(summary, target);
    assert_eq!(results.len(), count, "{summary}");
    assert!(results.iter().all(|(_, rate)| rate.is_ok()), "{results:?}");
}

/// Returns the names of the bounds of a target.
fn bounds(report: &Value, target: &str) -> Vec<String> {
    let cases = report["analysis"]["cases"].as_array().unwrap().iter();
    let of = cases.filter(|case| case["target"] == target);
    let names = of.flat_map(|case| case["efficiency"].as_array().unwrap());
    names.map(|one| one["bound"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Runs the suites. The cluster has the pools `ec22` for volumes and `files22` for files.
pub(crate) fn suites_are_measured(bench: &ClusterBench<'_>) {
    volumes_and_files_with_copies_and_parity(bench);
    machines_on_all_hosts(bench);
    whole_objects(bench);
    a_killed_run_leaves_nothing_after_its_resumption(bench);
    invalid_targets_are_refused(bench);
}

fn volumes_and_files_with_copies_and_parity(bench: &ClusterBench<'_>) {
    let targets = [
        bench.target("rbd", "cluster", ""),
        bench.target("rbd22", "cluster", ",pool=ec22,by=vhost"),
        bench.target("fs", "cluster", ",by=cephfs"),
        bench.target("fs22", "cluster", ",by=cephfs,pool=files22"),
    ];
    // A job without a latency target, which the generator of vhost-user does not have.
    let (summary, report) = bench.run("sweep", &targets, &["--only", "64k sequential read"]);
    for target in ["rbd", "rbd22", "fs", "fs22"] {
        assert_all_measured(&summary, target, 1);
        let bounds = bounds(&report, target);
        assert!(bounds.contains(&"network".to_owned()), "{bounds:?}");
        // A read of a copy stays on its host, and half of a read of two parts does not, unless the
        // requests of this host use the same links.
        let has_clients = bounds.contains(&"network of the hosts".to_owned());
        let crosses = bounds.contains(&"network between hosts".to_owned());
        assert_eq!(crosses, target.ends_with("22") && !has_clients, "{target}: {bounds:?}");
    }
    let (summary, _) = bench.run("sweep", &targets[2..], &["--only", "64k random write"]);
    assert_all_measured(&summary, "fs", 1);
    assert_all_measured(&summary, "fs22", 1);
    let systems = report["systems"].as_array().unwrap();
    let described = |target: &str| {
        let system = systems.iter().find(|system| system["target"] == target).unwrap();
        system["about"]["what"].as_str().unwrap().to_owned()
    };
    assert!(described("rbd22").contains("pool ec22 (2+2), by vhost-user"), "{}", described("rbd22"));
    assert!(described("fs22").contains("pool files22 (2+2), by CephFS"), "{}", described("fs22"));
}

fn machines_on_all_hosts(bench: &ClusterBench<'_>) {
    let targets = [
        bench.target("vms", "cluster", ",on=hosts,by=vhost"),
        bench.target("files", "cluster", ",on=hosts,by=cephfs"),
    ];
    let more = ["--instances", "4", "--only", "4k random 70:30"];
    let (summary, report) = bench.run("vm-scale", &targets, &more);
    assert_all_measured(&summary, "vms", 6);
    assert_all_measured(&summary, "files", 6);
    // Requests of the machines cross the links of the hosts, and there is no other link.
    let bounds = bounds(&report, "vms");
    assert!(!bounds.contains(&"network".to_owned()), "{bounds:?}");
    assert!(bounds.contains(&"network between hosts".to_owned()), "{bounds:?}");
}

fn whole_objects(bench: &ClusterBench<'_>) {
    let targets = [bench.target("rados", "rados", ""), bench.target("ec", "rados", ",pool=ec22")];
    let (summary, report) = bench.run("rados", &targets, &[]);
    for target in ["rados", "ec"] {
        assert_all_measured(&summary, target, 3);
        assert!(bounds(&report, target).contains(&"network".to_owned()));
    }
    let line = summary["results"].as_array().unwrap().iter().find(|one| one["target"] == "rados").unwrap();
    let write = &line["write"];
    let (iops, bytes) = (write["iops"].as_f64().unwrap(), write["bytes_per_s"].as_f64().unwrap());
    assert!((bytes / iops / f64::from(4 << 20) - 1.0).abs() < 0.05, "{write}");
    assert!(write["mean_us"].as_f64() > Some(0.0) && write["p9995_us"].as_f64() == Some(0.0), "{write}");
    // Jobs that the program does not have.
    let (summary, _) = bench.run("sweep", &targets[..1], &["--only", "64k random"]);
    let reasons: Vec<String> =
        results(&summary, "rados").into_iter().map(|(_, rate)| rate.unwrap_err()).collect();
    let has = |reason: &str| reasons.iter().any(|found| found.contains(reason));
    assert!(has("in order") && has("does not mix") && has("latency targets"), "{reasons:?}");
}

/// Kills a run whose first target has all results while the second one is measured: no step of the
/// first target is left that would remove its volumes.
fn a_killed_run_leaves_nothing_after_its_resumption(bench: &ClusterBench<'_>) {
    let runs = bench.runs.with_extension("killed");
    let program = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
        command.args(words).arg("--results").arg(&runs).stdin(Stdio::null());
        command
    };
    let mut command =
        program(&["bench", "run", "sweep", "--quick", "--seconds", "3", "--only", "64k sequential read"]);
    command.args(["--target", &bench.target("done", "cluster", "")]);
    command.args(["--target", &bench.target("files", "cluster", ",by=cephfs")]);
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let entries = |path: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(path).map(|all| all.map(|one| one.unwrap().path()).collect()).unwrap_or_default()
    };
    let mounted = |folder: &Path| {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let run = folder.file_name().unwrap().to_str().unwrap();
        mounts.lines().filter(|line| line.contains(run)).count()
    };
    let folder = loop {
        assert!(running.try_wait().unwrap().is_none(), "the run ended before it was killed");
        match entries(&runs).into_iter().find(|path| path.is_dir()) {
            Some(folder) if folder.join("files.cleanup").exists() && mounted(&folder) > 0 => break folder,
            _ => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    running.kill().unwrap();
    running.wait().unwrap();
    let run = folder.file_name().unwrap().to_str().unwrap();
    assert!(folder.join("done.cleanup").exists());
    assert!(bench.images().contains(run), "{}", bench.images());
    let resumed = program(&["bench", "resume", run]).output().unwrap();
    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    assert!(!bench.images().contains(run), "{}", bench.images());
    assert_eq!(mounted(&folder), 0);
    let left: Vec<PathBuf> =
        entries(&folder).into_iter().filter(|path| path.extension() == Some("cleanup".as_ref())).collect();
    assert!(left.is_empty(), "{left:?}");
    let points = entries(Path::new("/run/gabion-bench"));
    assert!(points.iter().all(|path| !path.to_str().unwrap().contains(run)), "{points:?}");
}

fn invalid_targets_are_refused(bench: &ClusterBench<'_>) {
    let cases = [
        ("cluster", ",pool=none", "has no pool 'none'"),
        ("cluster", ",size=1T", "do not fit in 80 %"),
        ("cluster", ",by=cephfs,pool=ec22", "cannot store the files"),
        ("cluster", ",pool=files22", "pool"),
        ("rados", ",pool=none", "has no pool 'none'"),
    ];
    for (kind, options, expected) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
        command.args(["bench", "run", "sweep", "--seconds", "1", "--only", "4M sequential read", "--target"]);
        command.arg(bench.target("x", kind, options)).arg("--results").arg(&bench.runs);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && text.contains(expected), "{options}: {text}");
    }
}
