//! Formatting of times and durations.

use jiff::Timestamp;

/// Formats seconds since 1970 as a UTC date and time.
pub(super) fn utc(seconds: u64) -> String {
    // The library refuses times after the year 9999.
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    timestamp(time.unwrap_or(Timestamp::MAX))
}

/// Formats a time as a UTC date and time.
pub(super) fn timestamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Formats a duration in seconds.
pub(super) fn format_duration(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1000.0)
    } else if seconds < 120.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{:.0} min {:.0} s", (seconds / 60.0).floor(), seconds % 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leap_years_and_units_are_formatted() {
        for (seconds, shown) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), shown);
        }
        assert_eq!(
            (format_duration(0.0123), format_duration(3.21), format_duration(130.0)),
            ("12 ms".into(), "3.2 s".into(), "2 min 10 s".into())
        );
    }
}
