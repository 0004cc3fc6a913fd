//! `gabion serve`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use api::{Error, ErrorKind};
use server::config::{Config, ConfigError, LogFormat};
use tracing_subscriber::EnvFilter;

use super::host_objects::HostDirectories;
use crate::cli::{Global, ServeArgs};
use crate::failure::{ExitReason, Usage};

/// Runs the daemon.
///
/// # Errors
/// If the daemon cannot start, or fails during shutdown.
pub(crate) fn run(global: &Global, arguments: &ServeArgs) -> Result<ExitReason> {
    let config = load(global, arguments).map_err(|error| to_user_error(&error))?;
    if arguments.print_config {
        super::print(&config.to_file())?;
        return Ok(ExitReason::Success);
    }
    start_log(&config)?;
    let host = HostDirectories::new(
        config.state_dir.clone(),
        config.runs_directory.clone(),
        config.clusters_directory.clone(),
    );
    server::serve(&config, Arc::new(host)).map_err(api::Error::from)?;
    Ok(ExitReason::Success)
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

fn to_user_error(error: &ConfigError) -> anyhow::Error {
    match error {
        ConfigError::Value { place, .. } if place.starts_with("--") => Usage(error.to_string()).into(),
        _ => Error::new(ErrorKind::Invalid, error.to_string())
            .hint("'gabion serve --print-config' prints all settings with comments")
            .into(),
    }
}

/// Returns the path of the daemon's socket.
pub(crate) fn socket(global: &Global) -> PathBuf {
    // Errors in the configuration are reported by the daemon; other commands only need its socket.
    let configured = load(global, &ServeArgs::default()).map(|config| config.socket);
    let given = || global.socket.clone().or_else(|| std::env::var_os("GABION_SOCKET").map(PathBuf::from));
    configured.unwrap_or_else(|_| given().unwrap_or_else(|| Config::defaults().socket))
}

/// Returns the state directory of the daemon, which also holds the definitions of machines.
pub(crate) fn state_dir(global: &Global) -> PathBuf {
    let configured = load(global, &ServeArgs::default()).map(|config| config.state_dir);
    let given = || std::env::var_os("GABION_STATE_DIR").map(PathBuf::from);
    configured.unwrap_or_else(|_| given().unwrap_or_else(|| Config::defaults().state_dir))
}

/// Starts the log of a service other than the daemon, with the daemon's settings.
///
/// # Errors
/// For an invalid configuration.
pub(crate) fn start_configured_log(global: &Global) -> Result<()> {
    start_log(&load(global, &ServeArgs::default()).map_err(|error| to_user_error(&error))?)
}

/// Libraries that log ordinary events as errors:
/// - s3s: each request that a client is refused. The service logs its own errors.
/// - fuser: each reply to a request that the kernel has ended with an unmount.
const QUIET_LIBRARIES: [&str; 2] = ["s3s=off", "fuser::reply=off"];

/// Returns the filter of a log level, such as `info` or `info,engine=debug`.
fn log_filter(level: &str) -> Result<EnvFilter> {
    let mut filter = EnvFilter::try_new(level).context("log_level")?;
    for directive in QUIET_LIBRARIES {
        filter = filter.add_directive(directive.parse().context("log_level")?);
    }
    Ok(filter)
}

fn start_log(config: &Config) -> Result<()> {
    let filter = log_filter(&config.log_level)?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let started = match config.log_format {
        LogFormat::Text => log.with_ansi(colour).with_target(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).with_current_span(false).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot set up the log: {error}"))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    #[test]
    fn errors_of_ordinary_events_are_not_logged() {
        for level in ["info", "trace", "info,engine=debug"] {
            let log = tracing_subscriber::fmt().with_env_filter(super::log_filter(level).unwrap()).finish();
            tracing::subscriber::with_default(log, || {
                assert!(tracing::enabled!(target: "server::daemon", Level::ERROR));
                assert!(tracing::enabled!(target: "fuser::session", Level::ERROR));
                assert!(!tracing::enabled!(target: "fuser::reply", Level::ERROR), "{level}");
                assert!(!tracing::enabled!(target: "s3s::service", Level::ERROR), "{level}");
            });
        }
    }

    #[test]
    fn runs_are_stored_where_the_daemon_reads_them() {
        assert_eq!(super::Config::defaults().runs_directory, crate::suites::default_results_dir());
    }
}
