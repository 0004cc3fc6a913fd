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

fn place() -> RecordLocation {
    RecordLocation {
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

/// Returns the columns of a record as the drives would store them.
fn columns_of(builder: &mut StripeBuilder<'_>, width: u8, rows: usize) -> Vec<Vec<u8>> {
    let columns = builder.build(&place(), &KEY);
    let bytes = |column| {
        let mut bytes = vec![0xEE; rows * BLOCK];
        columns.column(column).copy_to(0, &mut bytes);
        bytes
    };
    (0..width).map(bytes).collect()
}

/// Records of every shape are codewords with their blocks where the layout puts them, padded with
/// zeros.
#[test]
fn records_are_codewords_laid_out_column_by_column() {
    let schemes = ["4+1", "4+2", "8+2", "2+2", "3+0", "1+1", "1+2", "16+4"];
    let all = schemes.iter().flat_map(|text| [1, 2, 3, 5, 16, 63, 256].map(|blocks| (text, blocks)));
    for (text, blocks) in all {
        let scheme: Scheme = text.parse().unwrap();
        let code = Code::new(scheme.data(), scheme.parity()).unwrap();
        let (batch, bytes) = batch(blocks, scheme);
        let layout = RecordLayout::new(scheme, Row::new(5), batch.blocks());
        let rows = layout.rows as usize;
        let mut builder = StripeBuilder::new(&batch, scheme, &code, layout);
        let columns = columns_of(&mut builder, scheme.width(), rows);
        let (data, parity) = columns.split_at(usize::from(scheme.data()));
        let flat = data.concat();
        let header = UnverifiedHeader::parse(&flat).unwrap();
        let skip = usize::from(header.blocks()) * BLOCK;
        let header = header.verify(&flat[..skip], &KEY).unwrap();
        assert_eq!(header.location, place());
        assert_eq!(flat[skip..skip + bytes.len()], bytes, "{text} {blocks}");
        assert!(codec::is_zero(&flat[skip + bytes.len()..]), "{text} {blocks}");
        let crcs: Vec<u32> = bytes.chunks(BLOCK).map(codec::crc32c).collect();
        assert_eq!(header.crcs, crcs);
        assert_eq!(builder.into_crcs(), crcs);
        let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut right = vec![vec![0; rows * BLOCK]; parity.len()];
        let mut outputs: Vec<&mut [u8]> = right.iter_mut().map(Vec::as_mut_slice).collect();
        code.encode(&inputs, &mut outputs);
        assert_eq!(parity, right, "{text} {blocks}");
    }
}
