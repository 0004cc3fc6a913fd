//! The names of hosts as registrants of reservations.

/// The prefix of the names of registrants of this protocol.
const PREFIX: &str = "nvme:";

/// The name of a host as a registrant.
pub(super) fn registrant_name(host_id: [u8; 16]) -> String {
    let digits: String = host_id.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{PREFIX}{digits}")
}

/// The identifier of a registrant; zeros for one of another protocol.
pub(super) fn host_id_of(name: &str) -> [u8; 16] {
    let number = name.strip_prefix(PREFIX).and_then(|digits| u128::from_str_radix(digits, 16).ok());
    let mut id = number.unwrap_or(0).to_le_bytes();
    // The first digits are those of the first byte.
    id.reverse();
    id
}
