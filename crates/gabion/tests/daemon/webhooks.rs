//! Webhooks: events of buckets reach their receiver in order, also after failures of the receiver
//! and kills of the daemon.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::harness::{Daemon, DaemonHome, until};
use super::objects::{Client, has_boto3};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/webhooks.py");
const TOKEN: &str = "9c1185a5c5e9fc54612808977ee8f548";

/// A request that a receiver got.
struct Received {
    head: String,
    document: Value,
}

/// A receiver of events on this host.
struct Receiver {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
    /// The status of its answers. Only events that it answers with 200 are kept.
    status: Arc<AtomicU16>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/events?key=1", listener.local_addr().unwrap());
        let (received, status) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU16::new(200)));
        let receiver = Self { url, received: received.clone(), status: status.clone() };
        // The thread ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A daemon that is killed leaves in the middle.
                let _ = answer(stream, &received, status.load(Ordering::SeqCst));
            }
        });
        receiver
    }

    fn answer_with(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// Returns the name and key of each event; the name only for a test.
    fn events(&self) -> Vec<String> {
        let received = self.received.lock().unwrap();
        let name = |received: &Received| match received.document["Event"].as_str() {
            Some(test) => test.to_owned(),
            None => {
                let record = &received.document["Records"][0];
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                format!("{} {}", text(&record["eventName"]), text(&record["s3"]["object"]["key"]))
            }
        };
        received.iter().map(name).collect()
    }
}

fn answer(stream: TcpStream, received: &Mutex<Vec<Received>>, status: u16) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let header = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    let mut body = vec![0; header.unwrap().parse().unwrap()];
    stream.read_exact(&mut body)?;
    if status == 200 {
        received.lock().unwrap().push(Received { head, document: serde_json::from_slice(&body).unwrap() });
    }
    // A client that followed the redirection would deliver its event.
    let head =
        format!("HTTP/1.1 {status} -\r\nLocation: /other\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.get_mut().write_all(head.as_bytes())
}

struct Service {
    endpoint: String,
    client: Client,
}

impl Service {
    fn start(daemon: &Daemon<'_>) -> Self {
        daemon.make_pool();
        let endpoint = daemon.ok(&["s3", "start", "fast", "--listen", "127.0.0.1:0"]).trim().to_owned();
        daemon.ok(&["bucket", "create", "fast/photos"]);
        Self { endpoint, client: Client::create(daemon) }
    }

