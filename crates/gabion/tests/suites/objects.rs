//! Tests of suites of objects: on Gabion, with the report, and on targets that do not serve them.

use serde_json::Value;

use super::harness::{BenchHome, alive, json, leftovers, results, text};

const OBJECTS: &str = "
name = 'tiny-objects'
title = 'two jobs of objects'
source = 'this test'
scheme = '2+1'
ramp_s = 1
run_s = 2
[[jobs]]
name = 'mixed'
block_bytes = 65536
read_percent = 50
random = false
depth = 2
threads = 2
objects = { get = 40, stat = 10, put = 40, delete = 10, count = 16 }
[[jobs]]
name = 'ranges'
block_bytes = 65536
read_percent = 100
random = false
depth = 2
threads = 1
objects = { get = 100, count = 8, max_bytes = 262144, range_bytes = 65536 }
[[published]]
system = 'a document'
[[published.figures]]
job = 'mixed'
value = [1000, 500]
unit = 'MB/s'
cpu_percent = 40
drive_ms = [0.5, 1.5]
drive_percent = 60
";

fn suite(home: &BenchHome) -> String {
    let path = home.path("objects.toml");
    std::fs::write(&path, OBJECTS).unwrap();
    path.display().to_string()
}

#[test]
fn objects_are_measured_on_gabion_and_reported_beside_published_columns() {
    let Some(home) = BenchHome::new() else { return };
    let drives: Vec<String> =
        (0..3).map(|number| home.file(&format!("drive{number}.img"), 256 << 20)).collect();
    let suite = suite(&home);
    let mut arguments = vec!["run", &suite, "--overwrite", "--json", "--load", "own", "--drives"];
    arguments.extend(drives.iter().map(String::as_str));
    arguments.extend(["--target", "gabion"]);
    let summary = json(&home.bench(&arguments));
    let gabion = results(&summary, "gabion");
    assert_eq!(gabion.len(), 2, "{summary}");
    assert!(gabion.iter().all(|(_, iops)| iops.as_ref().is_ok_and(|iops| *iops > 0.0)), "{summary}");
    let lines = summary["results"].as_array().unwrap();
    let line =
        |case: &str| lines.iter().find(|one| one["case"] == case && one["target"] == "gabion").unwrap();
    assert!(line("mixed")["write"]["bytes_per_s"].as_f64() > Some(0.0), "{summary}");
    assert!(line("ranges")["write"].is_null() && line("ranges")["cpu"]["gabion"].as_f64() > Some(0.0));

    let id = summary["run"].as_str().unwrap();
    let written = home.bench(&["report", id]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    let files: Vec<String> = text(&written.stdout).lines().map(str::to_owned).collect();
    let markdown = std::fs::read_to_string(files.iter().find(|file| file.ends_with(".md")).unwrap()).unwrap();
    assert!(markdown.contains("## Throughput, processors and drives"), "{markdown}");
    assert!(
        markdown.contains("| mixed | a document, published | 1000.00 | 500.00 | 40.00 | 0.50 | 1.50 | 60.00")
    );
    assert!(markdown.contains("| mixed | gabion | "), "{markdown}");
    assert!(markdown.contains("| DELETE | "), "{markdown}");
    let report = std::fs::read_to_string(files.iter().find(|file| file.ends_with(".json")).unwrap()).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert!(
        report["results"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["others"]["STAT"]["ios"].as_u64() > Some(0))
    );
    let run = home.path("runs").join(id);
    assert_eq!((alive(&home.path("runs").display().to_string()), leftovers(&run)), (0, 0));
}

#[test]
fn targets_that_do_not_serve_the_suite_are_refused() {
    let Some(home) = BenchHome::new() else { return };
    let (objects, blocks) = (suite(&home), home.suite());
    let file = home.file("file.img", 1 << 20);
    for (arguments, expected) in [
        (vec!["run", &objects, "--target", &file], "does not serve suite 'tiny-objects'"),
        (vec!["run", &objects, "--target", "btrfs"], "btrfs"),
        (vec!["run", &blocks, "--target", "s3:http://127.0.0.1:1"], "AWS_ACCESS_KEY_ID"),
        (vec!["run", &objects, "--load", "floppy"], "unknown generator"),
    ] {
        let mut command = home.command(&arguments);
        let output = command.env_remove("AWS_ACCESS_KEY_ID").output().unwrap();
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(expected), "{arguments:?}: {error}");
    }
    // A service that cannot be reached is a failed measurement.
    let mut command = home.command(&["run", &objects, "--target", "s3:http://127.0.0.1:1", "--load", "own"]);
    let output = command.env("AWS_ACCESS_KEY_ID", "a").env("AWS_SECRET_ACCESS_KEY", "b").output().unwrap();
    let error = text(&output.stderr);
    assert!(!output.status.success() && error.contains("http://127.0.0.1:1"), "{error}");
    assert!(error.contains("2 of 2 measurements failed"), "{error}");
}
