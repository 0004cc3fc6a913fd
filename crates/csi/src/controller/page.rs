//! Pages of lists: entries in the order of their ids, from the id after the token.

use tonic::Status;

use crate::status::invalid;

/// Returns the entries of a page, and the token of the next one; an empty token at the end.
/// `entries` are in the order of their ids, and the token is the id of the last entry of a page.
///
/// # Errors
/// `ABORTED` for an invalid token, `INVALID_ARGUMENT` for a negative number of entries.
pub(super) fn page<T>(
    entries: Vec<(String, T)>,
    token: &str,
    max_entries: i32,
) -> Result<(Vec<T>, String), Status> {
    let Ok(max) = usize::try_from(max_entries) else {
        return Err(invalid("max_entries", format!("{max_entries} is negative")));
    };
    if !token.is_empty() && !token.contains('/') {
        return Err(Status::aborted(format!("starting_token: '{token}' is not a token of this driver")));
    }
    let max = if max == 0 { usize::MAX } else { max };
    let mut rest = entries.into_iter().filter(|(id, _)| id.as_str() > token).peekable();
    let (mut taken, mut last) = (Vec::new(), String::new());
    while taken.len() < max {
        let Some((id, entry)) = rest.next() else { break };
        taken.push(entry);
        last = id;
    }
    let next = if rest.peek().is_some() { last } else { String::new() };
    Ok((taken, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_contain_every_entry_once() {
        let all = || ["p/a", "p/b", "p/c"].map(|id| (id.to_owned(), id)).to_vec();
        assert_eq!(page(all(), "", 0).unwrap(), (vec!["p/a", "p/b", "p/c"], String::new()));
        let (first, token) = page(all(), "", 2).unwrap();
        assert_eq!((first, token.as_str()), (vec!["p/a", "p/b"], "p/b"));
        assert_eq!(page(all(), &token, 2).unwrap(), (vec!["p/c"], String::new()));
        assert_eq!(page(all(), "", 3).unwrap().1, "");
        assert_eq!(page(all(), "x", 1).unwrap_err().code(), tonic::Code::Aborted);
        assert_eq!(page(all(), "", -1).unwrap_err().code(), tonic::Code::InvalidArgument);
    }
}
