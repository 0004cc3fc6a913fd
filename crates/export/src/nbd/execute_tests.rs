//! Descriptors of block status.

use super::*;

fn extent(length: u64, data: bool) -> Extent {
    Extent { length, data }
}

#[test]
fn adjacent_extents_of_a_kind_are_merged() {
    let mut status = StatusList { list: Vec::new(), max: 2 };
    assert!(
        status.append(extent(1, true)) && status.append(extent(2, true)) && status.append(extent(4, false))
    );
    // The list is full, but an extent of the kind of the last one is merged into it.
    assert!(status.append(extent(8, false)) && !status.append(extent(16, true)));
    let expected = [StatusDescriptor { length: 3, data: true }, StatusDescriptor { length: 12, data: false }];
    assert_eq!(status.list, expected);
}
