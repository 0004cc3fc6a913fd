//! Tests of the client against sockets that answer one request.

use std::os::unix::net::UnixListener;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;
use crate::types::{DeleteExportQuery, DiffQuery, EventQuery};

/// Answers one request with `response`, and returns the request.
async fn serve_once(listener: tokio::net::UnixListener, response: &'static str) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = vec![0; 4096];
    let length = stream.read(&mut request).await.unwrap();
    stream.write_all(response.as_bytes()).await.unwrap();
    String::from_utf8(request[..length].to_vec()).unwrap()
}

#[test]
fn queries_are_encoded_without_absent_fields() {
    assert_eq!(query_string(&()).unwrap(), "");
    let events = EventQuery { after: 3, last: None };
    assert_eq!(query_string(&events).unwrap(), "?after=3");
    assert_eq!(
        query_string(&DeleteExportQuery { force: true, ..Default::default() }).unwrap(),
        "?force=true"
    );
    let diff = DiffQuery { from: Some("a b&c".into()), offset: 0 };
    let encoded = query_string(&diff).unwrap();
    assert!(encoded == "?from=a%20b%26c&offset=0" || encoded == "?offset=0&from=a%20b%26c", "{encoded}");
}

#[tokio::test]
async fn an_error_of_the_daemon_is_returned_unchanged() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("gabion.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let body = r#"{"error":{"kind":"not_open","message":"pool 'a/b' is closed","hint":"open it"}}"#;
    let response = format!("HTTP/1.1 409 Conflict\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let server = tokio::spawn(serve_once(listener, response.leak()));
    let error = Client::unix(&path).get_pool("a/b").await.unwrap_err();
    assert_eq!((error.kind(), error.hint_text()), (ErrorKind::NotOpen, Some("open it")));
    assert!(server.await.unwrap().starts_with("GET /v1/pools/a%2Fb HTTP/1.1\r\n"));
}

#[tokio::test]
async fn an_unexpected_response_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("gabion.sock");
    for response in
        ["HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nno", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"]
    {
        let _ = std::fs::remove_file(&path);
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let server = tokio::spawn(serve_once(listener, response));
        let error = Client::unix(&path).get_daemon().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains("unexpected response"), "{error}");
        server.await.unwrap();
    }
}

#[tokio::test]
async fn a_daemon_that_is_starting_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("gabion.sock");
    // A socket that a killed daemon left behind.
    drop(UnixListener::bind(&path).unwrap());
    let transport = Transport::Unix(path.clone());
    let minute = Duration::from_secs(60);
    let connecting = tokio::spawn(async move { transport.connect(minute).await.map(drop) });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(!connecting.is_finished());
    std::fs::remove_file(&path).unwrap();
    let _listener = UnixListener::bind(&path).unwrap();
    connecting.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_absent_daemon_is_unreachable() {
    let home = tempfile::tempdir().unwrap();
    let client = Client::unix(home.path().join("gabion.sock")).start_wait(Duration::ZERO);
    let error = client.list_pools().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("no daemon is serving on"), "{error}");
    assert!(error.hint_text().unwrap().contains("gabion serve"), "{error}");
}

#[tokio::test]
async fn the_client_waits_while_the_queue_of_connections_is_full() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("gabion.sock");
    let listener = UnixListener::bind(&path).unwrap();
    // The kernel accepts one more connection than the backlog.
    rustix::net::listen(&listener, 0).unwrap();
    listener.set_nonblocking(true).unwrap();
    let _first = UnixStream::connect(&path).await.unwrap();
    let refused = UnixStream::connect(&path).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    let transport = Transport::Unix(path);
    let connecting = tokio::spawn(async move { transport.connect(Duration::ZERO).await.map(drop) });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(!connecting.is_finished(), "it connected to a full queue");
    listener.accept().unwrap();
    connecting.await.unwrap().unwrap();
}
