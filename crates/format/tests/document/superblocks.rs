//! The superblock and its records.

use std::hash::Hasher;

use format::{
    DriveErrors, DriveId, DriveIndex, DriveRecord, DriveState, FORMAT_VERSION, Generation, Incarnation,
    PoolId, PoolKey, PoolOpening, Row, Scheme, ScrubRecord, ScrubTally, SegmentClass, SegmentColumn,
    SegmentId, SegmentRecord, SegmentState, Sequence, ShardRecord, StateStamp, Superblock,
    UnverifiedSuperblock, ZoneIndex, decode_segments, encode_segments,
};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::{Checked, entry, text};

/// Columns of a segment record: more than any segment here uses.
const TABLE_WIDTH: u8 = 9;

fn segment() -> SegmentRecord {
    let whole = SegmentColumn {
        zone: Some((DriveIndex::new(0xF3), ZoneIndex::new(0x0506_0708))),
        missing_from: Row::new(0x090A),
        damaged: true,
    };
    let mut columns = vec![whole, SegmentColumn::hole()];
    columns.resize(8, SegmentColumn::whole(DriveIndex::new(1), ZoneIndex::new(2)));
    SegmentRecord {
        incarnation: Incarnation::new(0x1112_1314_1516_1718),
        scheme: Scheme::new(6, 2).unwrap(),
        class: SegmentClass::Cold,
        state: SegmentState::Sealed,
        rows: 0x0A0B,
        columns,
    }
}

fn superblock() -> Superblock {
    let drive = DriveRecord {
        id: DriveId(*b"drive drive driv"),
        size: 0x2122_2324_2526_2728,
        zones: 0x292A_2B2C,
        state: DriveState::Failed,
        since: Generation::new(0x3132_3334_3536_3738),
        confirmed: stamp(0x0103_0507),
        left_at: stamp(0x1113_1517),
        errors: DriveErrors {
            unreadable: 0x3132_3334_3536_3739,
            wrong: 0x3132_3334_3536_3740,
            last: 0x3132_3334_3536_3741,
            counting_since: 0x3132_3334_3536_3742,
            zones: 0x292A_2B2D,
        },
        path: "/dev/disk/by-id/x".into(),
    };
    let shard = ShardRecord {
        root: entry(0x4142_4344, 0x45, 0x46_4748, 0x494A_4B4C),
        checkpointed: Sequence::new(0x5152_5354_5556_5758),
        recent: vec![(SegmentId::new(0x6162_6364), Row::new(0x6566), segment())],
    };
    Superblock {
        pool: PoolId(*b"pool pool pool p"),
        key: PoolKey(*b"key key key key "),
        name: "fast".into(),
        created: 0x7172_7374_7576_7778,
        lineage: vec![
            PoolOpening { epoch: 0x0102_0304_0506_0708, nonce: 0x1112_1314_1516_1718 },
            PoolOpening { epoch: 0x2122_2324_2526_2728, nonce: 0x3132_3334_3536_3738 },
        ],
        generation: Generation::new(0x4142_4344_4546_4748),
        scheme: Scheme::new(5, 2).unwrap(),
        table_width: TABLE_WIDTH,
        zone_bytes: 2 << 20,
        data_start: 6 << 20,
        clean: true,
        next_incarnation: Incarnation::new(0x5152_5354_5556_5758),
        drives: vec![drive.clone(), drive.clone(), drive],
        shards: vec![shard, ShardRecord::default(), ShardRecord::default(), ShardRecord::default()],
        scrub: ScrubRecord {
            every: 0x6162_6364_6566_6768,
            running: true,
            until: Incarnation::new(0x7172_7374_7576_7779),
            current: tally(0x0101),
            last: tally(0x0202),
            positions: (0x31..0x35).map(Incarnation::new).collect(),
        },
    }
}

fn stamp(seed: u64) -> StateStamp {
    let opening = PoolOpening { epoch: seed, nonce: seed + 1 };
    StateStamp { opening, generation: Generation::new(seed + 2) }
}

fn tally(seed: u64) -> ScrubTally {
    ScrubTally { began: seed, ended: seed + 1, bytes: seed + 2, damaged: seed + 3, lost: seed + 4 }
}

