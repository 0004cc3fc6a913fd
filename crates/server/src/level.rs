//! Protection as people ask for it: `k+m`, or a RAID level and a number of drives.

use format::Scheme;

use crate::error::{Error, ErrorKind, Result};

/// The scheme that a RAID level means on `drives` drives.
///
/// # Errors
/// When there is no such level, too few drives for it, or more than one reading.
pub fn scheme_of_level(level: &str, drives: usize) -> Result<Scheme> {
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
                format!("there is no level '{level}'"),
                "levels are 0, 1, 5, 6 and 10; or give --scheme k+m".into(),
            );
        }
    };
    if drives < needed {
        let hint = format!("give at least {needed} drives, or another level");
        return invalid(format!("RAID {name} needs at least {needed} drives, {drives} are given"), hint);
    }
    let columns = |parity: usize| wide(drives - parity, parity);
    match name {
        "0" => columns(0),
        "1" if drives <= 3 => columns(drives - 1),
        "1" => invalid(
            format!("RAID 1 on {drives} drives may mean two things"),
            format!(
                "say --scheme 1+{} for {drives} copies of everything, or --level 10 for two copies",
                drives - 1
            ),
        ),
        "5" => columns(1),
        "6" => columns(2),
        _ => wide(1, 1),
    }
}

fn wide(data: usize, parity: usize) -> Result<Scheme> {
    let narrow = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
    Scheme::new(narrow(data), narrow(parity)).map_err(|error| {
        Error::new(ErrorKind::Invalid, error.to_string()).hint(
            "give --scheme k+m with fewer columns: a pool may have more drives than its scheme has columns",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_become_schemes() {
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
            assert_eq!(scheme_of_level(level, drives).unwrap().to_string(), scheme, "{level} on {drives}");
        }
    }

    #[test]
    fn what_is_unclear_is_asked_back() {
        for (level, drives, says) in [
            ("1", 4, "two things"),
            ("5", 2, "at least 3"),
            ("6", 3, "at least 4"),
            ("10", 1, "at least 2"),
            ("0", 0, "at least 1"),
            ("7", 8, "no level"),
            ("", 8, "no level"),
            ("5", 200, "32"),
        ] {
            let error = scheme_of_level(level, drives).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(says) && error.hint_text().is_some(), "{error}");
        }
    }
}
