//! Tests of the validation.

use std::net::Ipv4Addr;

use super::*;
use crate::inventory::{DriveKind, HostAddress, OsdLabel};
use crate::policy::Policy;
use crate::proposal::OsdPlacement;

const FSID: &str = "74ed0c2b-5ebe-43a6-9c34-742bfd765fee";

fn drive(path: &str) -> HostDrive {
    HostDrive {
        path: path.into(),
        bytes: 4 << 30,
        kind: DriveKind::Nvme,
        used_by: String::new(),
        contents: String::new(),
        osd: None,
        partitions: Vec::new(),
    }
}

fn inventory(name: &str, number: u8) -> HostInventory {
    HostInventory {
        name: name.into(),
        cores: 4,
        memory: 16 << 30,
        clock_offset: 0.1,
        time_service: true,
        ceph_version: "16.2.15".into(),
        firewall: false,
        addresses: vec![HostAddress { address: Ipv4Addr::new(10, 0, 0, number), prefix: 24, speed: None }],
        drives: vec![drive("/dev/a")],
    }
}

/// A valid cluster of four hosts.
fn valid() -> (ClusterModel, Vec<HostInventory>) {
    let inventories: Vec<HostInventory> =
        (1..=4).map(|number| inventory(&format!("n{number}"), number)).collect();
    let host = |number: u8| {
        let roles: &[&str] = if number < 4 { &["mon", "mgr", "storage"] } else { &["storage"] };
        ModelHost {
            name: format!("n{number}"),
            roles: roles.iter().map(ToString::to_string).collect(),
            public_address: Some(Ipv4Addr::new(10, 0, 0, number)),
            cluster_address: Some(Ipv4Addr::new(10, 0, 0, number)),
            osds: [("/dev/a".to_owned(), OsdPlacement::default())].into(),
        }
    };
    let model = ClusterModel {
        fsid: FSID.into(),
        public_network: "10.0.0.0/24".into(),
        cluster_network: "10.0.0.0/24".into(),
        hosts: (1..=4).map(host).collect(),
        ..ClusterModel::default()
    };
    (model, inventories)
}

fn problems(model: &ClusterModel, inventories: &[HostInventory], wipe: &[&str]) -> Vec<String> {
    let wipe = wipe.iter().map(ToString::to_string).collect();
    let own = BTreeSet::from(["own".to_owned()]);
    validate(model, inventories, &wipe, &own).iter().map(ToString::to_string).collect()
}

#[test]
fn a_valid_cluster_has_no_violations() {
    let (model, inventories) = valid();
    assert_eq!(problems(&model, &inventories, &[]), Vec::<String>::new());
}

#[test]
fn ten_mistakes_are_reported_at_once() {
    let (mut model, mut inventories) = valid();
    let (_, mistakes) = Policy::parse("role-monitor/cluster/*.sls\nrole-mon/cluster/*.sls slice=[1-3]\n");
    model.fsid = "ceph".into();
    model.public_network = "10.0.0.1/24".into();
    model.hosts[0].roles.remove("mon");
    model.hosts[1].cluster_address = None;
    inventories[1].clock_offset = -40.0;
    inventories[2].drives[0].contents = "ext4".into();
    inventories[2].ceph_version = "18.2.7".into();
    model.hosts[3].osds.clear();
    let found = problems(&model, &inventories, &[]);
    let expected = [
        "fsid 'ceph'",
        "has host bits",
        "2 of 3 monitors",
        "3 of 4 storage hosts",
        "host 'n2' has no address in cluster_network",
        "clock of host 'n2' is off by -40.0 s",
        "'n3': drive /dev/a holds ext4",
        "storage host 'n4' has no drives",
        "different versions of Ceph: 16.2.15, 18.2.7",
    ];
    assert_eq!((found.len(), mistakes.len()), (expected.len(), 2), "{found:#?}");
    for part in expected {
        assert_eq!(found.iter().filter(|problem| problem.contains(part)).count(), 1, "{part}: {found:#?}");
    }
}

