//! The state that all calls of the Controller service share, and the messages that several calls
//! return.

use std::collections::HashMap;

use api::types::{Health, Pool, Volume};
use tonic::Status;

use crate::daemon::Daemon;
use crate::locks::VolumeLocks;
use crate::options::AttachMode;
use crate::proto::csi::{self, Topology, TopologyRequirement, VolumeCondition};

/// Key of the topology: its value is the name of the node whose daemon stores the volume.
pub(crate) const TOPOLOGY_KEY: &str = "topology.gabion.io/node";

/// The shared state.
#[derive(Clone, Debug)]
pub(crate) struct ControllerContext {
    pub(crate) daemon: Daemon,
    pub(crate) locks: VolumeLocks,
    pub(crate) node_id: String,
    pub(crate) attach: AttachMode,
}

impl ControllerContext {
    /// Returns true if volumes of this daemon are accessible from `topology`.
    pub(super) fn reaches(&self, topology: &Topology) -> bool {
        if self.attach == AttachMode::NvmeTcp {
            return true;
        }
        topology.segments.get(TOPOLOGY_KEY).is_none_or(|node| *node == self.node_id)
    }

    /// Checks that a volume of this daemon fulfils a requirement.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if it does not, as the specification prescribes.
    pub(super) fn check_topology(&self, required: Option<&TopologyRequirement>) -> Result<(), Status> {
        let requisite = required.map_or(&[][..], |required| &required.requisite);
        if requisite.is_empty() || requisite.iter().any(|topology| self.reaches(topology)) {
            return Ok(());
        }
        Err(Status::resource_exhausted(format!(
            "accessibility_requirements: none of the topologies is {TOPOLOGY_KEY}={}",
            self.node_id
        )))
    }

    /// Returns the description of a volume.
    pub(super) fn describe(
        &self,
        volume: &Volume,
        volume_context: HashMap<String, String>,
        content_source: Option<csi::VolumeContentSource>,
    ) -> csi::Volume {
        let accessible_topology = match self.attach {
            AttachMode::Local => {
                let segments = HashMap::from([(TOPOLOGY_KEY.to_owned(), self.node_id.clone())]);
                vec![Topology { segments }]
            }
            AttachMode::NvmeTcp => Vec::new(),
        };
        csi::Volume {
            capacity_bytes: signed(volume.size),
            volume_id: id(volume),
            volume_context,
            content_source,
            accessible_topology,
        }
    }
}

/// Returns the identifier of a volume or snapshot.
pub(super) fn id(volume: &Volume) -> String {
    format!("{}/{}", volume.pool, volume.name)
}

/// Returns a size as the protocol encodes it.
pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Returns the condition of a volume of a pool.
pub(super) fn condition(pool: &Pool, volume: &str) -> VolumeCondition {
    let lost: u64 = pool.lost.iter().filter(|range| range.volume == volume).map(|range| range.length).sum();
    let problem = if lost > 0 {
        Some(format!("{lost} bytes of the volume are lost; 'gabion pool status {}' lists them", pool.name))
    } else if matches!(pool.health, Health::Failed | Health::Unknown) {
        let cause =
            pool.problems.first().map_or_else(String::new, |problem| format!(": {}", problem.message));
        Some(format!("pool '{}' does not serve writes{cause}", pool.name))
    } else {
        None
    };
    let message = problem.clone().unwrap_or_else(|| match pool.problems.first() {
        Some(problem) => format!("all data is served; pool '{}': {}", pool.name, problem.message),
        None => "all data is fully protected".to_owned(),
    });
    VolumeCondition { abnormal: problem.is_some(), message }
}
