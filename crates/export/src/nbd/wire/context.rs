//! Metadata contexts. There is one, `base:allocation`.

use super::bytes::Reader;
use super::option_error::BadOption;
use super::strings::{count, counted_string};

/// The context that reports data and holes.
pub(in crate::nbd) const ALLOCATION: &str = "base:allocation";
/// The namespace of the context. In a list query it stands for all contexts of the namespace.
const NAMESPACE: &str = "base:";

/// A query for the metadata contexts of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct ContextQuery<'a> {
    /// The export's name.
    pub(in crate::nbd) export: &'a str,
    /// The list of queries is empty.
    unspecific: bool,
    /// A query is the context's name.
    allocation: bool,
    /// A query is the namespace.
    namespace: bool,
}

impl<'a> ContextQuery<'a> {
    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, BadOption> {
        let export = counted_string(reader)?;
        let queries = count(reader)?;
        let mut query = Self { export, unspecific: queries == 0, allocation: false, namespace: false };
        for _ in 0..queries {
            match counted_string(reader)? {
                ALLOCATION => query.allocation = true,
                NAMESPACE => query.namespace = true,
                // A context of other servers.
                _ => {}
            }
        }
        Ok(query)
    }

    /// Returns true if a list contains the context.
    pub(in crate::nbd) fn lists_allocation(self) -> bool {
        self.unspecific || self.namespace || self.allocation
    }

    /// Returns true if the context is selected, which takes its full name.
    pub(in crate::nbd) fn selects_allocation(self) -> bool {
        self.allocation
    }
}
