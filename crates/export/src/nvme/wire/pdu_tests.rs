//! PDUs are decoded as they were encoded, and any bytes are decoded or refused.

use proptest::prelude::*;

use super::*;
use crate::nvme::wire::bytes::array_at;

fn digests() -> impl Strategy<Value = Digests> {
    any::<(bool, bool)>().prop_map(|(header, data)| Digests { header, data })
}

/// The common header of a PDU with `data` bytes of data.
fn common(kind: u8, header: usize, digests: Digests, padding: usize, data: usize) -> [u8; COMMON_LEN] {
    let with_digest = header + if digests.header { 4 } else { 0 };
    let (offset, trailer) = match data {
        0 => (0, with_digest),
        _ => (with_digest + padding, with_digest + padding + data + if digests.data { 4 } else { 0 }),
    };
    let flags = u8::from(digests.header) | u8::from(digests.data && data > 0) << 1 | flag::LAST;
    let mut bytes = [kind, flags, header as u8, offset as u8, 0, 0, 0, 0];
    bytes[4..].copy_from_slice(&(trailer as u32).to_le_bytes());
    bytes
}

proptest! {
    #[test]
    fn any_header_is_decoded_or_refused(bytes: [u8; COMMON_LEN], digests in digests()) {
        if let Ok(frame) = Frame::decode(&bytes, digests, 1 << 20) {
            prop_assert!(frame.data <= 1 << 20);
            let length = u32_at(&bytes, 4) as usize;
            let header = if frame.kind == FrameKind::Command { 72 } else { 24 };
            let digest = |used: bool| if used { 4 } else { 0 };
            let parts = header + digest(frame.header_digest) + frame.padding + frame.data;
            prop_assert_eq!(parts + digest(frame.data_digest), length);
        }
    }

    #[test]
    fn frames_are_decoded(
        digests in digests(), is_data: bool, padding in 0..100usize, data in 1..100_000usize,
    ) {
        let (kind, header) = if is_data { (kind::HOST_DATA, 24) } else { (kind::COMMAND, 72) };
        let frame = Frame::decode(&common(kind, header, digests, padding, data), digests, 100_000).unwrap();
        prop_assert_eq!((frame.padding, frame.data, frame.last), (padding, data, true));
        prop_assert_eq!((frame.header_digest, frame.data_digest), (digests.header, digests.data));
        let long = Frame::decode(&common(kind, header, digests, padding, data), digests, data - 1);
        prop_assert_eq!(long, Err(FatalError::HeaderField(4)));
        // A connection uses the digests that were negotiated.
        let other = Digests { header: !digests.header, ..digests };
        prop_assert!(Frame::decode(&common(kind, header, digests, padding, data), other, 100_000).is_err());
    }

    #[test]
    fn the_first_request_is_decoded_or_refused(bytes in prop::array::uniform32(any::<u8>())) {
        let mut request = [0; IC_LEN];
        request[..32].copy_from_slice(&bytes);
        let _ = ConnectionRequest::decode(&request);
        request[..12].copy_from_slice(&[0, 0, 128, 0, 128, 0, 0, 0, 0, 0, bytes[10] & 31, bytes[11]]);
        let decoded = ConnectionRequest::decode(&request).unwrap();
        prop_assert_eq!(decoded.alignment, (usize::from(bytes[10] & 31) + 1) * 4);
        let answer = decoded.accept(5000);
        prop_assert_eq!((answer.len(), answer[0], answer[2], answer[11]), (128, 1, 128, bytes[11] & 3));
        prop_assert_eq!(u32_at(&answer, 12), 5000);
    }

    #[test]
    fn data_headers_are_encoded(
        digests in digests(), alignment in 0..32usize, command: u16, length in 1..1_000_000u32, success: bool,
    ) {
        let encoder = PduEncoder { digests, alignment: (alignment + 1) * 4 };
        let head = encoder.data(command, length, success);
        let bytes = head.as_bytes();
        let offset = usize::from(bytes[3]);
        prop_assert_eq!(offset, bytes.len() + encoder.padding());
        prop_assert!(offset.is_multiple_of(encoder.alignment));
        let trailer = if digests.data { 4 } else { 0 };
        prop_assert_eq!(u32_at(bytes, 4) as usize, offset + length as usize + trailer);
        prop_assert_eq!((u16_at(bytes, 8), u32_at(bytes, 12), u32_at(bytes, 16)), (command, 0, length));
        prop_assert_eq!(bytes[1] & flag::SUCCESS != 0, success);
        if digests.header {
            prop_assert_eq!(u32::from_le_bytes(array_at(bytes, 24)), codec::crc32c(&bytes[..24]));
        }
    }

    #[test]
    fn requests_for_data_and_responses_are_encoded(digests in digests(), entry: [u8; 16], tag: u16, length: u32) {
        let encoder = PduEncoder { digests, alignment: 4 };
        let head = encoder.ready_to_transfer(7, tag, 11, length);
        let bytes = head.as_bytes();
        prop_assert_eq!((bytes[0], bytes.len()), (9, u32_at(bytes, 4) as usize));
        prop_assert_eq!((u16_at(bytes, 8), u16_at(bytes, 10)), (7, tag));
        prop_assert_eq!((u32_at(bytes, 12), u32_at(bytes, 16)), (11, length));
        let head = encoder.response(&entry, b"xyz!");
        prop_assert_eq!(&head.as_bytes()[..4], b"xyz!");
        prop_assert_eq!((head.as_bytes()[4], &head.as_bytes()[12..28]), (5, &entry[..]));
    }

    #[test]
    fn terminations_quote_the_header(header in prop::collection::vec(any::<u8>(), 0..300)) {
        let pdu = FatalError::HeaderField(12).encode(&header);
        prop_assert_eq!((pdu[0], pdu[2], u32_at(&pdu, 4) as usize), (3, 24, pdu.len()));
        prop_assert_eq!((u16_at(&pdu, 8), u32_at(&pdu, 10)), (1, 12));
        prop_assert_eq!(&pdu[24..], &header[..header.len().min(128)]);
    }
}

#[test]
fn headers_of_other_kinds_are_refused() {
    let none = Digests::default();
    for kind in [0x01, 0x03, 0x05, 0x07, 0x09, 0x08, 0xff] {
        let refused = Frame::decode(&common(kind, 72, none, 0, 0), none, 1 << 20);
        assert_eq!(refused, Err(FatalError::HeaderField(0)), "{kind:#x}");
    }
    assert_eq!(Frame::decode(&common(0, 128, none, 0, 0), none, 1), Err(FatalError::Sequence));
    // Data is never empty.
    assert!(Frame::decode(&common(kind::HOST_DATA, 24, none, 0, 0), none, 1 << 20).is_err());
}
