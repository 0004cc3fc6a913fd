//! The network of a system on other hosts: its links, the bounds that they set, and their use.
//!
//! Invariant: pure functions, except [`link_speed`] and [`device_to`], which read the kernel's
//! description of a link. Links are full duplex: each direction has the whole bandwidth.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::bounds::Bound;
use crate::human;
use crate::result::DirectionFigures;
use crate::suite::Job;

/// The kernel's descriptions of links.
const LINKS: &str = "/sys/class/net";

/// The network between the load and the hosts of a system, and between these hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPath {
    /// Bandwidth of this host's link in each direction, in bytes per second; `None` if unknown.
    pub own_bps: Option<u64>,
    /// The links of the hosts, if they are known.
    pub hosts: Option<HostLinks>,
}

/// The links between the hosts of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostLinks {
    /// Number of hosts.
    pub hosts: u32,
    /// Bandwidth of the slowest link in each direction, in bytes per second.
    pub bps: u64,
    /// Data parts of a write, 1 for copies.
    pub data: u32,
    /// Further parts or copies, each on another host.
    pub parity: u32,
    /// True if the load runs on the hosts, and its requests use the same links.
    #[serde(default)]
    pub has_load: bool,
    /// True if the load runs outside of the hosts, and its requests use the same links.
    #[serde(default)]
    pub has_clients: bool,
}

impl HostLinks {
    /// Returns the bytes in the busier direction of all links for each byte of a load that reads
    /// this share of its bytes. The host that answers a client has one of the parts itself, and
    /// each other part leaves one host and arrives at another. Of the requests of a load on the
    /// hosts, one in `hosts` stays on its host; of other clients, reads leave the hosts and writes
    /// arrive.
    fn traffic(self, reads: f64) -> f64 {
        let (data, parity) = (f64::from(self.data.max(1)), f64::from(self.parity));
        let (hosts, writes) = (f64::from(self.hosts.max(1)), 1.0 - reads);
        let requests = match (self.has_load, self.has_clients) {
            (true, _) => (hosts - 1.0) / hosts,
            (false, true) => reads.max(writes),
            (false, false) => 0.0,
        };
        (data - 1.0) / data * reads + (data + parity - 1.0) / data * writes + requests
    }
}

/// Returns the bounds that the network sets on a job.
#[allow(clippy::cast_precision_loss)]
pub fn bounds(job: &Job, path: &NetworkPath) -> Vec<Bound> {
    let bytes = job.block_bytes as f64;
    let reads = f64::from(job.read_percent) / 100.0;
    let mut found = Vec::new();
    if let Some(bps) = path.own_bps {
        // Reads arrive and writes leave.
        let busier = reads.max(1.0 - reads);
        found.push(Bound {
            name: "network".into(),
            iops: bps as f64 / (busier * bytes),
            saturates: "the link of this host".into(),
            formula: format!(
                "{} / {}{}",
                rate(bps),
                human::size(job.block_bytes),
                of(busier, "in a direction")
            ),
        });
    }
    if let Some(links) = path.hosts {
        let traffic = links.traffic(reads);
        let (name, saturates, counted) = if links.has_clients {
            ("network of the hosts", "the links of the hosts", "in a direction")
        } else {
            ("network between hosts", "the links between the hosts", "between hosts")
        };
        if traffic > 0.0 {
            found.push(Bound {
                name: name.into(),
                iops: f64::from(links.hosts) * links.bps as f64 / (traffic * bytes),
                saturates: saturates.into(),
                formula: format!(
                    "{} hosts x {} / {}{}",
                    links.hosts,
                    rate(links.bps),
                    human::size(job.block_bytes),
                    of(traffic, counted)
                ),
            });
        }
    }
    found
}

/// Formats a factor other than 1.
fn of(factor: f64, what: &str) -> String {
    if (factor - 1.0).abs() < 1e-9 { String::new() } else { format!(" x {factor:.2} {what}") }
}

#[allow(clippy::cast_precision_loss)]
fn rate(bps: u64) -> String {
    format!("{:.3} GB/s", bps as f64 / 1e9)
}

/// Returns the use of this host's link by the load in the busier direction, from 0 to 1, with a
/// description. `sides` are the results of reads and of writes. Headers are not counted.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn utilisation(sides: &[DirectionFigures], own_bps: u64) -> (f64, String) {
    let busier = sides.iter().map(|side| side.bytes_per_s).fold(0.0, f64::max);
    let share = busier / (own_bps as f64).max(1.0);
    let text = format!(
        "the load transfers {:.3} GB/s of data in the busier direction, {:.0} % of the link of {}",
        busier / 1e9,
        share * 100.0,
        rate(own_bps)
    );
    (share, text)
}