    #[track_caller]
    fn run(&self, action: &str, arguments: &[&str]) -> String {
        let all = [&[action, &self.endpoint, "photos"], arguments].concat();
        let output = self.client.script(SCRIPT, &all).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{all:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn outbox(daemon: &Daemon<'_>) -> Value {
    daemon.json(&["webhook", "show", "hook"])["outboxes"][0].clone()
}

/// Starts a service whose bucket sends all events to a webhook with this receiver.
fn start_with_hook(daemon: &Daemon<'_>, receiver: &Receiver) -> Service {
    let service = Service::start(daemon);
    daemon.ok(&["webhook", "create", "hook", "--url", &receiver.url]);
    service.run("configure", &["arn:gabion:sqs::hook:webhook"]);
    service
}

#[test]
fn events_of_all_changes_reach_a_webhook_in_order() {
    if !has_boto3() {
        return;
    }
    let home = DaemonHome::new();
    let daemon = home.start();
    let service = Service::start(&daemon);
    let receiver = Receiver::start();
    let token = home.path("token");
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let created = daemon.ok(&[
        "webhook",
        "create",
        "hook",
        "--url",
        &receiver.url,
        "--token-file",
        token.to_str().unwrap(),
    ]);
    assert_eq!(created, "webhook arn:gabion:sqs::hook:webhook created\n");
    service.run("refused", &[]);
    service.run("configure", &["arn:gabion:sqs::hook:webhook", "in/", ".txt"]);
    let version = service.run("change", &[]);
    let expected = [
        "s3:TestEvent",
        "ObjectCreated:Put in/a+b.txt",
        "ObjectCreated:Copy in/copy.txt",
        "ObjectCreated:CompleteMultipartUpload in/parts.txt",
        "ObjectCreated:Post in/form.txt",
        "ObjectRemoved:Delete in/form.txt",
        "ObjectCreated:Put in/copy.txt",
        "ObjectRemoved:DeleteMarkerCreated in/copy.txt",
        "ObjectRemoved:Delete in/copy.txt",
    ];
    until("all events are delivered", || receiver.events().len() >= expected.len());
    assert_eq!(receiver.events(), expected);
    let received = receiver.received.lock().unwrap();
    for Received { head, .. } in received.iter() {
        assert!(head.starts_with("POST /events?key=1 HTTP/1.1\r\n"), "{head}");
        assert!(head.to_ascii_lowercase().contains(&format!("authorization: bearer {TOKEN}")), "{head}");
    }
    let record = &received.last().unwrap().document["Records"][0];
    assert_eq!(record["s3"]["object"]["versionId"].as_str().unwrap(), version.trim());
    assert_eq!(record["s3"]["configurationId"], "all");
    assert_eq!(record["userIdentity"]["principalId"], "gabion");
    assert_eq!(record["requestParameters"]["sourceIPAddress"], "127.0.0.1");
    drop(received);
    until("the outbox is empty", || outbox(&daemon)["pending"] == 0);
    assert_eq!(outbox(&daemon)["delivered"], expected.len());

    assert!(daemon.refused(&["webhook", "delete", "hook"]).contains("bucket 'fast/photos' sends events"));
    service.run("remove", &[]);
    daemon.ok(&["webhook", "delete", "hook"]);
    assert!(daemon.ok(&["webhook", "list"]).starts_with("no webhooks"));
    let log = daemon.stop();
    assert!(!log.contains(TOKEN) && !log.contains("key=1"), "the log contains a secret: {log}");
}

/// Puts objects, and returns the keys of the acknowledged ones.
fn put(service: &Service, first: usize, count: usize) -> Vec<String> {
    let printed = service.run("put", &[&first.to_string(), &count.to_string()]);
    printed.lines().map(str::to_owned).collect()
}

#[test]
fn a_receiver_that_fails_delays_events_and_loses_none() {
    if !has_boto3() {
        return;
    }
    let home = DaemonHome::new();
    let daemon = home.start();
    let receiver = Receiver::start();
    receiver.answer_with(302);
    let service = start_with_hook(&daemon, &receiver);
    let keys = put(&service, 0, 30);
    assert_eq!(keys.len(), 30);
    until("the failure is shown", || {
        outbox(&daemon)["problem"].as_str().is_some_and(|text| text.contains("302"))
    });
    assert_eq!(outbox(&daemon)["pending"], 31);
    assert!(daemon.ok(&["webhook", "list"]).contains("failing"));

    let daemon = {
        daemon.kill();
        home.start()
    };
    until("the service is back", || daemon.ok(&["s3", "status"]).contains("active"));
    receiver.answer_with(200);
    until("all events are delivered", || outbox(&daemon)["pending"] == 0);
    let expected: Vec<String> = std::iter::once("s3:TestEvent".to_owned())
        .chain(keys.iter().map(|key| format!("ObjectCreated:Put {key}")))
        .collect();
    assert_eq!(receiver.events(), expected);

    // Another URL gets the events that wait.
    receiver.answer_with(500);
    assert_eq!(put(&service, 100, 1), ["100"]);
    until("the failure is shown", || outbox(&daemon)["problem"].is_string());
    let other = Receiver::start();
    daemon.ok(&["webhook", "set", "hook", "--url", &other.url, "--token-file", ""]);
    until("the event is delivered", || other.events() == ["ObjectCreated:Put 100"]);
    until("the outbox is empty", || outbox(&daemon)["pending"] == 0);
    daemon.stop();
}

/// Removes later copies of events that were delivered more than once.
fn first_deliveries(events: Vec<String>) -> Vec<String> {
    let mut first: Vec<String> = Vec::new();
    for event in events {
        if !first.contains(&event) {
            first.push(event);
        }
    }
    first
}

#[test]
fn kills_lose_no_event_of_an_acknowledged_put() {
    if !has_boto3() {
        return;
    }
    let home = DaemonHome::new();
    let mut daemon = home.start();
    let receiver = Receiver::start();
    let service = start_with_hook(&daemon, &receiver);
    let mut acknowledged = Vec::new();
    for round in 0..3_usize {
        let (first, before) = ((round * 1000).to_string(), receiver.events().len());
        let arguments = ["put", &service.endpoint, "photos", &first, "1000"];
        let mut command = service.client.script(SCRIPT, &arguments);
        let writer = command.stdout(Stdio::piped()).spawn().unwrap();
        until("some events are delivered", || receiver.events().len() > before + 10);
        daemon.kill();
        let printed = writer.wait_with_output().unwrap().stdout;
        acknowledged.extend(String::from_utf8(printed).unwrap().lines().map(str::to_owned));
        daemon = home.start();
        until("the service is back", || daemon.ok(&["s3", "status"]).contains("active"));
    }
    until("all events are delivered", || outbox(&daemon)["pending"] == 0);
    let events = first_deliveries(receiver.events());
    let keys: Vec<&str> =
        events.iter().filter_map(|event| event.strip_prefix("ObjectCreated:Put ")).collect();
    let missing: Vec<_> = acknowledged.iter().filter(|key| !keys.contains(&key.as_str())).collect();
    assert!(missing.is_empty() && acknowledged.len() > 30, "without an event: {missing:?}");
    let numbers: Vec<u64> = keys.iter().map(|key| key.parse().unwrap()).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    // Each event has its object: at most one put of a round was not acknowledged.
    let listed = daemon.ok(&["object", "list", "fast/photos", "--quiet", "--limit", "10000"]);
    let objects: Vec<&str> = listed.lines().collect();
    assert!(keys.iter().all(|key| objects.contains(key)), "{keys:?} {objects:?}");
    assert_eq!(keys.len(), objects.len());
    daemon.stop();
}
