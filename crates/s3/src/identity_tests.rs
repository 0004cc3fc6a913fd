//! Tests of the rights of users, also by random policies against a plain model.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

fn decide(documents: &[String], user: &str, action: &str, resource: &str) -> Decision {
    let policies = documents.iter().map(|text| Arc::new(IdentityPolicy::parse(text).unwrap())).collect();
    let values = |_: &str| None;
    let request = PolicyRequest { user: Some(user), role: None, action, resource, values: &values };
    UserRights { policies, limit: None }.decide(&request)
}

fn document(statements: &str) -> String {
    format!(r#"{{"Version":"2012-10-17","Statement":[{statements}]}}"#)
}

fn statement(effect: &str, action: &str, resource: &str) -> String {
    format!(r#"{{"Effect":"{effect}","Action":"{action}","Resource":"{resource}"}}"#)
}

#[test]
fn a_denial_of_any_policy_wins() {
    let all = document(&statement("Allow", "s3:*", "*"));
    let no_deletion = document(&statement("Deny", "s3:Delete*", "arn:aws:s3:::logs/*"));
    for documents in [[all.clone(), no_deletion.clone()], [no_deletion, all]] {
        assert_eq!(decide(&documents, "u", "s3:DeleteObject", "logs/1"), Decision::Deny);
        assert_eq!(decide(&documents, "u", "s3:DeleteObject", "other/1"), Decision::Allow);
    }
    assert_eq!(decide(&[], "u", "s3:GetObject", "logs/1"), Decision::Silent);
}

#[test]
fn resources_may_contain_the_name_of_the_user() {
    let home = [document(&statement("Allow", "s3:*", "arn:aws:s3:::home/${aws:username}/*"))];
    assert_eq!(decide(&home, "anna", "s3:GetObject", "home/anna/x"), Decision::Allow);
    assert_eq!(decide(&home, "ann", "s3:GetObject", "home/anna/x"), Decision::Silent);
}

#[test]
fn the_policy_of_a_session_limits_all_others() {
    let parse = |text: String| Arc::new(IdentityPolicy::parse(&text).unwrap());
    let all = parse(document(&statement("Allow", "s3:*", "*")));
    let read = parse(document(&statement("Allow", "s3:Get*", "arn:aws:s3:::logs/*")));
    let values = |_: &str| None;
    let decide = |policies: &[&Arc<IdentityPolicy>], action, resource| {
        let policies = policies.iter().map(|policy| (*policy).clone()).collect();
        let request = PolicyRequest { user: Some("u"), role: None, action, resource, values: &values };
        UserRights { policies, limit: Some(read.clone()) }.decide(&request)
    };
    assert_eq!(decide(&[&all], "s3:GetObject", "logs/1"), Decision::Allow);
    assert_eq!(decide(&[&all], "s3:PutObject", "logs/1"), Decision::Deny);
    assert_eq!(decide(&[&all], "s3:GetObject", "other/1"), Decision::Deny);
    // The limit gives no rights, neither by itself nor beside the policy of a bucket.
    assert_eq!(decide(&[], "s3:GetObject", "logs/1"), Decision::Silent);
    assert_eq!(decide(&[], "s3:PutObject", "logs/1"), Decision::Deny);
}

#[test]
fn malformed_documents_are_refused() {
    for (document, reason) in [
        (document(r#"{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*"}"#), "Principal"),
        (document(&statement("Allow", "iam:*", "*")), "iam:*"),
        (document(&statement("Allow", "s3:*", "bucket/*")), "arn:aws:s3:::"),
        (document(&statement("Allow", "s3:*", "arn:aws:s3:::b/${aws:userid}")), "${aws:userid}"),
        (document(r#"{"Effect":"Allow","Action":"s3:*"}"#), "Resource"),
        (document(""), "no statement"),
    ] {
        let error = IdentityPolicy::parse(&document).unwrap_err();
        assert!(error.contains(reason), "{document}: {error}");
    }
}

/// Compares by recursion, without the retries of the real one.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|from| matches(rest, &text[from..])),
        [b'?', rest @ ..] => !text.is_empty() && matches(rest, &text[1..]),
        [byte, rest @ ..] => text.first() == Some(byte) && matches(rest, &text[1..]),
    }
}

#[test]
fn random_policies_decide_like_a_plain_model() {
    let mut counts = [0; 3];
    for seed in 0..3000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut text = |alphabet: &[u8], length: usize| -> String {
            (0..length).map(|_| char::from(alphabet[random.random_range(0..alphabet.len())])).collect()
        };
        let shapes: Vec<(bool, String, String)> = (0..4)
            .map(|_| {
                let allows = text(b"aad", 1) == "a";
                (allows, format!("s3:{}", text(b"GP*?", 2)), text(b"ab/*?", 3))
            })
            .collect();
        let (action, resource) = (format!("s3:{}", text(b"GP", 2)), text(b"ab/", 3));
        let documents: Vec<String> = shapes
            .chunks(2)
            .map(|pair| {
                let parts = pair.iter().map(|(allows, action, resource)| {
                    let effect = if *allows { "Allow" } else { "Deny" };
                    statement(effect, action, &format!("arn:aws:s3:::{resource}"))
                });
                document(&parts.collect::<Vec<_>>().join(","))
            })
            .collect();
        let applies = |wanted: bool| {
            shapes.iter().any(|(allows, actions, resources)| {
                *allows == wanted
                    && matches(actions.as_bytes(), action.as_bytes())
                    && matches(resources.as_bytes(), resource.as_bytes())
            })
        };
        let (expected, index) = match (applies(false), applies(true)) {
            (true, _) => (Decision::Deny, 0),
            (false, true) => (Decision::Allow, 1),
            (false, false) => (Decision::Silent, 2),
        };
        counts[index] += 1;
        assert_eq!(decide(&documents, "u", &action, &resource), expected, "seed {seed}: {documents:?}");
    }
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}
