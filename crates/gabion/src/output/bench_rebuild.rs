//! What `bench rebuild` measured, for people.

use api::Size;
use bench::rebuild::RebuildResult;

/// All of it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn rebuilt(found: &RebuildResult) -> String {
    let rate = |bytes: f64| format!("{}/s", Size(bytes as u64));
    let mut lines = vec![
        format!(
            "{} of columns of {} on {} drives, nobody using the pool:  {}, {:.0} % of what the drives allow ({})",
            Size(found.bytes),
            found.scheme,
            found.drives,
            rate(found.bytes_per_s),
            found.share * 100.0,
            rate(found.bound_bytes_per_s),
        ),
        format!(
            "random reads of 4 KiB, {} under way:  p99 {:.1} us with nothing to rebuild",
            found.users, found.quiet_p99_us
        ),
    ];
    if found.bytes_per_s_used > 0.0 {
        lines.push(format!(
            "  while another drive is rebuilt:  p99 {:.1} us; it is rebuilt at {}, as much as users hardly notice",
            found.rebuilding_p99_us,
            rate(found.bytes_per_s_used),
        ));
    }
    lines.join("\n")
}
