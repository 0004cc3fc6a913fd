//! `gabion object`: files, pipes, listings, deletions, interruptions, and restarts of the daemon.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use s3_client::{Address, Credentials, S3Client};

use super::harness::{Daemon, DaemonHome, names, until};
use super::key_client::block_on;
use super::nbd::pattern;

/// More than the largest body of a single request.
const LARGE: usize = (40 << 20) + 12_345;

fn serve(daemon: &Daemon<'_>) -> S3Client {
    daemon.make_pool();
    let endpoint = daemon.ok(&["s3", "start", "fast", "--listen", "127.0.0.1:0"]);
    daemon.ok(&["bucket", "create", "fast/photos"]);
    let key = daemon.json(&["key", "create"]);
    let text = |name: &str| key[name].as_str().unwrap().to_owned();
    let credentials = Credentials::new(text("access_key"), text("secret"));
    S3Client::new(Address::parse(endpoint.trim()).unwrap(), "us-east-1", credentials)
}

fn uploads(client: &S3Client) -> usize {
    block_on(client.uploads("photos")).map_or(0, |uploads| uploads.len())
}

/// Starts a put of standard input and sends its first part.
fn start_upload(home: &DaemonHome, key: &str, data: &[u8]) -> Child {
    let mut command = home.client(&["object", "put", "fast/photos", key, "-"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(data).unwrap();
    child
}

#[test]
fn objects_are_put_listed_read_and_deleted() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let client = serve(&daemon);
    for (key, length) in [("a/empty", 0), ("a/small", 1000), ("b/large", LARGE)] {
        let (file, copy) = (home.path("file"), home.path("copy"));
        let data = pattern(length as u64, length);
        std::fs::write(&file, &data).unwrap();
        let put = daemon.json(&["object", "put", "fast/photos", key, file.to_str().unwrap()]);
        assert_eq!((put["size"].as_u64(), put["key"].as_str()), (Some(length as u64), Some(key)));
        let get = daemon.json(&["object", "get", "fast/photos", key, copy.to_str().unwrap(), "--force"]);
        assert_eq!(get["checksum_crc64nvme"], put["checksum_crc64nvme"]);
        assert!(std::fs::read(&copy).unwrap() == data, "{key}");
        let out = home.client(&["object", "get", "fast/photos", key, "-"]).output().unwrap();
        assert!(out.stdout == data && out.stderr.is_empty(), "{key}");
    }
    assert_eq!(uploads(&client), 0);
    let keys = |extra: &[&str]| daemon.ok(&[&["object", "list", "fast/photos", "-q"], extra].concat());
    assert_eq!(keys(&[]), "a/empty\na/small\nb/large\n");
    assert_eq!(keys(&["--prefix", "a/", "--after", "a/empty"]), "a/small\n");
    assert_eq!(keys(&["--delimiter", "/"]), "a/\nb/\n");
    let page = daemon.json(&["object", "list", "fast/photos", "--limit", "2"]);
    assert_eq!((page["objects"].as_array().unwrap().len(), page["next"].as_str()), (2, Some("a/small")));
    assert_eq!(page["objects"][1]["size"], 1000);
    assert!(daemon.ok(&["object", "list", "fast/photos"]).contains("a/small"));
    daemon.ok(&["object", "delete", "fast/photos", "a/small"]);
    assert_eq!(keys(&[]), "a/empty\nb/large\n");
    let without = home.gabion(&["object", "delete", "fast/photos", "--prefix", "a/"]);
    assert!(without.code == Some(2) && without.err.contains("--yes is required"), "{without:?}");
    let deleted = daemon.json(&["object", "delete", "fast/photos", "--prefix", "", "--yes"]);
    assert_eq!(deleted["deleted"], 2);
    assert_eq!(daemon.json(&["bucket", "show", "fast/photos"])["objects"], 0);
    // The access keys of the commands are gone.
    assert_eq!(daemon.json(&["key", "list"]).as_array().unwrap().len(), 1);
    daemon.stop();
}

#[test]
fn more_objects_than_a_page_are_listed_and_deleted() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let client = serve(&daemon);
    block_on(async {
        for number in 0..1100 {
            let (key, checksum) = (format!("{number:04}"), s3_client::Checksum::of(b"x"));
            client.put_object("photos", &key, b"x".as_slice().into(), &checksum).await.unwrap();
        }
    });
    let listed = home.gabion(&["object", "list", "fast/photos", "--quiet"]);
    assert_eq!(listed.out.lines().count(), 1000);
    assert!(listed.err.contains("--after '0999'"), "{listed:?}");
    let all = daemon.ok(&["object", "list", "fast/photos", "--quiet", "--limit", "5000"]);
    assert_eq!((all.lines().count(), all.lines().last()), (1100, Some("1099")));
    let deleted = daemon.json(&["object", "delete", "fast/photos", "--prefix", "0", "--yes"]);
    assert_eq!(deleted["deleted"], 1000);
    assert_eq!(daemon.json(&["bucket", "show", "fast/photos"])["objects"], 100);
    daemon.stop();
}

