//! Fuzz targets for configuration files and for the values of flags and environment variables.

use std::path::Path;

use ::fuzz::within;

use super::keys::Shown;
use super::*;

::fuzz::target!(
    /// A valid file, parsed and rendered, parses to the same settings.
    config_file,
    |bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        let Some(config) = parsed(text) else { return };
        assert_eq!(parsed(&config.to_file()), Some(config));
    }
);

/// Returns the settings of a file if they are valid.
fn parsed(text: &str) -> Option<Config> {
    let mut config = Config::defaults();
    let path = Path::new("gabion.toml");
    // The tables of the TOML parser are much larger than the text.
    let applied = within(1024 * text.len() + (1 << 20), || file::apply_text(&mut config, path, text));
    (applied.is_ok() && config.check().is_ok()).then_some(config)
}

::fuzz::target!(
    /// A valid value, applied and shown, applies to the same setting.
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
