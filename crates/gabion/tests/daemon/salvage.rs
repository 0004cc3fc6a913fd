//! Salvage of a pool with more failed drives than its scheme tolerates: listing, images and NBD
//! exports.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::harness::{DaemonHome, Ran, command, names, run};
use super::nbd::{Client, pattern};

const MIB: u64 = 1 << 20;
/// Size of the volume, and the written part of it.
const SIZE: u64 = 1 << 30;
const WRITTEN: u64 = 40;

/// Creates and closes a pool with a volume, a snapshot and later writes. Returns the blocks of
/// both.
fn make(home: &DaemonHome) -> BTreeMap<&'static str, Vec<u8>> {
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    let mut held = Vec::new();
    for piece in 0..WRITTEN {
        let data = pattern(piece, MIB as usize);
        client.write(piece * MIB, &data).unwrap();
        held.extend(data);
    }
    client.flush().unwrap();
    daemon.ok(&["volume", "snapshot", "fast/vm01@one"]);
    let snapshot = held.clone();
    for piece in (0..WRITTEN).step_by(4) {
        let data = pattern(1000 + piece, 70_000);
        let at = piece * MIB + 512;
        client.write(at, &data[..69_632]).unwrap();
        held[at as usize..at as usize + 69_632].copy_from_slice(&data[..69_632]);
    }
    client.flush().unwrap();
    drop(client);
    daemon.stop();
    BTreeMap::from([("vm01", held), ("vm01@one", snapshot)])
}

fn drives(home: &DaemonHome, those: &[usize]) -> Vec<String> {
    those.iter().map(|index| home.arg(&format!("drives/fast-{index}.drive"))).collect()
}

/// Runs `gabion salvage` on some of the drives, without a daemon.
fn salvage(home: &DaemonHome, those: &[usize], more: &[&str]) -> Ran {
    run(&mut begin(home, those, more))
}

fn begin(home: &DaemonHome, those: &[usize], more: &[&str]) -> Command {
    let drives = drives(home, those);
    let mut words = vec!["salvage", "--drives"];
    words.extend(drives.iter().map(String::as_str));
    words.extend(more);
    command(&words)
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

fn ranges(list: &Value) -> Vec<(u64, u64)> {
    let range = |range: &Value| (range["offset"].as_u64().unwrap(), range["length"].as_u64().unwrap());
    list.as_array().unwrap().iter().map(range).collect()
}

/// Compares an image with the written data; blocks in lost ranges must be holes.
fn compare(image: &Path, held: &[u8], lost: &[(u64, u64)]) {
    let file = std::fs::File::open(image).unwrap();
    assert_eq!(file.metadata().unwrap().len(), SIZE);
    let mut block = vec![0; 4096];
    for at in (0..held.len() as u64 + 8 * MIB).step_by(4096) {
        file.read_exact_at(&mut block, at).unwrap();
        let is_lost = lost.iter().any(|(offset, length)| (*offset..offset + length).contains(&at));
        let right = held.get(at as usize..at as usize + 4096).unwrap_or(&[0; 4096]);
        if is_lost {
            assert!(block.iter().all(|byte| *byte == 0), "byte {at} is lost and no hole");
        } else {
            assert!(block == right, "byte {at} is wrong");
        }
    }
}

#[track_caller]
fn runs(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}, which './run setup' installs: {error}"));
    assert!(output.status.success(), "{program}: {output:?}");
}

