//! Headers are encoded as RFC 7143 lays them out, and any bytes are decoded or refused.

use proptest::prelude::*;

use super::super::bytes::{u16_at, u32_at};
use super::super::header::{InitiatorHeader, InitiatorOpcode};
use super::super::text::{TextPairs, TextWriter};
use super::*;

fn sequence() -> impl Strategy<Value = Sequence> {
    any::<(u32, u32, u32)>().prop_map(|(status, expected, max)| Sequence { status, expected, max })
}

fn encoder() -> impl Strategy<Value = ReplyEncoder> {
    any::<(bool, bool)>().prop_map(|(header, data)| ReplyEncoder { digests: IscsiDigests { header, data } })
}

/// Checks the parts that all messages have in common.
fn check(head: &ReplyHead, encoder: ReplyEncoder, opcode: u8, length: u32, tag: u32) -> Vec<u8> {
    let bytes = head.as_bytes();
    assert_eq!((bytes[0], u32_at(bytes, 4), u32_at(bytes, 16)), (opcode, length, tag));
    assert_eq!(bytes.len(), if encoder.digests.header { 52 } else { 48 });
    if encoder.digests.header {
        assert_eq!(bytes[48..], codec::crc32c(&bytes[..48]).to_le_bytes());
    }
    bytes.to_vec()
}

proptest! {
    #[test]
    fn headers_of_any_bytes_have_fields(bytes in prop::collection::vec(any::<u8>(), 48)) {
        let header = InitiatorHeader::new(bytes.clone().try_into().unwrap());
        let frame = header.frame();
        prop_assert!(frame.data < 1 << 24 && frame.additional <= 1020 && (frame.data + frame.padding).is_multiple_of(4));
        prop_assert_eq!(frame.additional, usize::from(bytes[4]) * 4);
        prop_assert_eq!(header.bytes().as_slice(), bytes.as_slice());
        if bytes[0] & 0x3f > 0x10 {
            prop_assert_eq!(header.opcode(), InitiatorOpcode::Unknown);
        }
        if let Some(unit) = header.unit() {
            prop_assert!(unit < 1 << 14);
        }
    }

    #[test]
    fn units_are_addressed_in_two_forms(unit in 0..256u16, flat in 0..1u16 << 14) {
        for (field, expected) in [(unit, unit), (flat | 1 << 14, flat)] {
            let mut bytes = [0; 48];
            bytes[8..10].copy_from_slice(&field.to_be_bytes());
            prop_assert_eq!(InitiatorHeader::new(bytes).unit(), Some(expected));
            bytes[11] = 1;
            prop_assert_eq!(InitiatorHeader::new(bytes).unit(), None);
        }
    }

    #[test]
    fn data_and_responses_are_encoded(
        encoder in encoder(), sequence in sequence(), tag: u32, number: u32, offset: u32, length in 0..1u32 << 24,
        residual in -100_000i64..100_000, is_final: bool,
    ) {
        let data = DataIn { tag, number, offset, length, is_final, status: None };
        let bytes = check(&encoder.data(&data, sequence), encoder, 0x25, length, tag);
        prop_assert_eq!((bytes[1], u32_at(&bytes, 24)), (u8::from(is_final) << 7, 0));
        prop_assert_eq!((u32_at(&bytes, 28), u32_at(&bytes, 32)), (sequence.expected, sequence.max));
        prop_assert_eq!((u32_at(&bytes, 36), u32_at(&bytes, 40)), (number, offset));
        let last = DataIn { is_final: true, status: Some(residual), ..data };
        let bytes = check(&encoder.data(&last, sequence), encoder, 0x25, length, tag);
        let flags = if residual > 0 { 2 } else if residual < 0 { 4 } else { 0 };
        prop_assert_eq!((bytes[1], u32_at(&bytes, 24)), (0x81 | flags, sequence.status));
        prop_assert_eq!(u64::from(u32_at(&bytes, 44)), residual.unsigned_abs());
        let reply = ScsiReply { tag, status: 2, residual, data_messages: number, length: 20 };
        let bytes = check(&encoder.response(&reply, sequence), encoder, 0x21, 20, tag);
        prop_assert_eq!((bytes[1], bytes[2], bytes[3]), (0x80 | flags, 0, 2));
        prop_assert_eq!((u32_at(&bytes, 24), u32_at(&bytes, 36)), (sequence.status, number));
    }

    #[test]
    fn other_messages_are_encoded(
        encoder in encoder(), sequence in sequence(), tag: u32, target_tag: u32, unit: u64, length in 0..1u32 << 24,
    ) {
        let call = TargetCall { tag, target_tag, unit, length };
        let bytes = check(&encoder.ready(call, 3, 77, sequence), encoder, 0x31, 0, tag);
        prop_assert_eq!((u32_at(&bytes, 20), u32_at(&bytes, 36)), (target_tag, 3));
        prop_assert_eq!((u32_at(&bytes, 40), u32_at(&bytes, 44)), (77, length));
        check(&encoder.ping(call, sequence), encoder, 0x20, length, tag);
        let bytes = check(&encoder.text(call, sequence), encoder, 0x24, length, tag);
        prop_assert_eq!(bytes[1], if target_tag == NO_TAG { 0x80 } else { 0x40 });
        let bytes = check(&encoder.task(tag, TaskResponse::NoTask, sequence), encoder, 0x22, 0, tag);
        prop_assert_eq!(bytes[2], 1);
        check(&encoder.logout(tag, 0, sequence), encoder, 0x26, 0, tag);
        let bytes = check(&encoder.reject(RejectReason::Unsupported, sequence), encoder, 0x3f, 48, NO_TAG);
        prop_assert_eq!(bytes[2], 5);
        let event = AsyncEvent::Drop { connection: 3 };
        let bytes = check(&encoder.event(event, sequence), encoder, 0x32, 0, NO_TAG);
        prop_assert_eq!((bytes[36], u16_at(&bytes, 38)), (2, 3));
    }

    #[test]
    fn login_replies_are_padded(text in prop::collection::vec(any::<u8>(), 0..50), sequence in sequence()) {
        let reply = LoginReply {
            flags: 0x87, session: [1, 2, 3, 4, 5, 6], handle: 7, tag: 8, sequence, status: LoginStatus::NOT_FOUND,
        };
        let bytes = reply.encode(&text);
        prop_assert_eq!((bytes.len() % 4, u32_at(&bytes, 4) as usize), (0, text.len()));
        prop_assert_eq!((bytes[0], bytes[1], bytes[36], bytes[37]), (0x23, 0x87, 2, 3));
        prop_assert_eq!(&bytes[48..48 + text.len()], &text[..]);
    }

    #[test]
    fn text_is_decoded_as_it_was_encoded(pairs in prop::collection::vec(("[A-Z][a-z]{0,5}", "[ -~]{0,20}"), 0..8)) {
        let mut text = TextWriter::default();
        pairs.iter().for_each(|(key, value)| text.add(key, value));
        let bytes = text.finish();
        let decoded = TextPairs::decode(&bytes).unwrap();
        let expected: Vec<_> = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        prop_assert_eq!(decoded.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn any_text_is_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        if let Some(pairs) = TextPairs::decode(&bytes) {
            prop_assert!(pairs.iter().all(|(key, _)| !key.is_empty() && !key.contains(['=', '\0'])));
        }
    }
}