pub(crate) fn check(page: &Checked) {
    let superblock = superblock();
    let drive = DriveId(*b"this drive's own");
    let bytes = superblock.encode(drive);
    let unverified = UnverifiedSuperblock::parse(&bytes).unwrap();
    assert_eq!(unverified.verify(&bytes).unwrap(), (superblock.clone(), drive));

    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    assert!(bytes[length..].iter().all(|byte| *byte == 0) && bytes.len() == length.next_multiple_of(4096));
    let (stored, mac) = (&bytes[..length], mac_of(&bytes[..length], &superblock.key));
    let rest = page.fields(
        "Superblock front",
        stored,
        &[
            ("magic", b"GABIONSB"),
            ("version", &FORMAT_VERSION.to_le_bytes()),
            ("length", &(length as u32).to_le_bytes()),
            ("mac", &mac),
            ("pool", b"pool pool pool p"),
            ("key", b"key key key key "),
            ("drive", b"this drive's own"),
        ],
    );
    let rest = text(rest, "fast");
    let created = 0x7172_7374_7576_7778u64.to_le_bytes();
    let mut rest = page.fields("Superblock openings", rest, &[("created", &created), ("openings", &[2])]);
    for opening in &superblock.lineage {
        let (epoch, nonce) = (opening.epoch.to_le_bytes(), opening.nonce.to_le_bytes());
        rest = page.fields("Opening", rest, &[("epoch", &epoch), ("nonce", &nonce)]);
    }
    rest = page.fields(
        "Superblock state",
        rest,
        &[
            ("generation", &0x4142_4344_4546_4748u64.to_le_bytes()),
            ("data columns", &[5]),
            ("parity columns", &[2]),
            ("table width", &[TABLE_WIDTH]),
            ("clean", &[1]),
            ("zone bytes", &(2u64 << 20).to_le_bytes()),
            ("data start", &(6u64 << 20).to_le_bytes()),
            ("next incarnation", &0x5152_5354_5556_5758u64.to_le_bytes()),
            ("drives", &3u16.to_le_bytes()),
            ("shards", &4u16.to_le_bytes()),
        ],
    );
    for drive in &superblock.drives {
        rest = page.fields(
            "Drive record",
            rest,
            &[
                ("id", b"drive drive driv"),
                ("size", &drive.size.to_le_bytes()),
                ("zones", &drive.zones.to_le_bytes()),
                ("state", &[3]),
                ("since", &drive.since.get().to_le_bytes()),
                ("confirmed epoch", &drive.confirmed.opening.epoch.to_le_bytes()),
                ("confirmed nonce", &drive.confirmed.opening.nonce.to_le_bytes()),
                ("confirmed generation", &drive.confirmed.generation.get().to_le_bytes()),
                ("left epoch", &drive.left_at.opening.epoch.to_le_bytes()),
                ("left nonce", &drive.left_at.opening.nonce.to_le_bytes()),
                ("left generation", &drive.left_at.generation.get().to_le_bytes()),
                ("unreadable", &drive.errors.unreadable.to_le_bytes()),
                ("wrong", &drive.errors.wrong.to_le_bytes()),
                ("last error", &drive.errors.last.to_le_bytes()),
                ("counting since", &drive.errors.counting_since.to_le_bytes()),
                ("bad zones", &drive.errors.zones.to_le_bytes()),
            ],
        );
        rest = text(rest, "/dev/disk/by-id/x");
    }
    for shard in &superblock.shards {
        rest = check_shard(page, shard, rest);
    }
    rest = check_scrub(page, &superblock.scrub, rest);
    assert!(rest.is_empty(), "{} bytes of the superblock are not on the page", rest.len());
    check_values(page);
    check_segment_table(page);
}

fn check_scrub<'a>(page: &Checked, scrub: &ScrubRecord, rest: &'a [u8]) -> &'a [u8] {
    let (current, last) = (&scrub.current, &scrub.last);
    let mut rest = page.fields(
        "Scrub record",
        rest,
        &[
            ("every", &scrub.every.to_le_bytes()),
            ("running", &[1]),
            ("until", &scrub.until.get().to_le_bytes()),
            ("began", &current.began.to_le_bytes()),
            ("ended", &current.ended.to_le_bytes()),
            ("bytes", &current.bytes.to_le_bytes()),
            ("damaged", &current.damaged.to_le_bytes()),
            ("lost", &current.lost.to_le_bytes()),
            ("last began", &last.began.to_le_bytes()),
            ("last ended", &last.ended.to_le_bytes()),
            ("last bytes", &last.bytes.to_le_bytes()),
            ("last damaged", &last.damaged.to_le_bytes()),
            ("last lost", &last.lost.to_le_bytes()),
        ],
    );
    for position in &scrub.positions {
        let (first, behind) = rest.split_at(8);
        assert_eq!(first, position.get().to_le_bytes());
        rest = behind;
    }
    rest
}

