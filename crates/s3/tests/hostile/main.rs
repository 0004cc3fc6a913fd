//! Hostile clients of the real server: malformed, endless, huge and slow requests. Each gets a
//! clear error, and others are served meanwhile.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use object::{Change, MemoryStore, ObjectStore, Versioning};
use s3::{KeyStore, S3Options, S3Server};

struct OneKey;

impl KeyStore for OneKey {
    fn secret(&self, access_key: &str) -> Option<String> {
        (access_key == "KEY").then(|| "secret".to_owned())
    }

    fn user(&self, access_key: &str) -> Option<String> {
        (access_key == "KEY").then(|| "main".to_owned())
    }

    fn has_user(&self, user: &str) -> bool {
        user == "main"
    }
}

/// A bucket that everyone may read and write, so that requests need no signature.
const PUBLIC: &str = r#"{"owner":"main","grants":[{"grantee":"AllUsers","right":"Full"}]}"#;

fn start() -> S3Server {
    let store: Arc<dyn ObjectStore> = Arc::new(MemoryStore::default());
    let settings =
        BTreeMap::from([("acl".to_owned(), PUBLIC.to_owned()), ("owner".to_owned(), "main".to_owned())]);
    let create =
        Change::CreateBucket { name: "public".into(), versioning: Versioning::Off, settings, now_ms: 0 };
    store.commit(create).wait().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    S3Server::start(listener, store, Arc::new(OneKey), &S3Options::default()).unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Sends the only request of a connection and returns the answer.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    let request = request.replacen("Host: h\r\n", "Host: h\r\nConnection: close\r\n", 1);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A reset after the answer is no error of the test.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn is_served(address: SocketAddr) {
    let put = "PUT /public/k HTTP/1.1\r\nHost: h\r\nx-amz-acl: public-read\r\nContent-Length: 4\r\n\r\nbody";
    let answer = ask(address, put);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = ask(address, "GET /public/k HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("body"), "{answer}");
}

#[test]
fn malformed_requests_get_errors() {
    let server = start();
    let address = server.address();
    let signed = |date: &str, access: &str| {
        format!(
            "GET / HTTP/1.1\r\nHost: h\r\nX-Amz-Date: {date}\r\nX-Amz-Content-SHA256: UNSIGNED-PAYLOAD\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential={access}/{}/us-east-1/s3/aws4_request, \
             SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={}\r\n\r\n",
            date.get(..8).unwrap(),
            "0".repeat(64)
        )
    };
    let put = |headers: &str| format!("PUT /public/k HTTP/1.1\r\nHost: h\r\n{headers}\r\n\r\nx");
    let cases = [
        (signed("20200101T000000Z", "KEY"), "RequestTimeTooSkewed"),
        (signed("20200101T000000Z", "NONE"), "403"),
        (put("Content-Length: 5497558138880"), "EntityTooLarge"),
        (put("Content-Length: 99999999999999999999999"), "400"),
        (put("Content-Length: 1\r\nContent-MD5: AAAAAAAAAAAAAAAAAAAAAA=="), "BadDigest"),
        (put("Content-Length: 1\r\nx-amz-copy-source: a/b\r\nx-amz-copy-source: c/d"), "40"),
        ("GET /public/%ff HTTP/1.1\r\nHost: h\r\n\r\n".into(), "InvalidURI"),
        ("GET /public/../../etc/passwd HTTP/1.1\r\nHost: h\r\n\r\n".into(), "NoSuchKey"),
        (format!("GET /public/{} HTTP/1.1\r\nHost: h\r\n\r\n", "k".repeat(2000)), "KeyTooLongError"),
        ("GET /../x HTTP/1.1\r\nHost: h\r\n\r\n".into(), "InvalidBucketName"),
        ("\x16\x03\x01 not HTTP\r\n\r\n".into(), "400"),
    ];
    for (request, expected) in cases {
        let answer = ask(address, &request);
        assert!(answer.starts_with("HTTP/1.1 4") && answer.contains(expected), "{request}\n{answer}");
    }
    is_served(address);
}

#[test]
fn endless_headers_end_the_connection() {
    let server = start();
    let mut stream = connect(server.address());
    stream.write_all(b"GET /public/k HTTP/1.1\r\nHost: h\r\n").unwrap();
    let line = format!("X-Long: {}\r\n", "x".repeat(8000));
    let mut sent = 0_usize;
    while sent < (64 << 20) && stream.write_all(line.as_bytes()).is_ok() {
        sent += line.len();
    }
    assert!(sent < (64 << 20), "the server took {sent} bytes of headers");
    is_served(server.address());
}

#[test]
fn idle_and_slow_clients_do_not_keep_others_out() {
    let server = start();
    let address = server.address();
    let idle: Vec<TcpStream> = (0..300).map(|_| connect(address)).collect();
    let slow: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = connect(address);
            stream
                .write_all(b"PUT /public/slow HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nx")
                .unwrap();
            stream
        })
        .collect();
    is_served(address);
    drop((idle, slow));
    is_served(address);
    let answer = ask(address, "GET /public/slow HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(answer.contains("NoSuchKey"), "an incomplete body became an object: {answer}");
}

#[test]
fn an_answer_without_100_continue_ends_the_connection() {
    let server = start();
    let ask = |request: &str| {
        let mut stream = connect(server.address());
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = vec![0; 4096];
        let count = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..count]).to_ascii_lowercase()
    };
    let put = |headers: &str| format!("PUT /public/k HTTP/1.1\r\nHost: h\r\n{headers}\r\n\r\n");
    // botocore would take it for the answer to its next request.
    let answer = ask(&put("Expect: 100-continue\r\nContent-Length: 0"));
    assert!(answer.starts_with("http/1.1 200") && answer.contains("connection: close"), "{answer}");
    let answer = ask(&put("Expect: 100-continue\r\nContent-Length: 4"));
    assert!(answer.starts_with("http/1.1 100"), "{answer}");
    let answer = ask(&put("Content-Length: 0"));
    assert!(answer.starts_with("http/1.1 200") && !answer.contains("connection: close"), "{answer}");
}
