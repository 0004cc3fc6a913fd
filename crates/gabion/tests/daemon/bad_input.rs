//! Invalid requests: each returns a clear error and changes nothing.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::harness::{DEADLINE, DaemonHome, run};

#[test]
fn invalid_volume_sizes_are_refused() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    for (size, expected) in [
        ("0", "the volume size must not be 0"),
        ("2P", "is too large"),
        ("16383P", "is too large"),
        ("1000", "is not a multiple of the sector size"),
        ("1", "is not a multiple of the sector size"),
    ] {
        let refusal = daemon.refused(&["volume", "create", "fast/new", "--size", size]);
        assert!(refusal.contains(expected), "{size}: {refusal}");
        let refusal = daemon.refused(&["volume", "resize", "fast/vm01", "--size", size, "--shrink"]);
        assert!(refusal.contains(expected), "{size}: {refusal}");
    }
    for sector in ["0", "1", "513", "8192"] {
        let refusal = daemon.refused(&["volume", "create", "fast/new", "--size", "1G", "--sector", sector]);
        assert!(refusal.contains("must be 512 or 4096"), "{refusal}");
    }
    assert_eq!(daemon.ok(&["volume", "list", "-q"]), "fast/vm01\n");
    assert_eq!(daemon.json(&["volume", "show", "fast/vm01"])["size"], 1 << 30);
    daemon.stop();
}

#[test]
fn invalid_names_are_refused() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let long = "x".repeat(64);
    for name in ["a/b", "a\nb", "a\x1b[31m", ".hidden", "-flag", "a b", "ü", &long, "..", "\u{202e}a"] {
        let volume = format!("fast/{name}");
        let refusal = daemon.refused(&["volume", "create", &volume, "--size", "1G"]);
        assert!(refusal.contains("the name '"), "{name:?}: {refusal}");
        assert!(
            !refusal.contains('\x1b') && !refusal.contains("a\nb"),
            "control characters are printed: {refusal:?}"
        );
        let files = home.arg("more");
        let layout = ["--scheme", "1+1", "--files", &files, "--file-size", "32M", "--count", "2"];
        let create = [&["pool", "create"][..], &layout[..], &["--", name]].concat();
        let refusal = daemon.refused(&create);
        assert!(refusal.contains("the name '"), "{name:?}: {refusal}");
        let refusal = daemon.refused(&["pool", "status", "--", name]);
        assert!(refusal.contains("no pool '") && !refusal.contains('\x1b'), "{refusal}");
    }
    assert!(!home.path("more").exists(), "a refused request leaves a directory");
    let refusal = daemon.refused(&["volume", "create", "fast/vm01", "--size", "1G"]);
    assert!(refusal.contains("already has a volume 'vm01'"), "{refusal}");
    daemon.stop();
}

#[test]
fn invalid_pool_layouts_are_refused() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let files = home.arg("drives");
    let create = |layout: &[&str], count: &str| {
        let files = ["--files", &files, "--file-size", "64M", "--count", count];
        daemon.refused(&[&["pool", "create", "fast"][..], layout, &files[..]].concat())
    };
    for (layout, count, expected) in [
        (&["--scheme", "4+2"][..], "5", "scheme 4+2 needs at least 6 drives; 5 are given"),
        (&["--scheme", "0+2"], "2", "at least one data column"),
        (&["--scheme", "40+2"], "50", "the maximum is 32"),
        (&["--scheme", "four"], "5", "'four' is not a scheme"),
        (&["--level", "7"], "5", "unknown RAID level '7'"),
        (&["--level", "1"], "5", "is ambiguous"),
        (&["--level", "6"], "3", "RAID 6 needs at least 4 drives"),
        (&["--scheme", "4+1"], "0", "no drives are given"),
        (&["--scheme", "4+1", "--shards", "0"], "5", "shards"),
        (&["--scheme", "4+1", "--shards", "1000"], "5", "shards"),
        (&["--scheme", "4+1"], "300", "256"),
    ] {
        let refusal = create(layout, count);
        assert!(refusal.contains(expected), "{layout:?}: {refusal}");
    }
    assert!(super::harness::names(&home.path("drives")).is_empty(), "refused requests leave files");
    assert_eq!(daemon.json(&["pool", "list"]), serde_json::json!([]));
    daemon.stop();
}

#[test]
fn a_stale_socket_is_replaced() {
    let home = DaemonHome::new();
    for socket in [home.path("gabion.sock"), home.nbd_socket()] {
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        assert!(socket.exists());
    }
    let daemon = home.start();
    daemon.ok(&["pool", "list"]);
    daemon.stop();
    assert!(!home.path("gabion.sock").exists() && !home.nbd_socket().exists());
}

#[test]
fn a_second_daemon_with_a_shared_resource_is_refused() {
    let (home, other) = (DaemonHome::new(), DaemonHome::new());
    let daemon = home.start();
    daemon.make_pool();
    let elsewhere = [other.socket(), other.arg("state"), other.nbd_socket().to_str().unwrap().to_owned()];
    for (flags, expected) in [
        (vec![], "a daemon is already serving on"),
        (vec!["--socket", &elsewhere[0]], "another daemon uses the state directory"),
        (vec!["--socket", &elsewhere[0], "--state-dir", &elsewhere[1]], "NBD: cannot listen on"),
    ] {
        let ran = run(&mut home.serve(&flags));
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains(expected) && ran.err.contains("hint: "), "{expected}: {ran:?}");
    }
    daemon.ok(&["volume", "list", "fast"]);
    daemon.stop();
}

#[test]
fn a_regular_file_at_the_socket_path_is_kept() {
    let home = DaemonHome::new();
    std::fs::write(home.path("gabion.sock"), "precious").unwrap();
    let ran = run(&mut home.serve(&[]));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("is not a socket"), "{ran:?}");
    assert_eq!(std::fs::read(home.path("gabion.sock")).unwrap(), b"precious");
}

