//! Volumes on the network: the names by which nodes and volumes find each other over NVMe/TCP, and
//! the publish context that the Controller service hands to the Node service.
//!
//! Always true: the names of a node and of its disks follow from their identifiers alone, so that
//! every driver process computes the same ones.

use std::collections::HashMap;
use std::hash::Hasher;
use std::net::SocketAddr;

use api::VolumeName;
use api::types::{Export, ExportState};
use siphasher::sip128::{Hasher128, SipHasher24};
use tonic::Status;

use crate::status::invalid;

/// Start of the NQNs of the nodes of a cluster.
const NODE_PREFIX: &str = "nqn.2014-08.io.gabion:node:";
/// Start of the NQNs of the driver's disks.
const DISK_PREFIX: &str = "nqn.2014-08.io.gabion:csi:";
/// Longest node name that is part of an NQN, which has up to 223 bytes.
const NODE_NAME_MAX: usize = 180;
/// Key of the publish context: the NQN of the disk.
const NQN: &str = "nqn";
/// Key of the publish context: the addresses of the disk, separated by commas.
const ADDRESSES: &str = "addresses";

/// The identity with which a node connects to disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeIdentity {
    pub(crate) nqn: String,
    /// The host identifier, a UUID. The kernel demands one for each host name.
    pub(crate) id: String,
}

impl NodeIdentity {
    /// Returns the identity of a node.
    pub(crate) fn of(node: &str) -> Self {
        let hashed = hash(&[node]);
        let is_plain = node.len() <= NODE_NAME_MAX && node.chars().all(|c| c.is_ascii_graphic() && c != ',');
        let nqn =
            if is_plain { format!("{NODE_PREFIX}{node}") } else { format!("{NODE_PREFIX}{hashed:032x}") };
        Self { nqn, id: uuid(hashed) }
    }
}

/// Returns the node with an NQN that [`NodeIdentity::of`] made; `None` for other NQNs.
pub(crate) fn node_of(nqn: &str) -> Option<&str> {
    nqn.strip_prefix(NODE_PREFIX)
}

/// Returns the NQN of the disk by which a node uses a volume. Each node has a disk of its own, so
/// that the removal of one fences its node and no other.
pub(crate) fn disk_name(volume: &VolumeName, node: &str) -> String {
    format!("{DISK_PREFIX}{:032x}", hash(&[&volume.pool, &volume.volume, node]))
}

/// Returns true if the driver made an export.
pub(crate) fn is_disk(export: &Export) -> bool {
    export.network.target.as_deref().is_some_and(|target| target.starts_with(DISK_PREFIX))
}

/// A disk that a node connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkDisk {
    pub(crate) nqn: String,
    /// Several are several paths to the disk.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl NetworkDisk {
    /// Returns the disk of an export.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the export is not active; `FAILED_PRECONDITION` if it names no address that
    /// nodes can connect to.
    pub(crate) fn of(export: &Export) -> Result<Self, Status> {
        let name = format!("{}/{}", export.pool, export.volume);
        if export.state != ExportState::Active {
            let reason = export.reason.as_deref().unwrap_or("it is not active");
            return Err(Status::unavailable(format!("export of '{name}': {reason}")));
        }
        let parse = |uri: &String| {
            let (address, nqn) = uri.strip_prefix("nvme+tcp://")?.split_once('/')?;
            Some((address.parse::<SocketAddr>().ok()?, nqn.to_owned()))
        };
        let found: Vec<_> = export.uris.iter().filter_map(parse).collect();
        let nqn = found.first().map(|(_, nqn)| nqn.clone()).or_else(|| export.network.target.clone());
        let usable = |address: &SocketAddr| !address.ip().is_unspecified();
        let addresses: Vec<_> = found.into_iter().map(|(address, _)| address).filter(usable).collect();
        match nqn {
            Some(nqn) if !addresses.is_empty() => Ok(Self { nqn, addresses }),
            _ => Err(Status::failed_precondition(format!(
                "the daemon listens for NVMe/TCP on {:?}, which names no address that nodes can reach; \
                 set 'listen' in section 'nvme' of the daemon's configuration",
                export.uris
            ))),
        }
    }

    /// Returns the publish context.
    pub(crate) fn to_context(&self) -> HashMap<String, String> {
        let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        HashMap::from([(NQN.to_owned(), self.nqn.clone()), (ADDRESSES.to_owned(), addresses.join(","))])
    }

    /// Returns the disk of a publish context.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if a value is absent or invalid.
    pub(crate) fn from_context(context: &HashMap<String, String>) -> Result<Self, Status> {
        let value = |key: &str| {
            let found = context.get(key).filter(|value| !value.is_empty());
            found.ok_or_else(|| {
                invalid("publish_context", format!("'{key}' is missing: publish the volume first"))
            })
        };
        let parse = |text: &str| {
            let problem = |error| invalid("publish_context", format!("'{text}' is no address: {error}"));
            text.parse::<SocketAddr>().map_err(problem)
        };
        let addresses = value(ADDRESSES)?.split(',').map(parse).collect::<Result<_, Status>>()?;
        Ok(Self { nqn: value(NQN)?.clone(), addresses })
    }
}

