//! Tests against a service that answers with prepared bytes.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Answers one request on each connection. Returns the client, and the requests that arrived.
async fn serve(answers: Vec<&'static str>) -> (S3Client, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let received = requests.clone();
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 64 << 10];
            let length = stream.read(&mut buffer).await.unwrap();
            received.lock().unwrap().push(String::from_utf8_lossy(&buffer[..length]).into_owned());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (S3Client::new(address, "us-east-1", Credentials::new("key", "secret")), requests)
}

#[tokio::test]
async fn requests_are_signed_with_their_headers() {
    let (client, requests) = serve(vec!["HTTP/1.1 200 OK\r\netag: \"x\"\r\ncontent-length: 0\r\n\r\n"]).await;
    let body = Bytes::from_static(b"hello");
    let etag = client.put_object("photos", "a b/ü", body.clone(), &Checksum::of(&body)).await.unwrap();
    assert_eq!(etag, "\"x\"");
    let sent = requests.lock().unwrap().remove(0);
    assert!(sent.starts_with("PUT /photos/a%20b/%C3%BC?X-Amz-Algorithm=AWS4-HMAC-SHA256"), "{sent}");
    assert!(sent.contains("X-Amz-SignedHeaders=host%3Bx-amz-checksum-crc64nvme"), "{sent}");
    assert!(sent.contains(&Checksum::of(b"hello").to_base64()) && sent.contains("content-length: 5"));
}

#[tokio::test]
async fn errors_of_the_service_have_its_code_and_message() {
    let answer = "HTTP/1.1 403 Forbidden\r\ncontent-length: 73\r\n\r\n\
        <Error><Code>AccessDenied</Code><Message>no &lt;right&gt;</Message></Error>";
    let (client, _) = serve(vec![answer]).await;
    let error = client.delete_object("photos", "key").await.unwrap_err();
    assert_eq!((error.code(), error.is_transient()), (Some("AccessDenied"), false));
    assert_eq!(error.to_string(), "no <right> (AccessDenied)");
}

#[tokio::test]
async fn a_short_body_is_an_error() {
    let (client, _) = serve(vec!["HTTP/1.1 200 OK\r\netag: \"x\"\r\ncontent-length: 10\r\n\r\nhello"]).await;
    let mut download = client.get_object("photos", "key", None, None).await.unwrap();
    assert_eq!(download.next().await.unwrap().unwrap(), "hello");
    let error = download.next().await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[tokio::test]
async fn a_closed_idle_connection_is_replaced() {
    let answer = "HTTP/1.1 200 OK\r\netag: \"x\"\r\ncontent-length: 0\r\n\r\n";
    let (client, requests) = serve(vec![answer, answer]).await;
    client.delete_object("photos", "one").await.unwrap();
    client.delete_object("photos", "two").await.unwrap();
    assert_eq!(requests.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn addresses_and_keys_that_cannot_be_sent_are_refused() {
    for address in ["127.0.0.1:9000", "https://", "http://", "http://user@host", "ftp://host"] {
        assert!(Address::parse(address).is_err(), "{address}");
    }
    assert_eq!(Address::parse("http://host/").unwrap().to_string(), "host:80");
    assert_eq!(Address::parse("https://[::1]/").unwrap().to_string(), "[::1]:443");
    let (client, _) = serve(Vec::new()).await;
    let error = client.head_object("photos", "a/../b").await.unwrap_err();
    assert!(error.to_string().contains("segment"), "{error}");
}

#[test]
fn checksums_of_parts_join_to_that_of_the_object() {
    let bytes: Vec<u8> = (0..100_000_u32).map(|number| (number % 251) as u8).collect();
    let mut joined = Checksum::default();
    bytes.chunks(30_000).for_each(|part| joined.append(&Checksum::of(part)));
    assert_eq!(joined.to_base64(), Checksum::of(&bytes).to_base64());
    assert_eq!(joined.length(), 100_000);
    assert_eq!(Checksum::of(b"123456789").to_base64(), "rosUhgp5mIg=");
}
