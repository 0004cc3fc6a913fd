//! The errors that an operation may return: the errors expected in the run's state, and the errors
//! caused by losses or damage beyond the scheme's tolerance. Any other error ends the run.

use engine::{Error, ErrorKind};

use super::SwarmRun;

/// For an operation that may not fail.
pub(super) const NO_ERRORS: &[ErrorKind] = &[];
/// For an operation that may find the pool full.
pub(super) const NO_SPACE: &[ErrorKind] = &[ErrorKind::NoSpace];

impl SwarmRun {
    /// Returns true if losses or damage beyond the scheme's tolerance explain the error, for any
    /// operation.
    pub(super) fn may_fail(&self, error: &Error) -> bool {
        self.excess.get().allowed_errors().contains(&error.kind())
    }

    /// Returns the allowed errors of an operation that always finds space unless the file system
    /// under a drive is full.
    pub(super) fn no_space_if_host_full(&self) -> &'static [ErrorKind] {
        if self.host_was_full.get() { NO_SPACE } else { NO_ERRORS }
    }

    /// Ends the run if an operation returned an error that is neither in `allowed` nor explained by
    /// faults beyond the scheme's tolerance.
    pub(super) fn tolerate(&self, operation: &str, result: engine::Result<()>, allowed: &[ErrorKind]) {
        let Err(error) = result else { return };
        if error.kind() == ErrorKind::NoSpace {
            self.count(|stats| stats.no_space += 1);
        }
        if !allowed.contains(&error.kind()) && !self.may_fail(&error) {
            self.fail(format!("{operation}: {error:?}"));
        }
    }
}
