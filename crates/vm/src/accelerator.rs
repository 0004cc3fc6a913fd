//! By what a machine's processors run: the kernel's KVM, or QEMU's translator (TCG), which works everywhere and is slow.

use std::fs::File;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

const DEVICE: &str = "/dev/kvm";
/// The processors, as the kernel tells of them.
const PROCESSORS: &str = "/proc/cpuinfo";

/// What of KVM is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kvm {
    /// This user can use it.
    pub(crate) usable: bool,
    /// The processors do the work. Without that KVM emulates what a kernel does before it is up, and stops a machine at
    /// instructions that it does not know, which newer kernels use.
    pub(crate) by_hardware: bool,
}

impl Kvm {
    /// What is here, as it is now.
    pub(crate) fn here() -> Self {
        // Opening is what is refused, by permissions as by a kernel that has the file but not the device.
        let usable = File::options().read(true).write(true).open(DEVICE).is_ok();
        Self { usable, by_hardware: has_hardware(&std::fs::read_to_string(PROCESSORS).unwrap_or_default()) }
    }
}

fn has_hardware(processors: &str) -> bool {
    let mut flags = processors.lines().filter(|line| line.starts_with("flags"));
    flags.next().is_some_and(|line| line.split_whitespace().any(|flag| flag == "vmx" || flag == "svm"))
}

/// What runs a machine's processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    /// KVM if this user can use it and the processors do the work, else TCG; looked for at each start.
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
    pub(crate) fn to_try(self, kvm: Kvm) -> Result<&'static [Self]> {
        match self {
            Self::Auto if kvm.usable && kvm.by_hardware => Ok(&[Self::Kvm, Self::Tcg]),
            Self::Auto | Self::Tcg => Ok(&[Self::Tcg]),
            Self::Kvm if kvm.usable => Ok(&[Self::Kvm]),
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

/// True if KVM is what `auto` takes here.
pub fn kvm_is_usable() -> bool {
    let kvm = Kvm::here();
    kvm.usable && kvm.by_hardware
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_is_taken_where_it_is_and_missed_only_if_asked_for() {
        let kvm = |usable, by_hardware| Kvm { usable, by_hardware };
        assert_eq!(Accelerator::Auto.to_try(kvm(true, true)), Ok(&[Accelerator::Kvm, Accelerator::Tcg][..]));
        assert_eq!(Accelerator::Auto.to_try(kvm(true, false)), Ok(&[Accelerator::Tcg][..]));
        assert_eq!(Accelerator::Auto.to_try(kvm(false, true)), Ok(&[Accelerator::Tcg][..]));
        assert_eq!(Accelerator::Tcg.to_try(kvm(true, true)), Ok(&[Accelerator::Tcg][..]));
        assert_eq!(Accelerator::Kvm.to_try(kvm(true, false)), Ok(&[Accelerator::Kvm][..]));
        assert!(Accelerator::Kvm.to_try(kvm(false, true)).unwrap_err().hint_text().unwrap().contains("tcg"));
        assert!("xen".parse::<Accelerator>().is_err());
        assert!(has_hardware("processor : 0\nflags\t\t: fpu vmx ssse3\n") && has_hardware("flags : svm"));
        assert!(!has_hardware("flags : fpu hypervisor\nvmx flags : ept\n") && !has_hardware(""));
    }
}
