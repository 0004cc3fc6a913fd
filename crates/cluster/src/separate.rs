//! Parts of fast drives that hold databases and write-ahead logs of OSDs on other drives.
//!
//! Always true: a part carries the identity of its OSD and its use, so that a repeated step finds
//! it again and a part of another OSD or cluster is never touched. On a block device, a part is a
//! GPT partition whose name is the identity of the OSD, with Ceph's type for its use; of a file
//! drive, a part is a file beside it.

use std::fmt::Write;

use crate::erase;
use crate::proposal::OsdPlacement;
use crate::transport::quote;

/// Smallest part in bytes.
pub(crate) const PART_BYTES_MIN: u64 = 128 << 20;
/// Bytes of a block device that its two partition tables and the alignment of parts occupy, at
/// most.
pub(crate) const TABLE_BYTES: u64 = 4 << 20;
/// Parts are multiples of this many bytes.
const PART_ALIGNMENT: u64 = 1 << 20;

/// The use of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartUse {
    Database,
    WriteAheadLog,
}

impl PartUse {
    /// The suffix of the link in the directory of an OSD, `block.db`.
    fn suffix(self) -> &'static str {
        match self {
            Self::Database => "db",
            Self::WriteAheadLog => "wal",
        }
    }

    /// The type of its partitions, as Ceph's own tools use it.
    fn partition_type(self) -> &'static str {
        match self {
            Self::Database => "30cd0809-c2b2-499c-8879-2d6b78529876",
            Self::WriteAheadLog => "5ce17fce-4087-4169-b7ff-056cc58473f9",
        }
    }

    /// The use for people.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::WriteAheadLog => "write-ahead log",
        }
    }
}

/// A part of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DrivePart {
    pub(crate) part_use: PartUse,
    pub(crate) drive: String,
    pub(crate) bytes: u64,
}

/// Returns the parts of a placement.
pub(crate) fn parts(placement: &OsdPlacement) -> impl Iterator<Item = DrivePart> {
    let part = |part_use, drive: &Option<String>, bytes: Option<u64>| {
        let bytes = bytes.unwrap_or_default().next_multiple_of(PART_ALIGNMENT);
        drive.clone().map(|drive| DrivePart { part_use, drive, bytes })
    };
    let database = part(PartUse::Database, &placement.db, placement.db_size);
    let log = part(PartUse::WriteAheadLog, &placement.wal, placement.wal_size);
    database.into_iter().chain(log)
}

/// Shell functions. A kernel that does not read partition tables itself gets each partition from
/// `partx`.
const FUNCTIONS: &str = r#"
part_number() { # device, identity, type
  partx -g -r -o NR,NAME,TYPE "$1" 2>/dev/null |
    awk -v name="$2" -v type="$3" '$2 == name && tolower($3) == type { print $1; exit }'
}
part_node() { # device, number: prints the device of the partition
  case $1 in *[0-9]) node=$1p$2 ;; *) node=$1$2 ;; esac
  [ -b "$node" ] || partx --add --nr "$2" "$1" 2>/dev/null || true
  for _ in $(seq 50); do [ ! -b "$node" ] || break; sleep 0.1; done
  [ -b "$node" ] || { echo "partition $2 of $1 has no device $node" >&2; return 1; }
  uuid=$(partx -g -r -o UUID --nr "$2" "$1")
  if [ -e "/dev/disk/by-partuuid/$uuid" ]; then echo "/dev/disk/by-partuuid/$uuid"; else echo "$node"; fi
}
find_part() { # drive, suffix, identity, type: prints the path of the part, or nothing
  device=$(readlink -m "$1")
  if [ ! -b "$device" ]; then
    [ ! -e "$1.$3.$2" ] || echo "$1.$3.$2"
    return
  fi
  number=$(part_number "$device" "$3" "$4")
  [ -z "$number" ] || part_node "$device" "$number"
}
make_part() { # drive, suffix, identity, type, MiB: prints the path of the part
  found=$(find_part "$1" "$2" "$3" "$4")
  if [ -n "$found" ]; then echo "$found"; return; fi
  device=$(readlink -m "$1")
  if [ ! -b "$device" ]; then
    [ -e "$device" ] || { echo "drive $1 does not exist" >&2; return 1; }
    truncate -s "$5M" "$1.$3.$2"; echo "$1.$3.$2"
    return
  fi
  contents=$(blkid -p -o value -s TYPE "$device" 2>/dev/null || true)
  [ -z "$contents" ] || { echo "drive $1 holds $contents now" >&2; return 1; }
  output=$(sgdisk --new="0:0:+$5M" --typecode="0:$4" --change-name="0:$3" "$device" 2>&1) || {
    echo "cannot create a partition of $5 MiB on $1: $(echo "$output" | head -n 1)" >&2; return 1
  }
  number=$(part_number "$device" "$3" "$4")
  [ -n "$number" ] || { echo "sgdisk created no partition of $1" >&2; return 1; }
  part_node "$device" "$number"
}
free_part() { # drive, suffix, identity, type
  device=$(readlink -m "$1")
  if [ ! -b "$device" ]; then rm -f "$1.$3.$2"; return; fi
  can_read "$device" || return 0
  number=$(part_number "$device" "$3" "$4")
  [ -n "$number" ] || return 0
  node=$(part_node "$device" "$number")
  erase_start "$node" "$1"
  partx --delete --nr "$number" "$device" 2>/dev/null || true
  output=$(sgdisk --delete="$number" "$device" 2>&1) || { not_erased "$1" "$output"; return 0; }
  # The last part takes the empty partition table with it.
  [ -n "$(partx -g -r -o NR "$device" 2>/dev/null)" ] || sgdisk --zap-all "$device" >/dev/null 2>&1
}
"#;

