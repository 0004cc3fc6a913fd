//! Export and import of images.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::{Child, Command, Stdio};

use super::harness::{Daemon, DaemonHome, command, names, until};
use super::nbd::{Client, pattern};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Starts a daemon that finds no other program.
fn start_without_path(home: &DaemonHome) -> Daemon<'_> {
    let mut serve = home.serve(&[]);
    serve.env("PATH", "");
    home.start_by(serve)
}

/// Starts a daemon that finds this script as qemu-img.
fn start_with_qemu_img<'a>(home: &'a DaemonHome, script: &str) -> Daemon<'a> {
    let directory = home.path("bin");
    std::fs::create_dir(&directory).unwrap();
    let program = directory.join("qemu-img");
    std::fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut serve = home.serve(&[]);
    serve.env("PATH", format!("{}:{path}", directory.display()));
    home.start_by(serve)
}

/// Exports a volume and connects to it.
fn connect(home: &DaemonHome, daemon: &Daemon<'_>, name: &str) -> Client {
    daemon.ok(&["export", "create", name, "--nbd"]);
    Client::connect(&home.nbd_socket(), name).unwrap()
}

/// Writes data to a volume of 1 GiB: 4 MiB in the middle, one block at the start and one at the
/// end.
fn write_data(client: &mut Client) {
    client.write(0, &pattern(1, 4096)).unwrap();
    client.write(512 * MIB + 4096, &pattern(2, 4 << 20)).unwrap();
    client.write(GIB - 4096, &pattern(3, 4096)).unwrap();
    client.flush().unwrap();
}

fn verify_data(client: &mut Client) {
    assert_eq!(client.size, GIB);
    assert!(client.read(0, 8192).unwrap() == [pattern(1, 4096), vec![0; 4096]].concat());
    assert!(client.read(512 * MIB + 4096, 4 << 20).unwrap() == pattern(2, 4 << 20));
    assert!(client.read(GIB - 8192, 8192).unwrap() == [vec![0; 4096], pattern(3, 4096)].concat());
}

/// Returns the volumes, snapshots and exports.
fn listing(daemon: &Daemon<'_>) -> (String, String) {
    (daemon.ok(&["volume", "list", "--snapshots", "-q"]), daemon.ok(&["export", "list", "-q"]))
}

#[test]
fn a_raw_image_round_trip_is_sparse_and_needs_no_other_program() {
    let home = DaemonHome::new();
    let daemon = start_without_path(&home);
    daemon.make_pool();
    let mut client = connect(&home, &daemon, "fast/vm01");
    write_data(&mut client);
    let before = listing(&daemon);

    let path = home.arg("vm01.img");
    let result = daemon.json(&["volume", "export-image", "fast/vm01", &path]);
    let data = 4 * MIB + 8192;
    assert_eq!(
        (&result["size"], &result["copied"], &result["format"]),
        (&GIB.into(), &data.into(), &"raw".into())
    );
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!((metadata.len(), metadata.mode() & 0o777), (GIB, 0o600));
    assert!(metadata.blocks() * 512 <= 8 * MIB, "the image uses {} blocks", metadata.blocks());
    let image = File::open(&path).unwrap();
    let mut middle = vec![0; 4 << 20];
    image.read_exact_at(&mut middle, 512 * MIB + 4096).unwrap();
    assert!(middle == pattern(2, 4 << 20));
    assert_eq!(listing(&daemon), before, "the temporary snapshot and export are deleted");

    let result = daemon.json(&["volume", "import", "fast/copy", &path]);
    assert_eq!((&result["size"], &result["copied"]), (&GIB.into(), &data.into()));
    assert_eq!(daemon.json(&["volume", "show", "fast/copy"])["stored"], data);
    verify_data(&mut connect(&home, &daemon, "fast/copy"));
    drop(client);
    daemon.stop();
}

