//! The handshake.

use export::nbd::DisconnectReason;
use export::{MemoryVolume, OpenErrorKind, VolumeErrorKind};
use reactor::Backend;

use crate::client::*;
use crate::server::{SIZE, Server, on_each_backend};

/// Size and flags of NBD_INFO_EXPORT, and the three sizes of NBD_INFO_BLOCK_SIZE.
fn facts(replies: &[(u32, Vec<u8>)]) -> (u64, u16, [u32; 3]) {
    let of_kind = |kind: u16| {
        let found =
            replies.iter().find(|(reply, data)| *reply == REP_INFO && data.starts_with(&kind.to_be_bytes()));
        found.unwrap().1[2..].to_vec()
    };
    let (export, sizes) = (of_kind(0), of_kind(3));
    let size = |at: usize| u32::from_be_bytes(sizes[at..at + 4].try_into().unwrap());
    let (bytes, flags) = export.split_at(8);
    (
        u64::from_be_bytes(bytes.try_into().unwrap()),
        u16::from_be_bytes(flags.try_into().unwrap()),
        [size(0), size(4), size(8)],
    )
}

#[test]
fn an_export_is_described_and_used() {
    on_each_backend(|server| {
        let mut client = server.connect();
        client.greet(3);
        let replies = client.option(OPT_INFO, &info("disk", &[1, 2, 3]));
        assert_eq!(facts(&replies), (SIZE, 0b1001_0110_1101, [512, 4096, 32 << 20]));
        assert!(replies.contains(&(REP_INFO, b"\0\x01disk".to_vec())));
        assert!(replies.contains(&(REP_INFO, b"\0\x02the only one".to_vec())));
        assert_eq!(client.option_result(OPT_STRUCTURED_REPLY, b""), REP_ACK);
        // Without a request for names, and with structured replies.
        let replies = client.option(OPT_GO, &info("disk", &[]));
        assert_eq!(facts(&replies), (SIZE, 0b1001_1110_1101, [512, 4096, 32 << 20]));
        assert_eq!(replies.len(), 3);
        client.request(0, FLUSH, 1, 0, 0);
        assert_eq!(client.result(1), 0);
        client.request(0, DISC, 2, 0, 0);
        assert!(client.is_closed());
        assert_eq!(server.end(), DisconnectReason::Disconnected);
    });
}

#[test]
fn an_export_is_used_over_tcp() {
    on_each_backend(|server| {
        let mut client = RawClient::tcp(server.address());
        client.negotiate();
        client.write(0, 1, 4096, &[7; 8192]);
        assert_eq!(client.result(1), 0);
        assert_eq!(client.read(0, 4096, 8192), Ok(vec![7; 8192]));
    });
}

#[test]
fn export_name_opens_an_export() {
    on_each_backend(|server| {
        for (flags, zeroes) in [(0u32, 124), (1, 124), (3, 0)] {
            let mut client = server.connect();
            client.greet(flags);
            client.send_option(OPT_EXPORT_NAME, b"disk");
            let reply = client.receive(10 + zeroes);
            assert_eq!(reply[..8], SIZE.to_be_bytes());
            assert_eq!(reply[8..10], 0b1001_0110_1101u16.to_be_bytes());
            assert!(reply[10..].iter().all(|byte| *byte == 0));
            client.request(0, READ, 1, 0, 512);
            assert_eq!(client.reply(), Reply::Simple { cookie: 1, error: 0 });
            assert_eq!(client.receive(512), [0; 512]);
        }
    });
}

#[test]
fn export_name_of_a_missing_export_closes_the_connection() {
    on_each_backend(|server| {
        let mut client = server.connect();
        client.greet(3);
        client.send_option(OPT_EXPORT_NAME, b"disc");
        assert!(client.is_closed());
        let DisconnectReason::Refused { name, reason } = server.end() else { panic!("not refused") };
        assert_eq!(name, "disc");
        assert!(reason.contains("disc"), "{reason}");
    });
}

#[test]
fn the_default_is_the_only_export() {
    on_each_backend(|server| {
        let mut client = server.connect();
        client.greet(3);
        let replies = client.option(OPT_INFO, &info("", &[1]));
        assert!(replies.contains(&(REP_INFO, b"\0\x01disk".to_vec())));
        server.with(|fixture| fixture.exports.insert("second", "", &MemoryVolume::new(1 << 20, 4096)));
        assert_eq!(client.option_result(OPT_INFO, &info("", &[])), REP_ERR_UNKNOWN);
        server.with(|fixture| fixture.exports.remove("disk"));
        let replies = client.option(OPT_GO, &info("", &[1, 2]));
        // A volume without a description sends none.
        assert_eq!(replies.len(), 4);
        assert_eq!((facts(&replies).0, facts(&replies).2), (1 << 20, [4096, 4096, 32 << 20]));
    });
}

