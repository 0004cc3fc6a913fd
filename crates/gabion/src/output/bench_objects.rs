//! Formatting of loads of S3 requests.

use bench::objects::{ListingResult, ObjectOperation, ObjectResult};

use super::table::table;

/// Formats the results: the six figures of the document for each mix, as means of its runs, and the
/// figures of each operation.
pub(crate) fn object_results(results: &[ObjectResult]) -> String {
    let mut mixes: Vec<&str> = Vec::new();
    for result in results {
        if !mixes.contains(&result.mix.as_str()) {
            mixes.push(&result.mix);
        }
    }
    let runs = |mix: &str| results.iter().filter(|one| one.mix == mix).collect::<Vec<_>>();
    let summary = table(
        &[
            "MIX",
            ">GET MB/s",
            ">PUT MB/s",
            ">CPU %",
            ">READ ms",
            ">WRITE ms",
            ">DRIVE %",
            ">SERVER s/GB",
            ">SERVER us/OP",
            ">OF BOUND",
        ],
        mixes.iter().map(|mix| summary(mix, &runs(mix))),
    );
    let operations = table(
        &["MIX", "OPERATION", ">OPS/s", ">MB/s", ">MEAN", ">50 %", ">99 %", ">99.9 %"],
        mixes.iter().flat_map(|mix| operations(mix, &runs(mix))),
    );
    let verified: u64 = results.iter().flat_map(|one| &one.operations).map(|one| one.count).sum();
    let wrong: u64 = results.iter().map(|one| one.wrong).sum();
    let disturbed = results.iter().filter(|one| !one.observation.disturbed.is_empty()).count();
    let count = results.len();
    format!(
        "{summary}\n{operations}\n{verified} operations, {wrong} wrong; disturbed by other programs: \
         {disturbed} of {count} runs\n"
    )
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    if count > 0.0 { sum / count } else { 0.0 }
}

/// The row of a mix.
fn summary(mix: &str, runs: &[&ObjectResult]) -> Vec<String> {
    let rate = |operation| mean(runs.iter().map(|one| one.bytes_per_s(operation) / 1e6));
    let (get, put) = (rate(ObjectOperation::Get), rate(ObjectOperation::Put));
    let cpu = mean(
        runs.iter().map(|one| one.observation.cpu_busy / f64::from(one.observation.cpus.max(1)) * 100.0),
    );
    let drives = |pick: fn([f64; 3]) -> f64| {
        let known: Vec<f64> = runs.iter().filter_map(|one| one.drives()).map(pick).collect();
        if known.is_empty() { "-".to_owned() } else { format!("{:.2}", mean(known)) }
    };
    let per_gb: Vec<f64> = runs.iter().filter_map(|one| one.server_cpu_s_per_gb).collect();
    let per_operation: Vec<f64> = runs.iter().filter_map(|one| one.server_cpu_us).collect();
    let bound: Vec<f64> = runs.iter().filter_map(|one| Some(one.bound.as_ref()?.bytes_per_s / 1e6)).collect();
    vec![
        mix.to_owned(),
        format!("{get:.1}"),
        format!("{put:.1}"),
        format!("{cpu:.1}"),
        drives(|[read, _, _]| read),
        drives(|[_, write, _]| write),
        drives(|[_, _, busy]| busy),
        if per_gb.is_empty() { "-".into() } else { format!("{:.2}", mean(per_gb)) },
        if per_operation.is_empty() { "-".into() } else { format!("{:.1}", mean(per_operation)) },
        if bound.is_empty() { "-".into() } else { format!("{:.1} %", (get + put) / mean(bound) * 100.0) },
    ]
}

/// The rows of the operations of a mix.
fn operations(mix: &str, runs: &[&ObjectResult]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for operation in ObjectOperation::ALL {
        let name = operation.name();
        let all: Vec<_> =
            runs.iter().flat_map(|one| &one.operations).filter(|one| one.operation == name).collect();
        if all.is_empty() {
            continue;
        }
        let quantile =
            |index: usize| mean(all.iter().map(|one| one.quantiles_us.get(index).copied().unwrap_or(0.0)));
        let time = |us: f64| format!("{:.2} ms", us / 1e3);
        rows.push(vec![
            mix.to_owned(),
            name.to_owned(),
            format!("{:.0}", mean(all.iter().map(|one| one.per_s))),
            format!("{:.1}", mean(all.iter().map(|one| one.bytes_per_s / 1e6))),
            time(mean(all.iter().map(|one| one.mean_us))),
            time(quantile(0)),
            time(quantile(1)),
            time(quantile(2)),
        ]);
    }
    rows
}

/// Formats the result of listings.
pub(crate) fn listing_result(result: &ListingResult) -> String {
    let row = |what: &str, times: [f64; 3]| {
        let [median, most, longest] = times.map(|time| format!("{time:.2} ms"));
        vec![what.to_owned(), median, most, longest]
    };
    let pages = table(
        &["PAGE OF 1000", ">50 %", ">99 %", ">LONGEST"],
        [
            row("first keys", result.first_page_ms),
            row("after a random key", result.random_page_ms),
            row("groups by delimiter", result.groups_page_ms),
        ],
    );
    let cpu =
        result.server_cpu_s.map_or(String::new(), |seconds| format!(", {seconds:.2} s of the server's CPU"));
    let disturbed: String =
        result.observation.disturbed.iter().map(|by| format!("disturbed: {by}\n")).collect();
    let put = match result.put_seconds {
        Some(seconds) => format!("{} objects put in {seconds:.1} s", result.keys),
        None => format!("{} objects of an earlier run", result.keys),
    };
    format!(
        "{put}\n\n{pages}\nall keys in {:.2} s, {} pages{cpu}; {} wrong\n{disturbed}",
        result.list_seconds, result.pages, result.wrong
    )
}
