//! Erases the labels of removed drives.
//!
//! A removal must succeed for a drive that fails, because such drives are removed most often: a
//! drive that cannot be erased is reported and does not fail the script. Always true: only a drive
//! with the label of this cluster is written to.

use crate::transport::quote;

/// Shell functions.
pub(crate) const FUNCTIONS: &str = r#"
can_read() { dd if="$1" of=/dev/null bs=4096 count=1 iflag=direct status=none 2>/dev/null; }
erase_start() { # path, drive
  dd if=/dev/zero of="$1" bs=1M count=10 conv=notrunc,fsync status=none 2>/dev/null || echo "not erased: $2"
}
"#;

/// Returns a script that erases the labels of a drive, if they belong to this cluster.
pub(crate) fn erase_script(drive: &str, fsid: &str) -> String {
    let drive = quote(drive);
    format!(
        "{FUNCTIONS}\
         if ceph-bluestore-tool show-label --dev {drive} 2>/dev/null | grep -q '\"ceph_fsid\": \"{fsid}\"'; then\n\
         erase_start {drive} {drive}\n\
         elif [ -b {drive} ] && ! can_read {drive}; then\n\
         echo \"not erased: \"{drive}\n\
         fi"
    )
}

/// Returns the remark of a removal whose script printed `output`: the drives that were not erased.
pub(crate) fn remark(output: &str) -> String {
    let mut drives: Vec<&str> = output.lines().filter_map(|line| line.strip_prefix("not erased: ")).collect();
    drives.sort_unstable();
    drives.dedup();
    if drives.is_empty() {
        return String::new();
    }
    format!("; I/O errors prevented the erasure of {}: replace it", drives.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_names_each_drive_once() {
        assert_eq!(remark("zapped\n"), "");
        let output = "not erased: /dev/b\nother\nnot erased: /dev/a\nnot erased: /dev/b\n";
        assert_eq!(remark(output), "; I/O errors prevented the erasure of /dev/a and /dev/b: replace it");
    }
}
