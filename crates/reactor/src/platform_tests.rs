//! Which back end is chosen, and what they are called.

use super::*;
use crate::testing::start;

#[test]
fn the_ring_is_chosen_where_there_is_one() {
    let (platform, _) = start(Backend::Auto);
    assert_eq!(platform.backend(), Backend::Uring);
}

#[test]
fn backends_are_known_by_name() {
    for backend in [Backend::Auto, Backend::Uring, Backend::Threads] {
        assert_eq!(backend.to_string().parse(), Ok(backend));
    }
    let unknown = "epoll".parse::<Backend>().unwrap_err();
    assert!(unknown.to_string().contains("epoll"), "{unknown}");
}