fn hash(parts: &[&str]) -> u128 {
    let mut hasher = SipHasher24::new();
    for part in parts {
        hasher.write_u64(part.len() as u64);
        hasher.write(part.as_bytes());
    }
    hasher.finish128().as_u128()
}

fn uuid(value: u128) -> String {
    let digits = format!("{value:032x}");
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| digits.get(range).unwrap_or_default());
    groups.join("-")
}

#[cfg(test)]
mod tests {
    use api::types::{NetworkOptions, Protocol};

    use super::*;

    fn export(uris: &[&str]) -> Export {
        Export {
            id: "nvme-tcp".into(),
            name: "fast/a".into(),
            pool: "fast".into(),
            volume: "a".into(),
            protocol: Protocol::NvmeTcp,
            read_only: false,
            shared: false,
            owner: None,
            state: ExportState::Active,
            reason: None,
            uris: uris.iter().map(|uri| (*uri).to_owned()).collect(),
            queues: None,
            reactors: Vec::new(),
            network: NetworkOptions::default(),
            connections: 0,
            used_by: Vec::new(),
        }
    }

    #[test]
    fn names_follow_from_the_identifiers() {
        let (one, two) = (NodeIdentity::of("node-1"), NodeIdentity::of("node-2"));
        assert_eq!(
            (one.nqn.as_str(), node_of(&one.nqn)),
            ("nqn.2014-08.io.gabion:node:node-1", Some("node-1"))
        );
        assert_ne!(one.id, two.id);
        assert_eq!(one.id.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        // The kernel splits its options at commas.
        for name in ["a,b", "a b", &"x".repeat(256)] {
            assert!(
                NodeIdentity::of(name).nqn.len() <= 223 && !NodeIdentity::of(name).nqn.contains([',', ' '])
            );
        }
        let name = |volume: &str| VolumeName { pool: "fast".into(), volume: volume.into() };
        let disks = [disk_name(&name("a"), "b"), disk_name(&name("ab"), ""), disk_name(&name("a"), "c")];
        assert!(disks[0] != disks[1] && disks[0] != disks[2] && disks[1] != disks[2], "{disks:?}");
        assert_eq!(disks[0], disk_name(&name("a"), "b"));
    }

    #[test]
    fn the_context_returns_the_disk() {
        let disk = NetworkDisk::of(&export(&[
            "nvme+tcp://10.0.0.1:4420/nqn.x:y",
            "nvme+tcp://0.0.0.0:4420/nqn.x:y",
            "nvme+tcp://[fd00::1]:4420/nqn.x:y",
        ]));
        let disk = disk.unwrap();
        let addresses = ["10.0.0.1:4420", "[fd00::1]:4420"].map(|text| text.parse().unwrap());
        assert_eq!(disk, NetworkDisk { nqn: "nqn.x:y".into(), addresses: addresses.to_vec() });
        assert_eq!(NetworkDisk::from_context(&disk.to_context()).unwrap(), disk);
    }

    #[test]
    fn an_export_that_nodes_cannot_reach_is_refused() {
        let everywhere = NetworkDisk::of(&export(&["nvme+tcp://0.0.0.0:4420/nqn.x:y"])).unwrap_err();
        assert_eq!(everywhere.code(), tonic::Code::FailedPrecondition);
        assert!(everywhere.message().contains("section 'nvme'"), "{everywhere}");
        let waiting = Export { state: ExportState::Waiting, ..export(&[]) };
        assert_eq!(NetworkDisk::of(&waiting).unwrap_err().code(), tonic::Code::Unavailable);
        for context in [&[][..], &[("nqn", "x")], &[("nqn", "x"), ("addresses", "here")]] {
            let pairs = context.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let refused = NetworkDisk::from_context(&pairs.collect()).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            assert!(refused.message().starts_with("publish_context"), "{refused}");
        }
    }
}
