//! Conditions of requests on the ETags of objects.

use crate::error::{ObjectError, ObjectErrorKind, Result};
use crate::record::VersionSummary;
use crate::types::Conditions;

/// Checks conditions on an object, or on the absence of one.
pub(crate) fn check_conditions(
    current: Option<&VersionSummary>,
    conditions: &Conditions,
    key: &str,
) -> Result<()> {
    check_etags(current.map(|summary| summary.etag.as_str()), conditions, key)
}

/// Checks conditions on the ETag of an object, or on the absence of one.
pub(crate) fn check_etags(current: Option<&str>, conditions: &Conditions, key: &str) -> Result<()> {
    let refused = |condition: &str| {
        Err(ObjectError::new(
            ObjectErrorKind::PreconditionFailed,
            format!("the condition {condition} does not hold for object '{key}'"),
        ))
    };
    if let Some(wanted) = &conditions.if_match {
        let etag = current.ok_or_else(|| ObjectError::no_key(key))?;
        if wanted != "*" && wanted != etag {
            return refused("If-Match");
        }
    }
    if let (Some(unwanted), Some(etag)) = (&conditions.if_none_match, current)
        && (unwanted == "*" || unwanted == etag)
    {
        return refused("If-None-Match");
    }
    Ok(())
}