/// Sends a request to the API. Returns status and body of the response.
fn request(home: &DaemonHome, method: &str, path: &str, body: &str) -> (u16, serde_json::Value) {
    let mut stream = UnixStream::connect(home.path("gabion.sock")).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}");
    write!(stream, "{head}\r\n\r\n{body}").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}")))
}

#[test]
fn the_api_answers_invalid_requests_with_an_error_object() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    for (method, path, body, status, kind) in [
        ("GET", "/pools", "", 404, "not_found"),
        ("GET", "/v2/pools", "", 404, "not_found"),
        ("PUT", "/v1/pools", "", 405, "invalid"),
        ("GET", "/v1/pools/slow", "", 404, "not_found"),
        ("GET", "/v1/pools/%FF", "", 400, "invalid"),
        ("GET", "/v1/pools/..%2f..%2fetc", "", 404, "not_found"),
        ("GET", "/v1/operations/x", "", 400, "invalid"),
        ("GET", "/v1/operations/99", "", 404, "not_found"),
        ("GET", "/v1/operations/1?wait=x", "", 400, "invalid"),
        ("GET", "/v1/operations/1?wiat=1", "", 400, "invalid"),
        ("POST", "/v1/pools", "{", 400, "invalid"),
        ("POST", "/v1/pools", "[]", 400, "invalid"),
        ("POST", "/v1/pools", r#"{"name":"a","skeme":"4+1"}"#, 400, "invalid"),
        ("POST", "/v1/pools/fast/volumes", r#"{"name":"a","size":-1}"#, 400, "invalid"),
        ("POST", "/v1/pools/fast/volumes", r#"{"name":"a","size":1e30}"#, 400, "invalid"),
        ("PATCH", "/v1/pools/fast/scrub", "[null, null]", 400, "invalid"),
        ("PATCH", "/v1/pools/fast/scrub", " {}", 200, ""),
        ("POST", "/v1/pools/fast/open", "", 202, ""),
        ("POST", "/v1/pools/fast/drives/99999/fail", "", 400, "invalid"),
        ("POST", "/v1/drives/identify", r#"{"drives":["relative"]}"#, 400, "invalid"),
        ("DELETE", "/v1/exports/fast/vm01", "", 404, "not_found"),
    ] {
        let (actual, body) = request(&home, method, path, body);
        assert_eq!(actual, status, "{method} {path}: {body}");
        assert_eq!(body["error"]["kind"].as_str().unwrap_or_default(), kind, "{method} {path}: {body}");
        assert!(kind.is_empty() || body["error"]["message"].is_string());
    }
    // Bytes that are not HTTP, and a body that never ends: the connection is closed.
    let endless = format!(
        "POST /v1/pools HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n{}",
        "x".repeat(4 << 20)
    );
    for invalid in [&[0xFF; 4096][..], endless.as_bytes()] {
        let mut stream = UnixStream::connect(home.path("gabion.sock")).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let _ = stream.write_all(invalid);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let (status, document) = request(&home, "GET", "/v1/openapi.json", "");
    assert_eq!((status, document["info"]["version"].as_str()), (200, Some("v1")));
    let (_, status) = request(&home, "GET", "/v1/daemon", "");
    assert_eq!((status["ready"].as_bool(), status["pid"].as_u64()), (Some(true), Some(daemon.pid().into())));
    daemon.stop();
}

#[test]
fn a_body_that_is_too_large_is_refused_with_status_413() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let large = "x".repeat(100 << 20);
    let (status, body) = request(&home, "POST", "/v1/pools", &large);
    assert_eq!((status, &body["error"]["kind"]), (413, &"too_large".into()), "{body}");
    assert!(body["error"]["message"].as_str().unwrap().contains("2 MiB"), "{body}");
    // Without a declared length.
    let mut stream = UnixStream::connect(home.path("gabion.sock")).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let head =
        "POST /v1/pools HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    write!(stream, "{:x}\r\n{large}\r\n0\r\n\r\n", large.len()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    // A client that waits for permission to send the body does not send it.
    let mut stream = UnixStream::connect(home.path("gabion.sock")).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let head =
        "POST /v1/pools HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 99999999\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    daemon.stop();
}

#[test]
fn every_endpoint_of_the_api_has_a_handler() {
    let home = DaemonHome::new();
    let daemon = home.start();
    for row in api::paths::ALL {
        let method = format!("{:?}", row.method).to_ascii_uppercase();
        let path = row.path.replace("{pool}", "none").replace("{volume}", "none");
        let path = path.replace("{index}", "0").replace("{id}", "0");
        let length = if method == "GET" { "" } else { "content-length: 1\r\n" };
        let body = if method == "GET" { "" } else { "{" };
        let mut stream = UnixStream::connect(home.path("gabion.sock")).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{length}\r\n{body}")
            .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let missing = response.contains("no endpoint") || response.contains("does not support");
        assert!(!missing, "{method} {path}: {response}");
    }
    daemon.stop();
}

#[test]
fn a_method_that_a_path_does_not_have_is_refused_with_those_that_it_has() {
    let home = DaemonHome::new();
    let daemon = home.start();
    for (method, path) in [("TRACE", "/v1/pools"), ("DELETE", "/v1/pools"), ("PATCH", "/v1/pools")] {
        let mut stream = UnixStream::connect(home.path("gabion.sock")).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 405 "), "{response}");
        assert!(response.to_ascii_lowercase().contains("\r\nallow: get,head,post\r\n"), "{response}");
        assert!(response.contains(&format!("{path} does not support {method}")), "{response}");
    }
    daemon.stop();
}
