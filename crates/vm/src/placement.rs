//! On which processors of the host a machine runs: beside the cores that carry its disks out, and not on them.
//!
//! A queue's memory is written by the guest and read by the reactor, and the other way round: within one last-level cache
//! that costs tens of nanoseconds, across sockets several times as much. Pure; must not know where the host's form comes from.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::cpulist::CpuList;
use crate::machine::Pin;
use crate::topology::{Cpu, Topology};

/// What a placement is decided by.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The machine's processors.
    pub cpus: u32,
    /// What was asked for.
    pub pin: Pin,
    /// The cores that reactors stay on, of those that carry its disks out; none if they stay nowhere.
    pub reactors: BTreeSet<u32>,
    /// How many processors of other machines are on each processor of the host.
    pub taken: BTreeMap<u32, u32>,
}

/// Where a machine runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// For each of its processors, where that runs: one processor of the host, or several. Nothing if it is not tied.
    pub cpus: Vec<CpuList>,
    /// Where the rest of QEMU runs. Empty if it is not tied.
    pub rest: CpuList,
    /// The NUMA node of its memory, if it is to be on one.
    pub node: Option<u32>,
    /// Why it is so, as a sentence without its point.
    pub why: String,
}

impl Placement {
    /// Nothing is tied.
    fn free(why: &str) -> Self {
        Self { why: why.into(), ..Self::default() }
    }

    /// Each processor on its own, in this order, from the first again if there are fewer.
    fn in_turn(topology: &Topology, cpus: u32, chosen: &[u32], why: String) -> Self {
        let each = chosen.iter().cycle().take(cpus as usize);
        let node = node_of(topology, chosen);
        Self {
            cpus: each.map(|cpu| CpuList::from_iter([*cpu])).collect(),
            rest: chosen.iter().copied().collect(),
            node,
            why,
        }
    }

    /// All processors over all of these.
    fn floating(topology: &Topology, cpus: u32, over: &[u32], why: String) -> Self {
        let list: CpuList = over.iter().copied().collect();
        Self { cpus: vec![list.clone(); cpus as usize], rest: list, node: node_of(topology, over), why }
    }
}

/// The node that all of these are on, where the host has several.
fn node_of(topology: &Topology, cpus: &[u32]) -> Option<u32> {
    let mut nodes: Vec<u32> = cpus.iter().filter_map(|cpu| Some(topology.cpu(*cpu)?.node)).collect();
    nodes.dedup();
    match nodes.as_slice() {
        [node] if topology.nodes().len() > 1 => Some(*node),
        _ => None,
    }
}

/// How far a processor is from the reactors.
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

/// Decides where a machine runs.
pub fn place(topology: &Topology, request: &Request) -> Placement {
    match &request.pin {
        Pin::None => Placement::free("as asked: not tied"),
        Pin::Cpus(list) => {
            let chosen: Vec<u32> = list.0.iter().copied().collect();
            Placement::in_turn(topology, request.cpus, &chosen, "as asked".into())
        }
        Pin::Auto if request.reactors.is_empty() => {
            Placement::free("not tied, since the daemon's reactors are not: 'daemon.cores' ties them")
        }
        Pin::Auto => beside(topology, request),
    }
}