#[test]
fn a_load_of_requests_is_measured_and_leaves_nothing() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["s3", "start", "fast", "--listen", "127.0.0.1:0"]);
    let load = ["--size", "5000", "--objects", "40", "--clients", "4", "--threads", "2"];
    let time = ["--warm-up", "0.1", "--seconds", "0.5", "--repeats", "1"];
    let results =
        daemon.json(&[&["bench", "objects", "fast", "--mix", "cloud,backup"], &load[..], &time[..]].concat());
    let operations = |index: usize| -> Vec<&str> {
        let all = results[index]["operations"].as_array().unwrap();
        for one in all {
            let (count, mean) = (one["count"].as_u64().unwrap(), one["mean_us"].as_f64().unwrap());
            let [median, most] = [0, 2].map(|index| one["quantiles_us"][index].as_f64().unwrap());
            assert!(count > 0 && mean > 10.0 && median > 10.0 && most >= median, "{one}");
        }
        all.iter().map(|one| one["operation"].as_str().unwrap()).collect()
    };
    assert_eq!(operations(0), ["GET", "STAT", "PUT", "DELETE"]);
    assert_eq!(operations(1), ["PUT"]);
    assert!(results.as_array().unwrap().iter().all(|one| one["wrong"] == 0));
    assert!(daemon.json(&["bucket", "list", "fast"]).as_array().unwrap().is_empty());
    assert!(daemon.json(&["key", "list"]).as_array().unwrap().is_empty());
    daemon.stop();
}

#[test]
fn an_interrupted_measurement_leaves_nothing() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["s3", "start", "fast", "--listen", "127.0.0.1:0"]);
    let objects =
        ["objects", "fast", "--size", "5000", "--objects", "40", "--clients", "4", "--seconds", "60"];
    for benchmark in [&objects[..], &["listing", "fast", "--keys", "100000000"]] {
        let mut command = home.client(&[&["bench"], benchmark, &["--quiet"]].concat());
        let load = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let buckets = || daemon.json(&["bucket", "list", "fast"]).as_array().unwrap().clone();
        until("the load writes objects", || buckets().iter().any(|bucket| bucket["objects"] != 0));
        let process = Pid::from_raw(i32::try_from(load.id()).unwrap()).unwrap();
        kill_process(process, Signal::INT).unwrap();
        let ended = load.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains("interrupted"), "{ended:?}");
        assert!(buckets().is_empty(), "{:?}", buckets());
        assert!(daemon.json(&["key", "list"]).as_array().unwrap().is_empty());
    }
    daemon.stop();
}

/// A bucket with other keys is neither measured nor changed.
#[test]
fn listings_are_measured_in_a_kept_bucket_only_if_it_has_their_keys() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["s3", "start", "fast", "--listen", "127.0.0.1:0"]);
    let listing = ["bench", "listing", "fast", "--keys", "20", "--quiet", "--bucket"];
    daemon.ok(&[&listing[..], &["large"]].concat());
    daemon.ok(&[&listing[..], &["large"]].concat());
    daemon.ok(&["bucket", "create", "fast/photos"]);
    daemon.ok(&["object", "put", "fast/photos", "key", &home.file("file", 100)]);
    let error = daemon.refused(&[&listing[..], &["photos"]].concat());
    assert!(error.contains("bucket 'photos' has 1 objects instead of 20"), "{error}");
    assert_eq!(daemon.json(&["bucket", "show", "fast/photos"])["objects"], 1);
    assert!(daemon.json(&["key", "list"]).as_array().unwrap().is_empty());
    daemon.stop();
}

