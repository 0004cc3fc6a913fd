//! Records in memory: layout, checksums, and that every row is a codeword.

use format::limits::BLOCK;
use format::{
    Incarnation, LayerBlock, LayerId, PoolId, Row, SegmentId, Sequence, ShardIndex, UnverifiedHeader,
};
use std::collections::VecDeque;

use super::*;
use crate::log::request::{Effect, Request};
use crate::map::Pins;

const KEY: PoolKey = PoolKey([3; 16]);

fn place() -> RecordPlace {
    RecordPlace {
        pool: PoolId([1; 16]),
        shard: ShardIndex::new(0),
        segment: SegmentId::new(1),
        incarnation: Incarnation::new(1),
        row: Row::new(5),
        sequence: Sequence::new(9),
        durable: Sequence::new(8),
    }
}

fn batch(blocks: u16, scheme: Scheme) -> (Batch, Vec<u8>) {
    let bytes: Vec<u8> = (0..usize::from(blocks) * BLOCK).map(|at| ((at * 31) >> 3) as u8).collect();
    let item = Item::Write { layer: LayerId::new(20), block: LayerBlock::new(7), count: blocks };
    let request = Request {
        items: SmallVec::from_elem(item, 1),
        data: SmallVec::from_elem(Buffer::copy_of(&bytes).span(), 1),
        effect: Effect::Leaves(Pins::new()),
        reply: None,
    };
    let mut queue: VecDeque<_> = [request].into();
    (Batch::gather(&mut queue, scheme, 1 << 20, 64, false), bytes)
}

fn column(stage: &Stage, column: u8) -> Vec<u8> {
    let span = stage.column(column);
    let mut bytes = vec![0; span.len()];
    span.copy_to(0, &mut bytes);
    bytes
}

/// Every shape of record is a codeword whose blocks lie where the layout says, padded with zeros.
#[test]
fn records_are_codewords_laid_out_column_by_column() {
    for text in ["4+1", "4+2", "8+2", "2+2", "3+0", "1+1", "1+2", "16+4"] {
        let scheme: Scheme = text.parse().unwrap();
        let code = Code::new(scheme.data(), scheme.parity()).unwrap();
        for blocks in [1, 2, 3, 5, 16, 63, 256] {
            let (batch, bytes) = batch(blocks, scheme);
            let stage = Stage::new(&batch, scheme, &code, &place(), &KEY);
            let rows = RecordLayout::new(scheme, Row::new(5), batch.blocks()).rows as usize;
            let columns: Vec<Vec<u8>> = (0..scheme.width()).map(|at| column(&stage, at)).collect();
            assert!(columns.iter().all(|column| column.len() == rows * BLOCK));
            let (data, parity) = columns.split_at(usize::from(scheme.data()));
            let flat = data.concat();
            let header = UnverifiedHeader::parse(&flat).unwrap();
            let skip = usize::from(header.blocks()) * BLOCK;
            let header = header.verify(&flat[..skip], &KEY).unwrap();
            assert_eq!(header.place, place());
            assert_eq!(flat[skip..skip + bytes.len()], bytes, "{text} {blocks}");
            assert!(codec::is_zero(&flat[skip + bytes.len()..]), "{text} {blocks}");
            let crcs: Vec<u32> = bytes.chunks(BLOCK).map(codec::crc32c).collect();
            assert_eq!(header.crcs, crcs);
            assert_eq!(stage.crcs, crcs);
            let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let mut right = vec![vec![0; rows * BLOCK]; parity.len()];
            let mut outputs: Vec<&mut [u8]> = right.iter_mut().map(Vec::as_mut_slice).collect();
            code.encode(&inputs, &mut outputs);
            assert_eq!(parity, right, "{text} {blocks}");
        }
    }
}
