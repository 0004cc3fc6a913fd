//! Loads by `warp`, the generator of the reference document, instead of the built-in one.
//!
//! Always true: the figures are computed from the operations that `warp` logs, within the last part
//! of its run; `warp` does not compare contents. Must not know: the measured system.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use super::ObjectOperation;
use super::load_error::ObjectLoadError;
use super::plan::ObjectLoad;
use crate::load::{LoadResult, Output, S3Endpoint, Second};
use crate::program::{Server, command, is_installed, run as run_program};
use crate::result::{Direction, ReadWrite};

const PROGRAM: &str = "warp";
/// Decompresses the log of operations.
const ZSTD: &str = "zstd";
/// Time for the preparation and the removal of the objects.
const PREPARE_MAX: Duration = Duration::from_secs(3600);

/// Returns the version of `warp` if it can be used.
pub fn warp_version() -> Option<String> {
    if !is_installed(PROGRAM) || !is_installed(ZSTD) {
        return None;
    }
    let text = run_program(command(PROGRAM).arg("--version")).ok()?;
    text.lines().next().map(|line| line.trim().to_owned())
}

/// True if `warp` can generate this load: one object size, whole objects, random deletions.
pub(super) fn supports(load: &ObjectLoad) -> bool {
    load.range_bytes.is_none() && !load.oldest_first && load.sizes.is_single()
}

/// Runs a load. Its log has the prefix `name` in `folder`.
pub(super) fn run(
    load: &ObjectLoad,
    endpoint: &S3Endpoint,
    (folder, name): (&Path, &str),
    stop: &AtomicBool,
    on_start: impl FnOnce(u32),
) -> Result<LoadResult, ObjectLoadError> {
    let fail = |error: &dyn std::fmt::Display| ObjectLoadError::Warp(error.to_string());
    let data = folder.join(format!("{name}-warp"));
    let arguments = arguments(load, endpoint, &data);
    let mut server =
        Server::start(arguments, folder, &format!("{name}-warp")).map_err(|error| fail(&error))?;
    on_start(server.process());
    let limit = PREPARE_MAX + load.warm_up + load.run;
    server.wait_for_exit(limit, stop).map_err(|error| match stop.load(Ordering::Relaxed) {
        true => ObjectLoadError::Interrupted,
        false => fail(&error),
    })?;
    // `with_extension` would replace a part of the name after a dot.
    let log = folder.join(format!("{name}-warp.csv.zst"));
    let text = run_program(command(ZSTD).args(["-d", "-c", "-q"]).arg(log)).map_err(|error| fail(&error))?;
    let mut result = parse(&text, load.run).map_err(|error| fail(&error))?;
    result.output.version = warp_version().unwrap_or_else(|| PROGRAM.to_owned());
    Ok(result)
}

/// Returns the command of a load. The keys are in the environment, where other users cannot see
/// them.
fn arguments(load: &ObjectLoad, endpoint: &S3Endpoint, data: &Path) -> Command {
    let kind = match load.shares.0 {
        [100, 0, 0, 0] => "get",
        [0, 0, 100, 0] => "put",
        _ => "mixed",
    };
    let host = endpoint.url.strip_prefix("http://").unwrap_or(&endpoint.url).trim_end_matches('/');
    let mut command = command(PROGRAM);
    command.arg(kind).args(["--quiet", "--no-color", "--full", "--lookup=path"]);
    command.env("WARP_HOST", host).env("WARP_REGION", &endpoint.region);
    command.env("WARP_ACCESS_KEY", &endpoint.access_key).env("WARP_SECRET_KEY", &endpoint.secret_key);
    let seconds = (load.warm_up + load.run).as_secs();
    command.arg(format!("--bucket={}", load.bucket));
    command.arg(format!("--obj.size={}", load.sizes.mean()));
    command.arg(format!("--concurrent={}", load.clients));
    command.arg(format!("--duration={seconds}s"));
    command.arg(format!("--benchdata={}", data.display()));
    if kind != "put" {
        command.arg(format!("--objects={}", load.objects));
    }
    if kind == "mixed" {
        for operation in ObjectOperation::ALL {
            let name = operation.name().to_lowercase();
            command.arg(format!("--{name}-distrib={}", load.shares.share(operation)));
        }
    }
    command
}

/// An operation of the log.
struct LoggedOperation<'a> {
    kind: &'a str,
    bytes: u64,
    end_ns: i128,
    latency_ns: u64,
}

/// Returns the result of the last `run` of the log, which is a table with tabs and the names of the
/// columns in its first line.
fn parse(text: &str, run: Duration) -> Result<LoadResult, String> {
    let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let header: Vec<&str> = lines.next().ok_or("its log of operations is empty")?.split('\t').collect();
    let column = |name: &str| {
        let found = header.iter().position(|title| *title == name);
        found.ok_or_else(|| format!("its log of operations has no column '{name}'"))
    };
    let (op, bytes, error) = (column("op")?, column("bytes")?, column("error")?);
    let (end, duration) = (column("end")?, column("duration_ns")?);
    let mut operations = Vec::new();
    for line in lines {
        let cells: Vec<&str> = line.split('\t').collect();
        let cell = |index: usize| cells.get(index).copied().unwrap_or_default();
        if !cell(error).is_empty() {
            return Err(format!("a {} failed: {}", cell(op), cell(error)));
        }
        let invalid = || format!("its log has the invalid line '{line}'");
        let end: Timestamp = cell(end).parse().map_err(|_| invalid())?;
        operations.push(LoggedOperation {
            kind: cell(op),
            bytes: cell(bytes).parse().map_err(|_| invalid())?,
            end_ns: end.as_nanosecond(),
            latency_ns: cell(duration).parse().map_err(|_| invalid())?,
        });
    }
    let last = operations.iter().map(|one| one.end_ns).max().ok_or("its log has no operation")?;
    let begin = last - i128::try_from(run.as_nanos()).unwrap_or(i128::MAX);
    operations.retain(|one| one.end_ns > begin);
    Ok(summarise(&operations, begin, run))
}

