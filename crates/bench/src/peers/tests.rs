//! Tests of the options of other systems, their checks, and the removal of arrays.

use std::process::Command;
use std::sync::atomic::AtomicBool;

use super::*;

fn requirements<'a>(drives: &'a [PathBuf], scheme: &'a str, stop: &'a AtomicBool) -> Requirements<'a> {
    let folder = Path::new("/nonexistent");
    Requirements {
        instances: 16,
        concurrent_targets: 1,
        instance_bytes: None,
        drives,
        scheme: Some(scheme),
        pools: 2,
        machine_cpus: None,
        workload: crate::suite::Workload::Blocks,
        folder,
        stop,
    }
}

#[test]
fn groups_are_as_wide_as_the_scheme() {
    let stop = AtomicBool::new(false);
    let drives: Vec<PathBuf> = (0..10).map(|number| format!("/dev/x{number}").into()).collect();
    let groups = Groups::new(&requirements(&drives, "4+1", &stop), 2).unwrap();
    assert_eq!(groups.drives, [&drives[..5], &drives[5..]]);
    assert_eq!(groups.layout, Layout { drives: 10, data: 4, parity: 1, pools: 2 });
    let refused = |scheme: &str, pools: u32| {
        Groups::new(&requirements(&drives, scheme, &stop), pools).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused("4+1", 3).contains("needs 5 drives per pool, and there are 3"));
    assert!(refused("4+1", 11).contains("11 pools need more drives than 10"));
    assert!(refused("1+2", 2).contains("not 1+2") && refused("6+3", 2).contains("not 6+3"));
}

#[test]
fn drives_are_used_only_with_permission() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("drive.img");
    std::fs::write(&file, vec![1; 8192]).unwrap();
    let drives = vec![file.clone()];
    let given = |overwrite| PeerOptions { name: "p".into(), overwrite, list: Vec::new() };
    assert!(given(false).take(&drives).unwrap_err().to_string().contains("--overwrite"));
    assert_eq!(given(true).take(&drives).unwrap(), 8192);
    assert!(given(true).take(&[]).unwrap_err().to_string().contains("--drives"));
    assert!(given(true).take(&[place.path().join("none")]).is_err());
    for peer in PEERS {
        let mut system = peer.open("p", "", false).unwrap();
        let stop = AtomicBool::new(false);
        let requirements = Requirements { folder: place.path(), ..requirements(&drives, "4+1", &stop) };
        let error = system.set_up(&requirements).unwrap_err().to_string();
        assert!(error.contains("--overwrite"), "{}: {error}", peer.name);
        system.tear_down().unwrap();
    }
    assert_eq!(std::fs::read(&file).unwrap(), vec![1; 8192]);
}

/// Runs the removal script of an array against fake system files. Returns whether it succeeded, and
/// the calls of mdadm.
fn undone(slaves: &[&str]) -> (bool, String) {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    for folder in ["bin", "block/md100/md", "block/md100/slaves"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    slaves.iter().for_each(|slave| std::fs::write(at("block/md100/slaves").join(slave), "").unwrap());
    let fake = at("bin/mdadm");
    std::fs::write(&fake, format!("#!/bin/sh\necho \"$@\" >>{}\n", at("calls").display())).unwrap();
    std::fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let members = ["/dev/loop1".to_owned(), "/dev/loop2".to_owned()];
    let script = md::undo("/dev/md100", &members).replace("/sys/block", &at("block").display().to_string());
    let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap());
    let status = Command::new("sh").args(["-c", &script]).env("PATH", path).output().unwrap().status;
    (status.success(), std::fs::read_to_string(at("calls")).unwrap_or_default())
}

#[test]
fn a_foreign_array_is_not_stopped() {
    let (fine, calls) = undone(&["loop1", "loop2"]);
    assert!(fine);
    assert_eq!(calls, "--stop --quiet /dev/md100\n--zero-superblock --quiet /dev/loop1 /dev/loop2\n");
    let (fine, calls) = undone(&["loop1", "sda"]);
    assert!(!fine && calls.is_empty(), "{calls}");
    // An array that lost a member still belongs to the run.
    assert!(undone(&["loop2"]).0);
}
