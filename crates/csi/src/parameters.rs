//! Parameters of storage classes and of volume attribute classes.
//!
//! Always true: an error names the parameter with the invalid value; an unknown parameter is an
//! error, because an ignored one would remain undetected.

use std::collections::HashMap;
use std::str::FromStr;

use api::Size;
use api::types::QosLimits;
use tonic::Status;

use crate::capability::FileSystem;
use crate::status::invalid;

/// Key of the file system in the parameters and in the context of a volume.
pub(crate) const FS_TYPE: &str = "fsType";
/// Prefix of the keys that the cluster adds for other programs.
const RESERVED_PREFIX: &str = "csi.storage.k8s.io/";
/// Smallest IOPS limit.
const IOPS_MIN: u64 = 10;
/// Smallest bandwidth limit in bytes per second.
const BANDWIDTH_MIN: u64 = 64 << 10;
/// Longest burst in seconds.
const BURST_MAX: u32 = 3600;
/// Largest weight.
const WEIGHT_MAX: u16 = 10_000;
/// Largest number of shards of a volume.
const SHARDS_MAX: u16 = 256;

/// Parameters of a new volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CreateParameters {
    /// Pool; any open pool if absent.
    pub(crate) pool: Option<String>,
    /// Protection `k+m` that the pool must have.
    pub(crate) scheme: Option<String>,
    /// File system; the capability of the request or the default decides if absent.
    pub(crate) file_system: Option<FileSystem>,
    /// Reserve the full size.
    pub(crate) thick: bool,
    /// Number of shards; all if absent.
    pub(crate) shards: Option<u16>,
    /// Quality of service.
    pub(crate) qos: QosChange,
}

/// Changes to the quality of service of a volume. Absent values stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QosChange {
    iops: Option<Option<u64>>,
    bandwidth: Option<Option<u64>>,
    burst_ms: Option<u32>,
    weight: Option<u16>,
}

impl CreateParameters {
    /// Parses the parameters of a storage class and, with precedence, of a volume attribute class.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, which names the parameter.
    pub(crate) fn parse(
        parameters: &HashMap<String, String>,
        mutable: &HashMap<String, String>,
    ) -> Result<Self, Status> {
        let mut parsed = Self::default();
        for (key, value) in parameters.iter().filter(|(key, _)| !key.starts_with(RESERVED_PREFIX)) {
            match key.as_str() {
                "pool" => parsed.pool = Some(value.clone()).filter(|pool| !pool.is_empty()),
                "scheme" => parsed.scheme = Some(check_scheme(value)?),
                FS_TYPE => parsed.file_system = FileSystem::parse(FS_TYPE, value)?,
                "thick" => parsed.thick = number(key, value, "true or false")?,
                "shards" => parsed.shards = Some(in_range(key, value, 1, SHARDS_MAX)?),
                _ if parsed.qos.set(key, value)? => {}
                _ => return Err(unknown(key, "fsType, pool, scheme, shards, thick, ")),
            }
        }
        parsed.qos.merge(QosChange::parse(mutable)?);
        Ok(parsed)
    }
}

impl QosChange {
    /// Parses the parameters of a volume attribute class.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, which names the parameter.
    pub(crate) fn parse(parameters: &HashMap<String, String>) -> Result<Self, Status> {
        let mut parsed = Self::default();
        for (key, value) in parameters.iter().filter(|(key, _)| !key.starts_with(RESERVED_PREFIX)) {
            if !parsed.set(key, value)? {
                return Err(unknown(key, ""));
            }
        }
        Ok(parsed)
    }

    /// Returns limits with the changes.
    pub(crate) fn apply(&self, limits: QosLimits) -> QosLimits {
        QosLimits {
            iops: self.iops.unwrap_or(limits.iops),
            bandwidth: self.bandwidth.unwrap_or(limits.bandwidth),
            burst_ms: self.burst_ms.unwrap_or(limits.burst_ms),
            weight: self.weight.unwrap_or(limits.weight),
            thick: limits.thick,
        }
    }

