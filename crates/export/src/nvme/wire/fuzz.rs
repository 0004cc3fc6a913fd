//! Fuzz target: the decoders of bytes from hosts.
//!
//! A frame that is accepted lies within its PDU and its limits; decoding uses memory in proportion
//! to its input.

use ::fuzz::within;

use super::*;

::fuzz::target!(nvme_wire, |bytes| match bytes {
    [0, rest @ ..] => check_connect(rest),
    [1, rest @ ..] => check_request(rest),
    [0x80, rest @ ..] => check_authentication(rest),
    [options, rest @ ..] => check_frame(*options, rest),
    [] => {}
});

fn check_frame(options: u8, bytes: &[u8]) {
    let Some(common) = bytes.first_chunk::<COMMON_LEN>() else { return };
    let digests = Digests { header: options & 1 != 0, data: options & 2 != 0 };
    let data_max = [512, 4096, 16 << 10, 1 << 20][usize::from(options >> 2 & 3)];
    let Ok(frame) = within(64, || Frame::decode(common, digests, data_max)) else { return };
    let header = if frame.kind == FrameKind::Command { 72 } else { 24 };
    let digest = |used: bool| if used { 4 } else { 0 };
    let length =
        header + digest(frame.header_digest) + frame.padding + frame.data + digest(frame.data_digest);
    assert_eq!(length, u32_at(common, 4) as usize);
    assert!(frame.data <= data_max.max(128) && usize::from(common[2]) == header);
    assert!(frame.kind == FrameKind::Terminate || frame.header_digest == digests.header);
    if let Some(body) = bytes.get(COMMON_LEN..).and_then(|rest| rest.first_chunk::<COMMAND_BYTES>()) {
        check_command(NvmeCommand::new(*body), body);
    }
    if let Some(body) = bytes.get(COMMON_LEN..).and_then(|rest| rest.first_chunk()) {
        let data = HostData::decode(body);
        assert_eq!(data.offset.to_le_bytes(), bytes[12..16]);
        assert_eq!(terminate_status(body).0, data.command);
    }
}

fn check_command(command: NvmeCommand, bytes: &[u8; COMMAND_BYTES]) {
    assert_eq!((command.opcode(), command.id()), (bytes[0], u16_at(bytes, 2)));
    let length = match command.data() {
        DataLocation::Capsule { length, .. } | DataLocation::Transport { length } => length,
        DataLocation::Unsupported => 0,
    };
    assert_eq!(command.data().length(), length);
    for size in [0, 4096, 1 << 40, u64::MAX] {
        let blocks = LogicalBlocks::of(&command);
        if let Some((offset, length)) = blocks.bytes(512, size) {
            assert!(length > 0 && offset.checked_add(length).is_some_and(|end| end <= size));
        }
    }
}

fn check_request(bytes: &[u8]) {
    let mut request = [0; IC_LEN];
    let length = bytes.len().min(IC_LEN);
    request[..length].copy_from_slice(&bytes[..length]);
    let Ok(decoded) = within(64, || ConnectionRequest::decode(&request)) else { return };
    assert!((4..=128).contains(&decoded.alignment) && decoded.alignment.is_multiple_of(4));
    let answer = decoded.accept(1 << 20);
    assert_eq!((answer.len(), answer[11]), (IC_LEN, request[11] & 3));
}

fn check_authentication(bytes: &[u8]) {
    let Ok((transaction, message)) = within(2048, || HostMessage::decode(bytes)) else { return };
    assert_eq!(transaction, u16_at(bytes, 4));
    match message {
        HostMessage::Negotiate { hashes, groups, .. } => assert!(hashes.len().max(groups.len()) <= 30),
        HostMessage::Reply { response, challenge, value, .. } => {
            assert!(value.is_none_or(|value| (1..=1024).contains(&value.len())));
            assert!(challenge.is_none_or(|challenge| challenge.len() == response.len()));
        }
        HostMessage::Confirm | HostMessage::Failure => {}
    }
}

fn check_connect(bytes: &[u8]) {
    let Some((command, rest)) = bytes.split_first_chunk::<COMMAND_BYTES>() else { return };
    let mut data = [0; CONNECT_BYTES];
    let length = rest.len().min(CONNECT_BYTES);
    data[..length].copy_from_slice(&rest[..length]);
    let command = NvmeCommand::new(*command);
    let Ok(connect) = within(2048, || ConnectRequest::decode(&command, &data)) else { return };
    assert!(is_name(&connect.subsystem) && is_name(&connect.host) && connect.entries >= 2);
    for (at, name) in [(256, &connect.subsystem), (512, &connect.host)] {
        // The name, and a zero.
        assert_eq!(&data[at..at + name.len()], name.as_bytes());
        assert_eq!(data[at + name.len()], 0);
    }
    assert_eq!(connect.controller, u16_at(&data, 16));
}
