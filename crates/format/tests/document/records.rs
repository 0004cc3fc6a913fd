//! Record headers, checkpoint tables and volume records.

use std::hash::Hasher;

use format::limits::BLOCK;
use format::{
    Address, CheckpointRoot, Column, FORMAT_VERSION, Header, Incarnation, Item, LayerBlock, LayerEntry,
    LayerId, LayerRecord, MapEntry, MergedRecord, NODE_ENTRIES, PoolId, PoolKey, QosLimits, RecordLocation,
    Row, SegmentId, Sequence, ShardIndex, TableCounts, UnmapMode, UnverifiedHeader, VolumeId, VolumeKind,
    VolumeRecord, VolumeSpread, VolumeState, decode_layers, encode_entries, encode_layers, encode_live,
    header_blocks_for,
};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::{Checked, entry, text};

const KEY: PoolKey = PoolKey(*b"key key key key ");

pub(crate) fn check(page: &Checked) {
    check_header(page);
    check_items(page);
    check_root(page);
    check_tables(page);
    check_volume(page);
}

fn location() -> RecordLocation {
    RecordLocation {
        pool: PoolId(*b"pool pool pool p"),
        shard: ShardIndex::new(0x0102),
        segment: SegmentId::new(0x1112_1314),
        incarnation: Incarnation::new(0x2122_2324_2526_2728),
        row: Row::new(0x3132),
        sequence: Sequence::new(0x4142_4344_4546_4748),
        durable: Sequence::new(0x5152_5354_5556_5758),
    }
}

/// Encodes a header with these items; CRC `index` of its payload is `0xC0C0_0000 + index`.
fn encode(items: &[Item]) -> Vec<u8> {
    let payload: u32 = items.iter().map(Item::payload).sum();
    let crcs: Vec<u32> = (0..payload).map(|index| 0xC0C0_0000 + index).collect();
    let bytes = items.iter().map(Item::encoded_bytes).sum();
    let mut out = vec![0xEE; header_blocks_for(bytes, crcs.len()) * BLOCK];
    Header::encode(&location(), items, &crcs, &KEY, &mut out);
    out
}

fn check_header(page: &Checked) {
    let items = [
        Item::Write { layer: LayerId::new(20), block: LayerBlock::new(7), count: 1021 },
        Item::DropLayer { layer: LayerId::new(21) },
        Item::DropLayer { layer: LayerId::new(22) },
    ];
    let bytes = encode(&items);
    let used = 96 + 3 * 16 + 4 * 1021;
    let mut zeroed = bytes[..used].to_vec();
    zeroed[12..28].fill(0);
    let mut hasher = SipHasher24::new_with_key(&KEY.0);
    hasher.write(&zeroed);
    let mac = hasher.finish128().as_bytes();
    let rest = page.fields(
        "Record header",
        &bytes,
        &[
            ("magic", b"GREC"),
            ("version", &FORMAT_VERSION.to_le_bytes()),
            ("header blocks", &[2]),
            ("reserved", &[0]),
            ("shard", &0x0102u16.to_le_bytes()),
            ("mac", &mac),
            ("pool", b"pool pool pool p"),
            ("segment", &0x1112_1314u32.to_le_bytes()),
            ("row", &0x3132u32.to_le_bytes()),
            ("incarnation", &0x2122_2324_2526_2728u64.to_le_bytes()),
            ("sequence", &0x4142_4344_4546_4748u64.to_le_bytes()),
            ("durable", &0x5152_5354_5556_5758u64.to_le_bytes()),
            ("items", &3u32.to_le_bytes()),
            ("payload", &1021u32.to_le_bytes()),
            ("used", &(used as u32).to_le_bytes()),
            ("reserved", &[0; 8]),
        ],
    );
    let crcs = &rest[3 * 16..];
    assert_eq!(crcs[..4], 0xC0C0_0000u32.to_le_bytes());
    assert_eq!(crcs[4 * 1020..4 * 1021], (0xC0C0_0000u32 + 1020).to_le_bytes());
    assert!(crcs[4 * 1021..].iter().all(|byte| *byte == 0), "zeros to the end of the last header block");
    let header = UnverifiedHeader::parse(&bytes).unwrap().verify(&bytes, &KEY).unwrap();
    assert_eq!((header.location, header.items.as_slice()), (location(), items.as_slice()));
}

