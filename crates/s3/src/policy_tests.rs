//! Tests of policies by example requests.

use super::*;
use crate::patterns::is_in_network;

fn decide(
    policy: &str,
    user: Option<&str>,
    action: &str,
    resource: &str,
    values: &[(&str, &str)],
) -> Decision {
    let policy = PolicyDocument::parse_of_bucket(policy, "b").unwrap();
    let values = |key: &str| {
        let found: Vec<String> =
            values.iter().filter(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned()).collect();
        (!found.is_empty()).then_some(found)
    };
    policy.decide(&PolicyRequest { user, role: None, action, resource, values: &values })
}

fn statement(rest: &str) -> String {
    format!(r#"{{"Version":"2012-10-17","Statement":{{"Effect":"Allow","Principal":"*",{rest}}}}}"#)
}

#[test]
fn a_denial_wins() {
    let policy = r#"{"Statement":[
        {"Effect":"Allow","Principal":{"AWS":"*"},"Action":"s3:*","Resource":"arn:aws:s3:::b/*"},
        {"Effect":"Deny","Principal":{"AWS":["arn:aws:iam:::user/eve"]},"Action":["s3:Put*"],
         "Resource":["arn:aws:s3:::b/private/*"]}]}"#;
    assert_eq!(decide(policy, None, "s3:GetObject", "b/k", &[]), Decision::Allow);
    assert_eq!(decide(policy, Some("eve"), "s3:PutObject", "b/private/k", &[]), Decision::Deny);
    assert_eq!(decide(policy, Some("eve"), "s3:PutObject", "b/public/k", &[]), Decision::Allow);
    assert_eq!(decide(policy, Some("adam"), "s3:PutObject", "b/private/k", &[]), Decision::Allow);
    assert_eq!(decide(policy, Some("adam"), "s3:ListBucket", "b", &[]), Decision::Silent);
}

#[test]
fn principals_name_users_roles_and_accounts() {
    for (principal, user, role, applies) in [
        ("arn:aws:iam:::user/a", Some("a"), None, true),
        ("arn:aws:iam::a:root", Some("a"), None, true),
        ("a", Some("a"), None, true),
        ("arn:aws:iam:::user/a", Some("b"), None, false),
        ("arn:aws:iam:::user/a", None, None, false),
        ("*", Some("corp:a"), Some("r"), true),
        ("arn:aws:iam:::role/r", Some("corp:a"), Some("r"), true),
        ("arn:aws:iam::123456789012:role/r", Some("corp:a"), Some("r"), true),
        ("arn:aws:iam:::role/s", Some("corp:a"), Some("r"), false),
        ("arn:aws:iam:::user/corp:a", Some("corp:a"), Some("r"), false),
        ("arn:aws:iam:::role/r", Some("r"), None, false),
    ] {
        let values = |_: &str| None;
        let request = PolicyRequest { user, role, action: "s3:GetObject", resource: "b/k", values: &values };
        assert_eq!(is_principal(principal, &request), applies, "{principal} {user:?} {role:?}");
    }
}

