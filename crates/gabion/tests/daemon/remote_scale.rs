//! The remote API at the sizes that it is made for: many volumes, drives and live clients. The
//! tests print times and costs and have no limits for them, which would depend on the machine.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use serde_json::json;

use super::harness::{Daemon, DaemonHome};
use super::https::{Https, token};

const LISTEN: [&str; 2] = ["--api-listen", "127.0.0.1:0"];
/// Volumes of the large pool.
const VOLUMES: usize = 10_000;
/// Drives of the large pool.
const DRIVES: usize = 100;
/// Live clients.
const CLIENTS: usize = 500;

/// Returns the CPU time of a daemon so far, in seconds.
fn cpu_seconds(daemon: &Daemon<'_>) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Sends a request on the Unix socket.
fn post(home: &DaemonHome, path: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(home.path("gabion.sock")).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn ten_thousand_volumes_and_a_hundred_drives_are_listed() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&LISTEN);
    let (drives, count) = (home.arg("drives"), DRIVES.to_string());
    let files = ["--files", &drives, "--file-size", "64M", "--count", &count];
    daemon.ok(&[&["pool", "create", "fast", "--scheme", "8+2"][..], &files].concat());
    std::thread::scope(|scope| {
        for part in 0..8 {
            let home = &home;
            scope.spawn(move || {
                for number in (part..VOLUMES).step_by(8) {
                    let body = json!({"name": format!("vm{number:05}"), "size": 1u64 << 30});
                    let answer = post(home, "/v1/pools/fast/volumes", &body.to_string());
                    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
                }
            });
        }
    });
    let https = Https::of(&daemon, &home);
    let viewer = token(&daemon, "viewer", "viewer");
    for (path, entries) in [("/v1/pools/fast/volumes", VOLUMES), ("/v1/pools", 1)] {
        let started = Instant::now();
        let answer = https.with_token(&viewer, "GET", path, "");
        let taken = started.elapsed();
        println!("{path}: {taken:?}, {} bytes", answer.body.len());
        let list = answer.json();
        assert_eq!(list.as_array().unwrap().len(), entries);
        if entries == 1 {
            assert_eq!(list[0]["drives"].as_array().unwrap().len(), DRIVES);
        }
    }
    daemon.stop();
}

/// Reads events of a stream.
fn read_events(stream: &mut impl BufRead, count: usize) {
    let mut events = 0;
    while events < count {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream has ended");
        events += usize::from(line.starts_with("data: "));
    }
}

#[test]
fn five_hundred_live_clients_are_served() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&[&LISTEN[..], &["--threads", "1"]].concat());
    daemon.make_pool();
    let https = Https::of(&daemon, &home);
    let viewer = token(&daemon, "viewer", "viewer");
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut stream = https.connect(None);
            write!(stream, "GET /v1/live HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {viewer}\r\n\r\n")
                .unwrap();
            BufReader::new(stream)
        })
        .collect();
    // One client is connected in both measurements. Events are sent once per second.
    let measure = |clients: &mut [BufReader<_>]| {
        clients.iter_mut().for_each(|client| read_events(client, 2));
        let (started, before) = (Instant::now(), cpu_seconds(&daemon));
        for _ in 0..10 {
            clients.iter_mut().for_each(|client| read_events(client, 1));
        }
        (cpu_seconds(&daemon) - before) / started.elapsed().as_secs_f64()
    };
    let all = measure(&mut clients);
    clients.truncate(1);
    let one = measure(&mut clients);
    println!("{CLIENTS} live clients cost {all:.4} cores, one costs {one:.4}");
    daemon.stop();
}
