//! The processors of this host: which share a core, a cache, memory.
//!
//! Always true: what the kernel does not tell is taken as shared by all, so that a host of which little is known is one group.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::cpulist::CpuList;
use crate::error::{Error, Result};

/// The highest level of cache that the kernel shows anywhere.
const CACHES: u32 = 8;

/// A processor of this host, and what it shares with others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Its number.
    pub id: u32,
    /// The NUMA node of its memory.
    pub node: u32,
    /// The lowest processor that shares its last cache: the name of a CCD or a die.
    pub cache: u32,
    /// The lowest processor of its core.
    pub core: u32,
}

/// The processors of this host that can be used, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// Each.
    pub cpus: Vec<Cpu>,
}

impl Topology {
    /// That of this host, as far as this process may use it.
    ///
    /// # Errors
    /// When the kernel does not tell which processors there are.
    pub fn of_this_host() -> Result<Self> {
        let all = Self::read(Path::new("/sys/devices/system"))?;
        let allowed = rustix::thread::sched_getaffinity(None)
            .map_err(|error| Error::file(Path::new("processors of this process"), &error.into()))?;
        let may = |cpu: &Cpu| {
            let index = cpu.id as usize;
            index >= rustix::thread::CpuSet::MAX_CPU || allowed.is_set(index)
        };
        Ok(Self { cpus: all.cpus.into_iter().filter(may).collect() })
    }

    /// What a directory of the kernel's form says.
    ///
    /// # Errors
    /// When it does not say which processors there are.
    pub fn read(system: &Path) -> Result<Self> {
        let path = system.join("cpu/online");
        let text = std::fs::read_to_string(&path).map_err(|error| Error::file(&path, &error))?;
        let online: CpuList =
            text.parse().map_err(|error| Error::file(&path, &std::io::Error::other(format!("{error}"))))?;
        let nodes = nodes(system);
        let cpu = |id: u32| {
            let place = system.join(format!("cpu/cpu{id}"));
            Cpu {
                id,
                node: nodes.get(&id).copied().unwrap_or(0),
                cache: last_cache(&place).unwrap_or(0),
                core: lowest(&place.join("topology/thread_siblings_list")).unwrap_or(id),
            }
        };
        Ok(Self { cpus: online.0.into_iter().map(cpu).collect() })
    }

    /// A processor.
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.id == id)
    }

    /// The NUMA nodes, in order.
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

/// The lowest processor that shares the last level of cache.
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
    fn the_kernels_directory_is_read() {
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
    fn a_host_that_tells_little_is_one_group() {
        let root = tempfile::tempdir().unwrap();
        assert!(Topology::read(root.path()).is_err());
        write(root.path(), "cpu/online", "0,5");
        let topology = Topology::read(root.path()).unwrap();
        assert_eq!(topology.cpus[1], Cpu { id: 5, node: 0, cache: 0, core: 5 });
    }

    #[test]
    fn this_host_has_processors() {
        assert!(!Topology::of_this_host().unwrap().cpus.is_empty());
    }
}
