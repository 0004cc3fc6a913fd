//! The programs that manage exports, such as the driver of a container platform.

use super::table::ExportKey;
use crate::error::{Error, ErrorKind, Result};

/// Longest name of an owner, in bytes.
const OWNER_MAX: usize = 64;

/// Checks the name of a program that manages an export.
pub(super) fn check_owner(owner: Option<&str>) -> Result<()> {
    let is_valid = |owner: &str| {
        let is_printable = owner.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        (1..=OWNER_MAX).contains(&owner.len()) && is_printable && owner.trim() == owner
    };
    if owner.is_none_or(is_valid) {
        return Ok(());
    }
    let message = format!("the owner of an export is 1 to {OWNER_MAX} printable ASCII characters");
    Err(Error::new(ErrorKind::Invalid, message).hint("remove spaces at its start and end"))
}

/// Checks that an export is deleted by the program that manages it, if there is one.
pub(super) fn check_manager(key: &ExportKey, owner: Option<&str>, named: Option<&str>) -> Result<()> {
    let Some(owner) = owner.filter(|owner| named != Some(owner)) else { return Ok(()) };
    let message = format!("export '{}' of '{}/{}' is managed by {owner}", key.id(), key.pool, key.volume);
    let hint = format!("let {owner} delete it; --force deletes it, and I/O of its users fails");
    Err(Error::new(ErrorKind::Busy, message).hint(hint))
}

#[cfg(test)]
mod tests {
    use api::types::Protocol;

    use super::*;

    #[test]
    fn owners_are_short_printable_names() {
        for owner in ["a", "gabion csi", &"x".repeat(OWNER_MAX)] {
            check_owner(Some(owner)).unwrap();
        }
        for owner in ["", " a", "a ", "a\nb", "\u{e9}", &"x".repeat(OWNER_MAX + 1)] {
            assert_eq!(check_owner(Some(owner)).unwrap_err().kind(), ErrorKind::Invalid, "{owner}");
        }
        check_owner(None).unwrap();
    }

    #[test]
    fn only_the_owner_deletes_its_export() {
        let key = ExportKey { pool: "fast".into(), volume: "a".into(), protocol: Protocol::Nbd, number: 1 };
        for (owner, named, may) in [
            (None, None, true),
            (None, Some("x"), true),
            (Some("x"), Some("x"), true),
            (Some("x"), None, false),
            (Some("x"), Some("y"), false),
        ] {
            let checked = check_manager(&key, owner, named);
            assert_eq!(checked.is_ok(), may, "{owner:?} {named:?}");
            if let Err(error) = checked {
                assert!(error.to_string().contains("'nbd' of 'fast/a' is managed by x"), "{error}");
            }
        }
    }
}
