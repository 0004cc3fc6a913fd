//! Fuzz targets: configuration files, and values of flags and of the environment.

use std::path::Path;

use ::fuzz::within;

use super::keys::Shown;
use super::*;

::fuzz::target!(
    /// A file that is understood is printed as a file that means the same.
    config_file,
    |bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        let Some(config) = parsed(text) else { return };
        assert_eq!(parsed(&config.to_file()), Some(config));
    }
);

/// The settings of a file, if they make sense.
fn parsed(text: &str) -> Option<Config> {
    let mut config = Config::defaults();
    let path = Path::new("gabion.toml");
    // The tables of a TOML parser take far more than the text.
    let applied = within(1024 * text.len() + (1 << 20), || file::apply_text(&mut config, path, text));
    (applied.is_ok() && config.check().is_ok()).then_some(config)
}

::fuzz::target!(
    /// A value that is taken is shown as one that means the same.
    config_value,
    |bytes| {
        let [key, text @ ..] = bytes else { return };
        let Ok(text) = str::from_utf8(text) else { return };
        let Some(key) = KEYS.get(usize::from(key % 32)) else { return };
        let unset = Config::defaults();
        let mut config = unset.clone();
        if key.apply(&mut config, text).is_err() {
            return;
        }
        let shown = match key.shown(&config) {
            Shown::Text(text) => text,
            Shown::Number(number) => number.to_string(),
            Shown::Texts(texts) => texts.join(","),
            Shown::Numbers(numbers) => {
                numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
            }
            Shown::Unset(_) => {
                assert_eq!(config, unset);
                return;
            }
        };
        let mut again = unset;
        assert_eq!(key.apply(&mut again, &shown), Ok(()));
        assert_eq!(again, config);
    }
);
