//! Tests of the parameters and documents of the Security Token Service.

use super::*;

fn parameters(changes: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut parameters = vec![
        ("Action", "AssumeRoleWithWebIdentity"),
        ("RoleArn", "arn:aws:iam::123456789012:role/ci"),
        ("RoleSessionName", "build-7"),
        ("WebIdentityToken", "a.b.c"),
    ];
    for (name, value) in changes {
        parameters.retain(|(other, _)| other != name);
        if !value.is_empty() {
            parameters.push((name, value));
        }
    }
    parameters.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn complete_requests_are_accepted() {
    let request = parse_request(&parameters(&[("DurationSeconds", "900"), ("Policy", "{}")])).ok().unwrap();
    assert_eq!((request.role.as_str(), request.session_name.as_str()), ("ci", "build-7"));
    assert_eq!((request.duration_s, request.policy.as_deref()), (Some(900), Some("{}")));
    assert!(!format!("{request:?}").contains("a.b.c"));
    assert_eq!(role_of_arn("arn:aws:iam:::role/x"), Some("x"));
}

#[test]
fn malformed_requests_are_refused_with_the_reason() {
    let long = "x".repeat(TOKEN_MAX + 1);
    for (changes, code, reason) in [
        (&[("Action", "GetSessionToken")][..], "InvalidAction", "GetSessionToken"),
        (&[("Action", "")], "InvalidAction", ACTION),
        (&[("RoleArn", "")], "ValidationError", "RoleArn is missing"),
        (&[("RoleArn", "ci")], "ValidationError", "arn:aws:iam:::role/NAME"),
        (&[("RoleArn", "arn:aws:iam:::role/")], "ValidationError", "arn:aws:iam:::role/NAME"),
        (&[("RoleSessionName", "a b")], "ValidationError", "2 to 64"),
        (&[("WebIdentityToken", long.as_str())], "ValidationError", "20000"),
        (&[("DurationSeconds", "soon")], "ValidationError", "number of seconds"),
        (&[("Version", "2010-05-08")], "ValidationError", VERSION),
        // Messages go to the log.
        (&[("RoleArn", "a\nb")], "ValidationError", "'a\\nb' is not a role"),
        // A limit that is ignored would give more rights than the client wants.
        (&[("PolicyArns.member.1.arn", "arn:x")], "ValidationError", "PolicyArns.member.1.arn"),
    ] {
        let Err(StsError(status, found, message)) = parse_request(&parameters(changes)) else {
            panic!("{changes:?}")
        };
        assert_eq!((status, found), (StatusCode::BAD_REQUEST, code), "{changes:?}");
        assert!(message.contains(reason), "{changes:?}: {message}");
    }
    for name in ["Policy", "DurationSeconds", "Version"] {
        let mut empty = parameters(&[]);
        empty.push((name.to_owned(), String::new()));
        let Err(StsError(_, code, message)) = parse_request(&empty) else { panic!("{name}") };
        assert_eq!(
            (code, message),
            ("ValidationError", format!("the parameter {name} is empty: leave it out"))
        );
    }
    let mut repeated = parameters(&[]);
    repeated.push(("RoleArn".to_owned(), "arn:aws:iam:::role/admin".to_owned()));
    assert!(parse_request(&repeated).is_err());
}

#[test]
fn documents_escape_their_texts() {
    let error = StsError(StatusCode::FORBIDDEN, "AccessDenied", "role '<a>&b'".to_owned());
    let document = error_document(&error, "id");
    assert!(document.contains("<Message>role '&lt;a&gt;&amp;b'</Message>"), "{document}");
    let session = IssuedSession {
        access_key: "ASIA".to_owned(),
        secret: "s".to_owned(),
        token: "t".to_owned(),
        expires: 1_795_478_400,
        subject: "a<b".to_owned(),
        audience: "aud".to_owned(),
        issuer: "https://i".to_owned(),
    };
    let document = credentials_document("ci", "build", &session, "id");
    assert!(document.contains("<Expiration>2026-11-24T00:00:00"), "{document}");
    assert!(document.contains("<SubjectFromWebIdentityToken>a&lt;b<"), "{document}");
    assert!(document.contains("<Arn>arn:aws:sts:::assumed-role/ci/build</Arn>"), "{document}");
}

#[test]
fn forms_and_actions_that_are_posted_to_the_root_are_requests() {
    for (method, target, content_type, expected) in [
        ("POST", "/", "application/x-www-form-urlencoded; charset=utf-8", true),
        ("POST", "/?Action=AssumeRoleWithWebIdentity", "", true),
        ("POST", "/", "", false),
        ("POST", "/?delete", "application/x-www-form-urlencoded", false),
        ("POST", "/?delete&Action=x", "", false),
        ("POST", "/bucket", "application/x-www-form-urlencoded", false),
        ("PUT", "/", "application/x-www-form-urlencoded", false),
    ] {
        let request =
            Request::builder().method(method).uri(target).header(header::CONTENT_TYPE, content_type);
        assert_eq!(is_sts(&request.body(()).unwrap()), expected, "{method} {target} {content_type}");
    }
}
