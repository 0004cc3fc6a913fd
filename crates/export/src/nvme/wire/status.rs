//! The status of a completed command.

/// Do not retry.
const FINAL: u16 = 1 << 14;

/// A status code with its type, and the bit that forbids a retry, as in the completion entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) struct NvmeStatus(u16);

impl NvmeStatus {
    pub(in crate::nvme) const SUCCESS: Self = Self(0);
    pub(in crate::nvme) const INVALID_OPCODE: Self = Self(0x01 | FINAL);
    pub(in crate::nvme) const INVALID_FIELD: Self = Self(0x02 | FINAL);
    pub(in crate::nvme) const INTERNAL: Self = Self(0x06);
    pub(in crate::nvme) const ABORTED: Self = Self(0x07);
    pub(in crate::nvme) const FAILED_FUSED: Self = Self(0x09);
    pub(in crate::nvme) const MISSING_FUSED: Self = Self(0x0a | FINAL);
    pub(in crate::nvme) const INVALID_NAMESPACE: Self = Self(0x0b | FINAL);
    pub(in crate::nvme) const SEQUENCE: Self = Self(0x0c | FINAL);
    pub(in crate::nvme) const SGL_LENGTH: Self = Self(0x0f | FINAL);
    pub(in crate::nvme) const SGL_TYPE: Self = Self(0x11 | FINAL);
    pub(in crate::nvme) const SGL_OFFSET: Self = Self(0x16 | FINAL);
    /// A fused write exceeds the atomic unit of the namespace.
    pub(in crate::nvme) const ATOMIC_UNIT: Self = Self(0x14 | FINAL);
    /// The host identifier has another length than the structure that was asked for.
    pub(in crate::nvme) const HOST_ID_FORMAT: Self = Self(0x18 | FINAL);
    pub(in crate::nvme) const WRITE_PROTECTED: Self = Self(0x20 | FINAL);
    pub(in crate::nvme) const TRANSPORT: Self = Self(0x22);
    pub(in crate::nvme) const BEYOND_END: Self = Self(0x80 | FINAL);
    pub(in crate::nvme) const CAPACITY: Self = Self(0x81 | FINAL);
    pub(in crate::nvme) const NOT_READY: Self = Self(0x82);
    pub(in crate::nvme) const RESERVATION_CONFLICT: Self = Self(0x83 | FINAL);
    pub(in crate::nvme) const ABORT_LIMIT: Self = Self(0x103);
    pub(in crate::nvme) const EVENT_LIMIT: Self = Self(0x105 | FINAL);
    pub(in crate::nvme) const INVALID_LOG: Self = Self(0x109 | FINAL);
    pub(in crate::nvme) const FEATURE_NOT_SAVEABLE: Self = Self(0x10d | FINAL);
    pub(in crate::nvme) const FEATURE_NOT_CHANGEABLE: Self = Self(0x10e | FINAL);
    pub(in crate::nvme) const CONNECT_FORMAT: Self = Self(0x180 | FINAL);
    pub(in crate::nvme) const CONNECT_BUSY: Self = Self(0x181);
    /// A subsystem that is not served may be served soon, when its pool is open: hosts may retry.
    pub(in crate::nvme) const CONNECT_UNAVAILABLE: Self = Self(0x182);
    pub(in crate::nvme) const CONNECT_PARAMETERS: Self = Self(0x182 | FINAL);
    pub(in crate::nvme) const CONNECT_HOST: Self = Self(0x184 | FINAL);
    pub(in crate::nvme) const AUTHENTICATION_REQUIRED: Self = Self(0x191 | FINAL);
    pub(in crate::nvme) const COPY_SIZE: Self = Self(0x183 | FINAL);
    pub(in crate::nvme) const WRITE_FAULT: Self = Self(0x280);
    pub(in crate::nvme) const UNREADABLE: Self = Self(0x281 | FINAL);
    pub(in crate::nvme) const COMPARE: Self = Self(0x285 | FINAL);

    /// The code and its type: bits 0 to 14 of the status field.
    pub(in crate::nvme) fn bits(self) -> u16 {
        self.0
    }
}

/// A completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) struct NvmeCompletion {
    pub(in crate::nvme) command: u16,
    pub(in crate::nvme) status: NvmeStatus,
    /// The result of the command: the first two double words.
    pub(in crate::nvme) result: u64,
    /// The head of the submission queue.
    pub(in crate::nvme) head: u16,
}

impl NvmeCompletion {
    pub(in crate::nvme) fn encode(&self) -> [u8; 16] {
        let number = u128::from(self.result)
            | u128::from(self.head) << 64
            | u128::from(self.command) << 96
            | u128::from(self.status.bits() << 1) << 112;
        number.to_le_bytes()
    }
}