#[test]
fn contents_of_others_need_a_name_and_own_ones_do_not() {
    let (model, inventories) = valid();
    let with = |ceph_fsid: &str, uuid: &str| {
        let mut inventories = inventories.clone();
        let osd = OsdLabel { ceph_fsid: ceph_fsid.into(), osd_uuid: uuid.into(), whoami: "7".into() };
        inventories[0].drives[0].contents = "ceph_bluestore".into();
        inventories[0].drives[0].osd = Some(osd);
        inventories
    };
    let foreign = with("11111111-5ebe-43a6-9c34-742bfd765fee", "x");
    let found = problems(&model, &foreign, &[]);
    assert!(found.len() == 1 && found[0].contains("OSD 7 of Ceph cluster 11111111"), "{found:?}");
    assert!(found[0].contains("--wipe n1:/dev/a"), "{found:?}");
    assert!(problems(&model, &foreign, &["n1:/dev/a"]).is_empty());
    assert!(problems(&model, &with(FSID, "x"), &[]).is_empty());
    assert!(problems(&model, &with("", "own"), &[]).is_empty(), "an interrupted creation");
    assert!(problems(&model, &with("", "x"), &[])[0].contains("incomplete OSD"));
    let found = problems(&model, &inventories, &["n1:/dev/b"]);
    assert!(found.len() == 1 && found[0].contains("names no drive"), "{found:?}");
}

#[test]
fn drives_in_use_are_refused_even_by_name() {
    let (model, mut inventories) = valid();
    inventories[0].drives[0].used_by = "/srv".into();
    let found = problems(&model, &inventories, &["n1:/dev/a"]);
    assert!(found.len() == 1 && found[0].contains("in use by /srv"), "{found:?}");
}

#[test]
fn development_needs_one_monitor_and_one_storage_host() {
    let (mut model, inventories) = valid();
    model.hosts.truncate(1);
    assert_eq!(problems(&model, &inventories[..1], &[]).len(), 2);
    model.development = true;
    assert!(problems(&model, &inventories[..1], &[]).is_empty());
}

/// A valid cluster whose host n1 has three data drives and a fast one for their parts.
fn separate(db_size: u64) -> (ClusterModel, Vec<HostInventory>) {
    let (mut model, mut inventories) = valid();
    let placement = OsdPlacement {
        format: "bluestore".into(),
        db: Some("/dev/fast".into()),
        db_size: Some(db_size),
        wal: Some("/dev/fast".into()),
        wal_size: Some(128 << 20),
    };
    let drives = ["/dev/a", "/dev/b", "/dev/c"];
    model.hosts[0].osds = drives.map(|path| (path.to_owned(), placement.clone())).into();
    inventories[0].drives = [&drives[..], &["/dev/fast"]].concat().into_iter().map(drive).collect();
    (model, inventories)
}

#[test]
fn separate_drives_have_room_for_all_parts() {
    let (model, inventories) = separate(1 << 30);
    assert_eq!(problems(&model, &inventories, &[]), Vec::<String>::new());
    let (model, inventories) = separate(1250 << 20);
    let found = problems(&model, &inventories, &[]);
    assert!(found.len() == 1 && found[0].contains("its 6 databases and write-ahead logs need"), "{found:?}");
    let (model, inventories) = separate(100 << 20);
    let found = problems(&model, &inventories, &[]);
    assert!(
        found.len() == 3 && found[0].contains("a database on /dev/fast has 104857600 bytes"),
        "{found:?}"
    );
}

#[test]
fn separate_drives_are_no_data_drives_and_hold_only_own_parts() {
    let (model, mut inventories) = separate(1 << 30);
    let contents = |inventories: &mut Vec<HostInventory>, contents: &str, partitions: &[&str]| {
        inventories[0].drives[3].contents = contents.into();
        inventories[0].drives[3].partitions = partitions.iter().map(ToString::to_string).collect();
    };
    contents(&mut inventories, "gpt", &["own"]);
    assert_eq!(problems(&model, &inventories, &[]), Vec::<String>::new());
    contents(&mut inventories, "gpt", &["own", "-"]);
    let found = problems(&model, &inventories, &[]);
    assert!(found.len() == 1 && found[0].contains("/dev/fast holds gpt"), "{found:?}");
    assert!(problems(&model, &inventories, &["n1:/dev/fast"]).is_empty());
    contents(&mut inventories, "xfs", &[]);
    assert!(problems(&model, &inventories, &[])[0].contains("/dev/fast holds xfs"));
    inventories[0].drives[3].used_by = "/srv".into();
    assert!(problems(&model, &inventories, &["n1:/dev/fast"])[0].contains("in use by /srv"));
    let (mut model, mut inventories) = separate(1 << 30);
    model.hosts[0].osds.insert("/dev/fast".into(), OsdPlacement::default());
    let found = problems(&model, &inventories, &[]);
    assert!(found.len() == 1 && found[0].contains("is the data drive of an OSD"), "{found:?}");
    model.hosts[0].osds.remove("/dev/fast");
    inventories[0].drives.pop();
    assert!(problems(&model, &inventories, &[])[0].contains("has no drive /dev/fast"));
}
