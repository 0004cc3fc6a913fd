//! The CPUs of this host, and the cores, caches and NUMA nodes that they share.
//!
//! Always true: missing information counts as shared by all CPUs, so that a host without it is one
//! group.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::cpulist::CpuList;
use crate::error::{Error, Result};

/// Upper bound for the cache indexes in sysfs.
const CACHES: u32 = 8;

/// A CPU of this host, and the resources that it shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Number of the CPU.
    pub id: u32,
    /// The NUMA node of its memory.
    pub node: u32,
    /// The lowest CPU that shares its last-level cache; identifies a CCD or a die.
    pub cache: u32,
    /// The lowest CPU of its core.
    pub core: u32,
}

/// The usable CPUs of this host, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// The CPUs.
    pub cpus: Vec<Cpu>,
}

impl Topology {
    /// Returns the CPUs of this host that this process may use.
    ///
    /// # Errors
    /// If the kernel's list of CPUs cannot be read.
    pub fn detect() -> Result<Self> {
        let all = Self::read(Path::new("/sys/devices/system"))?;
        let allowed = rustix::thread::sched_getaffinity(None)
            .map_err(|error| Error::file(Path::new("CPU affinity of this process"), &error.into()))?;
        let is_allowed = |cpu: &Cpu| {
            let index = cpu.id as usize;
            index >= rustix::thread::CpuSet::MAX_CPU || allowed.is_set(index)
        };
        Ok(Self { cpus: all.cpus.into_iter().filter(is_allowed).collect() })
    }

    /// Reads the topology from a directory with the layout of /sys/devices/system.
    ///
    /// # Errors
    /// If the list of CPUs cannot be read.
    pub fn read(system: &Path) -> Result<Self> {
        let path = system.join("cpu/online");
        let text = std::fs::read_to_string(&path).map_err(|error| Error::file(&path, &error))?;
        let online: CpuList =
            text.parse().map_err(|error| Error::file(&path, &std::io::Error::other(format!("{error}"))))?;
        let nodes = nodes(system);
        let cpu = |id: u32| {
            let directory = system.join(format!("cpu/cpu{id}"));
            Cpu {
                id,
                node: nodes.get(&id).copied().unwrap_or(0),
                cache: last_cache(&directory).unwrap_or(0),
                core: lowest(&directory.join("topology/thread_siblings_list")).unwrap_or(id),
            }
        };
        Ok(Self { cpus: online.0.into_iter().map(cpu).collect() })
    }

    /// Returns a CPU.
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.id == id)
    }

    /// Returns the NUMA nodes, in order.
    pub fn nodes(&self) -> Vec<u32> {
        let mut nodes: Vec<u32> = self.cpus.iter().map(|cpu| cpu.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

fn lowest(path: &Path) -> Option<u32> {
    let list: CpuList = std::fs::read_to_string(path).ok()?.parse().ok()?;
    list.0.first().copied()
}

/// Returns the lowest CPU that shares the last-level cache.
fn last_cache(cpu: &Path) -> Option<u32> {
    let level = |index: u32| {
        let cache = cpu.join(format!("cache/index{index}"));
        let level: u32 = std::fs::read_to_string(cache.join("level")).ok()?.trim().parse().ok()?;
        Some((level, lowest(&cache.join("shared_cpu_list"))?))
    };
    (0..CACHES).filter_map(level).max_by_key(|(level, _)| *level).map(|(_, lowest)| lowest)
}

fn nodes(system: &Path) -> BTreeMap<u32, u32> {
    let mut nodes = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(system.join("node")) else { return nodes };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(node) = name.to_str().and_then(|name| name.strip_prefix("node")?.parse::<u32>().ok()) else {
            continue;
        };
        let list = std::fs::read_to_string(entry.path().join("cpulist")).ok();
        let list: Option<CpuList> = list.and_then(|text| text.parse().ok());
        nodes.extend(list.unwrap_or_default().0.into_iter().map(|cpu| (cpu, node)));
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn the_layout_of_sysfs_is_read() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "cpu/online", "0-3\n");
        write(root.path(), "node/node0/cpulist", "0-1\n");
        write(root.path(), "node/node1/cpulist", "2-3\n");
        for id in 0..4 {
            let pair = id / 2 * 2;
            write(
                root.path(),
                &format!("cpu/cpu{id}/topology/thread_siblings_list"),
                &format!("{pair},{}\n", pair + 1),
            );
            write(root.path(), &format!("cpu/cpu{id}/cache/index0/level"), "1\n");
            write(root.path(), &format!("cpu/cpu{id}/cache/index0/shared_cpu_list"), &format!("{id}\n"));
            write(root.path(), &format!("cpu/cpu{id}/cache/index3/level"), "3\n");
            write(
                root.path(),
                &format!("cpu/cpu{id}/cache/index3/shared_cpu_list"),
                &format!("{pair}-{}\n", pair + 1),
            );
        }
        let topology = Topology::read(root.path()).unwrap();
        assert_eq!(topology.cpus[3], Cpu { id: 3, node: 1, cache: 2, core: 2 });
        assert_eq!(topology.nodes(), [0, 1]);
        assert_eq!(topology.cpu(7), None);
    }

    #[test]
    fn a_host_without_information_is_one_group() {
        let root = tempfile::tempdir().unwrap();
        assert!(Topology::read(root.path()).is_err());
        write(root.path(), "cpu/online", "0,5");
        let topology = Topology::read(root.path()).unwrap();
        assert_eq!(topology.cpus[1], Cpu { id: 5, node: 0, cache: 0, core: 5 });
    }

    #[test]
    fn this_host_has_cpus() {
        assert!(!Topology::detect().unwrap().cpus.is_empty());
    }
}