#[test]
fn an_image_with_zeros_and_a_partial_block_becomes_a_volume_of_whole_blocks() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let path = home.path("odd");
    let mut file = File::create(&path).unwrap();
    // Written zeros, data, and an end within a sector.
    file.write_all(&[vec![0; 2 << 20], pattern(4, 70_001)].concat()).unwrap();
    drop(file);
    let path = path.to_str().unwrap();
    let result = daemon.json(&["volume", "import", "fast/odd", path]);
    let shown = daemon.json(&["volume", "show", "fast/odd"]);
    let (data, size) = (70_001u64.next_multiple_of(4096), (2 * MIB + 70_001).next_multiple_of(4096));
    assert_eq!((&shown["size"], &shown["stored"]), (&size.into(), &data.into()));
    assert_eq!(result["copied"], data, "zeros are not copied");
    let mut client = connect(&home, &daemon, "fast/odd");
    let read = client.read(2 * MIB, data as usize).unwrap();
    assert!(read[..70_001] == pattern(4, 70_001) && read[70_001..].iter().all(|byte| *byte == 0));
    drop(client);

    daemon.ok(&["volume", "import", "fast/large", path, "--size", "3G", "--sector", "4096"]);
    let shown = daemon.json(&["volume", "show", "fast/large"]);
    assert_eq!((&shown["size"], &shown["sector"]), (&(3 * GIB).into(), &4096.into()));
    daemon.stop();
}

#[test]
fn a_qcow2_image_round_trip_preserves_the_data() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let path = home.arg("vm01.qcow2");
    if !test_support::has_program("qemu-img") {
        return;
    }
    let mut client = connect(&home, &daemon, "fast/vm01");
    write_data(&mut client);
    daemon.ok(&["volume", "snapshot", "fast/vm01@one"]);
    client.write(0, &[9; 4096]).unwrap();
    let before = listing(&daemon);
    daemon.ok(&["volume", "export-image", "fast/vm01@one", &path]);
    assert_eq!(listing(&daemon), before);
    let image = std::fs::read(&path).unwrap();
    assert!(image.starts_with(b"QFI\xfb") && image.len() < 8 << 20, "{} bytes", image.len());

    // The content determines the format, not the name.
    let other = home.arg("image");
    std::fs::rename(&path, &other).unwrap();
    daemon.ok(&["volume", "import", "fast/copy", &other]);
    verify_data(&mut connect(&home, &daemon, "fast/copy"));
    // --format overrides the detection.
    daemon.ok(&["volume", "import", "fast/bytes", &other, "--format", "raw"]);
    let mut bytes = connect(&home, &daemon, "fast/bytes");
    assert!(bytes.read(0, 4096).unwrap() == image[..4096]);
    drop((client, bytes));
    daemon.stop();
}

#[test]
fn existing_files_are_kept_and_refused_copies_leave_nothing() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let image = home.arg("images/vm01.img");
    let directory = home.path("images");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(&image, "precious").unwrap();
    let small = home.file("small", 4096);
    let before = listing(&daemon);
    let inside = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let (new, vmdk, none) = (inside("new"), inside("new.vmdk"), inside("none/new"));
    let directory_name = directory.to_str().unwrap();
    for (arguments, message) in [
        (&["export-image", "fast/vm01", &image][..], "--force"),
        (&["export-image", "fast/vm01", directory_name, "--force"], "is not a file"),
        (&["export-image", "fast/vm01", &none], "No such file"),
        (&["export-image", "fast/vm01", &vmdk], "cannot write images of the format 'vmdk'"),
        (&["export-image", "fast/none", &new], "no volume 'none'"),
        (&["export-image", "fast/vm01@none", &new], "no snapshot 'vm01@none'"),
        (&["import", "fast/vm01", &small], "already"),
        (&["import", "fast/new", &new], "No such file"),
        (&["import", "fast/new", directory_name], "is not a file"),
        (&["import", "fast/new", &small, "--size", "1K"], "is smaller than the disk"),
        (&["import", "none/new", &small], "no pool 'none'"),
    ] {
        let refusal = daemon.refused(&[&["volume"], arguments].concat());
        assert!(refusal.contains(message), "{arguments:?}: {refusal}");
    }
    assert_eq!(std::fs::read_to_string(&image).unwrap(), "precious");
    assert_eq!((listing(&daemon), names(&directory)), (before, vec!["vm01.img".to_owned()]));
    daemon.ok(&["volume", "export-image", "fast/vm01", &image, "--force"]);
    assert_eq!(std::fs::metadata(&image).unwrap().len(), GIB);
    assert_eq!(names(&directory), ["vm01.img"]);

    // An existing export of a snapshot is used and kept.
    daemon.ok(&["volume", "snapshot", "fast/vm01@one"]);
    daemon.ok(&["export", "create", "fast/vm01@one", "--nbd"]);
    daemon.ok(&["volume", "export-image", "fast/vm01@one", &new]);
    assert_eq!(daemon.ok(&["export", "list", "-q"]), "fast/vm01@one\n");
    daemon.stop();
}

