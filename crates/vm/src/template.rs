//! cloud-init templates, stored by name, and the replacement of their placeholders.
//!
//! A placeholder is written `${name}`. Some templates are built in; a stored template of the same
//! name takes precedence. Always true: no text with a missing value is passed to a guest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};

/// Bytes of the largest template.
const TEMPLATE_MAX: u64 = 512 << 10;

/// The purpose of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TemplateKind {
    /// cloud-init's user data: users, packages, commands.
    UserData,
    /// cloud-init's network configuration: addresses.
    NetworkData,
    /// cloud-init's meta data: the machine's name and identity.
    MetaData,
}

impl TemplateKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::UserData, Self::NetworkData, Self::MetaData];

    /// Returns the name of the kind, which is also the name of its directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::UserData => "user-data",
            Self::NetworkData => "network-data",
            Self::MetaData => "meta-data",
        }
    }
}

impl FromStr for TemplateKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unknown = || {
            Error::new(
                ErrorKind::Invalid,
                format!("'{text}' is not a kind of template; use user-data, network-data or meta-data"),
            )
        };
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(unknown)
    }
}

/// A template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Template {
    /// Purpose of the template.
    pub kind: TemplateKind,
    /// Name of the template.
    pub name: String,
    /// True if it is built in.
    pub built_in: bool,
    /// Placeholders of the template, except those with a value for every machine.
    pub places: Vec<String>,
    /// Text of the template.
    pub text: String,
}

/// Placeholders with a value for every machine.
const MACHINE_VALUES: [&str; 3] = ["vm.name", "vm.uuid", "vm.mac"];

const BUILT_IN: [(TemplateKind, &str, &str); 4] = [
    (TemplateKind::UserData, "username-setup", include_str!("templates/username-setup.yaml")),
    (TemplateKind::UserData, "ssh-key", include_str!("templates/ssh-key.yaml")),
    (TemplateKind::NetworkData, "dhcp", include_str!("templates/dhcp.yaml")),
    (TemplateKind::NetworkData, "static", include_str!("templates/static.yaml")),
];

/// The templates in a directory, and the built-in ones.
#[derive(Clone, Debug)]
pub struct Templates {
    directory: PathBuf,
}

impl Templates {
    /// Returns the templates in `directory`, which need not exist.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn path(&self, kind: TemplateKind, name: &str) -> PathBuf {
        self.directory.join(kind.name()).join(name)
    }

    /// Returns all templates.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn list(&self) -> Result<Vec<Template>> {
        let mut templates: BTreeMap<(TemplateKind, String), Template> = BTreeMap::new();
        for (kind, name, text) in BUILT_IN {
            templates.insert((kind, name.into()), template(kind, name, text.into(), true));
        }
        for kind in TemplateKind::ALL {
            let directory = self.directory.join(kind.name());
            let entries = match std::fs::read_dir(&directory) {
                Ok(entries) => entries,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(Error::file(&directory, &error)),
            };
            for entry in entries.flatten() {
                let name = entry.file_name();
                if let Some(name) = name.to_str().filter(|name| check(name).is_ok()) {
                    templates.insert((kind, name.into()), self.get(kind, name)?);
                }
            }
        }
        Ok(templates.into_values().collect())
    }

    /// Returns a template.
    ///
    /// # Errors
    /// `NotFound`; an error if it cannot be read.
    pub fn get(&self, kind: TemplateKind, name: &str) -> Result<Template> {
        check(name)?;
        let path = self.path(kind, name);
        match read(&path) {
            Ok(text) => Ok(template(kind, name, text, false)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let built_in =
                    BUILT_IN.iter().find(|(its_kind, its_name, _)| *its_kind == kind && *its_name == name);
                let (_, _, text) = built_in.ok_or_else(|| {
                    Error::new(ErrorKind::NotFound, format!("there is no {} template '{name}'", kind.name()))
                        .hint("'gabion vm template list' lists the templates, 'gabion vm template set' stores one")
                })?;
                Ok(template(kind, name, (*text).into(), true))
            }
            Err(error) => Err(error),
        }
    }

    /// Stores the contents of a file as a template, replacing one of the same name.
    ///
    /// # Errors
    /// If the file cannot be read, is too long or not text, or the template cannot be written.
    pub fn set(&self, kind: TemplateKind, name: &str, file: &Path) -> Result<Template> {
        check(name)?;
        let text = read(file)?;
        let path = self.path(kind, name);
        crate::atomic_file::write(&path, text.as_bytes())?;
        Ok(template(kind, name, text, false))
    }

    /// Deletes a stored template.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a built-in template.
    pub fn delete(&self, kind: TemplateKind, name: &str) -> Result<()> {
        if self.get(kind, name)?.built_in {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("template '{name}' is built in and cannot be deleted"),
            ));
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
    Err(Error::new(ErrorKind::Invalid, format!("'{}' is not a valid template name", name.escape_default()))
        .hint("use up to 64 letters, digits, '-', '_' and '.', not starting with '.'"))
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
        let message = format!(
            "{} is longer than {} KiB, the maximum for a template",
            path.display(),
            TEMPLATE_MAX >> 10
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    std::fs::read_to_string(path).map_err(failed)
}