fn check_items(page: &Checked) {
    let (layer, block) = (LayerId::new(0x0102_0304), LayerBlock::new(0x11_1213_1415));
    let from = Address::new(SegmentId::new(0x2122_2324), Column::new(0x1D), Row::new(0x2728));
    let unmap = |mode| Item::Unmap { layer, block, count: 0x21_2223_2425, mode };
    let items = [
        Item::Write { layer, block, count: 0x0102 },
        Item::Move { layer, block, count: 0x0103, from },
        unmap(UnmapMode::Zero),
        Item::Node { layer, level: 2, index: 0x2B2C },
        Item::Table { index: 0xA1B2 },
        Item::DropLayer { layer },
        Item::Merge { from: layer, into: LayerId::new(0x6162_6364), block, count: 0x7172_7374 },
    ];
    let bytes = encode(&items);
    let crcs: u32 = items.iter().map(Item::payload).sum();
    let mut rest = &bytes[96..];
    let mut item = |kind: u8, extra: u8, count: u16, layer: u32, block: u64| {
        let start = rest;
        let (layer, block) = (layer.to_le_bytes(), block.to_le_bytes());
        let fields: [(&str, &[u8]); 5] = [
            ("kind", &[kind]),
            ("extra", &[extra]),
            ("count", &count.to_le_bytes()),
            ("layer", &layer),
            ("block", &block),
        ];
        rest = match kind {
            // Only this item has distinct bytes in all fields; the others have zeros.
            4 => page.fields("Item", start, &fields),
            _ => {
                assert_eq!(start[..16], fields.map(|(_, bytes)| bytes).concat());
                &start[16..]
            }
        };
        let from = from.to_bits().to_le_bytes();
        rest = match kind {
            2 => page.fields("Move item, rest", rest, &[("from", &from)]),
            3 => page.fields("Unmap item, rest", rest, &[("blocks", &0x21_2223_2425u64.to_le_bytes())]),
            7 => {
                let into = 0x6162_6364u32.to_le_bytes();
                page.fields(
                    "Merge item, rest",
                    rest,
                    &[("into", &into), ("blocks", &0x7172_7374u32.to_le_bytes())],
                )
            }
            _ => rest,
        };
        u64::from(start[0])
    };
    let (layer, block) = (layer.get(), block.get());
    let kinds = [
        ("Write", item(1, 0, 0x0102, layer, block)),
        ("Move", item(2, 0, 0x0103, layer, block)),
        ("Unmap", item(3, 1, 0, layer, block)),
        ("Node", item(4, 2, 1, layer, 0x2B2C)),
        ("Table", item(5, 0, 1, 0, 0xA1B2)),
        ("DropLayer", item(6, 0, 0, layer, 0)),
        ("Merge", item(7, 0, 0, layer, block)),
    ];
    assert_eq!(rest[..4 * crcs as usize].chunks(4).next(), Some(&0xC0C0_0000u32.to_le_bytes()[..]));
    page.values("Item kinds", &kinds);
    let mode = |mode| u64::from(encode(&[unmap(mode)])[96 + 1]);
    let modes = [("Absent", mode(UnmapMode::Absent)), ("Zero", mode(UnmapMode::Zero))];
    page.values("Unmap modes", &modes);
}

fn check_root(page: &Checked) {
    let pointers: Vec<MapEntry> = (1..=3).map(|at| entry(at, 2, 3, at)).collect();
    let root = CheckpointRoot {
        shard: ShardIndex::new(0x32),
        sequence: Sequence::new(0x1112_1314_1516_1718),
        segment_slots: 0x2122_2324,
        tables: TableCounts { segments: 258, live: 257, layers: 3 },
        indexes: pointers.clone(),
    };
    let bytes = root.encode();
    let rest = page.fields(
        "Checkpoint root",
        &bytes,
        &[
            ("magic", b"GCKP"),
            ("version", &FORMAT_VERSION.to_le_bytes()),
            ("shard", &0x32u16.to_le_bytes()),
            ("indexes", &3u16.to_le_bytes()),
            ("segment slots", &0x2122_2324u32.to_le_bytes()),
            ("sequence", &0x1112_1314_1516_1718u64.to_le_bytes()),
            ("segment blocks", &258u32.to_le_bytes()),
            ("live blocks", &257u32.to_le_bytes()),
            ("layer blocks", &3u32.to_le_bytes()),
            ("reserved", &[0; 28]),
        ],
    );
    let stored: Vec<u8> = pointers.iter().flat_map(|pointer| pointer.to_bytes()).collect();
    assert_eq!(rest[..48], stored);
    assert!(rest[48..].iter().all(|byte| *byte == 0) && bytes.len() == BLOCK);
    assert_eq!(CheckpointRoot::decode(&bytes), Ok(root));
}

fn check_merged(page: &Checked) {
    let until = Some(Incarnation::new(0x2122_2324_2526_2728));
    let (layer, into) = (LayerId::new(0x0102_0304), LayerId::new(0x1112_1314));
    let merged = LayerEntry::Merged(MergedRecord { layer, into, until });
    let bytes = encode_layers(&[merged]);
    let rest = page.fields(
        "Merged layer record",
        &bytes,
        &[
            ("layer", &0x0102_0304u32.to_le_bytes()),
            ("kind", &[2]),
            ("reserved", &[0; 3]),
            ("into", &0x1112_1314u32.to_le_bytes()),
            ("reserved", &[0; 12]),
            ("until", &0x2122_2324_2526_2728u64.to_le_bytes()),
        ],
    );
    assert!(rest.iter().all(|byte| *byte == 0) && bytes.len() == BLOCK);
    assert_eq!(decode_layers(&bytes), Ok(vec![merged]));
    let empty = LayerRecord { layer, height: 0, root: MapEntry::ABSENT, stored: 0 };
    let kind = |entry| u64::from(encode_layers(&[entry])[4]);
    page.values("Layer kinds", &[("Layer", kind(LayerEntry::Layer(empty))), ("Merged", kind(merged))]);
}

