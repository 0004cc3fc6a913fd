//! Tests of the report in each form.

use super::*;
use crate::analysis::tests::{measured, plan, seen, systems};
use crate::run::{Missing, RAW};

fn report() -> Report {
    let quiet = [("gabion", 0.4), ("load", 0.1)];
    let mut failed = measured("a", 3, 1.0, 1, seen([0.0; 10], &quiet));
    failed.all = None;
    failed.missing = Some(Missing::Failed("it | broke, <b>\nand more".into()));
    let mut results = vec![
        measured(RAW, 0, 9900.0, 100, seen([990.0; 10], &quiet)),
        measured("a", 0, 9600.0, 100, seen([960.0; 10], &quiet)),
        measured("a", 1, 5000.0, 20_000, seen([960.0; 10], &quiet)),
        measured("a", 5, 4800.0, 400, seen([960.0; 10], &quiet)),
        failed,
    ];
    for (at, one) in (1..=3).flat_map(|at| [(at, 1), (at, 3)]) {
        let second = crate::load::Second { at: f64::from(at), read: f64::from(at) * 100.0, write: 0.0 };
        results[one].seconds.push(second);
    }
    Report::new(plan(), systems(), results)
}

#[test]
fn the_page_is_self_contained() {
    let page = report().html().unwrap();
    for outside in ["<script", "<link", "src=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    let sections = [
        "Summary",
        "Results",
        "Published figures",
        "Analysis",
        "Over time",
        "Drive utilisation",
        "Reproduction",
    ];
    for section in sections {
        assert!(page.contains(&format!("<h2>{section}</h2>")), "{section}");
    }
    assert!(page.contains("failed: it | broke, &lt;b&gt;") && !page.contains("<b>"));
    assert!(page.contains("96 % of drives' reads"));
    let charts = page.matches("<figure>").count();
    assert_eq!(page.matches("<svg").count(), 2 * charts, "each for light and for dark pages");
    // Efficiency, latencies, rates, one or two over time, heat maps of the drives and of the
    // target.
    assert!(charts >= 6, "{charts}");
}

#[test]
fn latencies_without_percentiles_have_no_chart() {
    let mut one = measured("a", 0, 100.0, 100, seen([0.0; 10], &[]));
    if let Some(read) = one.all.as_mut().and_then(|all| all.read.as_mut()) {
        read.latencies = crate::Histogram::default();
    }
    let report = Report::new(plan(), systems(), vec![one]);
    assert!(!report.html().unwrap().contains("latency percentiles"));
    let text = report.markdown();
    let row = text.lines().find(|line| line.contains("4k random read") && line.contains("100 /s")).unwrap();
    assert!(!text.contains(" 0 us"), "{row}");
}

#[test]
fn targets_are_compared_with_their_remarks() {
    let mut report = report();
    let alone = report.markdown();
    assert!(!alone.contains("Comparison of targets"), "there is only one");
    let mut other = report.systems[0].clone();
    (other.target, other.about.remark) = ("b".into(), Some("emulated".into()));
    report.systems.push(other);
    report.plan.targets.push(crate::run::TargetSpec { name: "b".into(), spec: "b".into() });
    report.plan.absent.push("c: it is not installed".into());
    report.results.push(measured("b", 0, 2400.0, 100, seen([240.0; 10], &[])));
    let report = Report::new(report.plan, report.systems, report.results);
    let text = report.markdown();
    assert!(text.contains("| job | a | b (emulated) |"), "{text}");
    assert!(text.contains("| 4k random read | 9600 /s | 2400 /s |"), "{text}");
    assert!(text.contains("Not available: c: it is not installed."), "{text}");
    assert!(text.contains("| 4k random read | b (emulated) | 2400 /s | 24 % of"), "{text}");
    assert!(report.html().unwrap().contains("Percent of the independent drives' limit"));
}

#[test]
fn published_figures_use_the_same_bound() {
    let text = report().markdown();
    let row = |job: &str| {
        let start = format!("| {job} | a | ");
        text.lines()
            .find(|line| line.starts_with(&start))
            .unwrap_or_else(|| panic!("{job}: {text}"))
            .to_owned()
    };
    assert!(
        row("4k random read")
            .contains("| 96 % of drives' reads | 86 % (xiRAID Opus) | the drives' reads per second |")
    );
    // The printed value, 65 %, does not follow from the document's own formula.
    assert!(
        row("4k random write").contains("| 200 % of in place | 85 % (xiRAID Opus)"),
        "{}",
        row("4k random write")
    );
    assert!(row("4k random read, one drive lost").contains("| 80 % (xiRAID Opus)"), "as printed");
    let found = "- a reaches 96 % (4k random read) to 200 % (4k random write) of the tightest bound;";
    assert!(text.contains(found), "{text}");
    assert!(text.contains("failed: it \\| broke, \\<b>"), "{text}");
    assert!(text.contains("| 4k random read | a | 50 % | x 4.0 |"), "{text}");
}

#[test]
fn csv_lines_have_as_many_fields_as_the_header() {
    let csv = report().csv();
    let lines: Vec<&str> = csv.split("\r\n").filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 6);
    let fields = |line: &str| {
        let mut quoted = false;
        line.chars()
            .filter(|letter| {
                quoted ^= *letter == '"';
                *letter == ',' && !quoted
            })
            .count()
    };
    assert!(lines.iter().all(|line| fields(line) == fields(lines[0])), "{csv}");
    assert!(lines[2].starts_with("a,4k random read,1,16,4096,32,6,false,read,9600.000,"), "{}", lines[2]);
    assert!(
        csv.contains("\"4k random read, one drive lost\"") && csv.contains("\"it | broke, <b>\nand more\"")
    );
}
