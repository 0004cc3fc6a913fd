//! `gabion serve`.

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::{Context, Result};
use api::{Error, ErrorKind};
use server::config::{Config, ConfigError, LogFormat};
use tracing_subscriber::EnvFilter;

use crate::cli::{Global, ServeArgs};
use crate::failure::{Outcome, Usage};

/// Runs the daemon.
///
/// # Errors
/// When it cannot start, or did not end in order.
pub(crate) fn run(global: &Global, arguments: &ServeArgs) -> Result<Outcome> {
    let config = load(global, arguments).map_err(|error| explain(&error))?;
    if arguments.print_config {
        super::print(&config.to_file())?;
        return Ok(Outcome::Done);
    }
    start_log(&config)?;
    server::serve(&config).map_err(api::Error::from)?;
    Ok(Outcome::Done)
}

fn load(global: &Global, arguments: &ServeArgs) -> Result<Config, ConfigError> {
    let socket = global.socket.as_ref().map(|path| path.to_string_lossy().into_owned());
    let flags = |name: &str| match name {
        "socket" => socket.clone(),
        other => arguments.settings.get(other).cloned(),
    };
    let config = arguments.config.clone().or_else(|| std::env::var_os("GABION_CONFIG").map(PathBuf::from));
    Config::load(config.as_deref(), &|name| std::env::var(name).ok(), &flags)
}

fn explain(error: &ConfigError) -> anyhow::Error {
    match error {
        ConfigError::Value { place, .. } if place.starts_with("--") => Usage(error.to_string()).into(),
        _ => Error::new(ErrorKind::Invalid, error.to_string())
            .hint("'gabion serve --print-config' prints every setting, explained")
            .into(),
    }
}

/// Where the daemon serves, as every other command finds it.
pub(crate) fn socket(global: &Global) -> PathBuf {
    // What is wrong with the configuration is the daemon's to say: the commands only look for its socket.
    let configured = load(global, &ServeArgs::default()).map(|config| config.socket);
    let given = || global.socket.clone().or_else(|| std::env::var_os("GABION_SOCKET").map(PathBuf::from));
    configured.unwrap_or_else(|_| given().unwrap_or_else(|| Config::defaults().socket))
}

/// Where the daemon keeps its state, and the commands what they keep, as every other command finds it.
pub(crate) fn state_dir(global: &Global) -> PathBuf {
    let configured = load(global, &ServeArgs::default()).map(|config| config.state_dir);
    let given = || std::env::var_os("GABION_STATE_DIR").map(PathBuf::from);
    configured.unwrap_or_else(|_| given().unwrap_or_else(|| Config::defaults().state_dir))
}

fn start_log(config: &Config) -> Result<()> {
    let filter = EnvFilter::try_new(&config.log_level).context("log_level")?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let started = match config.log_format {
        LogFormat::Text => log.with_ansi(colour).with_target(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).with_current_span(false).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot log: {error}"))
}
