//! What each state of a drive means.

use super::*;

#[test]
fn states_say_what_is_done_with_a_drive() {
    // In use, takes segments, is lost, counts as lost.
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
