//! Structures of the kernel's header, byte by byte.

use super::*;

#[test]
fn command_numbers_match_the_header() {
    let ior = |number: u32| 2 << 30 | 32 << 16 | u32::from(b'u') << 8 | number;
    let iowr = |number: u32, size: u32| 3 << 30 | size << 16 | u32::from(b'u') << 8 | number;
    let all = [
        (ControlCommand::GetInfo, ior(0x02)),
        (ControlCommand::Add, iowr(0x04, 32)),
        (ControlCommand::Delete, iowr(0x05, 32)),
        (ControlCommand::Start, iowr(0x06, 32)),
        (ControlCommand::Stop, iowr(0x07, 32)),
        (ControlCommand::SetParameters, iowr(0x08, 32)),
        (ControlCommand::GetParameters, ior(0x09)),
        (ControlCommand::StartRecovery, iowr(0x10, 32)),
        (ControlCommand::EndRecovery, iowr(0x11, 32)),
        (ControlCommand::GetFeatures, ior(0x13)),
        (ControlCommand::DeleteLater, ior(0x14)),
        (ControlCommand::UpdateSize, iowr(0x15, 32)),
    ];
    for (command, number) in all {
        assert_eq!(command as u32, number, "{command:?}");
    }
    assert_eq!((FETCH, COMMIT_AND_FETCH), (iowr(0x20, 16), iowr(0x21, 16)));
}

#[test]
fn device_and_disk_structures_round_trip() {
    let info = DeviceInfo {
        queues: 3,
        depth: 128,
        state: 2,
        request_bytes_max: 1 << 19,
        id: 7,
        flags: USER_RECOVERY | USER_RECOVERY_REISSUE,
        mark: 0x0123_4567_89AB_CDEF,
    };
    assert_eq!(DeviceInfo::decode(&info.encode()), info);
    for (sector, read_only) in [(512, false), (4096, true)] {
        let parameters = DiskParameters {
            size: 5 << 30,
            sector,
            read_only,
            request_bytes_max: 1 << 19,
            range_bytes_max: 2 << 30,
        };
        let bytes = parameters.encode();
        assert_eq!(DiskParameters::decode(&bytes), parameters);
        assert_eq!(bytes[..8], [60, 0, 0, 0, 3, 0, 0, 0], "length and parameter kinds");
        assert_eq!(bytes[12..16], [sector.ilog2() as u8, 12, 12, 12]);
    }
}

#[test]
fn requests_are_decoded() {
    let mut bytes = [0; REQUEST_BYTES];
    // A durable write with the fail-fast flag: 16 sectors from 1000 on.
    bytes[..4].copy_from_slice(&(1u32 | 1 << 13 | 1 << 8).to_ne_bytes());
    bytes[4..8].copy_from_slice(&16u32.to_ne_bytes());
    bytes[8..16].copy_from_slice(&1000u64.to_ne_bytes());
    let expected =
        UblkRequest { operation: UblkOperation::Write, durable: true, offset: 1000 * 512, length: 16 * 512 };
    assert_eq!(UblkRequest::decode(&bytes), expected);
    for (number, operation) in [
        (0, UblkOperation::Read),
        (2, UblkOperation::Flush),
        (3, UblkOperation::Discard),
        (4, UblkOperation::Other(4)),
        (5, UblkOperation::WriteZeroes),
        (200, UblkOperation::Other(200)),
    ] {
        bytes[..4].copy_from_slice(&u32::from(number as u8).to_ne_bytes());
        let request = UblkRequest::decode(&bytes);
        assert_eq!((request.operation, request.durable), (operation, false));
    }
}
