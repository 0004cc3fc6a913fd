//! Which errors an operation may return: those that its own state explains, and what losing or damaging more than the scheme bears brings
//! about while that is so. Any other ends the run.

use engine::{Error, ErrorKind};

use super::Life;

/// An operation that may not fail.
pub(super) const NOTHING: &[ErrorKind] = &[];
/// An operation that may find the pool full.
pub(super) const NO_SPACE: &[ErrorKind] = &[ErrorKind::NoSpace];

impl Life {
    /// True if more was lost or damaged than the scheme bears, and that explains an error of any operation.
    pub(super) fn may_fail(&self, error: &Error) -> bool {
        self.excess.get().explains().contains(&error.kind())
    }

    /// What an operation may return that needs space, and finds some unless the file system under a drive is full.
    pub(super) fn where_host_is_full(&self) -> &'static [ErrorKind] {
        if self.host_was_full.get() { NO_SPACE } else { NOTHING }
    }

    /// Ends the run if an operation returned an error other than those that it `may` return and those that explain themselves.
    pub(super) fn tolerate(&self, what: &str, result: engine::Result<()>, may: &[ErrorKind]) {
        let Err(error) = result else { return };
        if error.kind() == ErrorKind::NoSpace {
            self.count(|stats| stats.no_space += 1);
        }
        if !may.contains(&error.kind()) && !self.may_fail(&error) {
            self.fail(format!("{what}: {error:?}"));
        }
    }
}
