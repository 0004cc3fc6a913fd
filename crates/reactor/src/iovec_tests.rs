//! Tests of scatter-gather lists.

use super::*;
use crate::Buffer;

fn runs(spans: &SpanCursor) -> Vec<(usize, usize)> {
    spans.iovecs().iter().map(|run| (run.start as usize, run.len)).collect()
}

#[test]
fn the_rest_starts_where_the_kernel_stopped() {
    let spans: Vec<_> = [3, 0, 5, 4].map(|len| Buffer::new(len).span()).into();
    let starts: Vec<_> = spans.iter().map(|span| span.as_ptr() as usize).collect();
    let mut spans = SpanCursor::new(&spans);
    assert_eq!(runs(&spans), [(starts[0], 3), (starts[2], 5), (starts[3], 4)]);
    spans.advance(3);
    assert_eq!(runs(&spans), [(starts[2], 5), (starts[3], 4)]);
    spans.advance(4);
    assert_eq!(runs(&spans), [(starts[2] + 4, 1), (starts[3], 4)]);
    spans.advance(5);
    assert!(runs(&spans).is_empty() && spans.is_complete());
}

#[test]
fn one_call_respects_the_kernel_limits() {
    let span = Buffer::new(4096).span();
    let many = SpanCursor::from_spans((0..IOVECS_MAX + 7).map(|at| span.slice(at..at + 1)).collect());
    assert_eq!(many.iovecs().len(), IOVECS_MAX);
    assert!(many.single().is_none());

    // The same memory repeatedly: only the total matters.
    let part = Buffer::new(3 << 20).span();
    let mut spans = SpanCursor::from_spans((0..400).map(|_| part.clone()).collect());
    let moved: usize = runs(&spans).iter().map(|(_, len)| len).sum();
    assert_eq!(moved, BYTES_MAX);
    spans.advance(moved);
    assert_eq!(runs(&spans).iter().map(|(_, len)| len).sum::<usize>(), 400 * (3 << 20) - BYTES_MAX);
}

#[test]
fn a_single_run_needs_no_list() {
    let span = Buffer::new(4096).span();
    let mut spans = SpanCursor::new(std::slice::from_ref(&span));
    spans.advance(512);
    assert_eq!(spans.single(), Some((span.as_ptr().wrapping_add(512), 3584)));
}