fn check_tables(page: &Checked) {
    let root = entry(0x1112_1314, 0x15, 0x16_1718, 0x191A_1B1C);
    let layer =
        LayerRecord { layer: LayerId::new(0x0102_0304), height: 5, root, stored: 0x2122_2324_2526_2728 };
    let entry = LayerEntry::Layer(layer);
    let bytes = encode_layers(&[entry]);
    let rest = page.fields(
        "Layer record",
        &bytes,
        &[
            ("layer", &0x0102_0304u32.to_le_bytes()),
            ("kind", &[1]),
            ("height", &[5]),
            ("reserved", &[0; 2]),
            ("root", &root.to_bytes()),
            ("stored", &0x2122_2324_2526_2728u64.to_le_bytes()),
        ],
    );
    assert!(rest.iter().all(|byte| *byte == 0) && bytes.len() == BLOCK);
    assert_eq!(decode_layers(&bytes), Ok(vec![entry]));
    assert_eq!(encode_layers(&[entry; 128]).len(), BLOCK);
    check_merged(page);

    let live = encode_live(&[0x0102_0304, 0x0506_0708]);
    assert_eq!(live[..8], [4, 3, 2, 1, 8, 7, 6, 5]);
    assert_eq!(encode_live(&[1; 1024]).len(), BLOCK);

    let mut entries = [MapEntry::ABSENT; NODE_ENTRIES];
    entries[255] = root;
    let mut node = vec![0xEE; BLOCK];
    encode_entries(&entries, &mut node);
    assert_eq!(node[255 * 16..], root.to_bytes());
    assert!(node[..255 * 16].iter().all(|byte| *byte == 0));
}

fn check_volume(page: &Checked) {
    let record = VolumeRecord {
        id: VolumeId::new(0x0102_0304),
        name: "vm01".into(),
        kind: VolumeKind::Volume,
        state: VolumeState::Deleting,
        size: 0x1112_1314_1600,
        sector: 512,
        layer: LayerId::new(0x2122_2324),
        parent: Some(LayerId::new(0x3132_3334)),
        created: 0x4142_4344_4546_4748,
        qos: QosLimits {
            weight: 0x5152,
            burst_ms: 0x5354_5556,
            operations: 0x6162_6364_6566_6768,
            bytes: 0x7172_7374_7576_7778,
        },
        thick: true,
        spread: VolumeSpread { first: 0x2A, shards: 0x15 },
    };
    let bytes = record.encode();
    let rest = page.fields(
        "Volume record",
        &bytes,
        &[
            ("magic", b"GVOL"),
            ("version", &FORMAT_VERSION.to_le_bytes()),
            ("id", &0x0102_0304u32.to_le_bytes()),
            ("kind", &[1]),
            ("state", &[2]),
            ("flags", &[1, 0]),
            ("size", &0x1112_1314_1600u64.to_le_bytes()),
            ("sector", &512u32.to_le_bytes()),
            ("layer", &0x2122_2324u32.to_le_bytes()),
            ("parent", &0x3132_3334u32.to_le_bytes()),
            ("created", &0x4142_4344_4546_4748u64.to_le_bytes()),
        ],
    );
    let rest = text(rest, "vm01");
    let rest = page.fields(
        "QoS limits record",
        rest,
        &[
            ("weight", &0x5152u16.to_le_bytes()),
            ("burst_ms", &0x5354_5556u32.to_le_bytes()),
            ("operations", &0x6162_6364_6566_6768u64.to_le_bytes()),
            ("bytes", &0x7172_7374_7576_7778u64.to_le_bytes()),
        ],
    );
    let rest = page.fields("Spread record", rest, &[("first", &[0x2A, 0]), ("shards", &[0x15, 0])]);
    assert!(rest.iter().all(|byte| *byte == 0) && bytes.len() == BLOCK);
    assert_eq!(VolumeRecord::decode(&bytes), Ok(record.clone()));
    let kind = |kind| u64::from(VolumeRecord { kind, ..record.clone() }.encode()[12]);
    let kinds = [("Volume", kind(VolumeKind::Volume)), ("Snapshot", kind(VolumeKind::Snapshot))];
    page.values("Volume kinds", &kinds);
    let state = |state| u64::from(VolumeRecord { state, ..record.clone() }.encode()[13]);
    let states = [("Ready", state(VolumeState::Ready)), ("Deleting", state(VolumeState::Deleting))];
    page.values("Volume states", &states);
    page.values("Volume flags", &[("Thick", 1)]);
    assert_eq!(VolumeRecord { thick: false, ..record }.encode()[14..16], [0; 2]);
}
