//! Tests of the keys of providers: their ages, their revocation, and clients that disconnect.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpListener;
use std::task::Poll;

use serde_json::json;

use super::*;

const KEYS: &str = r#"{"keys": [{"kty": "RSA", "kid": "a", "n": "AQAB", "e": "AQAB"}, 7]}"#;
const EMPTY: &str = r#"{"keys": []}"#;

fn provider(key_file: Option<String>) -> ProviderRecord {
    ProviderRecord {
        id: "1".to_owned(),
        generation: 0,
        created: 0,
        // Nothing listens there.
        issuer: "http://127.0.0.1:1".to_owned(),
        audiences: BTreeSet::new(),
        user_claim: "sub".to_owned(),
        key_file,
        authorities: None,
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Keys in memory of this age, at which the provider may be asked again.
fn aged(sets: &KeySets, hours: u64) {
    let at = Instant::now().checked_sub(Duration::from_secs(hours * 3600)).unwrap();
    let keys = Some(Arc::new(parse(KEYS.as_bytes()).unwrap()));
    let state = KeyState { keys, fetched: Some((at, 0)), tried: None, problem: None };
    *sets.source(&provider(None)).lock() = state;
}

/// Answers the requests for the discovery document and the keys, each with a status and a body.
/// Returns the address.
fn serve(listener: TcpListener, discovery: (u16, String), keys: (u16, String)) {
    // The thread ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            lines.find(String::is_empty);
            let (status, body) = if first.contains(".well-known") { &discovery } else { &keys };
            let length = body.len();
            let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {length}\r\n");
            let head = head + "Connection: close\r\n\r\n";
            let _ = (&stream).write_all((head + body).as_bytes());
        }
    });
}

#[test]
fn keys_of_a_provider_without_an_answer_are_used_for_a_day() {
    let sets = KeySets::default();
    for (hours, is_used, is_tried) in [(0, true, false), (2, true, true), (25, false, true)] {
        aged(&sets, hours);
        let keys = block_on(sets.current(&provider(None)));
        assert_eq!(keys.is_ok(), is_used, "after {hours} h");
        let problem = sets.status(&provider(None)).problem;
        assert_eq!(problem.is_some(), is_tried, "after {hours} h: {problem:?}");
    }
    let error = block_on(sets.current(&provider(None))).unwrap_err();
    assert!(error.contains("http://127.0.0.1:1/.well-known/openid-configuration"), "{error}");
    sets.forget("1");
    assert_eq!((sets.status(&provider(None)).keys, sets.status(&provider(None)).problem), (0, None));
}

#[test]
fn answers_of_a_provider_revoke_keys_and_failures_do_not() {
    let status = |status, body: &str| (status, body.to_owned());
    // The number of the keys that remain; `None` if tokens cannot be verified.
    for (discovery, keys, remain) in [
        (None, status(200, EMPTY), Some(0)),
        (None, status(200, r#"{"keys": [7]}"#), Some(0)),
        (None, status(200, KEYS), Some(1)),
        (None, status(404, ""), None),
        (None, status(410, ""), None),
        (None, status(200, "{}"), None),
        (None, status(503, EMPTY), Some(1)),
        (None, status(429, ""), Some(1)),
        (Some(status(404, "")), status(200, KEYS), None),
        (Some(status(500, "")), status(200, KEYS), Some(1)),
        (Some(status(200, r#"{"issuer": "http://127.0.0.1:2"}"#)), status(200, KEYS), None),
    ] {
        let case = format!("{discovery:?}, {keys:?}");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let document = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}).to_string();
        serve(listener, discovery.unwrap_or((200, document)), keys);
        let (sets, provider) = (KeySets::default(), ProviderRecord { issuer, ..provider(None) });
        aged(&sets, 2);
        let found = block_on(sets.current(&provider));
        assert_eq!(found.ok().map(|keys| keys.keys.len()), remain, "{case}");
        // The answer is kept until the next attempt.
        assert_eq!(sets.status(&provider).keys, remain.unwrap_or(0) as u64, "{case}");
        assert_eq!(block_on(sets.current(&provider)).is_ok(), remain.is_some(), "{case}");
    }
}

#[test]
fn clients_that_disconnect_do_not_cause_further_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let issuer = format!("http://{}", listener.local_addr().unwrap());
    let (sets, provider) = (KeySets::default(), ProviderRecord { issuer, ..provider(None) });
    let problem = block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener.try_clone().unwrap()).unwrap();
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted.unwrap(),
            keys = sets.current(&provider) => panic!("{keys:?} without an answer"),
        };
        // The first client has disconnected, and its request is not answered yet.
        for _ in 0..20 {
            let mut client = Box::pin(sets.current(&provider));
            std::future::poll_fn(|context| {
                assert!(client.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            drop(client);
            tokio::task::yield_now().await;
        }
        drop(stream);
        let problem = sets.current(&provider).await.unwrap_err();
        for _ in 0..20 {
            assert_eq!(sets.current(&provider).await.unwrap_err(), problem);
        }
        problem
    });
    assert!(problem.contains(&provider.issuer), "{problem}");
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "a second request");
}

#[test]
fn keys_that_were_fetched_with_old_settings_are_not_used_with_new_ones() {
    let sets = KeySets::default();
    let old = provider(None);
    let new = ProviderRecord { generation: 1, ..old.clone() };
    sets.forget(&old.id);
    // A request that began before the change stores the keys after it.
    aged(&sets, 0);
    assert!(block_on(sets.current(&old)).is_ok());
    assert!(block_on(sets.current(&new)).is_err());
}

#[test]
fn plain_http_is_used_for_keys_of_issuers_with_plain_http_only() {
    for (issuer, keys, reason) in [
        ("https://a.example", "https://keys.example/1", ""),
        ("https://a.example", "http://127.0.0.1:80/", "plain HTTP"),
        ("http://127.0.0.1", "http://127.0.0.1:80/", ""),
        ("http://127.0.0.1", "https://keys.example/1", ""),
        ("http://127.0.0.1", "http://keys.example/1", "plain HTTP"),
        ("https://a.example", "", "jwks_uri"),
    ] {
        let document = json!({"issuer": issuer, "jwks_uri": keys}).to_string();
        let found = keys_url(document.as_bytes(), &discovery_url(issuer).unwrap(), issuer);
        match found {
            Ok(url) => assert!(reason.is_empty() && url.to_string() == keys, "{keys}"),
            Err(error) => assert!(!reason.is_empty() && error.contains(reason), "{keys}: {error}"),
        }
    }
}

#[test]
fn keys_of_a_file_are_read_and_errors_name_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.json");
    let provider = provider(Some(path.to_str().unwrap().to_owned()));
    for (text, reason) in [("{}", "'keys'"), ("x", "JSON")] {
        std::fs::write(&path, text).unwrap();
        let sets = KeySets::default();
        let error = block_on(sets.current(&provider)).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
    }
    for (text, count) in [(KEYS, 1), (EMPTY, 0)] {
        std::fs::write(&path, text).unwrap();
        let sets = KeySets::default();
        assert_eq!(block_on(sets.current(&provider)).unwrap().keys.len(), count);
    }
    std::fs::remove_file(&path).unwrap();
    let error = block_on(KeySets::default().current(&provider)).unwrap_err();
    assert!(error.contains("keys.json"), "{error}");
    std::fs::create_dir(&path).unwrap();
    let error = block_on(KeySets::default().current(&provider)).unwrap_err();
    assert!(error.contains("keys.json is not a regular file"), "{error}");
}
