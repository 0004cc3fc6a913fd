//! RAID levels: the number of data and parity columns for a level and a number of drives.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};

/// Number of data and parity columns of a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Data columns.
    pub data: usize,
    /// Parity columns.
    pub parity: usize,
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

/// Returns the columns of RAID level `level` on `drives` drives.
///
/// The daemon checks whether it supports schemes of that width.
///
/// # Errors
/// `Invalid` if the level is unknown, has too few drives, or is ambiguous.
pub fn columns_of_level(level: &str, drives: usize) -> Result<Columns> {
    let invalid = |message: String, hint: String| Err(Error::new(ErrorKind::Invalid, message).hint(hint));
    let name = level.trim().to_ascii_lowercase();
    let name = name.strip_prefix("raid").unwrap_or(&name).trim_start_matches(['-', ' ']);
    let needed = match name {
        "0" => 1,
        "1" | "10" => 2,
        "5" => 3,
        "6" => 4,
        _ => {
            return invalid(
                format!("unknown RAID level '{level}'"),
                "levels are 0, 1, 5, 6 and 10; or use --scheme k+m".into(),
            );
        }
    };
    if drives < needed {
        let hint = format!("use at least {needed} drives, or another level");
        return invalid(format!("RAID {name} needs at least {needed} drives, {drives} are given"), hint);
    }
    let with_parity = |parity: usize| Ok(Columns { data: drives - parity, parity });
    match name {
        "0" => with_parity(0),
        "1" if drives <= 3 => with_parity(drives - 1),
        "1" => invalid(
            format!("RAID 1 on {drives} drives is ambiguous"),
            format!(
                "use --scheme 1+{} for {drives} copies of all data, or --level 10 for two copies",
                drives - 1
            ),
        ),
        "5" => with_parity(1),
        "6" => with_parity(2),
        _ => Ok(Columns { data: 1, parity: 1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_map_to_columns() {
        for (level, drives, scheme) in [
            ("0", 1, "1+0"),
            ("0", 5, "5+0"),
            ("1", 2, "1+1"),
            ("raid1", 3, "1+2"),
            ("5", 3, "2+1"),
            ("5", 5, "4+1"),
            ("RAID-6", 10, "8+2"),
            ("raid 6", 4, "2+2"),
            ("10", 2, "1+1"),
            ("10", 7, "1+1"),
        ] {
            assert_eq!(columns_of_level(level, drives).unwrap().to_string(), scheme, "{level} on {drives}");
        }
    }

    #[test]
    fn unknown_and_ambiguous_levels_are_refused() {
        for (level, drives, expected) in [
            ("1", 4, "ambiguous"),
            ("5", 2, "at least 3"),
            ("6", 3, "at least 4"),
            ("10", 1, "at least 2"),
            ("0", 0, "at least 1"),
            ("7", 8, "unknown RAID level"),
            ("", 8, "unknown RAID level"),
        ] {
            let error = columns_of_level(level, drives).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(expected) && error.hint_text().is_some(), "{error}");
        }
    }
}
