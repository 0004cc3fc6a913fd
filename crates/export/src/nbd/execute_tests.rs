//! Descriptors of block status, and requests in parts.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

fn extent(length: u64, data: bool) -> Extent {
    Extent { length, data }
}

#[test]
fn neighbours_of_a_kind_are_one_descriptor() {
    let mut status = Status { list: Vec::new(), max: 2 };
    assert!(
        status.append(extent(1, true)) && status.append(extent(2, true)) && status.append(extent(4, false))
    );
    // The list is full, but what is the same as the last goes on.
    assert!(status.append(extent(8, false)) && !status.append(extent(16, true)));
    let expected = [Descriptor { length: 3, data: true }, Descriptor { length: 12, data: false }];
    assert_eq!(status.list, expected);
}

#[test]
fn a_joint_request_ends_with_its_last_part_and_its_first_failure() {
    let joint = Rc::new(Joint::default());
    let parts: Vec<Part> = (0..3).map(|_| joint.part()).collect();
    let mut ended = pin!(joint.ended());
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