fn template(kind: TemplateKind, name: &str, text: String, built_in: bool) -> Template {
    let mut places: Vec<String> = placeholders(&text).map(|(_, place)| place.to_owned()).collect();
    places.sort();
    places.dedup();
    places.retain(|place| !MACHINE_VALUES.contains(&place.as_str()));
    Template { kind, name: name.into(), built_in, places, text }
}

/// Returns the placeholders of a text, each with the offset of its `${`.
fn placeholders(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.match_indices("${").filter_map(move |(at, open)| {
        let name = text.get(at + open.len()..)?.split_once('}')?.0;
        (!name.is_empty() && name.chars().all(plain)).then_some((at, name))
    })
}

/// Replaces the placeholders of a text by their values.
///
/// # Errors
/// `Invalid`, with the names of placeholders without a value.
pub fn fill(text: &str, values: &BTreeMap<String, String>) -> Result<String> {
    let mut missing: Vec<&str> =
        placeholders(text).map(|(_, place)| place).filter(|place| !values.contains_key(*place)).collect();
    missing.dedup();
    if let Some(first) = missing.first() {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("the template needs a value for {}", missing.join(", ")),
        )
        .hint(format!("set it with --set {first}=VALUE; 'gabion vm template show' prints the template")));
    }
    let mut filled = String::new();
    let mut rest = 0;
    for (at, place) in placeholders(text) {
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
    fn placeholders_are_replaced_and_missing_values_are_refused() {
        let text = "a ${user} ${vm.name}${user} ${} ${not a place} $HOME ${";
        let filled = fill(text, &values(&[("user", "${vm.name}"), ("vm.name", "web")])).unwrap();
        // Values are not searched for placeholders.
        assert_eq!(filled, "a ${vm.name} web${vm.name} ${} ${not a place} $HOME ${");
        let error = fill(text, &values(&[("vm.name", "web")])).unwrap_err();
        assert!(error.to_string().ends_with("a value for user"), "{error}");
        assert!(error.hint_text().unwrap().contains("--set user=VALUE"));
    }

    #[test]
    fn stored_templates_take_precedence_over_built_in_ones() {
        let home = tempfile::tempdir().unwrap();
        let templates = Templates::new(home.path().join("templates"));
        let built_in = templates.get(TemplateKind::UserData, "username-setup").unwrap();
        assert!(built_in.built_in && built_in.text.starts_with("#cloud-config\n"));
        assert_eq!(built_in.places, ["password", "user"]);
        assert!(templates.delete(TemplateKind::UserData, "username-setup").is_err());
        let file = home.path().join("mine");
        std::fs::write(&file, "#cloud-config\nhostname: ${vm.name}\n").unwrap();
        for name in ["mine", "username-setup"] {
            assert_eq!(templates.set(TemplateKind::UserData, name, &file).unwrap().places, [""; 0]);
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
        templates.delete(TemplateKind::UserData, "username-setup").unwrap();
        assert_eq!(templates.get(TemplateKind::UserData, "username-setup").unwrap(), built_in);
        for wrong in ["", ".", "..", "a/b", "../x"] {
            assert_eq!(
                templates.get(TemplateKind::MetaData, wrong).unwrap_err().kind(),
                ErrorKind::Invalid,
                "{wrong}"
            );
        }
        assert_eq!(templates.get(TemplateKind::MetaData, "none").unwrap_err().kind(), ErrorKind::NotFound);
        std::fs::write(&file, vec![b' '; TEMPLATE_MAX as usize + 1]).unwrap();
        assert!(templates.set(TemplateKind::UserData, "long", &file).is_err());
        std::fs::write(&file, [0xFF]).unwrap();
        assert!(templates.set(TemplateKind::UserData, "no-text", &file).is_err());
    }
}
