//! Tests of buffers and spans.

use super::*;

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
