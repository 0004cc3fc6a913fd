//! Metrics of the requests and the SMART data of drives. A drive without them has no samples.

use api::types::{DriveIo, DriveRequests, Pool, PoolDrive, SmartReport};
use prometheus_client::registry::Unit;

use super::family::{Labels, MetricFamily, Samples};
use super::pools::{number, of_drive};

/// Returns the families of the drives.
pub(super) fn families(pools: &[Pool]) -> Vec<MetricFamily> {
    let drives: Vec<&PoolDrive> = pools.iter().flat_map(|pool| &pool.drives).collect();
    let mut all = requests(&drives);
    all.extend(smart(&drives));
    all
}

fn requests(drives: &[&PoolDrive]) -> Vec<MetricFamily> {
    let kinds =
        |io: &DriveIo| [("read", io.read), ("write", io.write), ("flush", io.flush), ("discard", io.discard)];
    let of_one = |drive: &PoolDrive, value: fn(&DriveRequests) -> f64| -> Vec<(Labels, f64)> {
        let (Some(labels), Some(io)) = (of_drive(drive), &drive.io) else { return Vec::new() };
        let sample = |(kind, requests): (&str, DriveRequests)| {
            ([labels.clone(), vec![("operation", kind.to_owned())]].concat(), value(&requests))
        };
        kinds(io).into_iter().map(sample).collect()
    };
    let counter = |name, help, unit, value: fn(&DriveRequests) -> f64| {
        let samples = drives.iter().flat_map(|drive| of_one(drive, value)).collect();
        MetricFamily { name, help, unit, samples: Samples::Counter(samples) }
    };
    let busy = |drive: &&PoolDrive| Some((of_drive(drive)?, number(drive.io?.busy_millis) / 1e3));
    vec![
        counter("gabion_drive_operations", "Requests that the kernel completed", None, |kind| {
            number(kind.count)
        }),
        counter("gabion_drive_transferred", "Bytes of the requests", Some(Unit::Bytes), |kind| {
            number(kind.bytes)
        }),
        counter(
            "gabion_drive_operation",
            "Sum of the latencies of the requests",
            Some(Unit::Seconds),
            |kind| number(kind.millis) / 1e3,
        ),
        MetricFamily {
            name: "gabion_drive_busy",
            help: "Time in which the drive had requests in progress",
            unit: Some(Unit::Seconds),
            samples: Samples::Counter(drives.iter().filter_map(busy).collect()),
        },
    ]
}

fn smart(drives: &[&PoolDrive]) -> Vec<MetricFamily> {
    let samples = |value: fn(&SmartReport) -> Option<f64>| -> Vec<(Labels, f64)> {
        let sample = |drive: &&PoolDrive| Some((of_drive(drive)?, value(drive.smart.as_ref()?)?));
        drives.iter().filter_map(sample).collect()
    };
    let gauge =
        |name, help, unit, value| MetricFamily { name, help, unit, samples: Samples::Gauge(samples(value)) };
    #[allow(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
    let temperature = |smart: &SmartReport| smart.temperature.map(|degrees| degrees as f64);
    vec![
        gauge("gabion_drive_smart_passed", "0 if the drive predicts its failure by SMART", None, |smart| {
            smart.passed.map(|passed| f64::from(u8::from(passed)))
        }),
        gauge(
            "gabion_drive_wear_ratio",
            "Share of the drive's rated endurance that is used",
            None,
            |smart| smart.wear_percent.map(|percent| number(percent) / 100.0),
        ),
        gauge("gabion_drive_temperature", "Temperature of the drive", Some(Unit::Celsius), temperature),
        gauge(
            "gabion_drive_power_on",
            "Time in which the drive was powered on",
            Some(Unit::Seconds),
            |smart| smart.power_on_hours.map(|hours| number(hours) * 3600.0),
        ),
        MetricFamily {
            name: "gabion_drive_media_errors",
            help: "Errors of the medium that the drive could not correct",
            unit: None,
            samples: Samples::Counter(samples(|smart| smart.media_errors.map(number))),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::types::DriveState;

    fn drive(index: u16) -> PoolDrive {
        PoolDrive {
            pool: "fast".into(),
            index: Some(index),
            id: None,
            path: "/dev/x".into(),
            size: None,
            state: DriveState::Online,
            used: None,
            read_errors: None,
            checksum_errors: None,
            last_error: None,
            failing: None,
            io: None,
            smart: None,
        }
    }

    #[test]
    fn a_drive_has_the_samples_that_are_known() {
        let write = DriveRequests { count: 3, bytes: 4096, millis: 1500 };
        let known = PoolDrive {
            io: Some(DriveIo { write, busy_millis: 250, ..DriveIo::default() }),
            smart: Some(SmartReport {
                passed: Some(false),
                wear_percent: Some(3),
                temperature: Some(-5),
                ..SmartReport::default()
            }),
            ..drive(1)
        };
        let (file, drives) = (drive(0), [&drive(0), &known]);
        let all: Vec<MetricFamily> = requests(&drives).into_iter().chain(smart(&drives)).collect();
        let text = super::super::family::open_metrics(all).unwrap();
        for line in [
            "gabion_drive_operations_total{pool=\"fast\",drive=\"1\",operation=\"write\"} 3.0",
            "gabion_drive_transferred_bytes_total{pool=\"fast\",drive=\"1\",operation=\"write\"} 4096.0",
            "gabion_drive_operation_seconds_total{pool=\"fast\",drive=\"1\",operation=\"write\"} 1.5",
            "gabion_drive_busy_seconds_total{pool=\"fast\",drive=\"1\"} 0.25",
            "gabion_drive_smart_passed{pool=\"fast\",drive=\"1\"} 0.0",
            "gabion_drive_wear_ratio{pool=\"fast\",drive=\"1\"} 0.03",
            "gabion_drive_temperature_celsius{pool=\"fast\",drive=\"1\"} -5.0",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}\n{text}");
        }
        assert!(!text.contains("media_errors") && !text.contains("drive=\"0\""), "{text}");
        let none: Vec<MetricFamily> = requests(&[&file]).into_iter().chain(smart(&[&file])).collect();
        assert_eq!(super::super::family::open_metrics(none).unwrap(), "# EOF\n");
    }
}
