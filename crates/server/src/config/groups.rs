//! Lookup of the host's groups by name or number.

use crate::error::{Error, ErrorKind, Result};

/// The group database of the host (group(5)).
const GROUP_FILE: &str = "/etc/group";

/// Returns the number (GID) of a group.
///
/// # Errors
/// `Invalid` when the group file has no group of that name.
pub(super) fn find(name: &str) -> Result<u32> {
    // The largest number means "no group".
    if let Some(number) = name.parse().ok().filter(|number| *number != u32::MAX) {
        return Ok(number);
    }
    let table = std::fs::read_to_string(GROUP_FILE).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot read {GROUP_FILE}: {error}"))
            .hint("use the number of the group instead")
    })?;
    find_in(&table, name).ok_or_else(|| {
        let message = format!("{GROUP_FILE} has no group '{name}'");
        Error::new(ErrorKind::Invalid, message)
            .hint("create it with 'groupadd'; for a group of a directory service, use its number ('getent group NAME')")
    })
}

fn find_in(table: &str, name: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let number = (fields.next() == Some(name)).then(|| fields.nth(1))??;
        number.parse().ok().filter(|number| *number != u32::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "root:x:0:\nkvm:x:104:alice,bob\nbroken:x\nnone:x:4294967295:\n";

    #[test]
    fn groups_are_found_by_name_and_number() {
        assert_eq!(find_in(TEXT, "root"), Some(0));
        assert_eq!(find_in(TEXT, "kvm"), Some(104));
        assert_eq!(find_in(TEXT, "kv"), None);
        assert_eq!(find_in(TEXT, "broken"), None);
        assert_eq!(find_in(TEXT, "none"), None);
        assert_eq!(find("104").unwrap(), 104);
        let error = find("no-such-group-here").unwrap_err();
        assert!(error.to_string().contains("has no group 'no-such-group-here'"), "{error}");
        assert_eq!(find("4294967295").unwrap_err().kind(), ErrorKind::Invalid);
    }
}