#[allow(clippy::cast_precision_loss)]
fn summarise(operations: &[LoggedOperation<'_>], begin: i128, run: Duration) -> LoadResult {
    let seconds = run.as_secs_f64().max(1e-9);
    let side = |operation: ObjectOperation| {
        let own = || operations.iter().filter(move |one| one.kind == operation.name());
        let (count, bytes) = (own().count() as u64, own().map(|one| one.bytes).sum::<u64>());
        (count > 0).then(|| Direction {
            iops: count as f64 / seconds,
            bytes_per_s: bytes as f64 / seconds,
            ios: count,
            mean_us: own().map(|one| one.latency_ns as f64 / 1e3).sum::<f64>() / count as f64,
            latencies: own().map(|one| (one.latency_ns, 1)).collect(),
        })
    };
    let mut timeline: Vec<Second> =
        (1..=run.as_secs()).map(|second| Second { at: second as f64, read: 0.0, write: 0.0 }).collect();
    for one in operations {
        // The end of the interval belongs to it.
        let index = usize::try_from((one.end_ns - begin - 1) / 1_000_000_000).unwrap_or(usize::MAX);
        if let Some(second) = timeline.get_mut(index) {
            second.read += f64::from(u8::from(one.kind == ObjectOperation::Get.name()));
            second.write += f64::from(u8::from(one.kind == ObjectOperation::Put.name()));
        }
    }
    let named = |operation: ObjectOperation| Some((operation.name().to_owned(), side(operation)?));
    let others: BTreeMap<String, Direction> =
        [ObjectOperation::Stat, ObjectOperation::Delete].into_iter().filter_map(named).collect();
    let instance = ReadWrite { read: side(ObjectOperation::Get), write: side(ObjectOperation::Put) };
    LoadResult {
        output: Output { version: String::new(), instances: vec![instance] },
        others,
        seconds: timeline,
        ended: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{ObjectSizes, RequestShares};

    const HEADER: &str = "idx\tthread\top\tclient_id\tn_objects\tbytes\tendpoint\tfile\terror\tstart\tfirst_byte\tend\tduration_ns\tcat";

    fn line(op: &str, bytes: u64, error: &str, end: &str, nanos: u64) -> String {
        format!("0\t1\t{op}\tc\t1\t{bytes}\thttp://x\tf\t{error}\t{end}\t\t{end}\t{nanos}\t0")
    }

    #[test]
    fn the_last_part_of_a_log_is_counted() {
        let lines = [
            HEADER.to_owned(),
            line("PUT", 1000, "", "2026-01-01T00:00:01Z", 5000),
            line("GET", 1000, "", "2026-01-01T00:00:08.5Z", 2000),
            line("GET", 1000, "", "2026-01-01T01:00:09.5+01:00", 4000),
            line("STAT", 0, "", "2026-01-01T00:00:10Z", 100),
        ];
        let result = parse(&lines.join("\n"), Duration::from_secs(2)).unwrap();
        let all = result.output.merged();
        let read = all.read.unwrap();
        assert_eq!((read.ios, read.iops, read.bytes_per_s, read.mean_us), (2, 1.0, 1000.0, 3.0));
        assert!(all.write.is_none(), "the preparation is not measured");
        assert_eq!(result.others["STAT"].ios, 1);
        let seconds: Vec<f64> = result.seconds.iter().map(|second| second.read).collect();
        assert_eq!(seconds, [1.0, 1.0]);
    }

    #[test]
    fn failed_operations_and_other_tables_are_errors() {
        let failed = [HEADER.to_owned(), line("GET", 0, "no such key", "2026-01-01T00:00:01Z", 1)];
        for (text, says) in [
            (failed.join("\n"), "a GET failed: no such key"),
            (String::new(), "empty"),
            ("op\tend".into(), "'bytes'"),
            (HEADER.into(), "no operation"),
            (format!("{HEADER}\n{}", line("GET", 1, "", "yesterday", 1)), "invalid line"),
        ] {
            let error = parse(&text, Duration::from_secs(1)).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn the_keys_are_not_on_the_command_line() {
        let load = ObjectLoad {
            bucket: "b".into(),
            shares: RequestShares([40, 10, 40, 10]),
            sizes: ObjectSizes::new(1 << 20, 1 << 20),
            range_bytes: None,
            oldest_first: false,
            objects: 7,
            clients: 3,
            warm_up: Duration::from_secs(1),
            run: Duration::from_secs(2),
        };
        let endpoint = S3Endpoint {
            url: "http://127.0.0.1:9000".into(),
            region: "us-east-1".into(),
            access_key: "access".into(),
            secret_key: "very secret".into(),
        };
        let command = arguments(&load, &endpoint, Path::new("/run/x"));
        let words: Vec<String> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert_eq!(words[0], "mixed");
        for word in ["--duration=3s", "--objects=7", "--stat-distrib=10", "--obj.size=1048576"] {
            assert!(words.iter().any(|given| given == word), "{words:?}");
        }
        assert!(!format!("{words:?}{endpoint:?}").contains("secret"));
        assert!(supports(&load));
        assert!(!supports(&ObjectLoad { sizes: ObjectSizes::new(1, 4), ..load }));
    }
}
