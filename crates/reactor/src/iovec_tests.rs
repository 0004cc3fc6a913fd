//! Runs of memory, continued after any number of bytes.

use super::*;
use crate::Buffer;

fn runs(pieces: &Pieces) -> Vec<(usize, usize)> {
    pieces.iovecs().iter().map(|run| (run.start as usize, run.len)).collect()
}

#[test]
fn what_is_left_begins_where_the_kernel_stopped() {
    let spans: Vec<_> = [3, 0, 5, 4].map(|len| Buffer::new(len).span()).into();
    let starts: Vec<_> = spans.iter().map(|span| span.as_ptr() as usize).collect();
    let mut pieces = Pieces::new(&spans);
    assert_eq!(runs(&pieces), [(starts[0], 3), (starts[2], 5), (starts[3], 4)]);
    pieces.advance(3);
    assert_eq!(runs(&pieces), [(starts[2], 5), (starts[3], 4)]);
    pieces.advance(4);
    assert_eq!(runs(&pieces), [(starts[2] + 4, 1), (starts[3], 4)]);
    pieces.advance(5);
    assert!(runs(&pieces).is_empty() && pieces.is_complete());
}

#[test]
fn one_call_takes_no_more_runs_and_bytes_than_the_kernel_does() {
    let span = Buffer::new(4096).span();
    let many = Pieces::from_spans((0..RUNS_MAX + 7).map(|at| span.slice(at..at + 1)).collect());
    assert_eq!(many.iovecs().len(), RUNS_MAX);
    assert!(many.single().is_none());

    // The same memory again and again: only the sum matters.
    let part = Buffer::new(3 << 20).span();
    let mut pieces = Pieces::from_spans((0..400).map(|_| part.clone()).collect());
    let moved: usize = runs(&pieces).iter().map(|(_, len)| len).sum();
    assert_eq!(moved, BYTES_MAX);
    pieces.advance(moved);
    assert_eq!(runs(&pieces).iter().map(|(_, len)| len).sum::<usize>(), 400 * (3 << 20) - BYTES_MAX);
}

#[test]
fn a_single_run_needs_no_list() {
    let span = Buffer::new(4096).span();
    let mut pieces = Pieces::new(std::slice::from_ref(&span));
    pieces.advance(512);
    assert_eq!(pieces.single(), Some((span.as_ptr().wrapping_add(512), 3584)));
}
