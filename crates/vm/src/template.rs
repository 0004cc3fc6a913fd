//! Templates for cloud-init, kept by name, and what fills them in.
//!
//! A place to be filled is written `${name}`. Two templates come with the program; a file of the same name goes before
//! them. Always true: nothing is handed to a guest with a place left open.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};

/// Bytes of the largest template.
const TEMPLATE_MAX: u64 = 512 << 10;

/// What a template is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Users, packages, commands: cloud-init's user data.
    UserData,
    /// Addresses: cloud-init's network configuration.
    NetworkData,
    /// The machine's name and identity: cloud-init's meta data.
    MetaData,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::UserData, Self::NetworkData, Self::MetaData];

    /// Its name, which is that of its directory too.
    pub fn name(self) -> &'static str {
        match self {
            Self::UserData => "user-data",
            Self::NetworkData => "network-data",
            Self::MetaData => "meta-data",
        }
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unknown = || {
            Error::new(
                ErrorKind::Invalid,
                format!("there are no templates for '{text}': user-data, network-data or meta-data"),
            )
        };
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(unknown)
    }
}

/// A template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Template {
    /// What it is for.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// True if it comes with the program.
    pub built_in: bool,
    /// The places that are to be filled in, besides those that are known of every machine.
    pub places: Vec<String>,
    /// Its text.
    pub text: String,
}

/// What every machine fills in by itself.
const KNOWN: [&str; 3] = ["vm.name", "vm.uuid", "vm.mac"];

const BUILT_IN: [(Kind, &str, &str); 4] = [
    (Kind::UserData, "username-setup", include_str!("templates/username-setup.yaml")),
    (Kind::UserData, "ssh-key", include_str!("templates/ssh-key.yaml")),
    (Kind::NetworkData, "dhcp", include_str!("templates/dhcp.yaml")),
    (Kind::NetworkData, "static", include_str!("templates/static.yaml")),
];

/// The templates in a directory, and those that come with the program.
#[derive(Clone, Debug)]
pub struct Templates {
    directory: PathBuf,
}

impl Templates {
    /// Those in `directory`, which need not be there.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn path(&self, kind: Kind, name: &str) -> PathBuf {
        self.directory.join(kind.name()).join(name)
    }

    /// All of them.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn list(&self) -> Result<Vec<Template>> {
        let mut found: BTreeMap<(Kind, String), Template> = BTreeMap::new();
        for (kind, name, text) in BUILT_IN {
            found.insert((kind, name.into()), template(kind, name, text.into(), true));
        }
        for kind in Kind::ALL {
            let directory = self.directory.join(kind.name());
            let entries = match std::fs::read_dir(&directory) {
                Ok(entries) => entries,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(Error::file(&directory, &error)),
            };
            for entry in entries.flatten() {
                let name = entry.file_name();
                if let Some(name) = name.to_str().filter(|name| check(name).is_ok()) {
                    found.insert((kind, name.into()), self.get(kind, name)?);
                }
            }
        }
        Ok(found.into_values().collect())
    }

    /// One of them.
    ///
    /// # Errors
    /// `NotFound`, or when it cannot be read.
    pub fn get(&self, kind: Kind, name: &str) -> Result<Template> {
        check(name)?;
        let path = self.path(kind, name);
        match read(&path) {
            Ok(text) => Ok(template(kind, name, text, false)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let built_in = BUILT_IN.iter().find(|(of, known, _)| *of == kind && *known == name);
                let (_, _, text) = built_in.ok_or_else(|| {
                    Error::new(ErrorKind::NotFound, format!("there is no {} template '{name}'", kind.name()))
                        .hint("'gabion vm template list' lists them, 'gabion vm template set' keeps one")
                })?;
                Ok(template(kind, name, (*text).into(), true))
            }
            Err(error) => Err(error),
        }
    }

    /// Keeps the text of a file by a name, in place of what had it.
    ///
    /// # Errors
    /// When the file cannot be read, is too long or no text, or there is no place for it.
    pub fn set(&self, kind: Kind, name: &str, file: &Path) -> Result<Template> {
        check(name)?;
        let text = read(file)?;
        let path = self.path(kind, name);
        crate::store::write(&path, text.as_bytes())?;
        Ok(template(kind, name, text, false))
    }

    /// Takes one away.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for one that comes with the program.
    pub fn delete(&self, kind: Kind, name: &str) -> Result<()> {
        if self.get(kind, name)?.built_in {
            return Err(Error::new(ErrorKind::Invalid, format!("'{name}' comes with the program and stays")));
        }
        let path = self.path(kind, name);
        std::fs::remove_file(&path).map_err(|error| Error::file(&path, &error))
    }
}

