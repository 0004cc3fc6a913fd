//! The remote API under wrong tokens and many connections: one sender delays only itself.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::harness::{Daemon, DaemonHome, until};
use super::https::{Https, connect_from, token};

const LISTEN: [&str; 2] = ["--api-listen", "127.0.0.1:0"];

fn local(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
}

fn descriptors(daemon: &Daemon<'_>) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}

#[test]
fn a_thousand_wrong_tokens_delay_only_their_sender() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&LISTEN);
    let https = Https::of(&daemon, &home);
    let secret = token(&daemon, "alice", "viewer");
    // One connection with 1,000 requests, the last of which ends it.
    let request = |number: u32| {
        let end = if number == 999 { "connection: close\r\n" } else { "" };
        format!("GET /v1/pools HTTP/1.1\r\nhost: x\r\nauthorization: Bearer gabion_0_{number}\r\n{end}\r\n")
    };
    let mut stream = https.connect(Some(local(2)));
    let started = std::time::Instant::now();
    let guesses = std::thread::spawn(move || {
        (0..1000).for_each(|number| stream.write_all(request(number).as_bytes()).unwrap());
        let mut responses = String::new();
        stream.read_to_string(&mut responses).unwrap();
        responses
    });
    // Another sender is served meanwhile.
    let header = format!("authorization: Bearer {secret}");
    let from = |last| https.send_from(Some(local(last)), "GET", "/v1/pools", &[&header], "").status;
    for _ in 0..20 {
        assert_eq!(from(3), 200);
    }
    let responses = guesses.join().unwrap();
    let count = |status: &str| responses.matches(&format!("HTTP/1.1 {status}")).count();
    // Five attempts are not delayed; seconds later one more of a slow machine may be checked.
    assert!((5..20).contains(&count("401")), "{}", count("401"));
    assert_eq!(count("401") + count("429"), 1000);
    // Even the right token has to wait at this sender, at least a second after the last attempt.
    let right = from(2);
    let has_waited = started.elapsed() > std::time::Duration::from_secs(1);
    assert!(right == 429 || (has_waited && right == 200), "{right}");
    assert_eq!(from(3), 200);
    daemon.stop();
}

#[test]
fn a_client_without_identity_sends_little() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&LISTEN);
    let https = Https::of(&daemon, &home);
    let body = |length| format!(r#"{{"token":"{}"}}"#, "x".repeat(length));
    assert_eq!(https.send("POST", "/v1/access/session", &[], &body(4000)).status, 401);
    assert_eq!(https.send("POST", "/v1/access/session", &[], &body(5000)).status, 413);
    let admin = token(&daemon, "alice", "admin");
    // Another reason: the name is too long.
    let named = format!(r#"{{"name":"{}","role":"viewer"}}"#, "x".repeat(100_000));
    assert_eq!(https.with_token(&admin, "POST", "/v1/access/tokens", &named).status, 400);
    daemon.stop();
}

#[test]
fn one_sender_cannot_occupy_all_connections() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let home = DaemonHome::new();
    let daemon = home.start_with(&LISTEN);
    let https = Https::of(&daemon, &home);
    let header = format!("authorization: Bearer {}", token(&daemon, "alice", "viewer"));
    let before = descriptors(&daemon);
    let flood: Vec<_> = (0..1100).map(|_| connect_from(local(2), https.address)).collect();
    let answer = https.send_from(Some(local(3)), "GET", "/v1/pools", &[&header], "");
    assert_eq!(answer.status, 200);
    // 600 of the connections are kept.
    assert!(descriptors(&daemon) < before + 650, "{} after {before}", descriptors(&daemon));
    drop(flood);
    until("the sender has places again", || {
        https.try_send_from(local(2), "GET", "/v1/pools", &[&header]) == Some(200)
    });
    daemon.stop();
}
