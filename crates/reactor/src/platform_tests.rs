//! Tests of the choice and the names of backends.

use super::*;
use crate::testing::start;

#[test]
fn io_uring_is_chosen_if_available() {
    let (platform, _) = start(Backend::Auto);
    assert_eq!(platform.backend(), Backend::Uring);
}

#[test]
fn backends_parse_from_their_names() {
    for backend in [Backend::Auto, Backend::Uring, Backend::Threads] {
        assert_eq!(backend.to_string().parse(), Ok(backend));
    }
    let unknown = "epoll".parse::<Backend>().unwrap_err();
    assert!(unknown.to_string().contains("epoll"), "{unknown}");
}
