//! `gabion bucket mirror`: buckets and directories, repeated and interrupted, and a damaged source.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use s3_client::{Address, Checksum, Credentials, S3Client};
use serde_json::Value;

use super::harness::{Daemon, DaemonHome, until};
use super::key_client::block_on;
use super::nbd::pattern;

/// More than the largest body of a single request.
const LARGE: usize = (40 << 20) + 12_345;

/// A service with a bucket to copy from and one to copy to.
struct MirrorTest<'h> {
    home: &'h DaemonHome,
    daemon: Daemon<'h>,
    client: S3Client,
    endpoint: String,
    keys: [String; 2],
}

impl<'h> MirrorTest<'h> {
    fn start(home: &'h DaemonHome) -> Self {
        let daemon = home.start();
        daemon.make_pool();
        let endpoint = daemon.ok(&["s3", "start", "fast", "--listen", "127.0.0.1:0"]).trim().to_owned();
        daemon.ok(&["bucket", "create", "fast/photos"]);
        daemon.ok(&["bucket", "create", "fast/copy"]);
        let key = daemon.json(&["key", "create"]);
        let keys = ["access_key", "secret"].map(|name| key[name].as_str().unwrap().to_owned());
        let credentials = Credentials::new(keys[0].clone(), keys[1].clone());
        let client = S3Client::new(Address::parse(&endpoint).unwrap(), "us-east-1", credentials);
        Self { home, daemon, client, endpoint, keys }
    }

    fn put(&self, key: &str, body: &[u8]) {
        let checksum = Checksum::of(body);
        block_on(self.client.put_object("photos", key, body.to_vec().into(), &checksum)).unwrap();
    }

    fn command(&self, source: &str, more: &[&str]) -> Command {
        let mut command = self.home.client(&[&["bucket", "mirror", source, "fast/copy"], more].concat());
        command.env("AWS_ACCESS_KEY_ID", &self.keys[0]).env("AWS_SECRET_ACCESS_KEY", &self.keys[1]);
        command
    }

    /// Returns the result, the standard error, and whether the command succeeded.
    #[track_caller]
    fn mirror(&self, source: &str, more: &[&str]) -> (Value, String, bool) {
        let output = self.command(source, &[&["--json"], more].concat()).output().unwrap();
        let result = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (result, String::from_utf8(output.stderr).unwrap(), output.status.success())
    }

    /// Checks the numbers of copied and unchanged objects of a mirror without failures.
    #[track_caller]
    fn check(&self, source: &str, more: &[&str], copied: u64, unchanged: u64) {
        let (result, error, is_ok) = self.mirror(source, more);
        assert!(is_ok, "{error}");
        let counts = ["copied", "unchanged", "failed"].map(|name| result[name].as_u64());
        assert_eq!(counts, [Some(copied), Some(unchanged), Some(0)], "{result}");
    }

    fn copies(&self) -> u64 {
        self.daemon.json(&["bucket", "show", "fast/copy"])["objects"].as_u64().unwrap()
    }