/// Returns SipHash-2-4-128 of bytes 0..16 and 32..length.
fn mac_of(stored: &[u8], key: &PoolKey) -> [u8; 16] {
    let mut hasher = SipHasher24::new_with_key(&key.0);
    hasher.write(&stored[..16]);
    hasher.write(&stored[32..]);
    hasher.finish128().as_bytes()
}

fn check_shard<'a>(page: &Checked, shard: &ShardRecord, bytes: &'a [u8]) -> &'a [u8] {
    let (root, count) = (shard.root.to_bytes(), (shard.recent.len() as u16).to_le_bytes());
    let checkpointed = shard.checkpointed.get().to_le_bytes();
    // Only the first shard has distinct bytes in all fields; the others only show where they end.
    let mut rest = match shard.recent.is_empty() {
        true => &bytes[26..],
        false => page.fields(
            "Shard record",
            bytes,
            &[("root", &root), ("checkpointed", &checkpointed), ("recent", &count)],
        ),
    };
    for (id, from, record) in &shard.recent {
        let (id, from) = (id.get().to_le_bytes(), from.get().to_le_bytes());
        rest = page.fields("Recent segment", rest, &[("segment", &id), ("from row", &from)]);
        rest = check_segment(page, record, rest);
    }
    rest
}

fn check_segment<'a>(page: &Checked, record: &SegmentRecord, bytes: &'a [u8]) -> &'a [u8] {
    let rest = page.fields(
        "Segment record",
        bytes,
        &[
            ("incarnation", &record.incarnation.get().to_le_bytes()),
            ("data columns", &[6]),
            ("parity columns", &[2]),
            ("class and state", &[3 | 0x80]),
            ("reserved", &[0]),
            ("rows", &record.rows.to_le_bytes()),
        ],
    );
    let (columns, rest) = rest.split_at(12 * usize::from(TABLE_WIDTH));
    page.fields(
        "Segment column",
        columns,
        &[
            ("drive", &0xF3u16.to_le_bytes()),
            ("damaged", &[1]),
            ("reserved", &[0]),
            ("zone", &0x0506_0708u32.to_le_bytes()),
            ("missing from", &0x090Au32.to_le_bytes()),
        ],
    );
    assert_eq!(columns[12..24], [0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "a hole");
    assert_eq!(columns[24 + 8..36], 16_384u32.to_le_bytes(), "a complete column");
    assert!(columns[12 * record.columns.len()..].iter().all(|byte| *byte == 0), "unused columns");
    rest
}

/// Encodes each value and reads its byte.
fn check_values(page: &Checked) {
    let state = |state| {
        let mut superblock = superblock();
        superblock.drives[0].state = state;
        let bytes = superblock.encode(DriveId::default());
        // Offset of the first drive's state: after the front, the name, two openings and the fixed
        // state.
        u64::from(bytes[80 + 2 + 4 + 9 + 2 * 16 + 40 + 28])
    };
    page.values(
        "Drive states",
        &[
            ("Online", state(DriveState::Online)),
            ("Missing", state(DriveState::Missing)),
            ("Failed", state(DriveState::Failed)),
            ("Removed", state(DriveState::Removed)),
            ("Draining", state(DriveState::Draining)),
            ("Returning", state(DriveState::Returning)),
        ],
    );
    let class = |class| {
        let open = SegmentRecord { class, state: SegmentState::Open, ..segment() };
        u64::from(encode_segments(&[Some(open)], TABLE_WIDTH)[10])
    };
    page.values(
        "Segment classes",
        &[
            ("Hot", class(SegmentClass::Hot)),
            ("Mirror", class(SegmentClass::Mirror)),
            ("Cold", class(SegmentClass::Cold)),
            ("Map", class(SegmentClass::Map)),
        ],
    );
}

/// Checks that a block of the segment table has the number of slots on the page, and that unused
/// slots are zero.
fn check_segment_table(page: &Checked) {
    let slot = 16 + 12 * usize::from(TABLE_WIDTH);
    let slots = [None, Some(segment()), None];
    let block = encode_segments(&slots, TABLE_WIDTH);
    assert_eq!(block.len(), 4096);
    assert!(block[..slot].iter().all(|byte| *byte == 0));
    check_segment(page, &segment(), &block[slot..2 * slot]);
    assert!(block[2 * slot..].iter().all(|byte| *byte == 0));
    assert_eq!(decode_segments(&block, TABLE_WIDTH).unwrap().len(), 4096 / slot);
}
