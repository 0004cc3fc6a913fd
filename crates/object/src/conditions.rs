//! Conditions of requests on the objects that they read or replace.

use crate::error::{ObjectError, ObjectErrorKind, Result};
use crate::types::Conditions;

/// The state of an object that conditions refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectState<'a> {
    pub(crate) etag: &'a str,
    pub(crate) size: u64,
    pub(crate) modified_ms: u64,
}

/// Checks conditions on an object, or on the absence of one.
pub(crate) fn check_conditions(
    current: Option<ObjectState<'_>>,
    conditions: &Conditions,
    key: &str,
) -> Result<()> {
    let refused = |condition: &str| {
        Err(ObjectError::new(
            ObjectErrorKind::PreconditionFailed,
            format!("the condition {condition} does not hold for object '{key}'"),
        ))
    };
    let Conditions { if_match, if_none_match, if_match_size, if_match_second } = conditions;
    if if_match.is_some() || if_match_size.is_some() || if_match_second.is_some() {
        let state = current.ok_or_else(|| ObjectError::no_key(key))?;
        if if_match.as_deref().is_some_and(|wanted| wanted != "*" && wanted != state.etag) {
            return refused("If-Match");
        }
        if if_match_size.is_some_and(|wanted| wanted != state.size) {
            return refused("on the size");
        }
        if if_match_second.is_some_and(|wanted| wanted != state.modified_ms / 1000) {
            return refused("on the time of the put");
        }
    }
    if let (Some(unwanted), Some(state)) = (if_none_match, current)
        && (unwanted == "*" || unwanted == state.etag)
    {
        return refused("If-None-Match");
    }
    Ok(())
}