#[test]
fn an_intact_pool_is_listed_copied_and_exported() {
    let home = DaemonHome::new();
    let held = make(&home);
    let daemon = home.start();
    let ran = salvage(&home, &[0, 1, 2, 3, 4], &[]);
    assert!(ran.code == Some(1) && ran.err.contains("gabion pool close"), "{ran:?}");
    daemon.stop();
    let before: Vec<Vec<u8>> =
        drives(&home, &[0, 1, 2, 3, 4]).iter().map(|path| std::fs::read(path).unwrap()).collect();

    // One missing drive is within the tolerance of the scheme.
    for (those, flags) in [(&[0, 1, 2, 3, 4][..], &[][..]), (&[0, 1, 3, 4], &["--verify"])] {
        let ran = salvage(&home, those, &[flags, &["--json"]].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let found = json(&ran);
        assert_eq!((&found["pool"], &found["problems"]), (&"fast".into(), &Value::Array(Vec::new())));
        for volume in found["volumes"].as_array().unwrap() {
            assert_eq!(volume["readable_bytes"], WRITTEN * MIB, "{volume}");
            assert_eq!((&volume["lost_bytes"], &volume["stale"]), (&0.into(), &false.into()), "{volume}");
        }
    }
    let ran = salvage(&home, &[0, 1, 2, 3, 4], &[]);
    assert!(
        ran.out.contains("VOLUME") && ran.out.contains("vm01@one") && ran.out.contains("40 MiB"),
        "{ran:?}"
    );

    let directory = home.path("images");
    let ran = salvage(&home, &[4, 2, 1, 0], &["--all", "--output", directory.to_str().unwrap(), "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(names(&directory), ["vm01.img", "vm01@one.img"]);
    for (name, held) in &held {
        let image = directory.join(format!("{name}.img"));
        compare(&image, held, &[]);
        let about = std::fs::metadata(&image).unwrap();
        assert!(about.blocks() * 512 <= (WRITTEN + 4) * MIB && about.mode() & 0o777 == 0o600);
    }
    let image = directory.join("vm01.img");
    let again = ["--volume", "fast/vm01", "--output", image.to_str().unwrap()];
    let ran = salvage(&home, &[0, 1, 2, 3, 4], &again);
    assert!(ran.code == Some(1) && ran.err.contains("--force"), "{ran:?}");
    assert_eq!(salvage(&home, &[0, 1, 2, 3, 4], &[&again[..], &["--force"]].concat()).code, Some(0));
    let ran = salvage(&home, &[0, 1], &["--volume", "none", "--output", "/dev/null"]);
    assert!(ran.code == Some(1) && ran.err.contains("'none'"), "{ran:?}");

    serve(&home, &[0, 1, 2, 3], |socket| {
        for (name, held) in &held {
            let uri = format!("nbd+unix:///fast/{name}?socket={socket}");
            let copy = home.arg(&format!("{name}.copy"));
            runs("nbdcopy", &[&uri, &copy]);
            compare(Path::new(&copy), held, &[]);
        }
        let mut client = Client::connect(Path::new(socket), "fast/vm01").unwrap();
        assert!(client.read_only);
        assert_eq!(client.write(0, &[0; 512]), Err(1), "EPERM");
        assert_eq!(std::fs::metadata(socket).unwrap().mode() & 0o777, 0o600);
    });
    let after =
        drives(&home, &[0, 1, 2, 3, 4]).iter().map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>();
    assert!(before == after, "a drive was written");
}

/// Runs `work` while the volumes are exported, then interrupts the command.
fn serve(home: &DaemonHome, those: &[usize], work: impl FnOnce(&str)) {
    let socket = home.arg("rescue.sock");
    let mut child = begin(home, those, &["--nbd", &socket]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("vm01@one?socket=")), "it ended before it served");
    work(&socket);
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!Path::new(&socket).exists(), "the socket is left");
}

#[test]
fn a_pool_without_two_drives_is_listed_copied_and_exported() {
    let home = DaemonHome::new();
    let held = make(&home);
    let mut some = 0;
    // The choice of drives decides whether the tables are readable.
    for lost in [[0, 1], [1, 3], [2, 4], [0, 4], [3, 4]] {
        let left: Vec<usize> = (0..5).filter(|index| !lost.contains(index)).collect();
        let ran = salvage(&home, &left, &["--json", "--verify"]);
        assert_eq!(ran.code, Some(3), "{ran:?}");
        let found = json(&ran);
        assert!(
            found["problems"][0]["message"].as_str().unwrap().contains("survives the loss of 1"),
            "{found}"
        );
        let mut check = command(&["check", "--json"]);
        let report = json(&run(check.args(drives(&home, &left))));
        assert_eq!((&report["sound"], &report["degraded"]), (&false.into(), &true.into()));
        for volume in found["volumes"].as_array().unwrap() {
            let name = volume["name"].as_str().unwrap();
            let of = |range: &&Value| range["volume"] == name;
            let told: Vec<Value> = report["lost"].as_array().unwrap().iter().filter(of).cloned().collect();
            assert_eq!(ranges(&told.into()), ranges(&volume["lost"]), "check and salvage differ");
            let path = home.path(&format!("{name}-{}{}.img", lost[0], lost[1]));
            let output = path.to_str().unwrap();
            let ran = salvage(&home, &left, &["--volume", name, "--output", output, "--json"]);
            assert_eq!(ran.code, Some(3), "{ran:?}");
            let image = json(&ran);
            assert_eq!(ranges(&image["lost"]), ranges(&volume["lost"]));
            assert!(image["lost"][0]["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{image}");
            compare(&path, &held[name], &ranges(&image["lost"]));
            some += volume["readable_bytes"].as_u64().unwrap();
        }
        if found["volumes"].as_array().unwrap().len() == 2 {
            serve(&home, &left, |socket| {
                let uri = format!("nbd+unix:///fast/vm01?socket={socket}");
                let copy = home.arg("rescued.img");
                runs("qemu-img", &["convert", "--salvage", "-O", "raw", &uri, &copy]);
                compare(Path::new(&copy), &held["vm01"], &ranges(&found["volumes"][0]["lost"]));
            });
        }
    }
    assert!(some > 0, "nothing could be read");
}
