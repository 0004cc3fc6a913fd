//! Parses the output of `rados bench --format json`. Pure functions.
//!
//! The program prints one JSON object between lines of text, with numbers as text. It reports the
//! mean latency and no percentiles.

use serde_json::Value;

use crate::histogram::Histogram;
use crate::load::Second;
use crate::result::Direction;

/// Returns the result of a load, and its operations in each second.
pub(super) fn parse(text: &str, writes: bool) -> Result<(Direction, Vec<Second>), String> {
    let json = text.find('{').zip(text.rfind('}')).and_then(|(start, end)| text.get(start..=end));
    let last = || text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output").to_owned();
    let json = json.ok_or_else(last)?;
    let value: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let get = |key: &str| number(value.get(key)).ok_or_else(|| format!("it has no number '{key}'"));
    let operations = get(if writes { "total_writes_made" } else { "total_reads_made" })?;
    let (seconds, size) = (get("total_time_run")?, get(if writes { "write_size" } else { "read_size" })?);
    if operations <= 0.0 || seconds <= 0.0 {
        return Err("it completed no operation".into());
    }
    let iops = operations / seconds;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive count")]
    let ios = operations as u64;
    let direction = Direction {
        iops,
        bytes_per_s: iops * size,
        ios,
        mean_us: get("average_latency")? * 1e6,
        latencies: Histogram::default(),
    };
    Ok((direction, per_second(&value, writes)))
}

/// Returns a number, which the program prints as text.
fn number(value: Option<&Value>) -> Option<f64> {
    let value = value?;
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok()).filter(|number| number.is_finite())
}

/// Returns the operations that completed in each second, from the running totals.
fn per_second(value: &Value, writes: bool) -> Vec<Second> {
    let lines = value.get("datas").and_then(Value::as_array).into_iter().flatten();
    let totals = lines.filter_map(|line| Some((number(line.get("sec"))?, number(line.get("finished"))?)));
    let mut before = (0.0, 0.0);
    let mut seconds = Vec::new();
    for (at, finished) in totals {
        let length = at - before.0;
        if length > 0.0 {
            let rate = (finished - before.1) / length;
            seconds.push(if writes {
                Second { at, read: 0.0, write: rate }
            } else {
                Second { at, read: rate, write: 0.0 }
            });
            before = (at, finished);
        }
    }
    seconds
}

/// Adds the seconds of a load that ran at the same time.
pub(super) fn add_seconds(all: &mut Vec<Second>, more: &[Second]) {
    for second in more {
        match all.iter_mut().find(|one| (one.at - second.at).abs() < 0.5) {
            Some(one) => {
                one.read += second.read;
                one.write += second.write;
            }
            None => all.push(*second),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of Ceph 16.2.15, shortened.
    const WRITE: &str = r#"hints = 1
{"concurrent_ios":"16","object_size":"4194304","op_size":"4194304","seconds_to_run":"3","max_objects":"0","object_prefix":"benchmark_data_vm_7693","datas":[{"sec":"0","cur_ops":"5","started":"5","finished":"0","avg_bw":"0.000000","last_lat":"0.000000"},{"sec":"1","cur_ops":"16","started":"78","finished":"62","last_lat":"0.212084"},{"sec":"2","finished":"157"},{"sec":"3","finished":"242"}],"total_time_run":"3.050641","total_writes_made":"257","write_size":"4194304","object_size":"4194304","bandwidth":"336.978354","stddev_iops":"-1199135824","average_latency":"0.187084","max_latency":"0.458262"}
"#;
    const READ: &str = r#"hints = 1
{"datas":[{"sec":"0","finished":"0"}],"total_time_run":"0.536601","total_reads_made":"64","read_size":"4194304","object_size":"4194304","bandwidth":"477.077222","average_latency":"0.122987"}"#;

    #[test]
    fn rates_and_the_mean_latency_are_those_of_the_program() {
        let (write, seconds) = parse(WRITE, true).unwrap();
        assert!((write.bytes_per_s / f64::from(1 << 20) - 336.978_354).abs() < 0.01, "{write:?}");
        assert_eq!((write.ios, write.mean_us), (257, 187_084.0));
        assert_eq!(seconds.iter().map(|second| second.write).collect::<Vec<_>>(), [62.0, 95.0, 85.0]);
        let (read, seconds) = parse(READ, false).unwrap();
        assert!((read.bytes_per_s / f64::from(1 << 20) - 477.077_222).abs() < 0.01, "{read:?}");
        assert_eq!((read.figures().p9995_us, seconds.len()), (0.0, 0), "it reports no percentiles");
    }

    #[test]
    fn loads_at_the_same_time_add_up() {
        let second = |at: f64, write: f64| Second { at, read: 0.0, write };
        let mut all = vec![second(1.0, 10.0)];
        add_seconds(&mut all, &[second(1.0, 5.0), second(2.0, 7.0)]);
        assert_eq!(all, [second(1.0, 15.0), second(2.0, 7.0)]);
    }

    #[test]
    fn other_output_is_an_error() {
        let message = "Must write data before running a read benchmark!";
        assert_eq!(parse(&format!("hints = 1\n{message}\n"), false).unwrap_err(), message);
        assert!(parse(WRITE, false).unwrap_err().contains("total_reads_made"));
        assert_eq!(parse(&READ.replace("\"64\"", "\"0\""), false).unwrap_err(), "it completed no operation");
        assert!(parse("", true).is_err());
    }
}