#[test]
fn conditions_are_compared() {
    use Decision::{Allow, Silent};
    let cases = [
        (r#""StringEquals":{"s3:prefix":["a","b"]}"#, vec![("s3:prefix", "b")], Allow),
        (r#""StringEquals":{"s3:prefix":"a"}"#, vec![], Silent),
        (r#""StringEqualsIfExists":{"s3:prefix":"a"}"#, vec![], Allow),
        (r#""StringNotEquals":{"s3:prefix":"a"}"#, vec![("s3:prefix", "a")], Silent),
        (r#""StringNotEquals":{"s3:prefix":"a"}"#, vec![], Allow),
        (r#""StringLike":{"aws:Referer":"http://x/*"}"#, vec![("aws:referer", "http://x/y")], Allow),
        (r#""NumericLessThanEquals":{"s3:max-keys":"10"}"#, vec![("s3:max-keys", "11")], Silent),
        (r#""IpAddress":{"aws:SourceIp":"10.0.0.0/8"}"#, vec![("aws:sourceip", "10.9.1.2")], Allow),
        (r#""NotIpAddress":{"aws:SourceIp":"10.0.0.0/8"}"#, vec![("aws:sourceip", "10.9.1.2")], Silent),
        (r#""Null":{"s3:x-amz-acl":"true"}"#, vec![], Allow),
        (r#""Bool":{"aws:SecureTransport":"false"}"#, vec![("aws:securetransport", "false")], Allow),
        (
            r#""DateLessThan":{"aws:CurrentTime":"2026-01-01T00:00:00Z"}"#,
            vec![("aws:currenttime", "5")],
            Allow,
        ),
        (
            r#""StringEquals":{"s3:ExistingObjectTag/Key":"v"}"#,
            vec![("s3:existingobjecttag/Key", "v")],
            Allow,
        ),
        (r#""ForAllValues:StringEquals":{"k":["a","b"]}"#, vec![("k", "a"), ("k", "c")], Silent),
        (r#""ForAnyValue:StringEquals":{"k":["a","b"]}"#, vec![("k", "a"), ("k", "c")], Allow),
    ];
    for (condition, values, expected) in cases {
        let rest = format!(r#""Action":"*","Resource":"arn:aws:s3:::b","Condition":{{{condition}}}"#);
        let found = decide(&statement(&rest), None, "s3:ListBucket", "b", &values);
        assert_eq!(found, expected, "{condition} {values:?}");
    }
}

#[test]
fn malformed_policies_are_refused() {
    for policy in [
        "",
        "{}",
        r#"{"Statement":[]}"#,
        r#"{"Version":"1999","Statement":{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*"}}"#,
        r#"{"Statement":{"Effect":"Maybe","Principal":"*","Action":"*","Resource":"*"}}"#,
        r#"{"Statement":{"Effect":"Allow","Action":"*","Resource":"*"}}"#,
        r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"ec2:*","Resource":"*"}}"#,
        r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"*","Resource":"arn:aws:s3:::other/*"}}"#,
    ] {
        assert!(PolicyDocument::parse_of_bucket(policy, "b").is_err(), "{policy}");
    }
    let unknown = statement(r#""Action":"*","Resource":"*","Condition":{"Sounds":{"a":"b"}}"#);
    assert!(PolicyDocument::parse_of_bucket(&unknown, "b").unwrap_err().contains("Sounds"));
}

#[test]
fn public_policies_are_recognised() {
    let is_public = |rest: &str| PolicyDocument::parse_of_bucket(&statement(rest), "b").unwrap().is_public();
    let action = r#""Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*""#;
    assert!(is_public(action));
    assert!(!is_public(&format!(r#"{action},"Condition":{{"IpAddress":{{"aws:SourceIp":"10.0.0.0/8"}}}}"#)));
    assert!(is_public(&format!(r#"{action},"Condition":{{"IpAddress":{{"aws:SourceIp":"0.0.0.0/0"}}}}"#)));
}

#[test]
fn patterns_match_any_text() {
    for (pattern, text) in [("*", ""), ("a*c", "abbc"), ("a?c", "abc"), ("**a", "xa"), ("a*b*c", "a1b2b3c")] {
        assert!(is_like(pattern, text), "{pattern} {text}");
    }
    for (pattern, text) in [("a*c", "ab"), ("a?c", "ac"), ("", "a"), ("a", "")] {
        assert!(!is_like(pattern, text), "{pattern} {text}");
    }
    assert!(is_in_network("fe80::/10", "fe80::1") && !is_in_network("10.0.0.0/33", "10.0.0.1"));
}

#[test]
fn sessions_are_no_principals() {
    let policy = |kind: &str, principal: &str| {
        let text = format!(
            r#"{{"Statement": [{{"Effect": "Deny", "{kind}": {{"AWS": ["*", "{principal}"]}},
                "Action": "s3:*", "Resource": "arn:aws:s3:::b/*"}}]}}"#
        );
        let parsed = PolicyDocument::parse_of_bucket(&text, "b").unwrap();
        parsed.session_principal().map(str::to_owned)
    };
    let session = "arn:aws:sts:::assumed-role/ci/build-7";
    for kind in ["Principal", "NotPrincipal"] {
        assert_eq!(policy(kind, session).as_deref(), Some(session));
        assert_eq!(policy(kind, "arn:aws:iam:::role/ci"), None);
    }
}
