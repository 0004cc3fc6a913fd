//! Secrets and keys in the forms in which tools print them.

/// CRC-32 as in IEEE 802.3, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

/// A key with its kind and number, in base64 with its checksum.
pub(crate) fn printed(kind: &str, number: &str, key: &[u8]) -> String {
    let all = [key, &crc32(key).to_le_bytes()].concat();
    format!("{kind}:{number}:{}:", base64_simd::STANDARD.encode_to_string(all))
}
