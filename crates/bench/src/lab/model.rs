//! Which drives a lab can imitate: published limits as data, and fractions of them.
//!
//! Must not know: how a limit is kept.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a drive can do in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveLimits {
    /// Reads a second.
    pub read_iops: u64,
    /// Random writes a second.
    pub write_iops: u64,
    /// Bytes read a second.
    pub read_bps: u64,
    /// Bytes written a second.
    pub write_bps: u64,
}

/// A drive that can be imitated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveModel {
    /// Its name on the command line.
    pub name: String,
    /// What it is.
    pub title: String,
    /// What it can do.
    #[serde(flatten)]
    pub limits: DriveLimits,
    /// Where the limits are from.
    pub source: String,
}

#[derive(Deserialize)]
struct Models {
    models: Vec<DriveModel>,
}

/// All models.
pub fn models() -> Vec<DriveModel> {
    match toml::from_str::<Models>(include_str!("../../lab/models.toml")) {
        Ok(models) => models.models,
        Err(error) => panic!("the models that are part of this program: {error}"),
    }
}

/// The model of that name.
pub fn model(name: &str) -> Option<DriveModel> {
    models().into_iter().find(|model| model.name == name)
}

/// A share of a real drive, as 1/100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fraction {
    part: u32,
    of: u32,
}

/// Why a text is no fraction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a share of a drive: write for example 1/100, or 1 for a whole one")]
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
    /// As a number, above 0 and at most 1.
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
    /// That share of them; never less than one a second.
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
    fn a_hundredth_of_the_documents_drive_is_what_the_suites_page_says() {
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
    fn every_model_has_a_name_of_its_own_limits_and_a_source() {
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
    fn fractions_are_read_as_people_write_them() {
        for (text, shown) in [("1/100", "1/100"), ("1", "1"), ("3 / 4", "3/4"), ("2/2", "1")] {
            assert_eq!(text.parse::<Fraction>().unwrap().to_string(), shown);
        }
        for text in ["", "0", "1/0", "2/1", "0.5", "-1/2", "a"] {
            let error = text.parse::<Fraction>().unwrap_err().to_string();
            assert!(error.contains("1/100"), "{error}");
        }
    }
}
