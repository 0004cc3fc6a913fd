//! Metadata contexts: what can be asked of a range besides its bytes. There is one, `base:allocation`.

use super::bytes::Reader;
use super::option::{BadOption, count, counted_string};

/// The context that tells data from holes.
pub(in crate::nbd) const ALLOCATION: &str = "base:allocation";
/// The namespace that it belongs to; in a list, it stands for all that is in it.
const NAMESPACE: &str = "base:";

/// Which contexts of which export are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct ContextQuery<'a> {
    /// The export's name.
    pub(in crate::nbd) export: &'a str,
    /// No query at all was sent.
    unspecific: bool,
    /// A query was the context's name.
    allocation: bool,
    /// A query was its namespace.
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
                // Another server's contexts.
                _ => {}
            }
        }
        Ok(query)
    }

    /// True if the context belongs in a list.
    pub(in crate::nbd) fn lists_allocation(self) -> bool {
        self.unspecific || self.namespace || self.allocation
    }

    /// True if the context is to be used. Only its whole name selects it.
    pub(in crate::nbd) fn selects_allocation(self) -> bool {
        self.allocation
    }
}
