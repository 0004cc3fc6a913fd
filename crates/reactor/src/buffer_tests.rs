//! Tests of buffers and spans.

use super::*;
use crate::size_class::RECYCLED_MAX;

#[test]
fn buffers_are_aligned_and_keep_their_bytes() {
    for len in [0, 1, 511, 4096, 4097, 1 << 20, RECYCLED_MAX, RECYCLED_MAX + 1] {
        let mut buffer = Buffer::zeroed(len);
        assert!((buffer.span().as_ptr() as usize).is_multiple_of(ALIGNMENT));
        assert_eq!(buffer.as_slice(), vec![0; len]);
        buffer.as_mut_slice().fill(7);
        assert_eq!(buffer.as_slice(), vec![7; len]);
    }
}

#[test]
fn a_span_reads_and_writes_its_part() {
    let buffer = Buffer::zeroed(8192);
    let span = buffer.span();
    let part = span.slice(4096..8192);
    part.copy_from(1, b"abc");
    let mut back = [0; 3];
    span.copy_to(4097, &mut back);
    assert_eq!(&back, b"abc");
    drop((span, part));
    assert_eq!(buffer.as_slice().get(4097..4100), Some(&b"abc"[..]));
}

#[test]
fn a_span_outlives_its_buffer() {
    let span = Buffer::copy_of(&[9; 4096]).span();
    let others: Vec<_> = (0..8).map(|_| Buffer::zeroed(4096)).collect();
    let mut back = [0; 4096];
    span.copy_to(0, &mut back);
    assert_eq!(back, [9; 4096]);
    drop(others);
}

#[test]
fn a_buffer_for_a_record_is_recycled() {
    let record = (8 << 20) + 65_536;
    let buffer = Buffer::new(record);
    let address = buffer.span().as_ptr() as usize;
    drop(buffer);
    // Another length of the same size class.
    let again = Buffer::new(record + 100_000);
    assert_eq!(again.span().as_ptr() as usize, address);
    assert_eq!(again.span().allocation().1, 10 << 20);
}

#[test]
fn free_memory_of_a_thread_is_limited() {
    for (len, kept) in [(1 << 20, 64), (10 << 20, 3), (16 << 20, 2)] {
        let buffers: Vec<Buffer> = (0..kept + 2).map(|_| Buffer::new(len)).collect();
        drop(buffers);
        let class = class_of(len).unwrap();
        assert_eq!(FREE.with_borrow(|free| free.classes[class].len()), kept, "{len} bytes");
    }
}

#[test]
fn a_span_for_reading_keeps_its_owner() {
    let owner: Arc<[u8]> = vec![5; 5000].into();
    // SAFETY: the bytes stay where they are, and the test only reads them.
    let span = unsafe { Span::for_reading(owner.clone()) };
    assert_eq!((span.len(), span.as_ptr().cast_const()), (5000, owner.as_ptr()));
    let part = span.slice(4000..5000);
    drop((owner, span));
    assert_eq!(part.peek(<[u8]>::to_vec), vec![5; 1000]);
}

#[test]
#[should_panic(expected = "while an operation may hold it")]
fn a_buffer_is_inaccessible_while_a_span_exists() {
    let buffer = Buffer::zeroed(4096);
    let _span = buffer.span();
    let _ = buffer.as_slice();
}

#[test]
#[should_panic(expected = "copy beyond a span")]
fn copies_stay_within_the_span() {
    Buffer::zeroed(16).span().copy_from(10, &[0; 7]);
}
