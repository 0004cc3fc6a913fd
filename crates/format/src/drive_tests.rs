//! Properties of each drive state.

use super::*;

#[test]
fn properties_of_each_state() {
    // In use, accepts segments, is lost, counts as lost.
    for (state, expected) in [
        (DriveState::Online, [true, true, false, false]),
        (DriveState::Missing, [false, false, true, true]),
        (DriveState::Failed, [false, false, true, true]),
        (DriveState::Removed, [false, false, false, false]),
        (DriveState::Draining, [true, false, false, false]),
        (DriveState::Returning, [true, true, false, true]),
    ] {
        let is = [state.is_in_use(), state.accepts_segments(), state.is_lost(), state.counts_as_lost()];
        assert_eq!(is, expected, "{state:?}");
        assert_eq!(DriveState::from_byte(state.to_byte()), Ok(state));
    }
}
