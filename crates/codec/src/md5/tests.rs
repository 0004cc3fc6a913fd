//! MD5 of one and of several streams, against the vectors of RFC 1321 and against each other.

use proptest::prelude::*;

use super::*;

fn hex(digest: [u8; 16]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(bytes: &[u8]) -> String {
    let mut stream = Md5Stream::new();
    stream.update(bytes);
    hex(stream.finish())
}

#[test]
fn digests_are_those_of_rfc_1321() {
    for (text, expected) in [
        ("", "d41d8cd98f00b204e9800998ecf8427e"),
        ("a", "0cc175b9c0f1b6a831c399e269772661"),
        ("abc", "900150983cd24fb0d6963f7d28e17f72"),
        ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
        ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
        (
            "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
            "57edf4a22be3c955ac49da2e2107b67a",
        ),
    ] {
        assert_eq!(digest(text.as_bytes()), expected, "{text}");
    }
}

#[test]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn the_table_holds_the_sines() {
    for (step, value) in (1_i32..).zip(lanes::SINES) {
        assert_eq!(value, (f64::from(step).sin().abs() * 4_294_967_296.0) as u32, "step {step}");
    }
}

fn available() -> Vec<Kernel> {
    let mut all = vec![Kernel::Single];
    #[cfg(target_arch = "x86_64")]
    {
        all.extend(lanes::has_avx2().then_some(Kernel::Avx2));
        all.extend(lanes::has_avx512().then_some(Kernel::Avx512));
    }
    all
}

#[test]
fn each_kernel_returns_the_digests_of_single_streams() {
    let bodies: Vec<Vec<u8>> =
        (0..MD5_LANES).map(|lane| (0..640).map(|at| (at * 31 + lane * 7) as u8).collect()).collect();
    for kernel in available().into_iter().filter(|kernel| *kernel != Kernel::Single) {
        for count in 1..=kernel.lanes() {
            let mut words = vec![lanes::INITIAL; count];
            let mut group: Vec<(&mut Words, &[u8])> =
                words.iter_mut().zip(&bodies).map(|(words, body)| (words, body.as_slice())).collect();
            kernel.hash(&mut group, 576);
            assert!(group.iter().all(|(_, bytes)| bytes.len() == 64), "{kernel:?}");
            for (words, body) in words.iter().zip(&bodies) {
                let mut expected = lanes::INITIAL;
                hash_one(&mut expected, &body[..576]);
                assert_eq!(*words, expected, "{kernel:?} with {count} streams");
            }
        }
    }
}

proptest! {
    #[test]
    fn streams_that_are_updated_together_have_their_own_digests(
        rounds in prop::collection::vec(prop::collection::vec(0..400_usize, 0..40), 1..5),
        seed in any::<u8>(),
    ) {
        let count = rounds.iter().map(Vec::len).max().unwrap_or(0);
        let mut streams = vec![Md5Stream::new(); count];
        let mut whole = vec![Vec::new(); count];
        for lengths in rounds {
            let pieces: Vec<Vec<u8>> = lengths
                .iter()
                .enumerate()
                .map(|(lane, length)| (0..*length).map(|at| seed ^ (at * 7 + lane * 13) as u8).collect())
                .collect();
            whole.iter_mut().zip(&pieces).for_each(|(whole, piece)| whole.extend_from_slice(piece));
            let mut group: Vec<_> =
                streams.iter_mut().zip(&pieces).map(|(stream, piece)| (stream, piece.as_slice())).collect();
            md5_update_many(&mut group);
        }
        for (stream, whole) in streams.into_iter().zip(whole) {
            prop_assert_eq!(hex(stream.finish()), digest(&whole));
        }
    }
}
