//! Erases the labels of removed drives.
//!
//! A removal must succeed for a drive that fails, because such drives are removed most often: a
//! drive that cannot be erased is reported and does not fail the script. Always true: only a drive
//! with the label of this cluster is written to.
//!
//! The scripts print `not erased: DRIVE (REASON)` for such a drive.

use crate::transport::quote;

/// Shell functions.
pub(crate) const FUNCTIONS: &str = r#"
not_erased() { # drive, messages: prints the reason of the first message
  echo "not erased: $1 ($(echo "$2" | head -n 1 | sed 's/.*: //'))"
}
can_read() { # drive: if not, reports that
  output=$(dd if="$1" of=/dev/null bs=4096 count=1 iflag=direct status=none 2>&1) && return 0
  not_erased "$1" "$output"; return 1
}
erase_start() { # path, drive
  output=$(dd if=/dev/zero of="$1" bs=1M count=10 conv=notrunc,fsync status=none 2>&1) ||
    not_erased "$2" "$output"
}
"#;

/// Returns a script that erases the labels of a drive, if they belong to this cluster.
pub(crate) fn erase_script(drive: &str, fsid: &str) -> String {
    let drive = quote(drive);
    format!(
        "{FUNCTIONS}\
         if ceph-bluestore-tool show-label --dev {drive} 2>/dev/null | grep -q '\"ceph_fsid\": \"{fsid}\"'; then\n\
         erase_start {drive} {drive}\n\
         elif [ -b {drive} ]; then can_read {drive} || true\n\
         fi"
    )
}

/// Returns the remark of a removal whose script printed `output`: the drives that were not erased,
/// with the reasons.
pub(crate) fn remark(output: &str) -> String {
    let mut drives: Vec<&str> = output.lines().filter_map(|line| line.strip_prefix("not erased: ")).collect();
    drives.sort_unstable();
    drives.dedup();
    if drives.is_empty() {
        return String::new();
    }
    format!("; not erased: {}", drives.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_names_each_drive_once() {
        assert_eq!(remark("zapped\n"), "");
        let output =
            "not erased: /dev/b (full)\nother\nnot erased: /dev/a (lost)\nnot erased: /dev/b (full)\n";
        assert_eq!(remark(output), "; not erased: /dev/a (lost), /dev/b (full)");
    }
}
