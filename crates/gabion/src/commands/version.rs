//! `gabion version`.

use anyhow::Result;

use crate::cli::Global;
use crate::failure::ExitReason;

/// Prints the versions.
///
/// # Errors
/// If standard output cannot be written.
pub(crate) fn run(global: &Global) -> Result<ExitReason> {
    let version = server::version();
    let text = if global.json {
        super::to_json(&version)?
    } else if global.quiet {
        version.version
    } else {
        format!("gabion {} (API {}, on-disk format {})", version.version, version.api, version.format)
    };
    super::print(&text)?;
    Ok(ExitReason::Success)
}
