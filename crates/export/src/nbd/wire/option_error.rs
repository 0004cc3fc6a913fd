//! Error replies to options.

/// The reason why an option is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) enum OptionError {
    /// `NBD_REP_ERR_UNSUP`: unknown option.
    Unsupported,
    /// `NBD_REP_ERR_POLICY`: not permitted.
    Policy,
    /// `NBD_REP_ERR_INVALID`: invalid data.
    Invalid,
    /// `NBD_REP_ERR_UNKNOWN`: no such export.
    Unknown,
    /// `NBD_REP_ERR_SHUTDOWN`: not available at present.
    Shutdown,
    /// `NBD_REP_ERR_TOO_BIG`: too much data.
    TooBig,
}

impl OptionError {
    pub(super) fn code(self) -> u32 {
        const ERROR: u32 = 1 << 31;
        ERROR
            + match self {
                Self::Unsupported => 1,
                Self::Policy => 2,
                Self::Invalid => 3,
                Self::Unknown => 6,
                Self::Shutdown => 7,
                Self::TooBig => 9,
            }
    }
}

/// An option that is answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct BadOption {
    pub(in crate::nbd) error: OptionError,
    /// A message for people.
    pub(in crate::nbd) message: &'static str,
}

pub(super) const fn invalid(message: &'static str) -> BadOption {
    BadOption { error: OptionError::Invalid, message }
}

pub(super) const TOO_SHORT: BadOption = invalid("the option's data is too short");
pub(super) const TOO_LONG: BadOption = invalid("the option's data is too long");
