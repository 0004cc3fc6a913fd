//! Time spans in arguments.

use jiff::{Span, SpanRelativeTo, Unit};

/// Parses a positive time span into seconds. A day has 24 hours; months and years, whose lengths
/// differ, are refused.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a time: use, for example, 12h or 30d");
    let span: Span = text.parse().map_err(|_| wrong())?;
    let total = span.total((Unit::Second, SpanRelativeTo::days_are_24_hours())).map_err(|_| wrong())?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked in the guard")]
    match total {
        total if total >= 1.0 && total.fract() == 0.0 => Ok(total as u64),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_numbers_and_units() {
        for (text, expected) in [
            ("90s", 90),
            ("30min", 1800),
            ("12h", 43_200),
            ("30d", 2_592_000),
            ("1w", 604_800),
            ("1h 30min", 5400),
        ] {
            assert_eq!(seconds(text), Ok(expected));
        }
        for wrong in ["", "d", "0d", "30", "-1d", "500ms", "1mo", "1y", "99999999999999999999d", "1e3s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
