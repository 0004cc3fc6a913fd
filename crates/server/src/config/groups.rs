//! Groups of the host, by name or number.

use crate::error::{Error, ErrorKind, Result};

/// The host's own groups (group(5)).
const TABLE: &str = "/etc/group";

/// The number of a group.
///
/// # Errors
/// `Invalid` when the host's table has no group of that name.
pub(super) fn find(name: &str) -> Result<u32> {
    // The largest number stands for no group.
    if let Some(number) = name.parse().ok().filter(|number| *number != u32::MAX) {
        return Ok(number);
    }
    let table = std::fs::read_to_string(TABLE).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot read {TABLE}: {error}"))
            .hint("--export-group takes the number of a group as well")
    })?;
    find_in(&table, name).ok_or_else(|| {
        let message = format!("daemon.export_group: {TABLE} has no group '{name}'");
        Error::new(ErrorKind::Invalid, message)
            .hint("'groupadd' makes one; a group of a directory service is given by its number ('getent group NAME')")
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
