//! Common clients: libnbd, qemu and fio.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::server::{SIZE, Server, on_each_backend};

/// The URI of `disk`, or of another export.
fn uri(server: &Server, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", server.path().display())
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{out}\n{errors}", output.status);
    // fio and qemu-io report some failures in their output alone.
    assert!(
        !out.contains("failed") && !errors.contains("failed"),
        "{program} {arguments:?}:\n{out}\n{errors}"
    );
    out.into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A sparse file as large as `disk`: data at the start, in the middle and at the end.
fn sparse_file(directory: &Path) -> PathBuf {
    let name = directory.join("image");
    let file = File::create(&name).unwrap();
    file.set_len(SIZE).unwrap();
    let data: Vec<u8> = (0..3 << 20).map(|at: u32| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8 | 1).collect();
    for (offset, length) in [(0, 4096), (10 << 20, 3 << 20), ((20 << 20) + 512, 512), (SIZE - 65536, 65536)] {
        file.write_all_at(&data[..length], offset).unwrap();
    }
    name
}

fn same(one: &Path, other: &Path) -> bool {
    std::fs::read(one).unwrap() == std::fs::read(other).unwrap()
}

/// Bytes of the export that hold data.
fn data_bytes(server: &Server) -> u64 {
    let map: Value =
        serde_json::from_str(&run("nbdinfo", &["--map", "--json", &uri(server, "disk")])).unwrap();
    let extents = map.as_array().unwrap().iter();
    extents.filter(|extent| extent["type"] == 0).map(|extent| extent["length"].as_u64().unwrap()).sum()
}

#[test]
fn nbdinfo_shows_all_properties() {
    if !test_support::has_programs(&["nbdinfo"]) {
        return;
    }
    on_each_backend(|server| {
        for arguments in [&["--json"][..], &["--list", "--json"]] {
            let told = run("nbdinfo", &[arguments, &[&uri(&server, "")]].concat());
            let told: Value = serde_json::from_str(&told).unwrap();
            assert_eq!((&told["protocol"], &told["structured"]), (&"newstyle-fixed".into(), &true.into()));
            let [export] = told["exports"].as_array().unwrap().as_slice() else { panic!("{told}") };
            for (key, expected) in [
                ("description", Value::from("the only one")),
                ("export-size", SIZE.into()),
                ("contexts", vec!["base:allocation"].into()),
                ("is_read_only", false.into()),
                ("is_rotational", false.into()),
                ("can_df", true.into()),
                ("can_fast_zero", true.into()),
                ("can_flush", true.into()),
                ("can_fua", true.into()),
                ("can_multi_conn", true.into()),
                ("can_trim", true.into()),
                ("can_zero", true.into()),
                ("block_size_minimum", 512.into()),
                ("block_size_preferred", 4096.into()),
                ("block_size_maximum", (32 << 20).into()),
            ] {
                assert_eq!(export[key], expected, "{key} in {told}");
            }
        }
        assert_eq!(data_bytes(&server), 0);
    });
}

#[test]
fn nbdcopy_copies_both_ways_and_keeps_holes() {
    if !test_support::has_programs(&["nbdcopy", "nbdinfo"]) {
        return;
    }
    on_each_backend(|server| {
        let directory = tempfile::tempdir().unwrap();
        let (image, back) = (sparse_file(directory.path()), directory.path().join("back"));
        let disk = uri(&server, "disk");
        run("nbdcopy", &[path(&image), &disk]);
        let data = data_bytes(&server);
        assert!((3 << 20..4 << 20).contains(&data), "{data} bytes of data");
        run("nbdcopy", &["--requests=64", "--connections=4", &disk, path(&back)]);
        assert!(same(&image, &back));
        // From one server to another, over existing data.
        let other = Server::start(reactor::Backend::Auto, Default::default(), 512);
        let garbage = directory.path().join("garbage");
        std::fs::write(&garbage, vec![0x55; SIZE as usize]).unwrap();
        run("nbdcopy", &["--allocated", path(&garbage), &uri(&other, "disk")]);
        assert_eq!(data_bytes(&other), SIZE);
        run("nbdcopy", &["--flush", &disk, &uri(&other, "disk")]);
        assert_eq!(data_bytes(&other), data);
        run("nbdcopy", &["--synchronous", &uri(&other, "disk"), path(&back)]);
        assert!(same(&image, &back));
    });
}

#[test]
fn qemu_img_converts_and_compares() {
    if !test_support::has_programs(&["qemu-img"]) {
        return;
    }
    on_each_backend(|server| {
        let directory = tempfile::tempdir().unwrap();
        let image = sparse_file(directory.path());
        let disk = uri(&server, "disk");
        run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", path(&image), &disk]);
        let compared = run("qemu-img", &["compare", "-f", "raw", "-F", "raw", path(&image), &disk]);
        assert!(compared.contains("identical"), "{compared}");
        let map: Value =
            serde_json::from_str(&run("qemu-img", &["map", "-f", "raw", "--output=json", &disk])).unwrap();
        let data = map.as_array().unwrap().iter().filter(|extent| extent["data"] == true);
        let data: u64 = data.map(|extent| extent["length"].as_u64().unwrap()).sum();
        assert!((3 << 20..4 << 20).contains(&data), "{map}");
        // Several connections, out of order, into another format.
        let qcow = directory.path().join("qcow");
        run("qemu-img", &["convert", "-W", "-m", "16", "-f", "raw", "-O", "qcow2", &disk, path(&qcow)]);
        let compared = run("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", path(&image), path(&qcow)]);
        assert!(compared.contains("identical"), "{compared}");
    });
}

