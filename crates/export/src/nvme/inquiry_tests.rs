//! The addresses of the discovery log.

use super::reachable;

#[test]
fn listeners_at_all_addresses_are_listed_by_the_address_that_the_host_uses() {
    for (listener, reached, expected) in [
        ("192.0.2.1:4420", "192.0.2.9:8009", Some("192.0.2.1:4420")),
        ("192.0.2.1:4420", "[2001:db8::9]:8009", Some("192.0.2.1:4420")),
        ("[2001:db8::1]:4420", "192.0.2.9:8009", Some("[2001:db8::1]:4420")),
        ("0.0.0.0:4420", "192.0.2.9:8009", Some("192.0.2.9:4420")),
        ("0.0.0.0:4420", "[::ffff:192.0.2.9]:8009", Some("192.0.2.9:4420")),
        ("0.0.0.0:4420", "[2001:db8::9]:8009", None),
        ("[::]:4420", "[2001:db8::9]:8009", Some("[2001:db8::9]:4420")),
        ("[::]:4420", "192.0.2.9:8009", Some("192.0.2.9:4420")),
        ("[::]:4420", "[::ffff:192.0.2.9]:8009", Some("192.0.2.9:4420")),
    ] {
        let found = reachable(listener.parse().unwrap(), reached.parse().unwrap());
        assert_eq!(found, expected.map(|text| text.parse().unwrap()), "{listener} {reached}");
    }
}