    /// Sets the value of a key. Returns false if the key is another one.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, Status> {
        match key {
            "iops" => self.iops = Some(limit(key, value, IOPS_MIN, "a number of operations per second")?),
            "bandwidth" => {
                let size = |text: &str| text.parse::<Size>().map(Size::bytes).map_err(|e| invalid(key, e));
                let bytes = if value == "none" { None } else { Some(size(value)?) };
                if bytes.is_some_and(|bytes| bytes < BANDWIDTH_MIN) {
                    let problem = format!("{value} is below {} per second", Size(BANDWIDTH_MIN));
                    return Err(invalid(key, problem));
                }
                self.bandwidth = Some(bytes);
            }
            "burst" => self.burst_ms = Some(in_range(key, value, 0, BURST_MAX)?.saturating_mul(1000)),
            "weight" => self.weight = Some(in_range(key, value, 1, WEIGHT_MAX)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn merge(&mut self, other: Self) {
        self.iops = other.iops.or(self.iops);
        self.bandwidth = other.bandwidth.or(self.bandwidth);
        self.burst_ms = other.burst_ms.or(self.burst_ms);
        self.weight = other.weight.or(self.weight);
    }
}

fn unknown(key: &str, others: &str) -> Status {
    invalid(key, format!("unknown parameter; use one of {others}iops, bandwidth, burst, weight"))
}

fn check_scheme(value: &str) -> Result<String, Status> {
    let parts = value.split_once('+').and_then(|(k, m)| Some((k.parse::<u8>().ok()?, m.parse::<u8>().ok()?)));
    match parts {
        Some((k, m)) => Ok(format!("{k}+{m}")),
        None => Err(invalid("scheme", format!("'{value}' is not a scheme: write for example 4+1"))),
    }
}

fn number<T: FromStr>(key: &str, value: &str, expected: &str) -> Result<T, Status> {
    value.parse().map_err(|_| invalid(key, format!("'{value}' is not {expected}")))
}

fn in_range<T: FromStr + PartialOrd + std::fmt::Display>(
    key: &str,
    value: &str,
    min: T,
    max: T,
) -> Result<T, Status> {
    let expected = format!("a number from {min} to {max}");
    let parsed: T = number(key, value, &expected)?;
    if parsed < min || parsed > max {
        return Err(invalid(key, format!("'{value}' is not {expected}")));
    }
    Ok(parsed)
}

fn limit(key: &str, value: &str, min: u64, expected: &str) -> Result<Option<u64>, Status> {
    if value == "none" {
        return Ok(None);
    }
    let parsed: u64 = number(key, value, &format!("{expected}, or none"))?;
    if parsed < min { Err(invalid(key, format!("{value} is below {min}"))) } else { Ok(Some(parsed)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn parameters_are_parsed_and_classes_take_precedence() {
        let class = map(&[
            ("pool", "fast"),
            ("fsType", "ext4"),
            ("thick", "true"),
            ("shards", "2"),
            ("iops", "500"),
            ("scheme", "4+1"),
            ("csi.storage.k8s.io/pvc/name", "x"),
        ]);
        let mutable = map(&[("iops", "none"), ("bandwidth", "1M"), ("burst", "2"), ("weight", "7")]);
        let parsed = CreateParameters::parse(&class, &mutable).unwrap();
        assert_eq!((parsed.pool.as_deref(), parsed.thick, parsed.shards), (Some("fast"), true, Some(2)));
        assert_eq!(parsed.file_system, Some(FileSystem::Ext4));
        let before = QosLimits { iops: Some(9), thick: true, ..QosLimits::default() };
        let after = parsed.qos.apply(before);
        let expected =
            QosLimits { iops: None, bandwidth: Some(1 << 20), burst_ms: 2000, weight: 7, thick: true };
        assert_eq!(after, expected);
    }

    #[test]
    fn errors_name_the_parameter() {
        let cases = [
            ("fsType", "ntfs"),
            ("thick", "yes"),
            ("shards", "0"),
            ("iops", "9"),
            ("iops", "many"),
            ("bandwidth", "1K"),
            ("bandwidth", "fast"),
            ("burst", "3601"),
            ("weight", "0"),
            ("scheme", "raid5"),
            ("Pool", "fast"),
        ];
        for (key, value) in cases {
            let error = CreateParameters::parse(&map(&[(key, value)]), &map(&[])).unwrap_err();
            assert_eq!(error.code(), tonic::Code::InvalidArgument);
            assert!(error.message().starts_with(&format!("{key}: ")), "{}", error.message());
        }
        assert!(QosChange::parse(&map(&[("pool", "fast")])).is_err(), "pools are not mutable");
    }
}