#[test]
fn qemu_io_reads_what_it_wrote_zeroed_and_discarded() {
    if !test_support::has_programs(&["qemu-io"]) {
        return;
    }
    on_each_backend(|server| {
        let disk = uri(&server, "disk");
        let commands = [
            "read -P 0 0 64M",
            "write -P 0xcd 0 32M",
            "write -P 0xef 512 512",
            "write -f -P 0xab 1000k 9M",
            "flush",
            "write -z 2M 1M",
            "write -z -u 5M 64k",
            "write -z -n 6M 64k",
            "discard 7M 128k",
            "aio_write -P 1 33M 1M",
            "aio_write -P 2 34M 1M",
            "aio_write -P 3 35M 1M",
            "aio_flush",
            "read -P 0xcd 0 512",
            "read -P 0xef 512 512",
            "read -P 0xcd 1k 999k",
            "read -P 0xab 1000k 1048k",
            "read -P 0 2M 1M",
            "read -P 0xab 3M 2M",
            "read -P 0 5M 64k",
            "read -P 0 6M 64k",
            "read -P 0 7M 128k",
            "read -P 0xcd 11M 21M",
            "read -P 0 32M 1M",
            "read -P 1 33M 1M",
            "read -P 2 34M 1M",
            "read -P 3 35M 1M",
            "read -P 0 36M 28M",
        ];
        let mut arguments = vec!["-f", "raw", &disk];
        arguments.extend(commands.iter().flat_map(|command| ["-c", *command]));
        let out = run("qemu-io", &arguments);
        assert!(!out.contains("verification"), "{out}");
        // A wrong pattern is detected, so that the checks above can fail.
        let wrong =
            Command::new("qemu-io").args(["-f", "raw", &disk, "-c", "read -P 9 0 512"]).output().unwrap();
        assert!(String::from_utf8_lossy(&wrong.stdout).contains("verification failed"));
        let flushes = server.with(|fixture| fixture.disk.counters().flushes);
        assert!(flushes >= 2, "{flushes} flushes");
    });
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !test_support::has_programs(&["fio"]) {
        return;
    }
    on_each_backend(|server| {
        let directory = tempfile::tempdir().unwrap();
        let target = format!("--uri={}", uri(&server, "disk"));
        for (workload, sizes, depth) in [
            ("randwrite", "--bs=4k", "--iodepth=32"),
            ("randwrite", "--bsrange=512-256k", "--iodepth=16"),
            ("write", "--bs=2M", "--iodepth=8"),
        ] {
            let workload = format!("--rw={workload}");
            let written = Command::new("fio")
                .current_dir(directory.path())
                .args(["--name=verify", "--ioengine=nbd", &target, &workload, sizes, depth])
                .args([
                    "--size=48M",
                    "--verify=crc32c",
                    "--verify_fatal=1",
                    "--do_verify=1",
                    "--output-format=json",
                ])
                .output()
                .unwrap();
            let out = String::from_utf8_lossy(&written.stdout);
            assert!(written.status.success(), "{out}\n{}", String::from_utf8_lossy(&written.stderr));
            let report: Value = serde_json::from_str(&out[out.find('{').unwrap()..]).unwrap();
            let job = &report["jobs"][0];
            assert_eq!(job["error"], 0, "{job}");
            let bytes = |direction: &str| job[direction]["io_bytes"].as_u64().unwrap();
            assert_eq!((bytes("write"), bytes("read")), (48 << 20, 48 << 20));
        }
    });
}