#[test]
fn an_image_too_large_for_the_pool_leaves_no_volume() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let path = home.path("full");
    let file = File::create(&path).unwrap();
    let chunk = pattern(5, 1 << 20);
    for index in 0..280 {
        file.write_all_at(&chunk, index * MIB).unwrap();
    }
    let refusal = daemon.refused(&["volume", "import", "fast/full", path.to_str().unwrap()]);
    assert!(refusal.contains("pool is full"), "{refusal}");
    assert_eq!(listing(&daemon), ("fast/vm01\n".to_owned(), String::new()));
    daemon.stop();
}

fn spawn(home: &DaemonHome, arguments: &[&str]) -> Child {
    let mut command = command(arguments);
    command.env("GABION_CONFIG", "/dev/null").env("GABION_SOCKET", home.socket());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn without_qemu_img_a_qcow2_image_is_refused_with_its_package() {
    let home = DaemonHome::new();
    let daemon = start_without_path(&home);
    daemon.make_pool();
    let before = listing(&daemon);
    let path = home.path("image.qcow2");
    let refusal = daemon.refused(&["volume", "export-image", "fast/vm01", path.to_str().unwrap()]);
    assert!(refusal.contains("qemu-utils"), "{refusal}");
    std::fs::write(&path, b"QFI\xfb and more").unwrap();
    let refusal = daemon.refused(&["volume", "import", "fast/copy", path.to_str().unwrap()]);
    assert!(refusal.contains("qemu-utils"), "{refusal}");
    assert_eq!(listing(&daemon), before);
    daemon.stop();
}

#[test]
fn an_image_holds_the_state_at_the_start_of_the_export() {
    let home = DaemonHome::new();
    let (begun, go) = (home.path("begun"), home.path("go"));
    // The copy begins when the file 'go' exists.
    let script = format!(
        "[ \"$1\" = convert ] && {{ touch {}; until [ -e {} ]; do sleep 0.01; done; }}\nexec {} \"$@\"",
        begun.display(),
        go.display(),
        program("qemu-img")
    );
    let daemon = start_with_qemu_img(&home, &script);
    daemon.make_pool();
    let mut client = connect(&home, &daemon, "fast/vm01");
    client.write(0, &pattern(1, 1 << 20)).unwrap();
    let path = home.arg("vm01.qcow2");
    let child = spawn(&home, &["volume", "export-image", "fast/vm01", &path]);
    until("the copy begins", || begun.exists());
    client.write(0, &pattern(2, 2 << 20)).unwrap();
    client.flush().unwrap();
    std::fs::write(&go, "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    daemon.ok(&["volume", "import", "fast/copy", &path]);
    let copy = connect(&home, &daemon, "fast/copy").read(0, 2 << 20).unwrap();
    assert!(copy == [pattern(1, 1 << 20), vec![0; 1 << 20]].concat());
    drop(client);
    daemon.stop();
}

/// Returns the path of an installed program.
fn program(name: &str) -> String {
    assert!(test_support::has_program(name), "{name} is missing");
    let output = Command::new("sh").args(["-c", &format!("command -v {name}")]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The script of a qemu-img that never ends a copy.
fn endless_copy() -> String {
    format!("[ \"$1\" = convert ] && exec sleep 120\nexec {} \"$@\"", program("qemu-img"))
}

/// Ends a command by a signal, and returns its standard error.
fn interrupt(child: Child, signal: &str) -> String {
    let kill = Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status();
    assert!(kill.unwrap().success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    stderr
}

#[test]
fn an_interrupted_copy_leaves_nothing() {
    let home = DaemonHome::new();
    let daemon = start_with_qemu_img(&home, &endless_copy());
    daemon.make_pool();
    let image = home.arg("image.qcow2");
    let create = Command::new("qemu-img").args(["create", "-q", "-f", "qcow2", &image, "1M"]).status();
    assert!(create.unwrap().success());
    let directory = home.path("images");
    std::fs::create_dir(&directory).unwrap();
    let new = directory.join("new.qcow2").to_str().unwrap().to_owned();
    let before = listing(&daemon);
    for (arguments, signal, created_name) in [
        (&["volume", "export-image", "fast/vm01", &new][..], "INT", "fast/vm01@image-"),
        (&["volume", "import", "fast/new", &image], "TERM", "fast/new"),
    ] {
        let child = spawn(&home, arguments);
        until("the copy begins", || listing(&daemon).0.contains(created_name));
        let stderr = interrupt(child, signal);
        assert!(stderr.contains("cancelled; all changes were rolled back"), "{stderr}");
        assert_eq!((listing(&daemon), names(&directory)), (before.clone(), Vec::new()), "{stderr}");
    }
    daemon.stop();
}

#[test]
fn an_interrupted_copy_of_a_raw_image_leaves_nothing() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let path = home.path("image");
    std::fs::write(&path, vec![7; 100 << 20]).unwrap();
    let before = listing(&daemon);
    let child = spawn(&home, &["volume", "import", "fast/new", path.to_str().unwrap()]);
    // With the limit the copy takes longer than a minute.
    let limit = ["volume", "set", "fast/new", "--bandwidth", "1M"];
    until("the volume exists", || home.gabion(&limit).code == Some(0));
    let stderr = interrupt(child, "INT");
    assert!(stderr.contains("cancelled; all changes were rolled back"), "{stderr}");
    assert_eq!(listing(&daemon), before);
    daemon.stop();
}

#[test]
fn operations_are_listed_and_cancelled() {
    let home = DaemonHome::new();
    let daemon = start_with_qemu_img(&home, &endless_copy());
    daemon.make_pool();
    let before = listing(&daemon);
    let image = home.arg("new.qcow2");
    let child = spawn(&home, &["volume", "export-image", "fast/vm01", &image]);
    let of_image = |operation: &&serde_json::Value| operation["kind"] == "image_export";
    let mut id = String::new();
    until("the copy begins", || {
        let operations = daemon.json(&["operation", "list"]);
        let found = operations.as_array().unwrap().iter().find(of_image).cloned();
        found.is_some_and(|operation| {
            id = operation["id"].to_string();
            operation["step"].as_str().unwrap().starts_with("copying")
        })
    });
    assert!(daemon.ok(&["operation", "list"]).contains("volume export-image"));
    let refusal = daemon.refused(&["operation", "cancel", "1"]);
    assert!(refusal.contains("had already succeeded"), "{refusal}");
    let cancelled = daemon.ok(&["operation", "cancel", &id]);
    assert!(cancelled.starts_with("volume export-image fast/vm01: cancelled"), "{cancelled}");
    assert!(!child.wait_with_output().unwrap().status.success());
    assert_eq!(listing(&daemon), before);
    assert!(!std::path::Path::new(&image).exists());
    let refusal = daemon.refused(&["operation", "wait", &id]);
    assert!(refusal.contains("cancelled"), "{refusal}");
    daemon.stop();
}

#[test]
fn volumes_of_copies_that_a_crash_ended_are_deleted() {
    let home = DaemonHome::new();
    let daemon = start_with_qemu_img(&home, &endless_copy());
    daemon.make_pool();
    let image = home.arg("image.qcow2");
    let create = Command::new("qemu-img").args(["create", "-q", "-f", "qcow2", &image, "1M"]).status();
    assert!(create.unwrap().success());
    let before = listing(&daemon);
    let new = home.arg("new.qcow2");
    let mut export = spawn(&home, &["volume", "export-image", "fast/vm01", &new]);
    let mut import = spawn(&home, &["volume", "import", "fast/new", &image]);
    until("both copies begin", || {
        let volumes = listing(&daemon).0;
        volumes.contains("fast/new") && volumes.contains("@image-")
    });
    // The record of a copy follows the creation of its volume.
    let is_recorded = || {
        let state = std::fs::read(home.path("state/state.json")).unwrap();
        let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
        state["unfinished"].as_array().unwrap().len() == 2
    };
    until("both volumes are recorded", is_recorded);
    daemon.kill();
    assert!(!export.wait().unwrap().success() && !import.wait().unwrap().success());
    let daemon = home.start();
    until("the volumes are deleted", || listing(&daemon) == before);
    daemon.stop();
    let daemon = home.start();
    assert_eq!(listing(&daemon), before);
    daemon.stop();
}
