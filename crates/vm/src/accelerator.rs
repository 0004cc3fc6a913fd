//! By what a machine's processors run: the kernel's KVM, or QEMU's translator (TCG), which works everywhere and is slow.

use std::fs::File;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

const DEVICE: &str = "/dev/kvm";

/// What runs a machine's processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    /// KVM if this user can use it, else TCG; looked for at each start.
    #[default]
    Auto,
    /// The kernel's.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl Accelerator {
    /// What is to be tried, in this order. KVM may be there and not do: nested in another machine, on processors that it
    /// does not know.
    ///
    /// # Errors
    /// When KVM is asked for and cannot be used.
    pub(crate) fn to_try(self, kvm: bool) -> Result<&'static [Self]> {
        match self {
            Self::Auto if kvm => Ok(&[Self::Kvm, Self::Tcg]),
            Self::Auto | Self::Tcg => Ok(&[Self::Tcg]),
            Self::Kvm if kvm => Ok(&[Self::Kvm]),
            Self::Kvm => Err(Error::new(ErrorKind::Invalid, format!("{DEVICE} cannot be used here")).hint(
                "is virtualisation switched on in the firmware, and is this user in the group 'kvm'? '--accelerator \
                 tcg' does without, slowly",
            )),
        }
    }

    /// As QEMU calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

impl FromStr for Accelerator {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = [Self::Auto, Self::Kvm, Self::Tcg].into_iter().find(|known| known.name() == text);
        let unknown = || Error::new(ErrorKind::Invalid, format!("there is no '{text}': auto, kvm or tcg"));
        known.ok_or_else(unknown)
    }
}

/// True if this user can use KVM here.
pub fn kvm_is_usable() -> bool {
    // Opening is what is refused, by permissions as by a kernel that has the file but not the device.
    File::options().read(true).write(true).open(DEVICE).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_is_taken_where_it_is_and_missed_only_if_asked_for() {
        assert_eq!(Accelerator::Auto.to_try(true), Ok(&[Accelerator::Kvm, Accelerator::Tcg][..]));
        assert_eq!(Accelerator::Auto.to_try(false), Ok(&[Accelerator::Tcg][..]));
        assert_eq!(Accelerator::Tcg.to_try(true), Ok(&[Accelerator::Tcg][..]));
        assert_eq!(Accelerator::Kvm.to_try(true), Ok(&[Accelerator::Kvm][..]));
        assert!(Accelerator::Kvm.to_try(false).unwrap_err().hint_text().unwrap().contains("tcg"));
        assert!("xen".parse::<Accelerator>().is_err());
    }
}