fn check(name: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.bytes().all(plain) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, format!("'{}' is no name for a template", name.escape_default()))
        .hint("letters, digits, '-', '_' and '.', at most 64, with no '.' in front"))
}

fn read(path: &Path) -> Result<String> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, format!("{}: {error}", path.display()))
        }
        _ => Error::file(path, &error),
    };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > TEMPLATE_MAX {
        let message =
            format!("{} is longer than the {} KiB of a template", path.display(), TEMPLATE_MAX >> 10);
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    std::fs::read_to_string(path).map_err(failed)
}

fn template(kind: Kind, name: &str, text: String, built_in: bool) -> Template {
    let mut places: Vec<String> = places(&text).map(|(_, place)| place.to_owned()).collect();
    places.sort();
    places.dedup();
    places.retain(|place| !KNOWN.contains(&place.as_str()));
    Template { kind, name: name.into(), built_in, places, text }
}

/// The places of a text, each with where its `${` stands.
fn places(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.match_indices("${").filter_map(move |(at, open)| {
        let name = text.get(at + open.len()..)?.split_once('}')?.0;
        (!name.is_empty() && name.chars().all(plain)).then_some((at, name))
    })
}

/// A text with its places filled in.
///
/// # Errors
/// `Invalid`, with the places for which nothing is given.
pub fn fill(text: &str, values: &BTreeMap<String, String>) -> Result<String> {
    let mut missing: Vec<&str> =
        places(text).map(|(_, place)| place).filter(|place| !values.contains_key(*place)).collect();
    missing.dedup();
    if let Some(first) = missing.first() {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("the template has nothing for {}", missing.join(", ")),
        )
        .hint(format!("give it with --set {first}=VALUE; 'gabion vm template show' shows where it goes")));
    }
    let mut filled = String::new();
    let mut rest = 0;
    for (at, place) in places(text) {
        filled.push_str(text.get(rest..at).unwrap_or_default());
        filled.push_str(values.get(place).map_or("", String::as_str));
        rest = at + "${".len() + place.len() + "}".len();
    }
    filled.push_str(text.get(rest..).unwrap_or_default());
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn places_are_filled_in_and_none_stays_open() {
        let text = "a ${user} ${vm.name}${user} ${} ${not a place} $HOME ${";
        let filled = fill(text, &values(&[("user", "${vm.name}"), ("vm.name", "web")])).unwrap();
        // What is filled in is not looked at again.
        assert_eq!(filled, "a ${vm.name} web${vm.name} ${} ${not a place} $HOME ${");
        let error = fill(text, &values(&[("vm.name", "web")])).unwrap_err();
        assert!(error.to_string().ends_with("nothing for user"), "{error}");
        assert!(error.hint_text().unwrap().contains("--set user=VALUE"));
    }

    #[test]
    fn templates_are_kept_by_name_and_go_before_those_of_the_program() {
        let home = tempfile::tempdir().unwrap();
        let templates = Templates::new(home.path().join("templates"));
        let built_in = templates.get(Kind::UserData, "username-setup").unwrap();
        assert!(built_in.built_in && built_in.text.starts_with("#cloud-config\n"));
        assert_eq!(built_in.places, ["password", "user"]);
        assert!(templates.delete(Kind::UserData, "username-setup").is_err());
        let file = home.path().join("mine");
        std::fs::write(&file, "#cloud-config\nhostname: ${vm.name}\n").unwrap();
        for name in ["mine", "username-setup"] {
            assert_eq!(templates.set(Kind::UserData, name, &file).unwrap().places, [""; 0]);
        }
        let listed = templates.list().unwrap();
        let names: Vec<_> =
            listed.iter().map(|one| (one.kind.name(), one.name.as_str(), one.built_in)).collect();
        assert_eq!(
            names,
            [
                ("user-data", "mine", false),
                ("user-data", "ssh-key", true),
                ("user-data", "username-setup", false),
                ("network-data", "dhcp", true),
                ("network-data", "static", true)
            ]
        );
        templates.delete(Kind::UserData, "username-setup").unwrap();
        assert_eq!(templates.get(Kind::UserData, "username-setup").unwrap(), built_in);
        for wrong in ["", ".", "..", "a/b", "../x"] {
            assert_eq!(
                templates.get(Kind::MetaData, wrong).unwrap_err().kind(),
                ErrorKind::Invalid,
                "{wrong}"
            );
        }
        assert_eq!(templates.get(Kind::MetaData, "none").unwrap_err().kind(), ErrorKind::NotFound);
        std::fs::write(&file, vec![b' '; TEMPLATE_MAX as usize + 1]).unwrap();
        assert!(templates.set(Kind::UserData, "long", &file).is_err());
        std::fs::write(&file, [0xFF]).unwrap();
        assert!(templates.set(Kind::UserData, "no-text", &file).is_err());
    }
}
