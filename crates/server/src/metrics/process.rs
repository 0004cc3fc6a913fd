//! Metrics of the daemon's process, by the names that Prometheus's client libraries use.

use prometheus_client::registry::Unit;

use super::family::{MetricFamily, Samples};

/// Ticks per second of the times in /proc, the same on every Linux system.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the families; values that cannot be read are absent.
pub(super) fn families() -> Vec<MetricFamily> {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let boot = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let files = std::fs::read_dir("/proc/self/fd").map(Iterator::count).ok();
    let one = |name, help, unit, value: Option<f64>| {
        let samples = value.map(|value| (Vec::new(), value)).into_iter().collect();
        MetricFamily { name, help, unit, samples: Samples::Gauge(samples) }
    };
    let cpu = cpu_seconds(&stat).map(|value| (Vec::new(), value)).into_iter().collect();
    vec![
        MetricFamily {
            name: "process_cpu",
            help: "CPU time of the daemon",
            unit: Some(Unit::Seconds),
            samples: Samples::Counter(cpu),
        },
        one("process_resident_memory", "Memory of the daemon", Some(Unit::Bytes), resident_bytes(&stat)),
        one(
            "process_start_time",
            "Start of the daemon, since 1970",
            Some(Unit::Seconds),
            start_time(&stat, &boot),
        ),
        #[allow(clippy::cast_precision_loss)]
        one("process_open_fds", "Open file descriptors", None, files.map(|count| count as f64)),
    ]
}

/// Returns a field of proc_pid_stat(5), by its number there.
fn field(stat: &str, number: usize) -> Option<f64> {
    // The second field is a name that can contain spaces.
    stat.rsplit_once(") ")?.1.split(' ').nth(number.checked_sub(3)?)?.trim().parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((field(stat, 14)? + field(stat, 15)?) / TICKS_PER_SECOND)
}

fn resident_bytes(stat: &str) -> Option<f64> {
    #[allow(clippy::cast_precision_loss)]
    let page = rustix::param::page_size() as f64;
    Some(field(stat, 24)? * page)
}

fn start_time(stat: &str, boot: &str) -> Option<f64> {
    let booted: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted + field(stat, 22)? / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_the_name() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14 15 16 17 18 400 20 3 22";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(start_time(stat, "cpu 1\nbtime 1000\n"), Some(1004.0));
        assert_eq!(resident_bytes(stat), Some(3.0 * rustix::param::page_size() as f64));
        assert_eq!(cpu_seconds(""), None);
    }
}
