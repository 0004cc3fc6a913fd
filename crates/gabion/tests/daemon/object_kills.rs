//! The daemon is killed with SIGKILL repeatedly under a load of S3 requests, healthy and with a
//! missing drive.
//!
//! Each writer puts, overwrites and deletes objects of its own, also by multipart uploads, and
//! reads some of them. After each restart, every key must have the state of its last acknowledged
//! request, or that of the one request that the kill interrupted; bodies are compared byte by byte.
//! `GABION_CRASH_ROUNDS` sets the number of rounds (`./run crash 50`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use s3_client::{Address, Checksum, Credentials, ListRequest, S3Client, S3Error};

use super::harness::{Daemon, DaemonHome, until};
use super::key_client::block_on;
use super::nbd::pattern;

const WRITERS: u64 = 4;
/// Keys of each writer.
const KEYS: u64 = 40;
/// Lengths of bodies: in the index, in blocks, and in several pieces.
const LENGTHS: [usize; 7] = [0, 10, 1000, 1025, 4096, 50_000, 1_500_000];
/// The least length of a part before the last one.
const PART: usize = 5 << 20;
const BUCKET: &str = "load";

/// The body of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Content {
    seed: u64,
    length: usize,
}

impl Content {
    fn body(self) -> Vec<u8> {
        pattern(self.seed, self.length)
    }
}

/// The states that an object may have. `None` is an object that does not exist.
#[derive(Clone, Copy, Default)]
struct ObjectStates {
    acknowledged: Option<Content>,
    /// The result of a request without an answer.
    unanswered: Option<Option<Content>>,
}

/// A writer with its objects.
struct ObjectWriter {
    name: u64,
    objects: Vec<ObjectStates>,
    seed: u64,
    random: u64,
}

/// The circumstances of a round.
struct Round<'a> {
    client: &'a S3Client,
    acknowledged: &'a AtomicU64,
    is_killed: &'a AtomicBool,
}

impl ObjectWriter {
    fn new(name: u64) -> Self {
        let objects = vec![ObjectStates::default(); KEYS as usize];
        Self { name, objects, seed: name << 32, random: 0x9E37_79B9_7F4A_7C15 ^ name }
    }

