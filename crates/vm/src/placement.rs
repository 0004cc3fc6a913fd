//! Placement of a machine's vCPUs on the host: near the CPUs of the reactors that serve its disks,
//! but not on them.
//!
//! The memory of a queue is written by the guest and read by the reactor, and vice versa: within
//! one last-level cache this costs tens of nanoseconds, across sockets several times as much. Pure
//! functions; must not know how the host topology is detected.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::cpulist::CpuList;
use crate::machine::Pin;
use crate::topology::{Cpu, Topology};

/// The input of a placement decision.
#[derive(Clone, Debug, Default)]
pub struct PlacementRequest {
    /// Number of vCPUs of the machine.
    pub cpus: u32,
    /// The requested pinning.
    pub pin: Pin,
    /// CPUs of the pinned reactors that serve the machine's disks; empty if the reactors are not
    /// pinned.
    pub reactors: BTreeSet<u32>,
    /// Number of vCPUs of other machines on each CPU of the host.
    pub taken: BTreeMap<u32, u32>,
}

/// The placement of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// For each vCPU, the CPU or CPUs that it may run on. Empty if the vCPUs are not pinned.
    pub cpus: Vec<CpuList>,
    /// The CPUs of QEMU's other threads. Empty if they are not pinned.
    pub rest: CpuList,
    /// The preferred NUMA node of the machine's memory, if any.
    pub node: Option<u32>,
    /// The reason, as a phrase without a full stop.
    pub why: String,
}

impl Placement {
    /// Returns a placement without pinning.
    fn unpinned(why: &str) -> Self {
        Self { why: why.into(), ..Self::default() }
    }

    /// Pins each vCPU to one of the chosen CPUs, in order; starts over if there are fewer CPUs.
    fn pinned(topology: &Topology, cpus: u32, chosen: &[u32], why: String) -> Self {
        let each = chosen.iter().cycle().take(cpus as usize);
        let node = node_of(topology, chosen);
        Self {
            cpus: each.map(|cpu| CpuList::from_iter([*cpu])).collect(),
            rest: chosen.iter().copied().collect(),
            node,
            why,
        }
    }

    /// Lets all vCPUs float over the given CPUs.
    fn floating(topology: &Topology, cpus: u32, over: &[u32], why: String) -> Self {
        let list: CpuList = over.iter().copied().collect();
        Self { cpus: vec![list.clone(); cpus as usize], rest: list, node: node_of(topology, over), why }
    }
}

/// Returns the NUMA node of these CPUs, if all of them are on one node of several.
fn node_of(topology: &Topology, cpus: &[u32]) -> Option<u32> {
    let mut nodes: Vec<u32> = cpus.iter().filter_map(|cpu| Some(topology.cpu(*cpu)?.node)).collect();
    nodes.dedup();
    match nodes.as_slice() {
        [node] if topology.nodes().len() > 1 => Some(*node),
        _ => None,
    }
}

/// Distance of a CPU from the reactors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    SameCache,
    SameNode,
    Far,
}

fn distance(topology: &Topology, cpu: &Cpu, reactors: &BTreeSet<u32>) -> Distance {
    let of = |reactor: &u32| match topology.cpu(*reactor) {
        Some(other) if other.node == cpu.node && other.cache == cpu.cache => Distance::SameCache,
        Some(other) if other.node == cpu.node => Distance::SameNode,
        _ => Distance::Far,
    };
    reactors.iter().map(of).min().unwrap_or(Distance::Far)
}

/// Chooses the placement of a machine.
pub fn choose_placement(topology: &Topology, request: &PlacementRequest) -> Placement {
    match &request.pin {
        Pin::None => Placement::unpinned("not pinned, as requested"),
        Pin::Cpus(list) => {
            let chosen: Vec<u32> = list.0.iter().copied().collect();
            Placement::pinned(topology, request.cpus, &chosen, "as requested".into())
        }
        Pin::Auto if request.reactors.is_empty() => Placement::unpinned(
            "not pinned, since the daemon's reactors are not pinned; 'daemon.cores' pins them",
        ),
        Pin::Auto => near_reactors(topology, request),
    }
}

