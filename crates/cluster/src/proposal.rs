//! Proposals for storage: which drives of a host become OSDs, and where their databases and
//! write-ahead logs are.
//!
//! The arguments and their meanings are those of `DeepSea`'s `proposal.populate`. Always true: a
//! proposal uses only drives that are not in use.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::glob::Glob;
use crate::inventory::{DriveKind, HostDrive, HostInventory};

/// A filter of drives by size in GB (10^9 bytes), exact or a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeFilter {
    first: u64,
    last: u64,
}

impl SizeFilter {
    fn matches(self, drive: &HostDrive) -> bool {
        // Sizes are compared rounded to GB, as the arguments are given.
        let gigabytes = drive.bytes.saturating_add(500_000_000) / 1_000_000_000;
        (self.first..=self.last).contains(&gigabytes)
    }
}

impl FromStr for SizeFilter {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| text.parse::<u64>().map_err(drop);
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(text)?, number(text)?),
        };
        if first <= last { Ok(Self { first, last }) } else { Err(()) }
    }
}

impl fmt::Display for SizeFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{} GB", self.first, self.last)
    }
}

/// The arguments of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposalArgs {
    /// Name of the profile.
    pub name: String,
    /// Pattern of host names.
    pub target: String,
    /// Data drives for each drive of write-ahead logs.
    pub ratio: usize,
    /// Data drives for each database drive; the ratio if absent.
    pub db_ratio: Option<usize>,
    /// Sizes of drives of write-ahead logs.
    pub wal: Option<SizeFilter>,
    /// Sizes of database drives.
    pub db: Option<SizeFilter>,
    /// Sizes of data drives.
    pub data: Option<SizeFilter>,
    /// Size of a write-ahead log, in bytes.
    pub wal_size: u64,
    /// Size of a database, in bytes.
    pub db_size: u64,
    /// Make OSDs without separate drives from the data drives that exceed the ratio.
    pub leftovers: bool,
    /// Ignore separate drives.
    pub standalone: bool,
}

impl Default for ProposalArgs {
    fn default() -> Self {
        Self {
            name: "default".into(),
            target: "*".into(),
            ratio: 5,
            db_ratio: None,
            wal: None,
            db: None,
            data: None,
            wal_size: 500 << 20,
            db_size: 500 << 20,
            leftovers: false,
            standalone: false,
        }
    }
}

impl FromStr for ProposalArgs {
    type Err = String;

    /// Parses arguments such as `name=apollo ratio=9 wal=740-770 target='osd*' db-size=40g`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (mut args, mut mistakes) = (Self::default(), Vec::new());
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, "true"));
            let value = value.trim_matches(['\'', '"']);
            if args.set(key, value).is_none() {
                mistakes.push(format!("'{word}'"));
            }
        }
        if mistakes.is_empty() {
            return Ok(args);
        }
        Err(format!(
            "invalid arguments of a proposal: {}; arguments are name=NAME target=PATTERN ratio=N db-ratio=N \
             wal=GB[-GB] db=GB[-GB] data=GB[-GB] wal-size=SIZE db-size=SIZE leftovers=true standalone=true",
            mistakes.join(", ")
        ))
    }
}

impl ProposalArgs {
    /// Sets an argument. Returns nothing if it is unknown or its value is invalid.
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        let count = || value.parse().ok().filter(|count| *count > 0);
        let filter = || value.parse().ok();
        match key {
            "name" if is_profile_name(value) => value.clone_into(&mut self.name),
            "target" if !value.is_empty() => value.clone_into(&mut self.target),
            "ratio" => self.ratio = count()?,
            "db-ratio" => self.db_ratio = Some(count()?),
            "wal" | "journal" => self.wal = Some(filter()?),
            "db" => self.db = Some(filter()?),
            "data" => self.data = Some(filter()?),
            "wal-size" => self.wal_size = parse_size(value)?,
            "db-size" => self.db_size = parse_size(value)?,
            "leftovers" => self.leftovers = parse_bool(value)?,
            "standalone" => self.standalone = parse_bool(value)?,
            _ => return None,
        }
        Some(())
    }
}

fn is_profile_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "1" => Some(true),
        "false" | "False" | "0" => Some(false),
        _ => None,
    }
}

/// Parses a size such as `40g`, in units of 1024.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..)?.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|size| *size > 0)
}

