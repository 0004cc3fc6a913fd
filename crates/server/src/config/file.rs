//! The configuration file: TOML with the sections of the table of keys, and a section for each
//! pool.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::Shown;
use super::{Config, ConfigError, KEYS};

/// The name of the section that lists the pools.
const POOLS: &str = "pools";
/// The only key of a pool.
const DRIVES: &str = "drives";

/// Applies the settings of a file.
pub(super) fn apply(config: &mut Config, path: &Path) -> Result<(), ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    apply_text(config, path, &text)
}

/// Applies the settings in the text of a file.
pub(super) fn apply_text(config: &mut Config, path: &Path, text: &str) -> Result<(), ConfigError> {
    File { path, text }.apply(config)
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    fn apply(&self, config: &mut Config) -> Result<(), ConfigError> {
        let parsed = DeTable::parse(self.text).map_err(|error| ConfigError::Syntax {
            path: self.path.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })?;
        for (section, value) in parsed.get_ref() {
            let name = section.get_ref().as_ref();
            match value.get_ref() {
                DeValue::Table(pools) if name == POOLS => self.apply_pools(config, pools)?,
                DeValue::Table(keys) if KEYS.iter().any(|key| key.section == name) => {
                    self.apply_section(config, name, keys)?;
                }
                _ => return Err(self.unknown(section.span().start, name.to_owned())),
            }
        }
        Ok(())
    }

    fn apply_section(
        &self,
        config: &mut Config,
        section: &str,
        keys: &DeTable<'_>,
    ) -> Result<(), ConfigError> {
        for (name, value) in keys {
            let known = KEYS.iter().find(|key| key.section == section && key.name == name.get_ref().as_ref());
            let Some(key) = known else {
                return Err(self.unknown(name.span().start, format!("{section}.{}", name.get_ref())));
            };
            let invalid = |reason: String| self.invalid(value, &key.path(), reason);
            let text = as_text(value.get_ref()).map_err(invalid)?;
            key.apply(config, &text).map_err(invalid)?;
        }
        Ok(())
    }

    fn apply_pools(&self, config: &mut Config, pools: &DeTable<'_>) -> Result<(), ConfigError> {
        for (name, pool) in pools {
            let path = format!("{POOLS}.{}", name.get_ref());
            let DeValue::Table(keys) = pool.get_ref() else {
                let expected = format!("expected a section [{path}] with '{DRIVES}'");
                return Err(self.invalid(pool, &path, expected));
            };
            for (key, value) in keys {
                if key.get_ref() != DRIVES {
                    return Err(self.unknown(key.span().start, format!("{path}.{}", key.get_ref())));
                }
                let invalid = |reason: String| self.invalid(value, &format!("{path}.{DRIVES}"), reason);
                let drives = as_paths(value.get_ref()).map_err(invalid)?;
                config.pools.insert(name.get_ref().to_string(), drives);
            }
            if !config.pools.contains_key(name.get_ref().as_ref()) {
                return Err(self.invalid(
                    pool,
                    &path,
                    format!("the pool needs '{DRIVES}', the list of its drives"),
                ));
            }
        }
        Ok(())
    }

    fn invalid<T>(&self, value: &Spanned<T>, key: &str, reason: String) -> ConfigError {
        let place = format!("{}:{}: {key}", self.path.display(), self.line(value.span().start));
        ConfigError::value(place, reason)
    }

    fn unknown(&self, offset: usize, key: String) -> ConfigError {
        let near = nearest(&key);
        ConfigError::UnknownKey { path: self.path.to_owned(), line: self.line(offset), key, near }
    }

    fn line(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
    }
}

/// Returns the known key or section with the most similar name, if it is similar enough.
fn nearest(key: &str) -> Option<String> {
    let mut known: Vec<String> = KEYS.iter().map(super::Key::path).collect();
    known.extend(KEYS.iter().map(|key| key.section.to_owned()));
    known.push(POOLS.to_owned());
    if let Some((pool, _)) = key.strip_prefix("pools.").and_then(|rest| rest.split_once('.')) {
        known = vec![format!("{POOLS}.{pool}.{DRIVES}")];
    } else if !key.contains('.') {
        // A key outside its section, or a misspelt section.
        let named = KEYS.iter().find(|known| known.name == key).map(super::Key::path);
        if named.is_some() {
            return named;
        }
        known.retain(|name| !name.contains('.'));
    }
    let distance = |name: &String| strsim::damerau_levenshtein(name, key);
    let best = known.into_iter().min_by_key(distance)?;
    (distance(&best) <= 2 + key.len() / 6).then_some(best)
}

/// Converts a value to the text that a flag would have.
fn as_text(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.as_str().replace('_', "")),
        DeValue::Array(values) => {
            let texts: Result<Vec<_>, _> = values.iter().map(|value| as_text(value.get_ref())).collect();
            Ok(texts?.join(","))
        }
        _ => Err("expected a string, a number, or a list of strings or numbers".into()),
    }
}

fn as_paths(value: &DeValue<'_>) -> Result<Vec<PathBuf>, String> {
    let expected =
        || "expected a list of absolute paths, for example [\"/dev/disk/by-id/nvme-...\"]".to_owned();
    let DeValue::Array(values) = value else { return Err(expected()) };
    let path = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::String(path) if path.starts_with('/') => Ok(PathBuf::from(path.as_ref())),
        _ => Err(expected()),
    };
    let paths: Vec<_> = values.iter().map(path).collect::<Result<_, _>>()?;
    if paths.is_empty() { Err(expected()) } else { Ok(paths) }
}

/// Renders the settings as a configuration file with the help text of every key.
pub(super) fn render(config: &Config) -> String {
    let mut text = String::new();
    let mut section = "";
    for key in KEYS {
        if key.section != section {
            section = key.section;
            text.push_str(&format!("{}[{section}]\n", if text.is_empty() { "" } else { "\n" }));
        }
        text.push_str(&format!("# {}\n", key.help));
        match key.shown(config) {
            Shown::Unset(default) => text.push_str(&format!("# {} is not set: {default}.\n", key.name)),
            shown => text.push_str(&format!("{} = {}\n", key.name, as_toml(shown))),
        }
    }
    for (name, drives) in &config.pools {
        let drives = drives.iter().map(|drive| drive.to_string_lossy().into_owned()).collect();
        text.push_str(&format!(
            "\n[{POOLS}.{}]\n{DRIVES} = {}\n",
            quoted(name),
            as_toml(Shown::Texts(drives))
        ));
    }
    text
}

fn as_toml(shown: Shown) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    match shown {
        Shown::Text(text) => quoted(&text),
        Shown::Number(number) => number.to_string(),
        Shown::Texts(texts) => list(texts.iter().map(|text| quoted(text)).collect()),
        Shown::Numbers(numbers) => list(numbers.iter().map(u64::to_string).collect()),
        Shown::Unset(_) => String::new(),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
