//! Tests of proposals.

use proptest::prelude::*;

use super::*;

fn drive(path: &str, gigabytes: u64, kind: DriveKind) -> HostDrive {
    HostDrive {
        path: path.into(),
        bytes: gigabytes * 1_000_000_000,
        kind,
        used_by: String::new(),
        contents: String::new(),
        osd: None,
        partitions: Vec::new(),
    }
}

fn host(name: &str, drives: Vec<HostDrive>) -> HostInventory {
    HostInventory {
        name: name.into(),
        cores: 32,
        memory: 256 << 30,
        clock_offset: 0.0,
        time_service: true,
        ceph_version: "16.2.15".into(),
        firewall: false,
        addresses: Vec::new(),
        drives,
    }
}

/// A storage node of the document: 54 disks of 6 TB, 6 SSDs of 750 GB, and two for booting.
fn apollo() -> HostInventory {
    let mut drives: Vec<HostDrive> =
        (0..54).map(|n| drive(&format!("/dev/disk{n:02}"), 6000, DriveKind::Disk)).collect();
    drives.extend((0..6).map(|n| drive(&format!("/dev/ssd{n}"), 750, DriveKind::Ssd)));
    drives.push(HostDrive { used_by: "/".into(), ..drive("/dev/boot0", 1000, DriveKind::Ssd) });
    host("osd1", drives)
}

/// The command of the document.
const POPULATE: &str =
    "name=apollo ratio=9 wal=740-770 db=740-770 target='osd*' db-size=40g wal-size=5g data=5000-7000";

#[test]
fn the_proposal_of_the_document_uses_nine_disks_for_each_ssd() {
    let args: ProposalArgs = POPULATE.parse().unwrap();
    assert_eq!((args.name.as_str(), args.db_size, args.wal_size), ("apollo", 40 << 30, 5 << 30));
    let proposal = propose(&args, &apollo()).unwrap();
    assert_eq!(proposal.osds.len(), 54);
    let mut shares: BTreeMap<String, usize> = BTreeMap::new();
    for placement in proposal.osds.values() {
        assert_eq!(placement.wal, placement.db);
        *shares.entry(placement.db.clone().unwrap()).or_default() += 1;
    }
    assert_eq!(shares.into_values().collect::<Vec<_>>(), vec![9; 6]);
    assert_eq!(proposal.left_out, [("/dev/boot0".to_owned(), "in use by /".to_owned())]);
    assert_eq!(propose(&args, &host("mon1", apollo().drives)), None, "not a target");
}

#[test]
fn drives_with_osds_stay_in_proposals_but_are_not_unused() {
    let with_osd = HostDrive {
        osd: Some(crate::inventory::OsdLabel::default()),
        ..drive("/dev/b", 100, DriveKind::Ssd)
    };
    let mounted = HostDrive { used_by: "/".into(), ..drive("/dev/c", 100, DriveKind::Ssd) };
    let host = host("osd1", vec![drive("/dev/a", 100, DriveKind::Ssd), with_osd, mounted]);
    assert_eq!(host.drives.iter().map(HostDrive::is_unused).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(propose(&ProposalArgs::default(), &host).unwrap().osds.len(), 2);
}

#[test]
fn a_proposal_that_fits_no_drive_is_reported() {
    let args = |text: &str| [text.parse::<ProposalArgs>().unwrap()];
    let notes = |text| {
        let hosts = crate::hosts::HostsFile::default();
        crate::fragments::propose_all(&hosts, &[apollo()], &args(text), "f").1
    };
    let none = notes("name=small target=* data=1-2");
    assert!(none.contains(&"profile 'small' fits no drive of any host".to_owned()), "{none:?}");
    assert!(!notes(POPULATE).iter().any(|note| note.contains("fits no drive")));
}

#[test]
fn drives_beyond_the_ratio_are_left_out_or_stand_alone() {
    let args: ProposalArgs = "ratio=8 db=750 data=6000".parse().unwrap();
    let proposal = propose(&args, &apollo()).unwrap();
    assert_eq!((proposal.osds.len(), proposal.left_out.len()), (48, 1 + 6));
    let proposal = propose(&ProposalArgs { leftovers: true, ..args }, &apollo()).unwrap();
    assert_eq!(proposal.osds.values().filter(|placement| placement.db.is_none()).count(), 6);
}

#[test]
fn faster_drives_hold_the_databases_without_filters() {
    let proposal = propose(&"ratio=9".parse().unwrap(), &apollo()).unwrap();
    assert_eq!(proposal.osds.len(), 54);
    assert!(proposal.osds.values().all(|placement| placement.db.is_some() && placement.wal.is_none()));
    let flash = host("a", (0..4).map(|n| drive(&format!("/dev/nvme{n}"), 3840, DriveKind::Nvme)).collect());
    let proposal = propose(&ProposalArgs::default(), &flash).unwrap();
    assert_eq!(proposal.osds.len(), 4);
    assert!(proposal.osds.values().all(|placement| placement.db.is_none()));
}

#[test]
fn all_invalid_arguments_are_named() {
    let message =
        "name=a/b ratio=0 wal=9-1 size=3 db-size=40q target=osd* data=x".parse::<ProposalArgs>().unwrap_err();
    for part in ["name=a/b", "ratio=0", "wal=9-1", "size=3", "db-size=40q", "data=x"] {
        assert!(message.contains(&format!("'{part}'")), "{part}: {message}");
    }
}

proptest! {
    #[test]
    fn no_drive_has_two_purposes_and_no_used_drive_is_taken(
        sizes in proptest::collection::vec((1_u64..5, 0_u8..3, any::<bool>()), 0..20),
        ratio in 1_usize..5, filtered in any::<bool>(), leftovers in any::<bool>(),
    ) {
        let kinds = [DriveKind::Nvme, DriveKind::Ssd, DriveKind::Disk];
        let drives: Vec<HostDrive> = sizes.iter().enumerate().map(|(n, (size, kind, used))| HostDrive {
            used_by: if *used { "/mnt".into() } else { String::new() },
            ..drive(&format!("/dev/d{n}"), *size * 1000, kinds[usize::from(*kind)])
        }).collect();
        let mut args = ProposalArgs { ratio, leftovers, ..ProposalArgs::default() };
        if filtered {
            args.db = "1000".parse().ok();
        }
        let Some(proposal) = propose(&args, &host("a", drives.clone())) else { return Ok(()) };
        let free: Vec<&String> = drives.iter().filter(|drive| drive.used_by.is_empty()).map(|drive| &drive.path).collect();
        let mut shares: BTreeMap<&String, usize> = BTreeMap::new();
        for (path, placement) in &proposal.osds {
            prop_assert!(free.contains(&path));
            if let Some(db) = &placement.db {
                prop_assert!(free.contains(&db) && !proposal.osds.contains_key(db));
                *shares.entry(db).or_default() += 1;
            }
        }
        prop_assert!(shares.values().all(|share| *share <= ratio));
    }

    #[test]
    fn any_text_is_accepted_or_refused(text in ".{0,60}") {
        let _ = text.parse::<ProposalArgs>();
    }
}
