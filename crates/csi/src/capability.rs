//! The use of a volume that a capability of the specification describes.

use tonic::Status;

use crate::proto::csi::VolumeCapability;
use crate::proto::csi::volume_capability::AccessType;
use crate::proto::csi::volume_capability::access_mode::Mode;
use crate::status::invalid;

/// File systems that the driver makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Xfs,
    Ext4,
}

/// The mode in which a container accesses a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VolumeMode {
    /// A raw block device.
    Block,
    /// A mounted file system. Without a kind, the volume's parameter or the default decides.
    Mounted { kind: Option<FileSystem>, options: Vec<String> },
}

/// A checked capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeUse {
    /// Mode of the volume.
    pub(crate) mode: VolumeMode,
    /// True for read-only access.
    pub(crate) read_only: bool,
    /// True if containers of several nodes may write.
    pub(crate) shared: bool,
    /// True if only one container of the cluster may use it.
    pub(crate) single_container: bool,
}

impl FileSystem {
    /// The name, as the kernel and `blkid` write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Xfs => "xfs",
            Self::Ext4 => "ext4",
        }
    }

    /// Smallest volume that the file system fits into, in bytes.
    pub(crate) fn size_min(self) -> u64 {
        match self {
            Self::Xfs => 300 << 20,
            Self::Ext4 => 4 << 20,
        }
    }

    /// Parses a name; an empty name is `None`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, which names the parameter, for other file systems.
    pub(crate) fn parse(parameter: &str, name: &str) -> Result<Option<Self>, Status> {
        match name {
            "" => Ok(None),
            "xfs" => Ok(Some(Self::Xfs)),
            "ext4" => Ok(Some(Self::Ext4)),
            other => Err(invalid(parameter, format!("'{other}' is not supported: use xfs or ext4"))),
        }
    }
}

impl VolumeUse {
    /// Checks the capability of a request.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is absent, incomplete, or not supported.
    pub(crate) fn parse(capability: Option<&VolumeCapability>) -> Result<Self, Status> {
        const FIELD: &str = "volume_capability";
        let capability = capability.ok_or_else(|| invalid(FIELD, "is required"))?;
        let mode = match &capability.access_type {
            Some(AccessType::Block(_)) => VolumeMode::Block,
            Some(AccessType::Mount(mount)) => VolumeMode::Mounted {
                kind: FileSystem::parse("volume_capability.mount.fs_type", &mount.fs_type)?,
                options: mount.mount_flags.clone(),
            },
            None => return Err(invalid(FIELD, "must be 'block' or 'mount'")),
        };
        let access_mode = capability.access_mode.as_ref().map_or(Mode::Unknown, |access| access.mode());
        let is_block = mode == VolumeMode::Block;
        let (read_only, shared, single_container) = match access_mode {
            Mode::Unknown => return Err(invalid("volume_capability.access_mode", "is required")),
            Mode::SingleNodeWriter | Mode::SingleNodeMultiWriter => (false, false, false),
            Mode::SingleNodeSingleWriter => (false, false, true),
            Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly => (true, false, false),
            Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter if is_block => (false, true, false),
            Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter => {
                let problem =
                    format!("{} needs a raw block volume (volumeMode: Block)", access_mode.as_str_name());
                return Err(invalid("volume_capability.access_mode", problem));
            }
        };
        Ok(Self { mode, read_only, shared, single_container })
    }

    /// Checks a list of capabilities that a volume must have together.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if there is none, or one is not supported.
    pub(crate) fn parse_all(capabilities: &[VolumeCapability]) -> Result<Vec<Self>, Status> {
        if capabilities.is_empty() {
            return Err(invalid("volume_capabilities", "is required"));
        }
        capabilities.iter().map(|capability| Self::parse(Some(capability))).collect()
    }
}
