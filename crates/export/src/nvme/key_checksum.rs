//! The checksum of secrets and keys in the forms in which tools print them.

/// CRC-32 as in IEEE 802.3.
pub(super) fn key_checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| match crc & 1 {
            1 => crc >> 1 ^ 0xedb8_8320,
            _ => crc >> 1,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_usual_one() {
        // The check value of CRC-32/ISO-HDLC.
        assert_eq!(key_checksum(b"123456789"), 0xcbf4_3926);
    }
}