/// Returns the device through which this host reaches an address.
pub fn device_to(address: &str) -> Option<String> {
    let output = Command::new("ip").args(["-o", "route", "get", address]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    route_device(&text)
}

/// Returns the device in the output of `ip route get`.
fn route_device(text: &str) -> Option<String> {
    let mut words = text.split_whitespace().skip_while(|word| *word != "dev");
    words.nth(1).map(str::to_owned)
}

/// Returns the bandwidth of a network device in bytes per second. `None` for a virtual device,
/// whose nominal speed is no limit.
pub fn link_speed(device: &str) -> Option<u64> {
    speed_in(Path::new(LINKS), device)
}

fn speed_in(links: &Path, device: &str) -> Option<u64> {
    let link = links.join(device);
    let is_real = ["device", "bonding"].iter().any(|name| link.join(name).exists());
    let text = std::fs::read_to_string(link.join("speed")).ok().filter(|_| is_real)?;
    // In Mbit/s; -1 without a carrier.
    let megabits = text.trim().parse::<u64>().ok().filter(|speed| *speed > 0)?;
    Some(megabits * 125_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Suite;

    fn job(read_percent: u8) -> Job {
        Job { read_percent, block_bytes: 4096, ..Suite::raid_vm().jobs[0].clone() }
    }

    fn of_job(read_percent: u8, path: &NetworkPath) -> Vec<(String, f64)> {
        bounds(&job(read_percent), path).into_iter().map(|bound| (bound.name, bound.iops)).collect()
    }

    const HOSTS: HostLinks =
        HostLinks { hosts: 4, bps: 4_096_000, data: 1, parity: 2, has_load: false, has_clients: false };

    #[test]
    fn each_direction_of_the_own_link_is_a_bound() {
        let path = NetworkPath { own_bps: Some(4_096_000), hosts: None };
        for (reads, iops) in [(100, 1000.0), (0, 1000.0), (50, 2000.0), (70, 1000.0 / 0.7)] {
            let [(name, found)] = &of_job(reads, &path)[..] else { panic!("one bound") };
            assert!(name == "network" && (found - iops).abs() < 1e-6, "{reads}: {found}");
        }
        let mixed = &bounds(&job(70), &path)[0];
        assert_eq!(mixed.formula, "0.004 GB/s / 4 KiB x 0.70 in a direction");
    }

    #[test]
    fn copies_and_parts_cross_the_links_between_hosts() {
        let path = NetworkPath { own_bps: None, hosts: Some(HOSTS) };
        assert_eq!(of_job(100, &path), [], "a read of a copy stays on its host");
        // Two more copies of each write on four links.
        assert_eq!(of_job(0, &path), [("network between hosts".to_owned(), 2000.0)]);
        let parts = HostLinks { data: 2, parity: 2, ..HOSTS };
        let path = NetworkPath { own_bps: None, hosts: Some(parts) };
        assert_eq!(of_job(100, &path)[0].1, 8000.0, "half of a read is on another host");
        let write = of_job(0, &path)[0].1;
        assert!((write - 4000.0 / 1.5).abs() < 1e-6, "{write}");
        let alone = NetworkPath { own_bps: None, hosts: Some(HostLinks { parity: 0, ..HOSTS }) };
        assert_eq!(of_job(0, &alone), []);
        // Three of four requests of machines on the hosts reach another host.
        let path = NetworkPath { own_bps: None, hosts: Some(HostLinks { has_load: true, ..HOSTS }) };
        assert!((of_job(100, &path)[0].1 - 4000.0 / 0.75).abs() < 1e-6);
        assert!((of_job(0, &path)[0].1 - 4000.0 / 2.75).abs() < 1e-6);
    }

    #[test]
    fn requests_of_clients_use_the_links_of_the_hosts() {
        let hosts = HostLinks { has_clients: true, ..HOSTS };
        let path = NetworkPath { own_bps: None, hosts: Some(hosts) };
        let of = |reads| of_job(reads, &path)[0].clone();
        assert_eq!(of(100), ("network of the hosts".into(), 4000.0), "each read leaves a host once");
        // A write arrives at one host, and leaves it twice for the other copies.
        let write = of(0).1;
        assert!((write - 4000.0 / 3.0).abs() < 1e-6, "{write}");
        let mixed = of(50).1;
        assert!((mixed - 4000.0 / 1.5).abs() < 1e-6, "{mixed}");
        // The links of results of earlier releases are known without this field.
        let stored = r#"{"hosts":4,"bps":4096000,"data":1,"parity":2,"has_load":false}"#;
        assert_eq!(serde_json::from_str::<HostLinks>(stored).unwrap(), HOSTS);
    }

    #[test]
    fn the_busier_direction_counts() {
        let side = |bytes_per_s: f64| DirectionFigures { bytes_per_s, ..DirectionFigures::default() };
        let (share, text) = utilisation(&[side(50e6), side(95e6)], 100_000_000);
        assert!((share - 0.95).abs() < 1e-9);
        let expected =
            "the load transfers 0.095 GB/s of data in the busier direction, 95 % of the link of 0.100 GB/s";
        assert_eq!(text, expected);
    }

    #[test]
    fn only_real_devices_have_a_speed() {
        let directory = tempfile::tempdir().unwrap();
        for (device, real, speed) in [
            ("eth0", "device", "25000"),
            ("bond0", "bonding", "50000"),
            ("down0", "device", "-1"),
            ("veth0", "x", "10000"),
        ] {
            std::fs::create_dir_all(directory.path().join(device).join(real)).unwrap();
            std::fs::write(directory.path().join(device).join("speed"), format!("{speed}\n")).unwrap();
        }
        let speed = |device| speed_in(directory.path(), device);
        assert_eq!((speed("eth0"), speed("bond0")), (Some(3_125_000_000), Some(6_250_000_000)));
        assert_eq!((speed("down0"), speed("veth0"), speed("none")), (None, None, None));
    }

    #[test]
    fn the_device_of_a_route_is_found() {
        let text = "10.61.1.11 dev gbc1 src 10.61.1.1 uid 0 \\    cache \n";
        assert_eq!(route_device(text).as_deref(), Some("gbc1"));
        assert_eq!(route_device("10.0.0.1 via 10.1.0.1 dev eth0 src 10.1.0.2").as_deref(), Some("eth0"));
        assert_eq!(route_device(""), None);
    }
}
