//! The drive models that a lab can emulate: published limits, and fractions of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The limits of a drive, per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveLimits {
    /// Reads per second.
    pub read_iops: u64,
    /// Random writes per second.
    pub write_iops: u64,
    /// Bytes read per second.
    pub read_bps: u64,
    /// Bytes written per second.
    pub write_bps: u64,
}

/// A drive model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveModel {
    /// Name on the command line.
    pub name: String,
    /// Description.
    pub title: String,
    /// Limits.
    #[serde(flatten)]
    pub limits: DriveLimits,
    /// Source of the limits.
    pub source: String,
}

#[derive(Deserialize)]
struct Models {
    models: Vec<DriveModel>,
}

/// Returns all models.
pub fn models() -> Vec<DriveModel> {
    match toml::from_str::<Models>(include_str!("../../lab/models.toml")) {
        Ok(models) => models.models,
        Err(error) => panic!("built-in drive models: {error}"),
    }
}

/// Returns the model of that name.
pub fn model(name: &str) -> Option<DriveModel> {
    models().into_iter().find(|model| model.name == name)
}

/// A fraction of a real drive, such as 1/100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fraction {
    part: u32,
    of: u32,
}

/// The error of parsing a fraction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid fraction '{0}': expected a fraction up to 1, for example 1/100")]
pub struct FractionError(String);

impl FromStr for Fraction {
    type Err = FractionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || FractionError(text.into());
        let (part, of) = text.split_once('/').unwrap_or((text, "1"));
        let number = |digits: &str| digits.trim().parse::<u32>().map_err(|_| wrong());
        let (part, of) = (number(part)?, number(of)?);
        if part == 0 || of == 0 || part > of { Err(wrong()) } else { Ok(Self { part, of }) }
    }
}

impl TryFrom<String> for Fraction {
    type Error = FractionError;

    fn try_from(text: String) -> Result<Self, FractionError> {
        text.parse()
    }
}

impl From<Fraction> for String {
    fn from(fraction: Fraction) -> Self {
        fraction.to_string()
    }
}

impl Fraction {
    /// Returns the fraction as a number above 0 and at most 1.
    pub fn value(self) -> f64 {
        f64::from(self.part) / f64::from(self.of)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.part == self.of { f.write_str("1") } else { write!(f, "{}/{}", self.part, self.of) }
    }
}

impl DriveLimits {
    /// Returns this fraction of the limits; at least one per second.
    #[must_use]
    pub fn share(self, fraction: Fraction) -> Self {
        let of = |value: u64| {
            let share = u128::from(value) * u128::from(fraction.part) / u128::from(fraction.of);
            u64::try_from(share).unwrap_or(u64::MAX).max(1)
        };
        Self {
            read_iops: of(self.read_iops),
            write_iops: of(self.write_iops),
            read_bps: of(self.read_bps),
            write_bps: of(self.write_bps),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundredth_of_the_reference_drive_matches_the_documentation() {
        let limits = model("kioxia-cm7").unwrap().limits.share("1/100".parse().unwrap());
        let wanted = DriveLimits {
            read_iops: 27_000,
            write_iops: 7_000,
            read_bps: 140_000_000,
            write_bps: 67_500_000,
        };
        assert_eq!(limits, wanted);
    }

    #[test]
    fn every_model_has_a_unique_name_limits_and_a_source() {
        let models = models();
        for (index, model) in models.iter().enumerate() {
            let DriveLimits { read_iops, write_iops, read_bps, write_bps } = model.limits;
            assert!([read_iops, write_iops, read_bps, write_bps].iter().all(|limit| *limit > 0), "{model:?}");
            assert!(!model.source.is_empty() && !model.title.is_empty());
            assert!(models[..index].iter().all(|other| other.name != model.name), "{}", model.name);
        }
        assert_eq!(models.len(), 5);
    }

    #[test]
    fn fractions_parse_in_common_notations() {
        for (text, shown) in [("1/100", "1/100"), ("1", "1"), ("3 / 4", "3/4"), ("2/2", "1")] {
            assert_eq!(text.parse::<Fraction>().unwrap().to_string(), shown);
        }
        for text in ["", "0", "1/0", "2/1", "0.5", "-1/2", "a"] {
            let error = text.parse::<Fraction>().unwrap_err().to_string();
            assert!(error.contains("1/100"), "{error}");
        }
    }
}
