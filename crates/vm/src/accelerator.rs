//! The accelerator of a machine: the kernel's KVM, or QEMU's translator (TCG), which works
//! everywhere but is slow.

use std::fs::File;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

const DEVICE: &str = "/dev/kvm";
/// Properties of the CPUs, as listed by the kernel.
const PROCESSORS: &str = "/proc/cpuinfo";

/// The KVM support of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KvmSupport {
    /// This user can open the KVM device.
    pub(crate) usable: bool,
    /// The CPUs support virtualization. Without it KVM emulates early boot code, and stops a
    /// machine at unknown instructions, which newer kernels use.
    pub(crate) hardware: bool,
}

impl KvmSupport {
    /// Detects the current support.
    pub(crate) fn detect() -> Self {
        // Only opening the device shows whether it is usable: permissions may be missing, or the
        // file may exist without a device.
        let usable = File::options().read(true).write(true).open(DEVICE).is_ok();
        Self {
            usable,
            hardware: has_virtualization_flag(&std::fs::read_to_string(PROCESSORS).unwrap_or_default()),
        }
    }
}

fn has_virtualization_flag(processors: &str) -> bool {
    let mut flags = processors.lines().filter(|line| line.starts_with("flags"));
    flags.next().is_some_and(|line| line.split_whitespace().any(|flag| flag == "vmx" || flag == "svm"))
}

/// The accelerator of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    /// KVM if this user can use it and the CPUs support virtualization, otherwise TCG; detected at
    /// each start.
    #[default]
    Auto,
    /// The kernel's KVM.
    Kvm,
    /// QEMU's translator, TCG.
    Tcg,
}

impl Accelerator {
    /// Returns the accelerators to try, in order. KVM may be usable but fail, for example under
    /// nested virtualization or on unknown CPUs.
    ///
    /// # Errors
    /// If KVM was requested and is not usable.
    pub(crate) fn candidates(self, kvm: KvmSupport) -> Result<&'static [Self]> {
        match self {
            Self::Auto if kvm.usable && kvm.hardware => Ok(&[Self::Kvm, Self::Tcg]),
            Self::Auto | Self::Tcg => Ok(&[Self::Tcg]),
            Self::Kvm if kvm.usable => Ok(&[Self::Kvm]),
            Self::Kvm => Err(Error::new(ErrorKind::Invalid, format!("{DEVICE} is not usable")).hint(
                "check that virtualization is enabled in the firmware and that this user is in the group 'kvm', or use '--accelerator \
                 tcg', which is slow",
            )),
        }
    }

    /// Returns the name that QEMU uses.
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
        let unknown = || {
            Error::new(ErrorKind::Invalid, format!("'{text}' is not an accelerator; use auto, kvm or tcg"))
        };
        known.ok_or_else(unknown)
    }
}

/// Returns true if `auto` selects KVM on this host.
pub fn kvm_is_usable() -> bool {
    let kvm = KvmSupport::detect();
    kvm.usable && kvm.hardware
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_is_used_if_supported_and_required_only_on_request() {
        let kvm = |usable, hardware| KvmSupport { usable, hardware };
        assert_eq!(
            Accelerator::Auto.candidates(kvm(true, true)),
            Ok(&[Accelerator::Kvm, Accelerator::Tcg][..])
        );
        assert_eq!(Accelerator::Auto.candidates(kvm(true, false)), Ok(&[Accelerator::Tcg][..]));
        assert_eq!(Accelerator::Auto.candidates(kvm(false, true)), Ok(&[Accelerator::Tcg][..]));
        assert_eq!(Accelerator::Tcg.candidates(kvm(true, true)), Ok(&[Accelerator::Tcg][..]));
        assert_eq!(Accelerator::Kvm.candidates(kvm(true, false)), Ok(&[Accelerator::Kvm][..]));
        assert!(
            Accelerator::Kvm.candidates(kvm(false, true)).unwrap_err().hint_text().unwrap().contains("tcg")
        );
        assert!("xen".parse::<Accelerator>().is_err());
        assert!(
            has_virtualization_flag("processor : 0\nflags\t\t: fpu vmx ssse3\n")
                && has_virtualization_flag("flags : svm")
        );
        assert!(
            !has_virtualization_flag("flags : fpu hypervisor\nvmx flags : ept\n")
                && !has_virtualization_flag("")
        );
    }
}
