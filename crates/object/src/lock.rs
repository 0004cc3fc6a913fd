//! The rules of object lock: which deletions and changes a protected version refuses.

use crate::error::{ObjectError, Result};
use crate::types::{ObjectLock, Retention, RetentionMode};

/// Checks that a version may be deleted.
///
/// # Errors
/// `Locked`.
pub(crate) fn check_deletion(
    lock: &ObjectLock,
    bypass_governance: bool,
    now_ms: u64,
    key: &str,
) -> Result<()> {
    let is_retained = lock.retention.is_some_and(|retention| {
        retention.until_ms > now_ms && !(bypass_governance && retention.mode == RetentionMode::Governance)
    });
    if is_retained || lock.legal_hold { Err(ObjectError::locked(key)) } else { Ok(()) }
}

/// Checks that a retention may be replaced. It may always be extended in the same mode.
///
/// # Errors
/// `Locked`.
pub(crate) fn check_retention(
    before: Option<Retention>,
    after: Option<Retention>,
    bypass_governance: bool,
    now_ms: u64,
    key: &str,
) -> Result<()> {
    let Some(before) = before.filter(|before| before.until_ms > now_ms) else { return Ok(()) };
    let extends = after.is_some_and(|after| after.mode == before.mode && after.until_ms >= before.until_ms);
    if extends || (before.mode == RetentionMode::Governance && bypass_governance) {
        return Ok(());
    }
    Err(ObjectError::locked(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retention(mode: RetentionMode, until_ms: u64) -> Option<Retention> {
        Some(Retention { mode, until_ms })
    }

    #[test]
    fn protected_versions_refuse_deletion() {
        use RetentionMode::{Compliance, Governance};
        let may = |retention, legal_hold, bypass| {
            check_deletion(&ObjectLock { retention, legal_hold }, bypass, 100, "k").is_ok()
        };
        assert!(may(None, false, false) && !may(None, true, true));
        assert!(may(retention(Compliance, 100), false, false), "the end has passed");
        assert!(!may(retention(Compliance, 101), false, true));
        assert!(
            !may(retention(Governance, 101), false, false) && may(retention(Governance, 101), false, true)
        );
    }

    #[test]
    fn retentions_are_extended_only() {
        use RetentionMode::{Compliance, Governance};
        let may = |before, after, bypass| check_retention(before, after, bypass, 100, "k").is_ok();
        for mode in [Governance, Compliance] {
            assert!(may(retention(mode, 200), retention(mode, 201), false));
            assert!(!may(retention(mode, 200), retention(mode, 199), false));
            assert!(!may(retention(mode, 200), None, false) && may(retention(mode, 99), None, false));
        }
        assert!(may(retention(Governance, 200), retention(Compliance, 150), true));
        assert!(!may(retention(Governance, 200), retention(Compliance, 300), false));
        assert!(!may(retention(Compliance, 200), retention(Governance, 300), true));
    }
}
