//! The inventory of a host: drives, addresses, memory, processors, and the installed Ceph.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::hosts::HostEntry;
use crate::network::Network;
use crate::transport::quote;
use ceph::{Error, ErrorKind, Result};

/// The kind of a drive, in the order of preference for write-ahead logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriveKind {
    /// NVMe.
    Nvme,
    /// Another solid-state drive.
    Ssd,
    /// A rotating disk.
    Disk,
    /// A file, for tests.
    File,
}

/// A drive of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDrive {
    /// Path: by id, if the drive has one.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Kind.
    pub kind: DriveKind,
    /// Reason why the drive is in use: mount points and devices stacked on it. Empty if unused.
    pub used_by: String,
    /// Detected contents, such as `ext4`; empty for none.
    pub contents: String,
    /// Label of a Ceph OSD on the drive, if any.
    #[serde(default)]
    pub osd: Option<OsdLabel>,
    /// Names of its GPT partitions; `-` for one without a name.
    #[serde(default)]
    pub partitions: Vec<String>,
}

impl HostDrive {
    /// True if neither a program nor an OSD uses the drive.
    pub fn is_unused(&self) -> bool {
        self.used_by.is_empty() && self.osd.is_none()
    }
}

/// The label of an OSD on a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsdLabel {
    /// Identity of its cluster; empty if the OSD was never completed.
    #[serde(default)]
    pub ceph_fsid: String,
    /// Identity of the OSD.
    #[serde(default)]
    pub osd_uuid: String,
    /// Number of the OSD in its cluster.
    #[serde(default)]
    pub whoami: String,
}

/// An address of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostAddress {
    /// Address.
    pub address: Ipv4Addr,
    /// Length of the network's prefix.
    pub prefix: u8,
    /// Speed of the link in Mbit/s; absent for a virtual one.
    #[serde(default)]
    pub speed: Option<u64>,
}

/// The inventory of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostInventory {
    /// Name of the host.
    pub name: String,
    /// Logical processors.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Clock of the host minus the clock here, in seconds.
    pub clock_offset: f64,
    /// True if a time service runs, or the host shares the clock of this machine.
    pub time_service: bool,
    /// Version of Ceph; empty if it is not installed.
    pub ceph_version: String,
    /// True if the firewall drops packets by default.
    pub firewall: bool,
    /// Addresses, without the loopback.
    pub addresses: Vec<HostAddress>,
    /// Drives.
    pub drives: Vec<HostDrive>,
}

impl HostInventory {
    /// Returns the address of the host in a network.
    pub fn address_in(&self, network: Network) -> Option<Ipv4Addr> {
        self.addresses.iter().map(|entry| entry.address).find(|address| network.contains(*address))
    }

    /// Returns the networks of the host.
    pub fn networks(&self) -> impl Iterator<Item = Network> + '_ {
        self.addresses.iter().filter_map(|entry| Network::of(entry.address, entry.prefix))
    }

    /// Returns the drive of this path.
    pub fn drive(&self, path: &str) -> Option<&HostDrive> {
        self.drives.iter().find(|drive| drive.path == path)
    }
}

/// The script that takes an inventory. Its output is lines of `KEY VALUE...`, separated by tabs.
const SCRIPT: &str = r#"
printf 'clock\t%s\n' "$(date +%s.%N)"
printf 'cores\t%s\n' "$(nproc)"
printf 'memory\t%s\n' "$(awk '/^MemTotal:/ { print $2 }' /proc/meminfo)"
if command -v ceph-osd >/dev/null; then printf 'ceph\t%s\n' "$(ceph-osd --version)"; fi
for service in chronyd ntpd systemd-timesyncd openntpd; do
  if pidof "$service" >/dev/null 2>&1; then printf 'time\t%s\n' "$service"; fi
done
if command -v nft >/dev/null && nft list ruleset 2>/dev/null | grep -q 'hook input.*policy drop'; then
  printf 'firewall\tdrop\n'
fi
ip -4 -o addr show scope global | while read -r _ device _ address _; do
  link=/sys/class/net/${device%%@*} speed=
  # The nominal speed of a virtual device is no limit.
  if [ -e "$link/device" ] || [ -e "$link/bonding" ]; then speed=$(cat "$link/speed" 2>/dev/null || true); fi
  printf 'address\t%s\t%s\n' "$address" "$speed"