/// Returns the arguments that name a part of an OSD.
fn arguments(part: &DrivePart, identity: &str) -> String {
    let DrivePart { part_use, drive, .. } = part;
    format!("{} {} {} {}", quote(drive), part_use.suffix(), quote(identity), part_use.partition_type())
}

/// Returns a script with the functions, unless it is empty.
fn with_functions(script: &str) -> String {
    if script.is_empty() { String::new() } else { format!("{}{FUNCTIONS}{script}", erase::FUNCTIONS) }
}

/// Returns a script that makes the missing parts of a new OSD, erases the beginning of each, and
/// links them into the directory `$new`.
pub(crate) fn make_script(placement: &OsdPlacement, identity: &str) -> String {
    let mut script = String::new();
    for part in parts(placement) {
        let (suffix, mebibytes) = (part.part_use.suffix(), part.bytes / PART_ALIGNMENT);
        let _ = write!(
            script,
            "part=$(make_part {} {mebibytes})\n\
             dd if=/dev/zero of=\"$part\" bs=1M count=10 conv=notrunc,fsync status=none\n\
             ln -s \"$part\" \"$new/block.{suffix}\"\n",
            arguments(&part, identity)
        );
    }
    // The kernel may have forgotten the first partition when the table got the second one.
    for part in parts(placement) {
        let _ = writeln!(script, "find_part {} >/dev/null", arguments(&part, identity));
    }
    with_functions(&script)
}

/// Returns a script that checks the parts of an existing OSD, whose directory is `osd/ID`. It fails
/// with a message if one is missing.
pub(crate) fn check_script(placement: &OsdPlacement, identity: &str, id: &str) -> String {
    let mut script = String::new();
    for part in parts(placement) {
        let (noun, suffix, drive) = (part.part_use.noun(), part.part_use.suffix(), quote(&part.drive));
        let _ = write!(
            script,
            "link=$root/osd/{id}/block.{suffix}; drive={drive}\n\
             [ -L \"$link\" ] || {{ echo \"osd.{id} has no separate {noun} on $drive\" >&2; exit 1; }}\n\
             [ -e \"$link\" ] || find_part {} >/dev/null\n\
             [ -e \"$link\" ] || {{ echo \"osd.{id} has lost its {noun} on $drive\" >&2; exit 1; }}\n",
            arguments(&part, identity)
        );
    }
    with_functions(&script)
}

/// Returns a script that frees the parts of an OSD. A drive that is lost is skipped; one that
/// returns I/O errors is reported ([`erase::remark`]).
pub(crate) fn free_script(placement: &OsdPlacement, identity: &str) -> String {
    let free = |part| format!("free_part {}\n", arguments(&part, identity));
    with_functions(&parts(placement).map(free).collect::<String>())
}

#[cfg(test)]
#[path = "separate_tests.rs"]
mod tests;
