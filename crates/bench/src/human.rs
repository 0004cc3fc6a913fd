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

/// Formats a time given in microseconds. Zero is an unknown time.
pub fn time(micros: f64) -> String {
    match micros {
        0.0 => "-".into(),
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
