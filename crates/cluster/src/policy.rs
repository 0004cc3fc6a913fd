//! The policy file `policy.cfg`: which fragments make up the cluster.
//!
//! The format is the one of `DeepSea`: each line has a shell pattern over the paths of fragments,
//! and optionally `slice=[FIRST:END]` and `regex=EXPRESSION` (or `re=`), which select among the
//! matches. Always true: parsing and selection report every mistake of the file, with its line.
//!
//! Must not know: the contents of fragments.

use std::collections::BTreeSet;
use std::fmt;

use regex::Regex;

use crate::glob::Glob;

/// Longest accepted policy file in bytes.
const POLICY_MAX: usize = 1 << 20;

/// A mistake in a policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyMistake {
    /// Number of the line, from 1.
    pub line: usize,
    /// The mistake, with the offending text.
    pub message: String,
}

impl fmt::Display for PolicyMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy.cfg line {}: {}", self.line, self.message)
    }
}

/// A range of matches, as in Python: negative numbers count from the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slice {
    first: Option<i64>,
    end: Option<i64>,
}

impl Slice {
    fn parse(text: &str) -> Option<Self> {
        let (first, end) = text.strip_prefix('[')?.strip_suffix(']')?.split_once(':')?;
        let number = |text: &str| match text.trim() {
            "" => Some(None),
            digits => digits.parse().ok().map(Some),
        };
        Some(Self { first: number(first)?, end: number(end)? })
    }

    fn of<'a, 'b>(self, items: &'b [&'a str]) -> &'b [&'a str] {
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let index = |bound: Option<i64>, default: i64| {
            let bound = bound.unwrap_or(default);
            let absolute = if bound < 0 { bound.saturating_add(length) } else { bound };
            usize::try_from(absolute.clamp(0, length)).unwrap_or(0)
        };
        items.get(index(self.first, 0)..index(self.end, length)).unwrap_or(&[])
    }
}

/// A line of a policy file.
#[derive(Clone, Debug)]
struct Selection {
    line: usize,
    pattern: String,
    glob: Glob,
    slice: Option<Slice>,
    regex: Option<Regex>,
}

/// A parsed policy file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    selections: Vec<Selection>,
}

impl Policy {
    /// Parses a policy file. Returns the valid lines, and all mistakes.
    pub(crate) fn parse(text: &str) -> (Self, Vec<PolicyMistake>) {
        if text.len() > POLICY_MAX {
            let message = format!("the file has {} bytes; the maximum is {POLICY_MAX}", text.len());
            return (Self::default(), vec![PolicyMistake { line: 1, message }]);
        }
        let (mut selections, mut mistakes) = (Vec::new(), Vec::new());
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            match parse_line(number, line) {
                Ok(selection) => selections.push(selection),
                Err(message) => mistakes.push(PolicyMistake { line: number, message }),
            }
        }
        (Self { selections }, mistakes)
    }

    /// Selects fragments among the paths that exist, in the order of the policy file, each once.
    /// Returns them, and a mistake for each line that selects none.
    pub(crate) fn select<'a>(&self, paths: &BTreeSet<&'a str>) -> (Vec<&'a str>, Vec<PolicyMistake>) {
        let (mut selected, mut seen, mut mistakes) = (Vec::new(), BTreeSet::new(), Vec::new());
        for selection in &self.selections {
            let matching: Vec<&str> = paths.iter().copied().filter(|path| selection.matches(path)).collect();
            let chosen = selection.slice.map_or(matching.as_slice(), |slice| slice.of(&matching));
            if chosen.is_empty() {
                let message = format!("'{}' selects no fragment", selection.pattern);
                mistakes.push(PolicyMistake { line: selection.line, message });
            }
            for path in chosen {
                if seen.insert(*path) {
                    selected.push(*path);
                }
            }
        }
        (selected, mistakes)
    }
}

impl Selection {
    fn matches(&self, path: &str) -> bool {
        self.glob.matches(path) && self.regex.as_ref().is_none_or(|regex| regex.is_match(path))
    }
}

fn parse_line(line: usize, text: &str) -> Result<Selection, String> {
    let mut words = text.split_whitespace();
    let pattern = words.next().unwrap_or_default().to_owned();
    check_section(&pattern)?;
    let mut selection =
        Selection { line, glob: Glob::new(&pattern), pattern: pattern.clone(), slice: None, regex: None };
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            return Err(format!(
                "'{word}' is not an option; options are slice=[FIRST:END] and regex=EXPRESSION"
            ));
        };
        match key {
            "slice" if selection.slice.is_some() => return Err("slice= occurs twice".into()),
            "slice" => {
                let slice = Slice::parse(value);
                selection.slice =
                    Some(slice.ok_or_else(|| format!("slice '{value}' is not [FIRST:END], such as [:3]"))?);
            }
            "regex" | "re" if selection.regex.is_some() => return Err("regex= occurs twice".into()),
            "regex" | "re" => selection.regex = Some(parse_regex(value)?),
            other => return Err(format!("unknown option '{other}='; options are slice= and regex=")),
        }
    }
    Ok(selection)
}

/// Parses an expression that matches from the start of the path, as Python's `re.match` does.
fn parse_regex(value: &str) -> Result<Regex, String> {
    Regex::new(&format!("^(?:{value})")).map_err(|error| {
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default();
        format!("regex '{value}' is invalid: {}", reason.trim_start_matches("error: "))
    })
}

/// The roles of hosts. `igw` (iSCSI) and `ganesha` (NFS) are accepted and have no daemon here.
pub(crate) const ROLES: [&str; 9] =
    ["master", "admin", "mon", "mgr", "mds", "rgw", "igw", "ganesha", "openattic"];

/// Checks the section, which is the first component of a pattern.
fn check_section(pattern: &str) -> Result<(), String> {
    if pattern.starts_with('/') || pattern.split('/').any(|part| part == "..") {
        return Err(format!("'{pattern}' leads out of the directory of fragments"));
    }
    let Some((section, rest)) = pattern.split_once('/') else {
        return Err(format!("'{pattern}' has no directory; lines look like 'role-mon/cluster/*.sls'"));
    };
    if rest.is_empty() {
        return Err(format!("'{pattern}' names no fragment"));
    }
    match section.split_once('-') {
        Some(("role", role)) if ROLES.contains(&role) || role.contains(['*', '?', '[']) => Ok(()),
        Some(("role", role)) => Err(format!("unknown role '{role}'; roles are {}", ROLES.join(", "))),
        Some(("cluster" | "profile", name)) if !name.is_empty() => Ok(()),
        None if section == "config" => Ok(()),
        _ => Err(format!(
            "unknown section '{section}'; sections are cluster-NAME, role-NAME, profile-NAME and config"
        )),
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
