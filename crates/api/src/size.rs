//! Parses sizes such as `500G`, `1.5TiB` and `4096`, and formats them.
//!
//! `K`, `M`, `G`, `T`, `P` (with or without `iB`) are powers of 1024; `KB`, `MB`, `GB`, `TB`, `PB`
//! are powers of 1000, as drive vendors use them. Formatted sizes always use IEC units (`GiB`).

use std::fmt;
use std::str::FromStr;

/// A number of bytes that is parsed and formatted with a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// Reason why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The text is not a number with an optional unit.
    #[error("'{0}' is not a size: write for example 500G, 1.5TiB or a number of bytes")]
    Syntax(String),
    /// The number of bytes exceeds 64 bits.
    #[error("'{0}' is more bytes than a 64-bit number holds")]
    TooLarge(String),
    /// The size is not a whole number of bytes.
    #[error("'{0}' is not a whole number of bytes")]
    Fraction(String),
}

const UNITS: [(&str, u64); 5] =
    [("P", 1 << 50), ("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

impl Size {
    /// Returns the number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// Returns the number of bytes in one `unit`; `None` if the unit is unknown.
fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_uppercase();
    if unit.is_empty() || unit == "B" {
        return Some(1);
    }
    let letter = unit.get(..1)?;
    let power = UNITS.iter().rev().position(|(name, _)| *name == letter)? + 1;
    let base: u64 = match unit.get(1..)? {
        "" | "IB" => 1024,
        "B" => 1000,
        _ => return None,
    };
    base.checked_pow(u32::try_from(power).ok()?)
}

/// Parses digits with up to one point as a numerator and a power of ten as the denominator.
fn decimal(number: &str) -> Option<(u128, u128)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if whole.is_empty() || digits.len() > 30 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let below = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    Some((digits.parse().ok()?, below))
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let syntax = || SizeError::Syntax(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, unit) = trimmed.split_at_checked(digits).ok_or_else(syntax)?;
        let unit = unit_bytes(unit.trim()).ok_or_else(syntax)?;
        let (digits, below) = decimal(number).ok_or_else(syntax)?;
        let too_large = || SizeError::TooLarge(text.to_owned());
        let bytes = digits.checked_mul(u128::from(unit)).ok_or_else(too_large)?;
        if unit == 1 && bytes % below != 0 {
            return Err(SizeError::Fraction(text.to_owned()));
        }
        // 1.1G is not a whole number of bytes: round up to a multiple of the sector size.
        let bytes =
            if bytes % below == 0 { bytes / below } else { (bytes / below + 1).next_multiple_of(4096) };
        u64::try_from(bytes).map(Self).map_err(|_| too_large())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((name, unit)) = UNITS.iter().find(|(_, unit)| self.0 >= *unit) else {
            return f.pad(&format!("{} B", self.0));
        };
        let whole = self.0 / unit;
        // Round down, so that the shown amount is really available.
        let hundredths = (u128::from(self.0 % unit) * 100 / u128::from(*unit)) as u64;
        let shown = match (self.0.is_multiple_of(*unit), whole) {
            (true, _) => format!("{whole} {name}iB"),
            (false, ..100) => format!("{whole}.{hundredths:02} {name}iB"),
            (false, _) => format!("{whole}.{} {name}iB", hundredths / 10),
        };
        f.pad(&shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_all_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512B", 512),
            ("1K", 1024),
            ("1k", 1024),
            ("1KiB", 1024),
            ("1 KiB", 1024),
            ("1KB", 1000),
            ("500G", 500 << 30),
            ("500gib", 500 << 30),
            ("500GB", 500_000_000_000),
            ("1.5TiB", 3 << 39),
            ("1.92TB", 1_920_000_000_000),
            ("16P", 16 << 50),
            ("1.0", 1),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        let rounded: Size = "1.1G".parse().unwrap();
        assert!(rounded.0.is_multiple_of(4096) && rounded.0 - 1_181_116_006 < 8192);
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for text in
            ["", "G", "-1", "+1", "1X", "1GiBB", "1.2.3", ".5G", "1,5G", "ten", "1e3", "0x10", "1 G B", "½G"]
        {
            assert_eq!(text.parse::<Size>(), Err(SizeError::Syntax(text.into())), "{text}");
        }
        assert_eq!("16384P".parse::<Size>(), Err(SizeError::TooLarge("16384P".into())));
        assert_eq!(
            "99999999999999999999".parse::<Size>(),
            Err(SizeError::TooLarge("99999999999999999999".into()))
        );
        assert_eq!("1.5".parse::<Size>(), Err(SizeError::Fraction("1.5".into())));
    }

    #[test]
    fn sizes_are_formatted_in_powers_of_1024_and_rounded_down() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.50 KiB"),
            (500 << 30, "500 GiB"),
            (3 << 39, "1.50 TiB"),
            ((1 << 40) - 1, "1023.9 GiB"),
            (u64::MAX, "16383.9 PiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), shown);
        }
        assert_eq!(format!("{:>8}|", Size(1024)), "   1 KiB|");
    }
}
