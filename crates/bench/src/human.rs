//! Human-readable rates, sizes and times.

/// Formats a rate of operations or bytes per second.
pub fn rate(value: f64, bandwidth: bool) -> String {
    match (bandwidth, value) {
        (true, value) if value >= 1e9 => format!("{:.2} GB/s", value / 1e9),
        (true, value) => format!("{:.1} MB/s", value / 1e6),
        (false, value) if value >= 1e7 => format!("{:.2} M/s", value / 1e6),
        (false, value) if value >= 1e4 => format!("{:.1} K/s", value / 1e3),
        (false, value) => format!("{value:.0} /s"),
    }
}

/// Formats a time given in microseconds.
pub fn time(micros: f64) -> String {
    match micros {
        micros if micros >= 100_000.0 => format!("{:.0} ms", micros / 1000.0),
        micros if micros >= 10_000.0 => format!("{:.1} ms", micros / 1000.0),
        micros => format!("{micros:.0} us"),
    }
}

/// Formats a share as a percentage.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Formats a block size in the largest unit that divides it.
pub fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// A date and time of day, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are what they are called")]
pub struct Utc {
    pub year: u64,
    pub month: u64,
    pub day: u64,
    pub hour: u64,
    pub minute: u64,
    pub second: u64,
}

impl Utc {
    /// Converts seconds since 1970-01-01 00:00 UTC.
    pub fn since_1970(seconds: u64) -> Self {
        let (days, within) = (seconds / 86_400, seconds % 86_400);
        // Howard Hinnant's "civil from days": years begin in March, eras have 400 of them.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * shifted_month + 2) / 5 + 1,
            hour: within / 3600,
            minute: within / 60 % 60,
            second: within % 60,
        }
    }
}
