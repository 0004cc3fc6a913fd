//! The groups of RFC 7919.

use proptest::prelude::*;

use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn primes_are_those_of_the_rfc() {
    // The last words before the ones, as the RFC prints them.
    for (number, end) in [
        (1, "c1b2effa886b423861285c97"),
        (2, "3fd59d7c25e41d2b66c62e37"),
        (3, "f44182e1c68a007e5e655f6a"),
        (4, "7938dad4a40e329cd0e40e65"),
        (5, "838ff88cd68c8bb7c5c6424c"),
    ] {
        let group = DhGroup::ALL.into_iter().find(|group| group.number == number).unwrap();
        let text = hex(&group.prime().to_be_bytes());
        assert_eq!(text.len(), group.bits as usize / 4);
        assert!(text.starts_with("ffffffffffffffffadf85458a2bb4a9aafdc5620273d3cf1"), "{text}");
        assert!(text.ends_with(&format!("{end}ffffffffffffffff")), "{text}");
    }
}

#[test]
fn groups_have_prime_order() {
    // Fermat's test of p and of (p - 1) / 2, with the base 3.
    for group in DhGroup::ALL.into_iter().filter(|group| group.bits < 4096) {
        let prime = group.prime();
        for candidate in [prime.clone(), prime.shr(1)] {
            let one = BoxedUint::one_with_precision(group.bits);
            let base = BoxedUint::from(3u8).resize(group.bits);
            let power = base.pow_mod(&candidate.wrapping_sub(&one), &Odd::new(candidate).unwrap());
            assert_eq!(power, one, "{group:?}");
        }
    }
}

#[test]
fn invalid_values_are_refused() {
    for group in DhGroup::ALL {
        let pair = group.generate().unwrap();
        let length = group.bits as usize / 8;
        let of = |number: &BoxedUint| number.to_be_bytes().to_vec();
        let (prime, one) = (group.prime(), BoxedUint::one_with_precision(group.bits));
        let small = |last: u8| [vec![0; length - 1], vec![last]].concat();
        for bad in [
            small(0),
            small(1),
            of(&prime.wrapping_sub(&one)),
            of(&prime),
            vec![0xff; length],
            pair.value[1..].to_vec(),
            [&pair.value[..], &[0]].concat(),
            Vec::new(),
        ] {
            assert!(pair.shared_secret(&bad).is_none(), "{group:?} {}", hex(&bad));
        }
        assert!(pair.shared_secret(&small(2)).is_some());
        assert!(pair.shared_secret(&of(&prime.wrapping_sub(&one).wrapping_sub(&one))).is_some());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Both sides derive the same secret; another side derives another one.
    #[test]
    fn secrets_are_shared(at in 0..DhGroup::ALL.len()) {
        let group = DhGroup::ALL[at];
        let [own, other, third] = [(); 3].map(|()| group.generate().unwrap());
        let secret = own.shared_secret(&other.value).unwrap();
        prop_assert_eq!(secret.len(), group.bits as usize / 8);
        prop_assert_eq!(&secret, &other.shared_secret(&own.value).unwrap());
        prop_assert_ne!(&secret, &third.shared_secret(&own.value).unwrap());
        prop_assert_ne!(&own.value, &other.value);
    }
}