    #[track_caller]
    fn check_body(&self, key: &str, body: &[u8]) {
        let output = self.home.client(&["object", "get", "fast/copy", key, "-"]).output().unwrap();
        assert!(output.stdout == body, "{key}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_bucket_is_mirrored_and_later_only_its_changes() {
    let home = DaemonHome::new();
    let test = MirrorTest::start(&home);
    let large = pattern(1, LARGE);
    let file = home.path("large");
    std::fs::write(&file, &large).unwrap();
    test.daemon.ok(&["object", "put", "fast/photos", "b/large", file.to_str().unwrap()]);
    for number in 0..1100 {
        test.put(&format!("a/{number:04}"), format!("body {number}").as_bytes());
    }
    test.put("c/ü +?&", b"");
    let source = format!("{}/photos", test.endpoint);
    test.check(&source, &["--dry-run"], 1102, 0);
    assert_eq!(test.copies(), 0);
    // A copy of the same second could be older than the object.
    let put = SystemTime::now();
    until("the next second", || put.elapsed().unwrap() > Duration::from_secs(1));
    // A prefix selects a part.
    test.check(&format!("{source}/a/00"), &[], 100, 0);
    test.check(&source, &[], 1002, 100);
    test.check_body("b/large", &large);
    test.check_body("a/0999", b"body 999");
    test.check_body("c/ü +?&", b"");
    test.check(&source, &[], 0, 1102);
    // The same size, and another body.
    test.put("a/0500", b"BODY 500");
    let out = test.command(&source, &["--dry-run"]).output().unwrap();
    assert!(String::from_utf8(out.stdout).unwrap().starts_with("copy a/0500 (8 B)\n"));
    test.check(&source, &[], 1, 1101);
    test.check_body("a/0500", b"BODY 500");
    test.daemon.stop();
}

/// Writes a file that was changed before any copy of it.
fn write_old(path: &Path, data: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(data).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap();
}

#[test]
fn a_directory_is_mirrored_without_other_files() {
    let home = DaemonHome::new();
    let test = MirrorTest::start(&home);
    let root = home.path("tree");
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    let large = pattern(2, LARGE);
    write_old(&root.join("a/b/large"), &large);
    write_old(&root.join("a-b"), b"before the directory");
    let source = root.to_str().unwrap();
    test.check(source, &[], 2, 0);
    test.check(source, &[], 0, 2);
    test.check_body("a/b/large", &large);
    test.check_body("a-b", b"before the directory");
    std::os::unix::fs::symlink("/etc/passwd", root.join("link")).unwrap();
    std::fs::write(root.join("new"), b"new").unwrap();
    let (result, error, is_ok) = test.mirror(source, &[]);
    assert!(!is_ok && error.contains("1 objects were not copied"), "{error}");
    assert_eq!((result["copied"].as_u64(), result["failed"].as_u64()), (Some(1), Some(1)));
    assert!(result["failures"][0].as_str().unwrap().contains("not a regular file"), "{result}");
    test.daemon.stop();
}

/// Sends SIGINT to a command.
fn interrupt(child: &Child) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
}

/// The number and the size of the objects of a mirror that is interrupted.
const OBJECTS: u64 = 8;
const TWO_PARTS: usize = (16 << 20) + 1;

#[test]
fn an_interrupted_mirror_leaves_no_upload_and_continues() {
    let home = DaemonHome::new();
    let test = MirrorTest::start(&home);
    let root = home.path("tree");
    std::fs::create_dir(&root).unwrap();
    for number in 0..OBJECTS {
        write_old(&root.join(format!("{number:02}")), &pattern(number, TWO_PARTS));
    }
    let source = root.to_str().unwrap();
    let mut command = test.command(source, &[]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("an object is copied", || test.copies() > 0);
    interrupt(&child);
    let ended = child.wait_with_output().unwrap();
    let error = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && error.contains("interrupted"), "{error}");
    assert!(block_on(test.client.uploads("copy")).unwrap().is_empty());
    let copied = test.copies();
    assert!((1..OBJECTS).contains(&copied), "{copied} objects were copied before the signal");
    test.check(source, &[], OBJECTS - copied, copied);
    for number in 0..OBJECTS {
        test.check_body(&format!("{number:02}"), &pattern(number, TWO_PARTS));
    }
    test.daemon.stop();
}

/// Answers requests like a service whose bucket has one object with a damaged body.
fn serve_damaged(stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            lines.push(line);
        }
        let etag = "\"5d41402abc4b2a76b9719d911017c592\"";
        let body = if lines[0].contains("list-type=2") {
            format!(
                "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys>\
                 <IsTruncated>false</IsTruncated><Contents><Key>k</Key>\
                 <LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>{etag}</ETag>\
                 <Size>5</Size><StorageClass>STANDARD</StorageClass></Contents></ListBucketResult>"
            )
        } else {
            "hellO".to_owned()
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nETag: {etag}\r\n\r\n", body.len());
        let mut stream = stream;
        if stream.write_all(format!("{head}{body}").as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn a_damaged_body_does_not_become_an_object() {
    let home = DaemonHome::new();
    let test = MirrorTest::start(&home);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let source = format!("http://{}/b", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve_damaged(&stream));
        }
    });
    let (result, error, is_ok) = test.mirror(&source, &[]);
    assert!(!is_ok, "{result}");
    let failure = result["failures"][0].as_str().unwrap_or_default();
    assert!(
        failure.contains("its MD5 is") && failure.contains("5d41402abc4b2a76b9719d911017c592"),
        "{result} {error}"
    );
    assert_eq!(test.copies(), 0);
    // Without the MD5, the size alone is compared.
    test.check(&source, &["--ignore-etags"], 1, 0);
    test.check_body("k", b"hellO");
    test.daemon.stop();
}

#[test]
fn sources_without_bucket_or_credentials_are_refused() {
    let home = DaemonHome::new();
    let test = MirrorTest::start(&home);
    let refused = |source: &str| test.mirror(source, &[]).1;
    assert!(refused("http://127.0.0.1:1").contains("names no bucket"));
    assert!(refused("/does/not/exist").contains("/does/not/exist"));
    let source = format!("{}/photos", test.endpoint);
    let without = test.command(&source, &[]).env_remove("AWS_SECRET_ACCESS_KEY").output().unwrap();
    assert!(String::from_utf8(without.stderr).unwrap().contains("set AWS_ACCESS_KEY_ID"));
    assert!(refused(&format!("{}/none", test.endpoint)).contains("NoSuchBucket"));
    test.daemon.stop();
}

#[test]
fn a_full_pool_is_named_at_the_first_object() {
    let home = DaemonHome::new();
    let test = MirrorTest::start(&home);
    let files = home.path("files");
    std::fs::create_dir(&files).unwrap();
    for index in 0..60 {
        std::fs::write(files.join(format!("{index:02}")), pattern(index, 8 << 20)).unwrap();
    }
    let (_, error, is_ok) = test.mirror(files.to_str().unwrap(), &[]);
    assert!(!is_ok && error.contains("pool fast has no space for object"), "{error}");
    assert!(error.contains("the mirror stopped after") && error.contains("gabion drive add fast"), "{error}");
    assert_eq!(error.matches("no space for object").count(), 1, "{error}");
    // The service names the reason, so that no client waits for a service that is overloaded.
    let body = pattern(99, 8 << 20);
    let checksum = Checksum::of(&body);
    // The objects that the mirror did not complete have given their space back.
    let put = |index: usize| {
        let key = format!("k{index}");
        block_on(test.client.put_object("photos", &key, body.clone().into(), &checksum)).err()
    };
    let refused = (0..60).find_map(put).expect("the pool is never full");
    assert_eq!(refused.code(), Some("StorageFull"), "{refused}");
    assert!(!refused.is_transient());
    let first = files.join("00");
    let put = ["object", "put", "fast/photos", "k", first.to_str().unwrap()];
    let error = test.daemon.refused(&put);
    assert!(error.contains("pool fast has no space for object 'k' of bucket fast/photos"), "{error}");
    // Objects can still be deleted, and their space is used again.
    test.daemon.ok(&["object", "delete", "fast/copy", "--prefix", "0", "--yes"]);
    until("the deleted objects give space", || home.gabion(&put).code == Some(0));
    let got = home.client(&["object", "get", "fast/photos", "k", "-"]).output().unwrap();
    assert!(got.stdout == pattern(0, 8 << 20), "{}", String::from_utf8_lossy(&got.stderr));
    test.daemon.stop();
}