#[test]
fn errors_name_the_object_and_the_next_step() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let file = home.file("file", 100);
    let refused = |arguments: &[&str], expected: &str| {
        let error = daemon.refused(&[&["object"], arguments].concat());
        assert!(error.contains(expected), "{arguments:?}: {error}");
    };
    refused(&["list", "fast/photos"], "gabion s3 start fast");
    daemon.ok(&["s3", "start", "fast", "--listen", "127.0.0.1:0"]);
    refused(&["put", "fast/photos", "key", &file], "there is no bucket fast/photos");
    daemon.ok(&["bucket", "create", "fast/photos"]);
    refused(&["get", "fast/photos", "key", "-"], "there is no object 'key'");
    refused(&["delete", "fast/photos", "key"], "there is no object 'key'");
    refused(&["put", "fast/photos", "key", "/nonexistent"], "cannot read /nonexistent");
    refused(&["put", "fast/photos", "a/../b", &file], "segment");
    refused(&["put", "fast/photos", "key", "/"], "is a directory");
    daemon.ok(&["object", "put", "fast/photos", "key", &file]);
    refused(&["get", "fast/photos", "key", &file], "--force");
    daemon.ok(&["bucket", "set", "fast/photos", "--quota", "150"]);
    refused(&["put", "fast/photos", "other", &file], "quota of bucket fast/photos");
    assert!(daemon.json(&["key", "list"]).as_array().unwrap().is_empty());
    daemon.stop();
}

#[test]
fn an_interrupted_upload_leaves_nothing() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let client = serve(&daemon);
    let mut child = start_upload(&home, "big", &pattern(1, 20 << 20));
    until("the upload begins", || uploads(&client) == 1);
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
    let stdin = child.stdin.take();
    let ended = child.wait_with_output().unwrap();
    drop(stdin);
    let error = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(1) && error.contains("interrupted"), "{error}");
    assert_eq!(uploads(&client), 0);
    assert_eq!(daemon.json(&["bucket", "show", "fast/photos"])["objects"], 0);
    assert_eq!(daemon.json(&["key", "list"]).as_array().unwrap().len(), 1);
    daemon.stop();
}

#[test]
fn an_upload_continues_after_a_restart_of_the_daemon() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let client = serve(&daemon);
    let data = pattern(2, LARGE);
    let (first, rest) = data.split_at(20 << 20);
    let mut child = start_upload(&home, "big", first);
    until("the upload begins", || uploads(&client) == 1);
    daemon.kill();
    let daemon = home.start();
    child.stdin.take().unwrap().write_all(rest).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let directory = home.path("out");
    std::fs::create_dir(&directory).unwrap();
    daemon.ok(&["object", "get", "fast/photos", "big", directory.to_str().unwrap()]);
    assert!(std::fs::read(directory.join("big")).unwrap() == data);
    assert_eq!((names(&directory), uploads(&client)), (vec!["big".to_owned()], 0));
    daemon.stop();
}

#[test]
fn a_download_continues_after_a_restart_of_the_daemon() {
    let home = DaemonHome::new();
    let daemon = home.start();
    serve(&daemon);
    let data = pattern(3, LARGE);
    let file = home.path("file");
    std::fs::write(&file, &data).unwrap();
    daemon.ok(&["object", "put", "fast/photos", "big", file.to_str().unwrap()]);
    let mut command = home.client(&["object", "get", "fast/photos", "big", "-"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The pipe and the buffers of the connection hold less than the rest.
    let mut out = child.stdout.take().unwrap();
    let mut received = vec![0; 1 << 20];
    out.read_exact(&mut received).unwrap();
    daemon.kill();
    let daemon = home.start();
    out.read_to_end(&mut received).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(received == data, "{} bytes of {LARGE}", received.len());
    daemon.stop();
}
