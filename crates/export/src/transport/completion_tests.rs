//! Groups of sub-operations.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::VolumeErrorKind;

#[test]
fn a_group_completes_with_its_last_part_and_returns_its_first_failure() {
    let group = Rc::new(CompletionGroup::default());
    let parts: Vec<CompletionGuard> = (0..3).map(|_| group.part()).collect();
    let mut ended = pin!(group.ended());
    let mut context = Context::from_waker(Waker::noop());
    let failure = |kind| Err(VolumeError::new(kind, "failed"));
    let results = [Ok(()), failure(VolumeErrorKind::Io), failure(VolumeErrorKind::NoSpace)];
    for (part, result) in parts.into_iter().zip(results) {
        assert!(ended.as_mut().poll(&mut context).is_pending());
        part.end(result);
    }
    let Poll::Ready(Err(error)) = ended.poll(&mut context) else { panic!("not ended") };
    assert_eq!(error.kind(), VolumeErrorKind::Io);
}