#[test]
fn exports_are_listed() {
    on_each_backend(|server| {
        server.with(|fixture| fixture.exports.insert("a\nb", "", &MemoryVolume::new(0, 512)));
        let mut client = server.connect();
        client.greet(3);
        let listed = client.option(OPT_LIST, b"");
        let entry = |name: &str, description: &str| (REP_SERVER, [string(name), description.into()].concat());
        assert_eq!(listed, [entry("a\nb", ""), entry("disk", "the only one"), (REP_ACK, Vec::new())]);
        server.with(|fixture| {
            fixture.exports.remove("disk");
            fixture.exports.remove("a\nb");
        });
        assert_eq!(client.option(OPT_LIST, b""), [(REP_ACK, Vec::new())]);
        assert_eq!(client.option_result(OPT_LIST, b"x"), REP_ERR_INVALID);
    });
}

#[test]
fn an_export_of_no_bytes_is_used() {
    on_each_backend(|server| {
        server.with(|fixture| fixture.exports.insert("empty", "", &MemoryVolume::new(0, 512)));
        let mut client = server.connect();
        client.greet(3);
        assert_eq!(facts(&client.option(OPT_GO, &info("empty", &[]))).0, 0);
        client.request(0, READ, 1, 0, 512);
        assert_eq!(client.result(1), EINVAL);
        client.write(0, 2, 0, &[0; 512]);
        assert_eq!(client.result(2), ENOSPC);
        client.request(0, FLUSH, 3, 0, 0);
        assert_eq!(client.result(3), 0);
    });
}

#[test]
fn an_unknown_export_may_be_followed_by_a_known_one() {
    on_each_backend(|server| {
        let mut client = server.connect();
        client.greet(3);
        for code in [OPT_INFO, OPT_GO] {
            let replies = client.option(code, &info("disc", &[]));
            let [(REP_ERR_UNKNOWN, message)] = replies.as_slice() else { panic!("{replies:?}") };
            assert!(String::from_utf8_lossy(message).contains("disc"));
        }
        assert_eq!(client.option_result(OPT_GO, &info("disk", &[])), REP_ACK);
    });
}

#[test]
fn an_unavailable_export_is_refused_with_the_reason() {
    on_each_backend(|server| {
        let mut client = server.connect();
        client.greet(3);
        for (kind, expected) in [
            (OpenErrorKind::NotFound, REP_ERR_UNKNOWN),
            (OpenErrorKind::Denied, REP_ERR_POLICY),
            (OpenErrorKind::Unavailable, REP_ERR_SHUTDOWN),
        ] {
            server.with(move |fixture| fixture.exports.refuse_next(kind));
            let refused = (expected, b"injected by a test".to_vec());
            assert_eq!(client.option(OPT_GO, &info("disk", &[])), [refused]);
        }
        assert_eq!(client.option_result(OPT_GO, &info("disk", &[])), REP_ACK);
    });
}

#[test]
fn unsupported_options_are_refused_and_the_handshake_continues() {
    on_each_backend(|server| {
        let mut client = server.connect();
        client.greet(3);
        for code in [0, 4, 11, 12, u32::MAX] {
            assert_eq!(client.option_result(code, b"some data"), REP_ERR_UNSUP);
        }
        assert_eq!(client.option_result(OPT_STARTTLS, b""), REP_ERR_UNSUP);
        assert_eq!(client.option_result(OPT_GO, &info(&"x".repeat(4097), &[])), REP_ERR_TOO_BIG);
        assert_eq!(client.option_result(OPT_GO, b"\xff\xff\xff\xff"), REP_ERR_TOO_BIG);
        assert_eq!(client.option_result(OPT_GO, b"\0"), REP_ERR_INVALID);
        assert_eq!(client.option_result(OPT_GO, &info("a\0b", &[])), REP_ERR_INVALID);
        assert_eq!(client.option_result(OPT_STRUCTURED_REPLY, b"x"), REP_ERR_INVALID);
        assert_eq!(client.option_result(OPT_GO, &info("disk", &[])), REP_ACK);
    });
}

#[test]
fn contexts_need_structured_replies_and_a_known_export() {
    on_each_backend(|server| {
        let mut client = server.connect();
        client.greet(3);
        let all = contexts("disk", &["base:allocation"]);
        assert_eq!(client.option_result(OPT_SET_META_CONTEXT, &all), REP_ERR_INVALID);
        assert_eq!(client.option_result(OPT_LIST_META_CONTEXT, &all), REP_ERR_INVALID);
        assert_eq!(client.option_result(OPT_STRUCTURED_REPLY, b""), REP_ACK);
        let unknown = contexts("disc", &["base:allocation"]);
        assert_eq!(client.option_result(OPT_SET_META_CONTEXT, &unknown), REP_ERR_UNKNOWN);
        let mut context = |code, queries: &[&str]| {
            let mut replies = client.option(code, &contexts("disk", queries));
            assert_eq!(replies.pop(), Some((REP_ACK, Vec::new())));
            replies.pop()
        };
        let listed = |id: u8| Some((REP_META_CONTEXT, [&[0, 0, 0, id][..], b"base:allocation"].concat()));
        assert_eq!(context(OPT_LIST_META_CONTEXT, &[]), listed(0));
        assert_eq!(context(OPT_LIST_META_CONTEXT, &["base:"]), listed(0));
        assert_eq!(context(OPT_LIST_META_CONTEXT, &["qemu:"]), None);
        assert_eq!(context(OPT_SET_META_CONTEXT, &["base:"]), None);
        assert_eq!(context(OPT_SET_META_CONTEXT, &["qemu:dirty-bitmap:x", "base:allocation"]), listed(1));
    });
}

