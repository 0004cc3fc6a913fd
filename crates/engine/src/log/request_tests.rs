//! Tests of the requests that go into one record, and of the choice of a mirror.

use format::{LayerBlock, LayerId};
use reactor::Buffer;

use super::*;

fn scheme(text: &str) -> Scheme {
    text.parse().unwrap()
}

fn write(block: u64, blocks: u16) -> Request {
    let item = Item::Write { layer: LayerId::new(20), block: LayerBlock::new(block), count: blocks };
    Request {
        items: SmallVec::from_elem(item, 1),
        data: SmallVec::from_elem(Buffer::new(usize::from(blocks) * BLOCK).span(), 1),
        effect: Effect::Leaves(Pins::new()),
        reply: None,
    }
}

fn gather(queue: &mut VecDeque<Request>, rows: u32) -> Batch {
    Batch::gather(queue, scheme("4+1"), rows, 64, false)
}

#[test]
fn small_writes_are_packed_whole() {
    let mut queue: VecDeque<_> = (0..10).map(|index| write(index * 10, 3)).collect();
    let batch = gather(&mut queue, 256);
    assert_eq!((batch.requests.len(), batch.payload, batch.blocks()), (10, 30, 31));
    assert!(queue.is_empty());
}

#[test]
fn the_last_row_is_filled_with_the_front_of_a_large_write() {
    let mut queue: VecDeque<_> = [write(0, 256), write(256, 256)].into();
    let batch = gather(&mut queue, 256);
    // 256 blocks and their header leave three cells of the 65th row.
    assert_eq!((batch.payload, batch.blocks()), (259, 260));
    let rest = queue.front().unwrap();
    assert_eq!((rest.payload(), rest.items[0]), (253, write(259, 253).items[0]));
    assert_eq!(rest.data.iter().map(Span::len).sum::<usize>(), 253 * BLOCK);
}

#[test]
fn requests_beyond_the_last_whole_row_wait_for_more() {
    let mut queue: VecDeque<_> = (0..32).map(|index| write(index * 10, 1)).collect();
    let batch = Batch::gather(&mut queue, scheme("4+1"), 256, 64, true);
    assert_eq!((batch.blocks(), batch.header_blocks, queue.len()), (32, 1, 1));
    assert_eq!(queue.front().unwrap().items[0], write(310, 1).items[0]);
    // Not if that would split a larger request, or leave too small a record.
    let mut queue: VecDeque<_> = (0..10).map(|index| write(index * 10, 3)).collect();
    assert_eq!(Batch::gather(&mut queue, scheme("4+1"), 256, 64, true).blocks(), 28);
    let mut queue: VecDeque<_> = [write(0, 30), write(40, 4)].into();
    assert_eq!(Batch::gather(&mut queue, scheme("4+1"), 256, 64, true).blocks(), 35);
    let mut queue: VecDeque<_> = (0..6).map(|index| write(index * 10, 1)).collect();
    assert_eq!(Batch::gather(&mut queue, scheme("4+1"), 256, 64, true).blocks(), 7);
}

#[test]
fn an_atomic_write_waits_for_the_next_segment() {
    let mut queue: VecDeque<_> = [write(0, 64)].into();
    assert!(gather(&mut queue, 16).requests.is_empty());
    assert_eq!(queue.len(), 1);
    let mut queue: VecDeque<_> = [write(0, 200)].into();
    let batch = gather(&mut queue, 20);
    assert_eq!((batch.payload, batch.blocks()), (79, 80), "a larger one fills the segment");
    assert_eq!(queue.front().unwrap().payload(), 121);
}

#[test]
fn records_smaller_than_a_row_are_mirrored() {
    for (text, most) in [("4+1", 2), ("4+2", 2), ("8+2", 3), ("1+1", 0), ("2+2", 1), ("3+0", 3)] {
        let preferred: Vec<u32> = (1..20).filter(|blocks| prefers_mirror(scheme(text), *blocks)).collect();
        let expected: Vec<u32> = (1..=most).collect();
        assert_eq!(preferred, expected, "{text}");
    }
}
