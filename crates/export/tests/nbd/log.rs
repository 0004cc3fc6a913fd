//! The log of connections.

use export::nbd::DisconnectReason;

use crate::client::*;
use crate::server::on_each_backend;

#[test]
fn each_connection_is_logged_with_one_reason() {
    on_each_backend(|server| {
        let mut orderly = RawClient::tcp(server.address());
        orderly.negotiate();
        orderly.request(0, DISC, 1, 0, 0);
        assert_eq!(server.end(), DisconnectReason::Disconnected);
        let mut hostile = server.client();
        hostile.send(&[0; 28]);
        hostile.read_to_end();
        server.end();
        let mut refused = server.connect();
        refused.greet(3);
        refused.send_option(OPT_EXPORT_NAME, b"line\nbreak");
        refused.read_to_end();
        server.end();

        let log = server.log();
        let expected = [
            ["INFO", "connection opened", "peer=127.0.0.1:", "export=\"disk\"", ""],
            [
                "INFO",
                "connection closed",
                "peer=127.0.0.1:",
                "export=\"disk\"",
                "reason=the client disconnected",
            ],
            ["INFO", "connection opened", "peer=local", "export=\"disk\"", ""],
            [
                "WARN",
                "connection closed",
                "peer=local",
                "export=\"disk\"",
                "a message has the magic number 0x0",
            ],
            [
                "WARN",
                "connection closed",
                "peer=local",
                "export=\"none\"",
                "export \"line\\nbreak\" was refused",
            ],
        ];
        assert_eq!(log.len(), expected.len(), "{log:#?}");
        for (line, parts) in log.iter().zip(expected) {
            for part in parts {
                assert!(line.contains(part), "no {part:?} in {line:?}");
            }
        }
    });
}

#[test]
fn failed_requests_are_not_logged_one_by_one() {
    on_each_backend(|server| {
        let mut client = server.client();
        for _ in 0..100 {
            client.request(0, READ, 1, 1, 1);
            assert_eq!(client.result(1), EINVAL);
        }
        assert_eq!(server.log().len(), 1, "the connection was opened");
    });
}