fn beside(topology: &Topology, request: &Request) -> Placement {
    let cores: BTreeSet<u32> =
        request.reactors.iter().filter_map(|cpu| Some(topology.cpu(*cpu)?.core)).collect();
    let mut left: Vec<&Cpu> =
        topology.cpus.iter().filter(|cpu| !request.reactors.contains(&cpu.id)).collect();
    // Free before shared, near before far, whole cores before the other half of a reactor's.
    left.sort_by_key(|cpu| {
        let taken = request.taken.get(&cpu.id).copied().unwrap_or(0);
        (taken, distance(topology, cpu, &request.reactors), cores.contains(&cpu.core), cpu.id)
    });
    let reactors: CpuList = request.reactors.iter().copied().collect();
    let ids: Vec<u32> = left.iter().map(|cpu| cpu.id).collect();
    if ids.is_empty() {
        return Placement::free("not tied: there is no processor beside those of the reactors");
    }
    let Some(chosen) = ids.get(..request.cpus as usize) else {
        let why = format!(
            "the machine has more processors than there are beside the reactors ({reactors}): they float"
        );
        return Placement::floating(topology, request.cpus, &ids, why);
    };
    let farthest =
        chosen.iter().filter_map(|id| Some(distance(topology, topology.cpu(*id)?, &request.reactors))).max();
    let near = match farthest {
        Some(Distance::SameCache) => "in the same last-level cache as",
        Some(Distance::SameNode) => "on the same NUMA node as",
        _ => "partly far from",
    };
    let shared = chosen.iter().any(|id| request.taken.contains_key(id));
    let shared = if shared { "; some are shared with other machines" } else { "" };
    Placement::in_turn(topology, request.cpus, chosen, format!("{near} the reactors on {reactors}{shared}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes of two caches of four processors, two to a core.
    fn host() -> Topology {
        let cpu = |id: u32| Cpu { id, node: id / 8, cache: id / 4 * 4, core: id / 2 * 2 };
        Topology { cpus: (0..16).map(cpu).collect() }
    }

    fn request(cpus: u32, reactors: &[u32]) -> Request {
        Request { cpus, reactors: reactors.iter().copied().collect(), ..Request::default() }
    }

    fn shown(placement: &Placement) -> Vec<String> {
        placement.cpus.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_machine_runs_in_the_cache_of_its_reactors_and_off_their_core() {
        let placement = place(&host(), &request(2, &[4]));
        assert_eq!((shown(&placement), placement.node), (vec!["6".into(), "7".into()], Some(0)));
        assert!(placement.why.contains("same last-level cache"), "{placement:?}");
        // The third is the other half of the reactor's core, which is still nearer than another cache.
        assert_eq!(shown(&place(&host(), &request(3, &[4]))), ["6", "7", "5"]);
        let wider = place(&host(), &request(5, &[4]));
        assert_eq!(shown(&wider), ["6", "7", "5", "0", "1"]);
        assert!(wider.why.contains("same NUMA node"), "{wider:?}");
        let widest = place(&host(), &request(9, &[4]));
        assert!(widest.why.contains("partly far") && widest.node.is_none(), "{widest:?}");
    }

    #[test]
    fn free_processors_come_before_shared_ones() {
        let mut second = request(2, &[4]);
        second.taken = [(6, 1), (7, 1), (5, 1)].into();
        assert_eq!(shown(&place(&host(), &second)), ["0", "1"]);
        second.taken.extend((0..16).filter(|cpu| *cpu != 5).map(|cpu| (cpu, 2)));
        let placement = place(&host(), &second);
        assert_eq!(shown(&placement), ["5", "6"]);
        assert!(placement.why.ends_with("shared with other machines"), "{placement:?}");
    }

    #[test]
    fn what_is_asked_for_is_done() {
        let asked = Request { pin: "9,3".parse().unwrap(), ..request(3, &[4]) };
        assert_eq!(shown(&place(&host(), &asked)), ["3", "9", "3"]);
        let none = Request { pin: Pin::None, ..request(3, &[4]) };
        assert_eq!(place(&host(), &none).cpus, []);
    }

    #[test]
    fn without_room_or_reason_nothing_is_tied() {
        let placement = place(&host(), &request(2, &[]));
        assert!(placement.cpus.is_empty() && placement.why.contains("daemon.cores"), "{placement:?}");
        let small = Topology { cpus: host().cpus.into_iter().take(2).collect() };
        assert!(place(&small, &request(1, &[0, 1])).cpus.is_empty());
        let floating = place(&small, &request(2, &[0]));
        assert_eq!((shown(&floating), floating.rest.to_string()), (vec!["1".into(), "1".into()], "1".into()));
        assert!(floating.why.contains("more processors than there are"), "{floating:?}");
    }
}
