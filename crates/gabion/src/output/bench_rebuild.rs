//! Formatting of `bench rebuild`.

use api::Size;
use bench::rebuild::RebuildResult;

/// Formats the result.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn rebuild_result(result: &RebuildResult) -> String {
    let rate = |bytes: f64| format!("{}/s", Size(bytes as u64));
    let mut lines = vec![
        format!(
            "rebuild of {} ({} on {} drives) without client I/O:  {}, {:.0} % of the limit of the drives ({})",
            Size(result.bytes),
            result.scheme,
            result.drives,
            rate(result.bytes_per_s),
            result.share * 100.0,
            rate(result.bound_bytes_per_s),
        ),
        format!(
            "client reads of 4 KiB, random, {} in flight:  p99 {:.1} us without a rebuild",
            result.users, result.quiet_p99_us
        ),
    ];
    if result.bytes_per_s_used > 0.0 {
        lines.push(format!(
            "  during a rebuild:  p99 {:.1} us; the rebuild runs at {}",
            result.rebuilding_p99_us,
            rate(result.bytes_per_s_used),
        ));
    }
    lines.join("\n")
}
