//! Lists of CPUs in the format of the kernel and taskset(1): `0,2-3`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Upper bound of the CPU numbers in a list: the kernel's own limit is 8192.
const CPUS_MAX: u32 = 8192;

/// A set of CPUs, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuList(pub BTreeSet<u32>);

/// A text that is not a list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuListError(String);

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a list of CPUs; write it like 0,2-3", self.0)
    }
}

impl std::error::Error for CpuListError {}

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || CpuListError(text.trim().to_owned());
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| {
                let plain = text.bytes().all(|byte| byte.is_ascii_digit());
                text.parse::<u32>().ok().filter(|cpu| plain && *cpu < CPUS_MAX).ok_or_else(wrong)
            };
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl TryFrom<String> for CpuList {
    type Error = CpuListError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> Self {
        list.to_string()
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for cpu in &self.0 {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
                _ => runs.push((*cpu, *cpu)),
            }
        }
        let run = |(first, last): &(u32, u32)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}-{last}"),
        };
        f.write_str(&runs.iter().map(run).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_of_the_kernel_are_parsed() {
        let list: CpuList = "0,2-4\n".parse().unwrap();
        assert_eq!(
            (list.0.into_iter().collect::<Vec<_>>(), "".parse()),
            (vec![0, 2, 3, 4], Ok(CpuList::default()))
        );
        for wrong in ["3-1", "a", "1,", "0-", "-1", "+1", "0-4294967295", "9999999999"] {
            assert!(wrong.parse::<CpuList>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn displayed_lists_are_parsed(cpus in proptest::collection::btree_set(0u32..300, 0..40)) {
            let list = CpuList(cpus);
            prop_assert_eq!(list.to_string().parse(), Ok(list));
        }
    }
}