    fn random_below(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn key(&self, number: u64) -> String {
        format!("{}/{number}", self.name)
    }

    fn new_content(&mut self, length: usize) -> Content {
        self.seed += 1;
        Content { seed: self.seed, length }
    }

    /// Sends requests until the daemon is killed.
    async fn run(&mut self, round: &Round<'_>) {
        loop {
            let number = self.random_below(KEYS);
            let done = match self.random_below(100) {
                0..55 => self.put(round.client, number).await,
                55..75 => self.delete(round.client, number).await,
                75..85 => self.upload(round.client, number).await,
                _ => self.get(round.client, number).await,
            };
            match done {
                Ok(()) => round.acknowledged.fetch_add(1, Ordering::Relaxed),
                Err(_) if round.is_killed.load(Ordering::Acquire) => return,
                Err(error) => panic!("{}: {error}", self.key(number)),
            };
        }
    }

    async fn put(&mut self, client: &S3Client, number: u64) -> Result<(), S3Error> {
        let length = LENGTHS[self.random_below(LENGTHS.len() as u64) as usize];
        let content = self.new_content(length);
        let body = content.body();
        let checksum = Checksum::of(&body);
        self.objects[number as usize].unanswered = Some(Some(content));
        client.put_object(BUCKET, &self.key(number), body.into(), &checksum).await?;
        self.acknowledge(number);
        Ok(())
    }

    async fn delete(&mut self, client: &S3Client, number: u64) -> Result<(), S3Error> {
        self.objects[number as usize].unanswered = Some(None);
        client.delete_object(BUCKET, &self.key(number)).await?;
        self.acknowledge(number);
        Ok(())
    }

    /// Uploads two parts, and joins them in three of four cases.
    async fn upload(&mut self, client: &S3Client, number: u64) -> Result<(), S3Error> {
        let content = self.new_content(PART + 10_000);
        let (key, body) = (self.key(number), content.body());
        let upload = client.create_upload(BUCKET, &key).await?;
        let mut parts = Vec::new();
        for (number, part) in (1..).zip(body.chunks(PART)) {
            parts.push(client.upload_part((BUCKET, &key, &upload), number, part.to_vec().into()).await?);
        }
        if self.random_below(4) == 0 {
            return client.abort_upload((BUCKET, &key, &upload)).await;
        }
        self.objects[number as usize].unanswered = Some(Some(content));
        client.complete_upload((BUCKET, &key, &upload), &parts).await?;
        self.acknowledge(number);
        Ok(())
    }

    async fn get(&mut self, client: &S3Client, number: u64) -> Result<(), S3Error> {
        let found = read(client, &self.key(number)).await?;
        let expected = self.objects[number as usize].acknowledged;
        assert!(found == expected.map(Content::body), "{} is not {expected:?}", self.key(number));
        Ok(())
    }

    fn acknowledge(&mut self, number: u64) {
        let states = &mut self.objects[number as usize];
        states.acknowledged = states.unanswered.take().unwrap();
    }

    /// Compares all objects with their possible states; the found one is acknowledged then. Returns
    /// the keys and lengths of the objects that exist.
    async fn verify(&mut self, client: &S3Client, round: u32) -> Vec<(String, u64)> {
        let mut existing = Vec::new();
        for number in 0..KEYS {
            let key = self.key(number);
            let found = read(client, &key).await.unwrap_or_else(|error| panic!("{key}: {error}"));
            let ObjectStates { acknowledged, unanswered } = self.objects[number as usize];
            let mut allowed = std::iter::once(acknowledged).chain(unanswered);
            let state = allowed.find(|state| state.map(Content::body) == found);
            let Some(state) = state else {
                let length = found.map(|body| body.len());
                panic!("round {round}: {key} has {length:?} bytes, not {acknowledged:?} or {unanswered:?}");
            };
            existing.extend(state.map(|content| (key, content.length as u64)));
            self.objects[number as usize] = ObjectStates { acknowledged: state, unanswered: None };
        }
        existing
    }
}

/// Returns the body of an object, or `None` if there is none.
async fn read(client: &S3Client, key: &str) -> Result<Option<Vec<u8>>, S3Error> {
    let mut download = match client.get_object(BUCKET, key, None, None).await {
        Ok(download) => download,
        Err(error) if error.code() == Some("NoSuchKey") => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut body = Vec::new();
    while let Some(bytes) = download.next().await? {
        body.extend_from_slice(&bytes);
    }
    let stored = download.head.checksum.unwrap();
    assert_eq!(Checksum::of(&body).to_base64(), stored, "the stored checksum of {key}");
    Ok(Some(body))
}

/// Compares the listing and the counters with the objects that exist.
async fn verify_listing(client: &S3Client, daemon: &Daemon<'_>, mut existing: Vec<(String, u64)>) {
    let (mut listed, mut token) = (Vec::new(), None);
    loop {
        let request = ListRequest { limit: 100, token: token.as_deref(), ..ListRequest::default() };
        let page = client.list(BUCKET, &request).await.unwrap();
        listed.extend(page.objects.into_iter().map(|object| (object.key, object.size)));
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    existing.sort();
    assert_eq!(listed, existing);
    let bucket = daemon.json(&["bucket", "show", "fast/load"]);
    let bytes: u64 = existing.iter().map(|(_, size)| size).sum();
    let counters = (bucket["objects"].as_u64(), bucket["bytes"].as_u64());
    assert_eq!(counters, (Some(existing.len() as u64), Some(bytes)));
}

#[test]
fn acknowledged_objects_survive_kills_at_random_times() {
    let rounds: u32 = std::env::var("GABION_CRASH_ROUNDS").map_or(4, |rounds| rounds.parse().unwrap());
    let home = DaemonHome::new();
    let mut daemon = home.start();
    let drives = home.arg("drives");
    let create = ["pool", "create", "fast", "--scheme", "4+1", "--files", &drives];
    daemon.ok(&[&create[..], &["--file-size", "1G", "--count", "5"]].concat());
    let endpoint = daemon.ok(&["s3", "start", "fast", "--listen", "127.0.0.1:0"]).trim().to_owned();
    let key = daemon.json(&["key", "create"]);
    let client = || {
        let text = |name: &str| key[name].as_str().unwrap().to_owned();
        let credentials = Credentials::new(text("access_key"), text("secret"));
        S3Client::new(Address::parse(&endpoint).unwrap(), "us-east-1", credentials)
    };
    daemon.ok(&["bucket", "create", "fast/load"]);
    let mut writers: Vec<ObjectWriter> = (0..WRITERS).map(ObjectWriter::new).collect();
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    for round in 0..rounds {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let wanted = 1 + (random >> 33) % 300;
        let (acknowledged, is_killed) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for writer in &mut writers {
                let (client, acknowledged, is_killed) = (client(), &acknowledged, &is_killed);
                scope.spawn(move || {
                    let round = Round { client: &client, acknowledged, is_killed };
                    block_on(writer.run(&round));
                });
            }
            until("the writers make progress", || acknowledged.load(Ordering::Relaxed) >= wanted);
            is_killed.store(true, Ordering::Release);
            daemon.kill();
        });
        if round == rounds / 2 {
            // A drive is missing from now on.
            std::fs::rename(home.path("drives").join("fast-3.drive"), home.path("pulled")).unwrap();
        }
        daemon = home.start();
        let is_healthy = daemon.pool("fast")["health"] == "healthy";
        assert_eq!(is_healthy, round < rounds / 2, "round {round}");
        block_on(async {
            let client = client();
            let mut existing = Vec::new();
            for writer in &mut writers {
                existing.extend(writer.verify(&client, round).await);
            }
            verify_listing(&client, &daemon, existing).await;
        });
    }
    daemon.stop();
}
