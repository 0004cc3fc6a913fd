//! Metrics: both text formats, strictly parsed; values that match the API; rules and dashboard with
//! a real Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::drive_health::fake_smartctl;
use super::harness::{Daemon, DaemonHome, until};
use super::mounts::LoopDevice;
use super::nbd::{Client, pattern};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Beginnings of the names of metrics of the dashboard that only block devices have.
const BLOCK_DEVICE_METRICS: [&str; 4] =
    ["gabion_drive_operation", "gabion_drive_busy", "gabion_drive_wear", "gabion_drive_temperature"];

/// Sends a GET request. Returns the head and the body of the response.
fn get(mut stream: impl Read + Write, path: &str, accept: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

pub(crate) fn scrape(home: &DaemonHome) -> String {
    let (head, body) =
        get(UnixStream::connect(home.socket()).unwrap(), "/metrics", "application/openmetrics-text");
    assert!(head.starts_with("http/1.1 200") && head.contains(OPEN_METRICS), "{head}");
    body
}

/// Returns the address of the listener for metrics.
fn address(daemon: &Daemon<'_>) -> String {
    let log = daemon.log();
    let line = log.lines().find(|line| line.contains("serving metrics")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    line["address"].as_str().unwrap().to_owned()
}

/// Metrics in OpenMetrics text: families with type, and samples by name and labels.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

impl Parsed {
    /// Parses the text and checks the rules of OpenMetrics 1.0: metadata before samples, families
    /// that are not interleaved, units as suffixes, suffixes by type, unique samples, complete and
    /// cumulative histograms, and the end.
    pub(crate) fn strict(text: &str) -> Self {
        let body = text.strip_suffix("# EOF\n").expect("the end is marked");
        let mut parsed = Self::default();
        let mut family = String::new();
        for line in body.lines() {
            assert_eq!(line.trim(), line, "spaces around a line");
            if let Some(metadata) = line.strip_prefix("# ") {
                let mut words = metadata.splitn(3, ' ');
                let (word, name, rest) =
                    (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
                match word {
                    "HELP" => assert!(rest.len() > 10, "{line}"),
                    "TYPE" => {
                        assert!(["gauge", "counter", "histogram", "info"].contains(&rest), "{line}");
                        assert!(parsed.kinds.insert(name.into(), rest.into()).is_none(), "twice: {line}");
                        name.clone_into(&mut family);
                    }
                    "UNIT" => {
                        assert!(["bytes", "celsius", "seconds"].contains(&rest), "{line}");
                        assert!(name == family && name.ends_with(&format!("_{rest}")), "{line}");
                    }
                    _ => panic!("{line}"),
                }
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let suffix =
                name.strip_prefix(family.as_str()).unwrap_or_else(|| panic!("{line} outside its family"));
            let kind = parsed.kinds[&family].as_str();
            let suffixes: &[&str] = match kind {
                "gauge" => &[""],
                "counter" => &["_total"],
                "info" => &["_info"],
                _ => &["_sum", "_count", "_bucket"],
            };
            assert!(suffixes.contains(&suffix), "{line} in a family of type {kind}");
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(kind == "gauge" || value >= 0.0, "{line}");
            check_labels(series);
            assert!(parsed.samples.insert(series.into(), value).is_none(), "twice: {line}");
        }
        parsed.check_histograms();
        parsed
    }

    fn check_histograms(&self) {
        let mut counts = BTreeMap::new();
        for (series, value) in &self.samples {
            if let Some((name, labels)) = series.split_once("_bucket{") {
                let is_bound = |label: &&str| label.starts_with("le=");
                let (bounds, others): (Vec<&str>, Vec<&str>) =
                    labels.trim_end_matches('}').split(',').partition(is_bound);
                let bound = bounds[0].trim_start_matches("le=").trim_matches('"');
                let key = format!("{name}_count{{{}}}", others.join(","));
                let buckets: &mut Vec<(f64, f64)> = counts.entry(key).or_default();
                buckets.push((bound.parse().unwrap_or(f64::INFINITY), *value));
            }
        }
        for (key, mut buckets) in counts {
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{key}: {buckets:?}");
            let (bound, last) = buckets.last().unwrap();
            assert!(bound.is_infinite() && self.samples[&key] == *last, "{key}: {buckets:?}");
        }
    }

    /// Returns the sample with this name and all of these labels.
    #[track_caller]
    pub(crate) fn one(&self, name: &str, labels: &[&str]) -> f64 {
        let fits = |series: &str| {
            series.split('{').next() == Some(name) && labels.iter().all(|label| series.contains(label))
        };
        let found: Vec<_> = self.samples.iter().filter(|(series, _)| fits(series)).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
        *found[0].1
    }
}

/// Checks the syntax of the labels of a series, and that no name occurs twice.
fn check_labels(series: &str) {
    let Some((_, rest)) = series.split_once('{') else { return };
    let mut rest = rest.strip_suffix('}').unwrap();
    let mut names = BTreeSet::new();
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{series}"));
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{series}");
        assert!(names.insert(name), "{series}");
        let mut escaped = false;
        let end = value.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let after = value.get(end.unwrap() + 1..).unwrap();
        rest = after.strip_prefix(',').unwrap_or(after);
    }
}

/// Creates a pool with an exported volume, and reads and writes it.
fn use_a_volume(daemon: &Daemon<'_>, home: &DaemonHome) {
    daemon.make_pool();
    daemon.ok(&["volume", "snapshot", "fast/vm01@before"]);
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    for number in 0..32 {
        client.write(number << 16, &pattern(number, 1 << 16)).unwrap();
    }
    for number in 0..8 {
        client.read(number << 16, 4096).unwrap();
    }
    client.flush().unwrap();
}

#[test]
fn metrics_are_valid_open_metrics_and_match_the_pool() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--metrics-listen", "127.0.0.1:0"]);
    Parsed::strict(&scrape(&home));
    use_a_volume(&daemon, &home);
    let parsed = Parsed::strict(&scrape(&home));
    let volume = ["pool=\"fast\"", "volume=\"vm01\"", "export=\"nbd\"", "protocol=\"nbd\""];
    let of_export = |name, operation: &str| parsed.one(name, &[&volume[..], &[operation]].concat());
    assert_eq!(of_export("gabion_export_operations_total", "operation=\"write\""), 32.0);
    assert_eq!(
        of_export("gabion_export_transferred_bytes_total", "operation=\"write\""),
        f64::from(32 << 16)
    );
    assert_eq!(of_export("gabion_export_operations_total", "operation=\"read\""), 8.0);
    assert_eq!(of_export("gabion_export_operations_total", "operation=\"flush\""), 1.0);
    assert_eq!(of_export("gabion_export_errors_total", "operation=\"write\""), 0.0);
    // Requests 0 and 16 of 32 are timed.
    assert_eq!(of_export("gabion_export_latency_seconds_count", "operation=\"write\""), 2.0);
    assert!(of_export("gabion_export_latency_seconds_sum", "operation=\"write\"") > 0.0);
    assert_eq!(parsed.one("gabion_pool_state", &["state=\"open\""]), 1.0);
    assert_eq!(parsed.one("gabion_pool_health", &["health=\"healthy\""]), 1.0);
    assert_eq!(parsed.one("gabion_pool_snapshots", &[]), 1.0);
    assert_eq!(parsed.one("gabion_volume_size_bytes", &["volume=\"vm01\""]), f64::from(1 << 30));
    let pool = daemon.pool("fast");
    let written = parsed.one("gabion_pool_written_bytes_total", &["cause=\"user\""]);
    assert_eq!(written, pool["counters"]["user_blocks"].as_f64().unwrap() * 4096.0);
    assert!(written >= f64::from(32 << 16), "{written}");
    assert_eq!(
        parsed.one("gabion_drive_size_bytes", &["drive=\"4\""]),
        pool["drives"][4]["size"].as_f64().unwrap()
    );
    let busy = parsed.one("gabion_reactor_busy_seconds_total", &["reactor=\"0\""]);
    let uptime = parsed.one("gabion_uptime_seconds", &[]);
    assert!(0.0 < busy && busy < uptime + 1.0, "{busy} of {uptime} s");
    daemon.ok(&["drive", "fail", "fast", "0", "--yes"]);
    let degraded = Parsed::strict(&scrape(&home));
    assert_eq!(degraded.one("gabion_drive_state", &["drive=\"0\"", "state=\"failed\""]), 1.0);
    assert_eq!(degraded.one("gabion_pool_health", &["health=\"healthy\""]), 0.0);
    assert!(degraded.one("gabion_pool_problems", &[]) >= 1.0);

    // The listener has metrics and nothing else.
    let address = address(&daemon);
    let (head, text) = get(TcpStream::connect(&address).unwrap(), "/metrics", "text/plain");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(text.contains("\n# TYPE gabion_export_operations_total counter\n"), "{text}");
    let (head, _) = get(TcpStream::connect(&address).unwrap(), "/v1/pools", "*/*");
    assert!(head.starts_with("http/1.1 404"), "{head}");
    if test_support::has_program("promtool") {
        check_with_promtool(&text);
    }
    // The failed drive is an error in the log, which an orderly stop in tests does not accept.
    daemon.kill();
}

fn check_with_promtool(text: &str) {
    let mut promtool = Command::new("promtool");
    let child = promtool
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

/// Returns a file of the repository.
fn deployed(path: &str) -> String {
    format!("{}/../../deploy/{path}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn alert_rules_fire_as_their_tests_expect() {
    if !test_support::has_program("promtool") {
        return;
    }
    for arguments in [
        ["check", "rules", "prometheus/gabion.rules.yml"],
        ["test", "rules", "prometheus/gabion.rules.test.yml"],
    ] {
        let [verb, noun, file] = arguments;
        let output = Command::new("promtool").args([verb, noun, &deployed(file)]).output().unwrap();
        assert!(output.status.success(), "{file}: {output:?}");
    }
}

/// Returns the expressions of the dashboard, with the variables replaced by values of the test.
fn expressions() -> Vec<String> {
    let text = std::fs::read_to_string(deployed("grafana/gabion.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let replace = |expression: &str| {
        expression.replace("$pool", "fast").replace("$volume", "vm01").replace("$__rate_interval", "20s")
    };
    targets.map(|target| replace(target["expr"].as_str().unwrap())).collect()
}

/// A Prometheus that scrapes the daemon; killed on drop.
struct Prometheus {
    child: Child,
    address: String,
}

impl Prometheus {
    fn start(home: &DaemonHome, target: &str) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = home.path("prometheus.yml");
        let rules = deployed("prometheus/gabion.rules.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{rules}']\n\
             scrape_configs: [{{job_name: gabion, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        std::fs::write(&config, text).unwrap();
        let address = format!("127.0.0.1:{port}");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", home.arg("prometheus")))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, address }
    }

    /// Returns the number of series of the result of an expression; 0 while Prometheus starts.
    fn series(&self, expression: &str) -> usize {
        let Ok(stream) = TcpStream::connect(&self.address) else { return 0 };
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (_, body) = get(stream, &format!("/api/v1/query?query={encoded}"), "*/*");
        let Some(start) = body.find('{') else { return 0 };
        // The body may be in chunks; it is short enough for one.
        let end = body.rfind('}').unwrap();
        let Ok(answer) = serde_json::from_str::<Value>(&body[start..=end]) else { return 0 };
        assert_ne!(answer["status"], "error", "{expression}: {answer}");
        answer["data"]["result"].as_array().map_or(0, Vec::len)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn prometheus_has_a_value_for_every_expression_of_the_dashboard() {
    if !test_support::has_program("prometheus") {
        return;
    }
    let home = DaemonHome::new();
    // Files have no SMART data and no counters of the kernel.
    let device = (test_support::has_loop() && test_support::has_program("losetup"))
        .then(|| LoopDevice::attach(&home.file("device", 256 << 20)));
    let mut serve = home.serve(&["--metrics-listen", "127.0.0.1:0"]);
    if let Some(device) = &device {
        serve.env("PATH", fake_smartctl(&home, device));
    }
    let daemon = home.start_by(serve);
    use_a_volume(&daemon, &home);
    if let Some(device) = &device {
        daemon.ok(&["drive", "add", "fast", &device.0]);
    }
    let prometheus = Prometheus::start(&home, &address(&daemon));
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    let mut expressions = expressions();
    if device.is_none() {
        expressions.retain(|expression| !BLOCK_DEVICE_METRICS.iter().any(|name| expression.contains(name)));
    }
    assert!(expressions.len() > 10, "{expressions:?}");
    for expression in &expressions {
        until(&format!("a value for {expression}"), || {
            client.write(0, &pattern(1, 1 << 16)).unwrap();
            client.read(0, 4096).unwrap();
            client.flush().unwrap();
            prometheus.series(expression) > 0
        });
    }
    // The opposite: a name that does not exist has no value.
    assert_eq!(prometheus.series("gabion_no_such_metric"), 0);
    daemon.stop();
    drop(device);
}
