//! The network between a load, a cluster and its hosts.

use ::cluster::{ClusterLinks, Workspace};
use anyhow::{Context, Result};
use bench::network::{self, HostLinks, NetworkPath};

/// Returns the network of a target. `stated` is the speed of all links in Gbit/s, if the user
/// states it; `on_hosts` means that the load runs on the storage hosts.
///
/// # Errors
/// If the files of the cluster cannot be read.
pub(super) fn find(
    workspace: &Workspace,
    protection: Option<&str>,
    stated: Option<f64>,
    on_hosts: bool,
) -> Result<NetworkPath> {
    let links = ::cluster::links(workspace).context("the network of the cluster")?;
    let monitor = links.monitor.clone().filter(|_| !on_hosts);
    let detected = monitor.and_then(|monitor| network::link_speed(&network::device_to(&monitor)?));
    Ok(path(&links, protection, stated, detected, on_hosts))
}

/// Returns the network to a cluster. `detected` is the speed of this host's link in bytes per
/// second; `stated` is that of all links in Gbit/s, and has precedence.
fn path(
    links: &ClusterLinks,
    protection: Option<&str>,
    stated: Option<f64>,
    detected: Option<u64>,
    on_hosts: bool,
) -> NetworkPath {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, below 2^63")]
    let stated = stated.map(|gbits| (gbits.min(1e9) * 1e9 / 8.0) as u64);
    let between = stated.or(links.speed.map(|megabits| megabits.saturating_mul(125_000)));
    let parts = protection.and_then(parts);
    let hosts = between.zip(parts).map(|(bps, (data, parity))| HostLinks {
        hosts: u32::try_from(links.hosts).unwrap_or(u32::MAX),
        bps,
        data,
        parity,
        has_load: on_hosts && links.shared,
        has_clients: !on_hosts && links.shared,
    });
    // A load on the hosts has no link of its own.
    let own_bps = if on_hosts { None } else { stated.or(detected) };
    NetworkPath { own_bps, hosts: hosts.filter(|links| links.hosts > 0) }
}

/// Returns the data parts and further parts of a write, from `3 copies` or `4+2`.
fn parts(protection: &str) -> Option<(u32, u32)> {
    if let Some((data, parity)) = protection.split_once('+') {
        return Some((data.parse().ok()?, parity.parse().ok()?));
    }
    let copies: u32 = protection.split(' ').next()?.parse().ok()?;
    Some((1, copies.checked_sub(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKS: ClusterLinks = ClusterLinks { hosts: 4, speed: Some(25_000), monitor: None, shared: true };

    #[test]
    fn the_stated_speed_has_precedence_over_detected_ones() {
        let found = path(&LINKS, Some("3 copies"), None, Some(1_250_000_000), false);
        assert_eq!(found.own_bps, Some(1_250_000_000));
        let hosts = HostLinks {
            hosts: 4,
            bps: 3_125_000_000,
            data: 1,
            parity: 2,
            has_load: false,
            has_clients: true,
        };
        assert_eq!(found.hosts, Some(hosts));
        let stated = path(&LINKS, Some("4+2"), Some(100.0), Some(1_250_000_000), false);
        let hosts = HostLinks { bps: 12_500_000_000, data: 4, parity: 2, ..hosts };
        assert_eq!((stated.own_bps, stated.hosts), (Some(12_500_000_000), Some(hosts)));
        let unknown = ClusterLinks { speed: None, ..LINKS };
        let found = path(&unknown, Some("3 copies"), None, None, false);
        assert_eq!((found.own_bps, found.hosts), (None, None));
        assert_eq!(path(&unknown, None, Some(1.0), None, false).hosts, None);
        assert_eq!(
            (parts("1 copy"), parts("2 copies"), parts("unknown")),
            (Some((1, 0)), Some((1, 1)), None)
        );
    }

    #[test]
    fn a_load_on_the_hosts_shares_their_links_only() {
        let on_hosts = path(&LINKS, Some("3 copies"), Some(10.0), Some(1_250_000_000), true);
        assert_eq!(on_hosts.own_bps, None);
        let hosts = on_hosts.hosts.unwrap();
        assert!(hosts.has_load && !hosts.has_clients);
        let apart = ClusterLinks { shared: false, ..LINKS };
        let on_hosts = path(&apart, Some("3 copies"), None, None, true);
        assert!(!on_hosts.hosts.unwrap().has_load, "clients use another network");
        let client = path(&apart, Some("3 copies"), None, None, false);
        assert!(!client.hosts.unwrap().has_clients, "clients use another network");
    }
}
