//! Times in the forms of requests and answers.

use std::time::{Duration, SystemTime};

use s3s::dto::{Timestamp, TimestampFormat};

/// Parses seconds since 1970, or a time of ISO 8601.
pub(crate) fn parse_time(text: &str) -> Option<f64> {
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let time = Timestamp::parse(TimestampFormat::DateTime, text).ok()?;
    #[allow(clippy::cast_precision_loss, reason = "seconds are far below 2^52")]
    Some(to_ms(&time) as f64 / 1000.0)
}

/// A time in milliseconds since 1970; 0 before.
pub(crate) fn to_ms(time: &Timestamp) -> u64 {
    let mut text = Vec::new();
    if time.format(TimestampFormat::EpochSeconds, &mut text).is_err() {
        return 0;
    }
    let seconds = std::str::from_utf8(&text).ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    u64::try_from(Duration::try_from_secs_f64(seconds).unwrap_or_default().as_millis()).unwrap_or(0)
}

/// A time with milliseconds.
pub(crate) fn from_ms(ms: u64) -> Timestamp {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)).unwrap_or(SystemTime::UNIX_EPOCH).into()
}

/// A time as in HTTP headers.
pub(crate) fn http_date(time: &Timestamp) -> Option<String> {
    let mut text = Vec::new();
    time.format(TimestampFormat::HttpDate, &mut text).ok()?;
    String::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_conversion() {
        for ms in [0, 1_000, 1_764_000_123_000, 4_102_444_800_000] {
            assert_eq!(to_ms(&from_ms(ms)), ms);
        }
        assert_eq!(parse_time("2026-11-24T00:00:00Z"), Some(1_795_478_400.0));
        assert_eq!(parse_time("12"), Some(12.0));
        assert_eq!(parse_time("yesterday"), None);
    }
}