done
by_id() {
  for link in /dev/disk/by-id/*; do
    if [ -e "$link" ] && [ "$(readlink -f "$link")" = "$1" ]; then echo "$link"; return; fi
  done
  echo "$1"
}
for drive in $DRIVES; do
  real=$(readlink -m "$drive")
  [ -e "$real" ] || { printf 'missing\t%s\n' "$drive"; continue; }
  used= kind=file name=$drive partitions=
  if [ -b "$real" ]; then
    bytes=$(blockdev --getsize64 "$real")
    case $real in
      /dev/nvme*) kind=nvme ;;
      *) if [ "$(lsblk -dnro ROTA "$real")" = 1 ]; then kind=disk; else kind=ssd; fi ;;
    esac
    used=$(lsblk -nro MOUNTPOINTS "$real" | sed 's/\\x0a/ /g' | tr -s ' \n' ' ')
    used="$used $(ls "/sys/class/block/$(basename "$real")/holders" 2>/dev/null | tr '\n' ' ')"
    [ -n "$LISTED" ] || name=$(by_id "$real")
    partitions=$(partx -g -r -o NR,NAME "$real" 2>/dev/null | awk '{ print ($2 == "" ? "-" : $2) }' || true)
  else
    bytes=$(stat -c %s "$real")
  fi
  [ "$bytes" -gt 0 ] || continue
  contents=$(blkid -p -o export "$real" 2>/dev/null | sed -n 's/^\(TYPE\|PTTYPE\)=//p' | tr '\n' ' ' || true)
  label=
  case $contents in
    *ceph_bluestore*) label=$(ceph-bluestore-tool show-label --dev "$real" 2>/dev/null | tr -d '\n\t' || true) ;;
  esac
  printf 'drive\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$name" "$bytes" "$kind" "$(echo $used)" "$(echo $contents)" "$label" \
    "$(echo $partitions)"
done
"#;

/// Takes the inventory of a host.
///
/// # Errors
/// `Unreachable`; `NotFound` for a listed drive that does not exist; `Io`.
pub(crate) fn take(host: &HostEntry) -> Result<HostInventory> {
    let transport = host.transport()?;
    let (drives, listed) = match &host.drives {
        Some(drives) => (quote(&drives.join(" ")), "1"),
        None => ("$(lsblk -dnpro NAME,TYPE | awk '$2 == \"disk\" { print $1 }')".to_owned(), ""),
    };
    let script = format!("LISTED={listed}\nDRIVES={drives}\n{SCRIPT}");
    let before = now();
    let output = transport.run_with_links(&script)?;
    let text = String::from_utf8_lossy(&output);
    let mut inventory = parse(&host.name, &text, before)?;
    if transport.is_local() {
        inventory.clock_offset = 0.0;
        inventory.time_service = true;
    }
    Ok(inventory)
}

fn now() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// Parses the output of the script.
fn parse(name: &str, text: &str, before: f64) -> Result<HostInventory> {
    let mut inventory = HostInventory {
        name: name.to_owned(),
        cores: 0,
        memory: 0,
        clock_offset: 0.0,
        time_service: false,
        ceph_version: String::new(),
        firewall: false,
        addresses: Vec::new(),
        drives: Vec::new(),
    };
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let invalid =
            || Error::new(ErrorKind::Io, format!("host '{name}': unexpected inventory line '{line}'"));
        match fields.as_slice() {
            ["clock", seconds] => {
                inventory.clock_offset = seconds.parse::<f64>().map_err(|_| invalid())? - before;
            }
            ["cores", count] => inventory.cores = count.parse().map_err(|_| invalid())?,
            ["memory", kib] => {
                inventory.memory = kib.parse::<u64>().map_err(|_| invalid())?.saturating_mul(1024)
            }
            ["ceph", version] => inventory.ceph_version = version_number(version),
            ["time", _] => inventory.time_service = true,
            ["firewall", _] => inventory.firewall = true,
            ["address", address, speed] => {
                inventory.addresses.push(parse_address(address, speed).ok_or_else(invalid)?);
            }
            ["missing", path] => {
                let message = format!("host '{name}': drive {path} does not exist");
                return Err(Error::new(ErrorKind::NotFound, message));
            }
            ["drive", path, bytes, kind, used_by, contents, label, partitions] => {
                let bytes = bytes.parse().map_err(|_| invalid())?;
                let kind = parse_kind(kind).ok_or_else(invalid)?;
                let osd = parse_label(label);
                let (path, used_by) = ((*path).to_owned(), (*used_by).to_owned());
                let contents = (*contents).to_owned();
                let partitions = partitions.split_whitespace().map(str::to_owned).collect();
                inventory.drives.push(HostDrive { path, bytes, kind, used_by, contents, osd, partitions });
            }
            _ => return Err(invalid()),
        }
    }
    Ok(inventory)
}

/// Returns the number in a text such as `ceph version 16.2.15 (618f4408) pacific (stable)`.
fn version_number(text: &str) -> String {
    text.split_whitespace().nth(2).unwrap_or_default().to_owned()
}

/// Parses an address with its prefix, and the speed of its link. A link without a carrier has the
/// speed -1.
fn parse_address(text: &str, speed: &str) -> Option<HostAddress> {
    let (address, prefix) = text.split_once('/')?;
    let speed = speed.parse().ok().filter(|speed| *speed > 0);
    Some(HostAddress { address: address.parse().ok()?, prefix: prefix.parse().ok()?, speed })
}

fn parse_kind(text: &str) -> Option<DriveKind> {
    match text {
        "nvme" => Some(DriveKind::Nvme),
        "ssd" => Some(DriveKind::Ssd),
        "disk" => Some(DriveKind::Disk),
        "file" => Some(DriveKind::File),
        _ => None,
    }
}

/// Parses the label that `ceph-bluestore-tool` prints: an object with the path as its only key.
fn parse_label(text: &str) -> Option<OsdLabel> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let label = value.as_object()?.values().next()?;
    serde_json::from_value(label.clone()).ok()
}

#[cfg(test)]
#[path = "inventory_tests.rs"]
mod tests;
