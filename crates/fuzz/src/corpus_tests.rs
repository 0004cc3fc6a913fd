//! Replay of corpora and its failures.

use std::cell::RefCell;

use super::*;

thread_local! {
    static SEEN: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

fn corpus(inputs: &[&[u8]]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (number, input) in inputs.iter().enumerate() {
        std::fs::write(directory.path().join(format!("{number}")), input).unwrap();
    }
    directory
}

#[test]
fn every_input_is_replayed() {
    let corpus = corpus(&[b"one", b"two"]);
    replay(corpus.path(), |bytes| SEEN.with_borrow_mut(|seen| seen.push(bytes.to_vec())));
    assert_eq!(SEEN.take(), [&b""[..], b"one", b"two"]);
}

#[test]
#[should_panic(expected = "the second")]
fn a_failing_input_fails_the_test() {
    let corpus = corpus(&[b"one", b"two"]);
    replay(corpus.path(), |bytes| assert_ne!(bytes, b"two", "the second"));
}

#[test]
#[should_panic(expected = "has no inputs")]
fn a_target_without_inputs_fails() {
    replay(corpus(&[]).path(), |_| ());
}

#[test]
#[should_panic(expected = "No such file")]
fn a_target_without_a_corpus_fails() {
    replay(Path::new("/no/such/directory"), |_| ());
}

#[test]
#[should_panic(expected = "reduce it to")]
fn a_large_corpus_fails() {
    replay(corpus(&[&[0; BYTES_MAX + 1]]).path(), |_| ());
}