fn near_reactors(topology: &Topology, request: &PlacementRequest) -> Placement {
    let cores: BTreeSet<u32> =
        request.reactors.iter().filter_map(|cpu| Some(topology.cpu(*cpu)?.core)).collect();
    let mut candidates: Vec<&Cpu> =
        topology.cpus.iter().filter(|cpu| !request.reactors.contains(&cpu.id)).collect();
    // Unused before shared, near before far, and the SMT siblings of reactors last.
    candidates.sort_by_key(|cpu| {
        let taken = request.taken.get(&cpu.id).copied().unwrap_or(0);
        (taken, distance(topology, cpu, &request.reactors), cores.contains(&cpu.core), cpu.id)
    });
    let reactors: CpuList = request.reactors.iter().copied().collect();
    let ids: Vec<u32> = candidates.iter().map(|cpu| cpu.id).collect();
    if ids.is_empty() {
        return Placement::unpinned("not pinned: every CPU runs a reactor");
    }
    let Some(chosen) = ids.get(..request.cpus as usize) else {
        let why =
            format!("more vCPUs than CPUs without a reactor (reactors: {reactors}), so the vCPUs float");
        return Placement::floating(topology, request.cpus, &ids, why);
    };
    let farthest =
        chosen.iter().filter_map(|id| Some(distance(topology, topology.cpu(*id)?, &request.reactors))).max();
    let location = match farthest {
        Some(Distance::SameCache) => "in the same last-level cache as",
        Some(Distance::SameNode) => "on the same NUMA node as",
        _ => "partly far from",
    };
    let shared = chosen.iter().any(|id| request.taken.contains_key(id));
    let shared = if shared { "; some are shared with other machines" } else { "" };
    Placement::pinned(
        topology,
        request.cpus,
        chosen,
        format!("{location} the reactors on {reactors}{shared}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a host of two nodes, each with two caches of four CPUs, with two CPUs per core.
    fn host() -> Topology {
        let cpu = |id: u32| Cpu { id, node: id / 8, cache: id / 4 * 4, core: id / 2 * 2 };
        Topology { cpus: (0..16).map(cpu).collect() }
    }

    fn request(cpus: u32, reactors: &[u32]) -> PlacementRequest {
        PlacementRequest { cpus, reactors: reactors.iter().copied().collect(), ..PlacementRequest::default() }
    }

    fn shown(placement: &Placement) -> Vec<String> {
        placement.cpus.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn vcpus_share_a_cache_but_not_a_core_with_the_reactors() {
        let placement = choose_placement(&host(), &request(2, &[4]));
        assert_eq!((shown(&placement), placement.node), (vec!["6".into(), "7".into()], Some(0)));
        assert!(placement.why.contains("same last-level cache"), "{placement:?}");
        // The third is the SMT sibling of the reactor's CPU, which is still nearer than another
        // cache.
        assert_eq!(shown(&choose_placement(&host(), &request(3, &[4]))), ["6", "7", "5"]);
        let wider = choose_placement(&host(), &request(5, &[4]));
        assert_eq!(shown(&wider), ["6", "7", "5", "0", "1"]);
        assert!(wider.why.contains("same NUMA node"), "{wider:?}");
        let widest = choose_placement(&host(), &request(9, &[4]));
        assert!(widest.why.contains("partly far") && widest.node.is_none(), "{widest:?}");
    }

    #[test]
    fn unused_cpus_are_preferred_to_shared_ones() {
        let mut second = request(2, &[4]);
        second.taken = [(6, 1), (7, 1), (5, 1)].into();
        assert_eq!(shown(&choose_placement(&host(), &second)), ["0", "1"]);
        second.taken.extend((0..16).filter(|cpu| *cpu != 5).map(|cpu| (cpu, 2)));
        let placement = choose_placement(&host(), &second);
        assert_eq!(shown(&placement), ["5", "6"]);
        assert!(placement.why.ends_with("shared with other machines"), "{placement:?}");
    }

    #[test]
    fn requested_cpus_are_used() {
        let asked = PlacementRequest { pin: "9,3".parse().unwrap(), ..request(3, &[4]) };
        assert_eq!(shown(&choose_placement(&host(), &asked)), ["3", "9", "3"]);
        let none = PlacementRequest { pin: Pin::None, ..request(3, &[4]) };
        assert_eq!(choose_placement(&host(), &none).cpus, []);
    }

    #[test]
    fn without_free_cpus_or_pinned_reactors_nothing_is_pinned() {
        let placement = choose_placement(&host(), &request(2, &[]));
        assert!(placement.cpus.is_empty() && placement.why.contains("daemon.cores"), "{placement:?}");
        let small = Topology { cpus: host().cpus.into_iter().take(2).collect() };
        assert!(choose_placement(&small, &request(1, &[0, 1])).cpus.is_empty());
        let floating = choose_placement(&small, &request(2, &[0]));
        assert_eq!((shown(&floating), floating.rest.to_string()), (vec!["1".into(), "1".into()], "1".into()));
        assert!(floating.why.contains("more vCPUs than CPUs"), "{floating:?}");
    }
}
