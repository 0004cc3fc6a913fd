//! Messages of NVMe over fabrics and NVMe/TCP.
//!
//! Owns encoding and decoding. Always true: decoders accept any bytes, and allocate no more than
//! the message itself. Must not know connections or volumes.

mod authentication;
mod bytes;
mod command;
mod connect;
#[cfg(test)]
mod fuzz;
mod identify;
mod logs;
mod pdu;
mod status;

pub(in crate::nvme) use authentication::{AuthenticationFailure, ControllerMessage, HostMessage};
pub(in crate::nvme) use bytes::{u16_at, u32_at, u64_at};
pub(in crate::nvme) use command::{COMMAND_BYTES, DataLocation, Fuse, LogicalBlocks, NvmeCommand};
pub(in crate::nvme) use connect::{ANY_CONTROLLER, CONNECT_BYTES, ConnectField, ConnectRequest, is_name};
pub(in crate::nvme) use identify::{ControllerProperties, NamespaceProperties, namespace_list};
pub(in crate::nvme) use logs::{
    DiscoveryEntry, RegistrantEntry, access_log, changed_log, discovery_log, effects_log, firmware_log,
    health_log, log, reservation_log, reservation_report,
};
pub(in crate::nvme) use pdu::{
    COMMON_LEN, ConnectionRequest, Digests, FatalError, Frame, FrameKind, HostData, IC_LEN, PduEncoder,
    SHORT_LEN, terminate_status,
};
pub(in crate::nvme) use status::{NvmeCompletion, NvmeStatus};
