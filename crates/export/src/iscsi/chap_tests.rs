//! Responses of CHAP, in both directions, and the encodings of binary values.

use proptest::prelude::*;

use super::*;

fn account() -> ChapAccount {
    let target = Some(("disk".into(), "the other secret".into()));
    ChapAccount { user: "host".into(), secret: "a long secret".into(), target }
}

fn pairs(list: &[(&str, &str)]) -> TextPairs {
    let mut text = TextWriter::default();
    list.iter().for_each(|(key, value)| text.add(key, value));
    TextPairs::decode(&text.finish()).unwrap()
}

fn answer(step: &mut ChapStep, request: &TextPairs) -> (Result<Option<ChapAccount>, LoginStatus>, TextPairs) {
    let mut answer = TextWriter::default();
    let result = take_step(step, request, &mut answer, &[account()]);
    (result, TextPairs::decode(&answer.finish()).unwrap())
}

/// The challenge of the target.
fn challenged(list: &str) -> (ChapStep, TextPairs) {
    let mut step = ChapStep::Chosen;
    let (result, challenge) = answer(&mut step, &pairs(&[("CHAP_A", list)]));
    assert_eq!(result, Ok(None));
    (step, challenge)
}

fn respond(hash: ChapHash, challenge: &TextPairs, secret: &str) -> String {
    let id = challenge.get("CHAP_I").unwrap().parse().unwrap();
    to_hex(&hash.response(id, secret, &from_text(challenge.get("CHAP_C").unwrap()).unwrap()))
}

#[test]
fn an_initiator_that_knows_the_secret_is_authenticated() {
    for (list, hash, number) in
        [("5", ChapHash::Md5, "5"), ("7,5", ChapHash::Sha256, "7"), ("8,5", ChapHash::Md5, "5")]
    {
        let (mut step, challenge) = challenged(list);
        assert_eq!(challenge.get("CHAP_A"), Some(number));
        let response = respond(hash, &challenge, "a long secret");
        let (result, reply) = answer(&mut step, &pairs(&[("CHAP_N", "host"), ("CHAP_R", &response)]));
        assert_eq!((result, reply), (Ok(Some(account())), TextPairs::default()));
    }
}

#[test]
fn others_are_refused() {
    let refused = Err(LoginStatus::AUTHENTICATION);
    let mut step = ChapStep::Chosen;
    assert_eq!(answer(&mut step, &pairs(&[("CHAP_A", "6,8")])).0, refused);
    let (mut step, challenge) = challenged("5");
    let right = respond(ChapHash::Md5, &challenge, "a long secret");
    let wrong = respond(ChapHash::Md5, &challenge, "another one");
    for request in [
        pairs(&[("CHAP_N", "host"), ("CHAP_R", &wrong)]),
        pairs(&[("CHAP_N", "guest"), ("CHAP_R", &right)]),
        pairs(&[("CHAP_N", "host"), ("CHAP_R", "0x")]),
        pairs(&[("CHAP_N", "host"), ("CHAP_R", &right[..right.len() - 2])]),
        pairs(&[("CHAP_R", &right)]),
        pairs(&[]),
        // The target's own challenge.
        pairs(&[
            ("CHAP_N", "host"),
            ("CHAP_R", &right),
            ("CHAP_I", "1"),
            ("CHAP_C", challenge.get("CHAP_C").unwrap()),
        ]),
    ] {
        assert_eq!(answer(&mut step, &request).0, refused, "{request:?}");
    }
}

#[test]
fn the_target_authenticates_itself() {
    let (mut step, challenge) = challenged("5");
    let response = respond(ChapHash::Md5, &challenge, "a long secret");
    let request =
        pairs(&[("CHAP_N", "host"), ("CHAP_R", &response), ("CHAP_I", "9"), ("CHAP_C", "0x0102030405")]);
    let (result, reply) = answer(&mut step, &request);
    assert_eq!(result, Ok(Some(account())));
    assert_eq!(reply.get("CHAP_N"), Some("disk"));
    let expected = ChapHash::Md5.response(9, "the other secret", &[1, 2, 3, 4, 5]);
    assert_eq!(reply.get("CHAP_R"), Some(to_hex(&expected).as_str()));
}

#[test]
fn md5_is_that_of_the_specification() {
    // MD5 of "a" "b" "c" as identifier, secret and challenge (RFC 1321).
    let response = ChapHash::Md5.response(b'a', "b", b"c");
    assert_eq!(to_hex(&response), "0x900150983cd24fb0d6963f7d28e17f72");
}

proptest! {
    #[test]
    fn values_are_decoded_as_they_were_encoded(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        prop_assert_eq!(from_text(&to_hex(&bytes)), Some(bytes));
    }

    #[test]
    fn any_text_is_decoded_or_refused(text in "0[xXbB][ -~]{0,40}|.{0,8}") {
        if let Some(bytes) = from_text(&text) {
            prop_assert!(bytes.len() <= text.len());
        }
    }
}

#[test]
fn base64_is_decoded() {
    for (text, bytes) in [("0bZm9vYmFy", &b"foobar"[..]), ("0bZm9vYg==", b"foob"), ("0b", b"")] {
        assert_eq!(from_text(text).as_deref(), Some(bytes));
    }
    assert_eq!(from_text("0bZm9v*"), None);
}
