//! Fuzz target: the decoders of bytes from initiators.
//!
//! Decoding uses memory in proportion to its input, and accepted values lie within their limits.
#![allow(clippy::big_endian_bytes, reason = "the protocol's numbers are big-endian")]

use ::fuzz::within;

use super::*;

::fuzz::target!(iscsi_wire, |bytes| match bytes {
    [0, rest @ ..] => check_text(rest),
    [_, rest @ ..] => check_header(rest),
    [] => {}
});

fn check_header(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else { return };
    let header = InitiatorHeader::new(*bytes);
    let frame = header.frame();
    assert_eq!([0, bytes[5], bytes[6], bytes[7]], (frame.data as u32).to_be_bytes());
    assert!(frame.padding < 4 && (frame.data + frame.padding).is_multiple_of(4));
    assert_eq!(frame.additional, usize::from(bytes[4]) * 4);
    assert_eq!(header.tag().to_be_bytes(), bytes[16..20]);
    assert_eq!(header.command_number().to_be_bytes(), bytes[24..28]);
    assert_eq!(header.data_offset().to_be_bytes(), bytes[40..44]);
    assert_eq!(header.command_block(), bytes[32..]);
    if let Some(unit) = header.unit() {
        // The two forms of addressing, without further levels.
        let field = header.unit_field();
        assert!(field << 16 == 0 && [unit, unit | 1 << 14].contains(&((field >> 48) as u16)));
    }
    // The opcode decides alone which messages are known.
    let known = matches!(bytes[0] & 0x3f, 0..=6 | 0x10);
    assert_eq!(header.opcode() != InitiatorOpcode::Unknown, known);
}

/// Text is decoded as it is encoded, in order.
fn check_text(bytes: &[u8]) {
    let pairs = within(512 + 128 * bytes.len(), || TextPairs::decode(bytes));
    let Some(pairs) = pairs else { return };
    let mut writer = TextWriter::default();
    for (key, value) in pairs.iter() {
        assert!(!key.is_empty() && !key.contains(['=', '\0']) && !value.contains('\0'));
        writer.add(key, value);
        assert!(pairs.get(key).is_some());
    }
    let encoded = writer.finish();
    assert!(encoded.len() <= bytes.len() + 1);
    assert_eq!(TextPairs::decode(&encoded), Some(pairs));
}