/// The placement of an OSD on drives, as fragments hold it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OsdPlacement {
    /// Object store: `bluestore`.
    pub format: String,
    /// Drive of the write-ahead log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal: Option<String>,
    /// Size of the write-ahead log in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal_size: Option<u64>,
    /// Drive of the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db: Option<String>,
    /// Size of the database in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size: Option<u64>,
}

/// The proposal for a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostProposal {
    /// The OSDs, by data drive.
    pub osds: BTreeMap<String, OsdPlacement>,
    /// Drives that fit the arguments and were left out, with the reason.
    pub left_out: Vec<(String, String)>,
}

/// Proposes OSDs for a host. Returns nothing if the host is not a target, or has no data drives.
pub(crate) fn propose(args: &ProposalArgs, host: &HostInventory) -> Option<HostProposal> {
    if !Glob::new(&args.target).matches(&host.name) {
        return None;
    }
    let (free, used): (Vec<&HostDrive>, Vec<&HostDrive>) =
        host.drives.iter().partition(|drive| drive.used_by.is_empty());
    let mut proposal = HostProposal::default();
    for drive in used {
        proposal.left_out.push((drive.path.clone(), format!("in use by {}", drive.used_by)));
    }
    let separate = separate_drives(args, &free);
    let is_separate =
        |drive: &HostDrive| separate.wal.iter().chain(&separate.db).any(|other| other.path == drive.path);
    let fits =
        |drive: &&&HostDrive| args.data.is_none_or(|filter| filter.matches(drive)) && !is_separate(drive);
    let data: Vec<&HostDrive> = free.iter().filter(fits).copied().collect();
    let ratios = (args.ratio, args.db_ratio.unwrap_or(args.ratio));
    for (index, drive) in data.into_iter().enumerate() {
        let wal = separate.wal.get(index / ratios.0).map(|drive| drive.path.clone());
        let db = separate.db.get(index / ratios.1).map(|drive| drive.path.clone());
        let is_leftover = separate.wal.is_empty() == wal.is_some() || separate.db.is_empty() == db.is_some();
        if is_leftover && !args.leftovers {
            let reason = format!("exceeds the ratio of {} to 1; 'leftovers=true' uses it alone", ratios.0);
            proposal.left_out.push((drive.path.clone(), reason));
            continue;
        }
        let placement = OsdPlacement {
            format: "bluestore".into(),
            wal_size: wal.as_ref().map(|_| args.wal_size),
            wal,
            db_size: db.as_ref().map(|_| args.db_size),
            db,
        };
        proposal.osds.insert(drive.path.clone(), placement);
    }
    (!proposal.osds.is_empty()).then_some(proposal)
}

/// The drives for write-ahead logs and databases.
#[derive(Default)]
struct SeparateDrives<'a> {
    wal: Vec<&'a HostDrive>,
    db: Vec<&'a HostDrive>,
}

/// Selects separate drives by the filters; without filters, drives of a faster kind than the
/// others, for databases, which include the write-ahead log.
fn separate_drives<'a>(args: &ProposalArgs, free: &[&'a HostDrive]) -> SeparateDrives<'a> {
    if args.standalone {
        return SeparateDrives::default();
    }
    let filtered = |filter: Option<SizeFilter>| -> Vec<&'a HostDrive> {
        filter.map_or_else(Vec::new, |filter| {
            free.iter().filter(|drive| filter.matches(drive)).copied().collect()
        })
    };
    if args.wal.is_some() || args.db.is_some() {
        return SeparateDrives { wal: filtered(args.wal), db: filtered(args.db) };
    }
    let rotating = |drive: &&&HostDrive| drive.kind == DriveKind::Disk;
    let fast = |drive: &&&HostDrive| matches!(drive.kind, DriveKind::Nvme | DriveKind::Ssd);
    let fits = |drive: &&&HostDrive| args.data.is_none_or(|filter| filter.matches(drive));
    if !free.iter().any(|drive| rotating(&drive) && fits(&drive)) {
        return SeparateDrives::default();
    }
    let mut db: Vec<&HostDrive> = free.iter().filter(fast).copied().collect();
    db.sort_by_key(|drive| (drive.kind, drive.path.clone()));
    SeparateDrives { wal: Vec::new(), db }
}

#[cfg(test)]
#[path = "proposal_tests.rs"]
mod tests;
