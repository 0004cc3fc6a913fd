//! Tests of inventories.

use super::*;

#[test]
fn the_output_of_the_script_is_parsed() {
    let label = r#"{"/dev/sdb": {"osd_uuid": "u", "size": 1, "ceph_fsid": "f", "whoami": "3", "require_osd_release": "16"}}"#;
    let text = format!(
        "clock\t1000.5\ncores\t8\nmemory\t1024\nceph\tceph version 16.2.15 (618f) pacific (stable)\ntime\tchronyd\n\
         address\t10.0.0.1/24\t25000\naddress\t10.1.0.1/24\t-1\ndrive\t/dev/sda\t1000\tdisk\t/ \text4\t\t\n\
         drive\t/dev/sdb\t2000\tnvme\t\tceph_bluestore\t{label}\t\ndrive\t/dev/sdc\t3000\tssd\t\tgpt\t\tu -\n"
    );
    let inventory = parse("a", &text, 1000.0).unwrap();
    assert_eq!((inventory.cores, inventory.memory, inventory.time_service), (8, 1 << 20, true));
    assert_eq!(inventory.ceph_version, "16.2.15");
    assert!((inventory.clock_offset - 0.5).abs() < 1e-9);
    assert_eq!(inventory.address_in("10.0.0.0/24".parse().unwrap()), Some("10.0.0.1".parse().unwrap()));
    assert_eq!(inventory.address_in("10.0.1.0/24".parse().unwrap()), None);
    let osd = inventory.drive("/dev/sdb").unwrap().osd.clone().unwrap();
    assert_eq!((osd.ceph_fsid.as_str(), osd.whoami.as_str()), ("f", "3"));
    let speeds: Vec<Option<u64>> = inventory.addresses.iter().map(|address| address.speed).collect();
    assert_eq!(speeds, [Some(25_000), None]);
    assert_eq!(inventory.drives[0].used_by, "/ ");
    assert!(inventory.drives[1].partitions.is_empty());
    assert_eq!(inventory.drive("/dev/sdc").unwrap().partitions, ["u", "-"]);
}

#[test]
fn unexpected_lines_and_missing_drives_are_errors() {
    for text in ["cores\tmany", "drive\t/dev/sda", "nonsense", "drive\t/a\t1\tfloppy\t\t\t\t"] {
        assert!(parse("a", text, 0.0).is_err(), "{text}");
    }
    assert_eq!(parse("a", "missing\t/dev/x", 0.0).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn this_machine_has_an_inventory() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let host = |drives| HostEntry { name: "here".into(), address: "local:".into(), drives: Some(drives) };
    let inventory = take(&host(vec![path.clone()])).unwrap();
    assert!(inventory.cores > 0 && inventory.memory > 0);
    let drive = inventory.drive(&path).unwrap();
    assert_eq!((drive.bytes, drive.kind, drive.contents.as_str()), (1 << 20, DriveKind::File, ""));
    assert_eq!(take(&host(vec!["/no/such/drive".into()])).unwrap_err().kind(), ErrorKind::NotFound);
}