#[test]
fn contexts_are_those_selected_last_for_the_export_that_is_used() {
    on_each_backend(|server| {
        server.with(|fixture| fixture.exports.insert("second", "", &fixture.disk));
        let select = |name: &'static str, queries: &'static [&str]| contexts(name, queries);
        for (selections, used) in [
            (vec![select("disk", &["base:allocation"])], true),
            (vec![select("second", &["base:allocation"])], false),
            (vec![select("disk", &["base:allocation"]), select("disk", &[])], false),
            (vec![select("disk", &["base:allocation"]), select("gone", &["base:allocation"])], false),
            (vec![], false),
        ] {
            let mut client = server.connect();
            client.greet(3);
            assert_eq!(client.option_result(OPT_STRUCTURED_REPLY, b""), REP_ACK);
            for selection in selections {
                client.option(OPT_SET_META_CONTEXT, &selection);
            }
            assert_eq!(client.option_result(OPT_GO, &info("disk", &[])), REP_ACK);
            client.request(0, BLOCK_STATUS, 1, 0, 512);
            match client.reply() {
                Reply::Status { extents, .. } => assert!(used && extents == [(512, 3)]),
                Reply::Error { error, .. } => assert!(!used && error == EINVAL),
                reply => panic!("{reply:?}"),
            }
        }
    });
}

#[test]
fn a_read_only_export_is_reported() {
    on_each_backend(|server| {
        server.with(|fixture| fixture.disk.set_read_only(true));
        let mut client = server.connect();
        client.greet(3);
        let (_, flags, _) = facts(&client.option(OPT_GO, &info("disk", &[])));
        assert_eq!(flags, 0b1_0000_1111);
    });
}

#[test]
fn a_client_may_abort() {
    on_each_backend(|server| {
        let mut client = server.connect();
        client.greet(3);
        assert_eq!(client.option(OPT_ABORT, b""), [(REP_ACK, Vec::new())]);
        assert!(client.is_closed());
        assert_eq!(server.end(), DisconnectReason::Disconnected);
        // The client may not wait for the reply.
        let mut client = server.connect();
        client.greet(3);
        client.send_option(OPT_ABORT, b"");
        drop(client);
        assert_eq!(server.end(), DisconnectReason::Disconnected);
    });
}

#[test]
fn requests_may_come_with_the_last_option() {
    on_each_backend(|server| {
        let mut client = server.connect();
        client.greet(3);
        let option = info("disk", &[]);
        let mut all = b"IHAVEOPT\0\0\0\x07".to_vec();
        all.extend((option.len() as u32).to_be_bytes());
        all.extend(option);
        all.extend(request(0, WRITE, 1, 0, 512));
        all.extend([9; 512]);
        all.extend(request(0, READ, 2, 0, 512));
        client.send(&all);
        while client.option_reply(OPT_GO).0 != REP_ACK {}
        assert_eq!(client.result(1), 0);
        assert_eq!(client.reply(), Reply::Simple { cookie: 2, error: 0 });
        assert_eq!(client.receive(512), [9; 512]);
    });
}

#[test]
fn sector_sizes_are_reported() {
    for sector in [512, 4096, 65536] {
        let server = Server::start(Backend::Auto, Default::default(), sector);
        let mut client = server.connect();
        client.greet(3);
        let (_, _, sizes) = facts(&client.option(OPT_GO, &info("disk", &[])));
        assert_eq!(sizes, [sector, sector.max(4096), 32 << 20]);
        client.write(0, 1, 0, &vec![1; sector as usize / 2]);
        assert_eq!(client.result(1), EINVAL);
        client.write(0, 1, 0, &vec![1; sector as usize]);
        assert_eq!(client.result(1), 0);
    }
    // Each kind of volume error has its own number.
    let server = Server::start(Backend::Auto, Default::default(), 512);
    let mut client = server.client();
    for (kind, expected) in [
        (VolumeErrorKind::NoSpace, ENOSPC),
        (VolumeErrorKind::Io, EIO),
        (VolumeErrorKind::Invalid, EINVAL),
        (VolumeErrorKind::ReadOnly, EPERM),
        (VolumeErrorKind::Closed, ESHUTDOWN),
    ] {
        server.with(move |fixture| fixture.disk.faults().fail_next_write(kind));
        client.write(0, 1, 0, &[1; 512]);
        assert_eq!(client.result(1), expected);
    }
}
