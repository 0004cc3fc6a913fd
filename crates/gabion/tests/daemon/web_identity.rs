//! Temporary credentials for tokens of an identity provider: STS at the address of S3.

use s3_client::{Address, Checksum, Credentials, S3Client, S3Error};
use serde_json::json;

use super::harness::{Daemon, DaemonHome, until};
use super::issuer::{Issuer, element, sts, unix_time};
use super::objects::{has_boto3, run_script};

fn serve(daemon: &Daemon<'_>) -> String {
    daemon.make_pool();
    let endpoint = daemon.ok(&["s3", "start", "fast", "--listen", "127.0.0.1:0"]).trim().to_owned();
    daemon.ok(&["bucket", "create", "fast/photos"]);
    endpoint
}

/// Requests credentials of a role. Returns the document, or the code and message of the error.
fn assume(endpoint: &str, role: &str, token: &str, more: &[(&str, &str)]) -> Result<String, String> {
    let arn = format!("arn:aws:iam:::role/{role}");
    let required = [
        ("Action", "AssumeRoleWithWebIdentity"),
        ("Version", "2011-06-15"),
        ("RoleArn", &arn),
        ("RoleSessionName", "test"),
        ("WebIdentityToken", token),
    ];
    let (status, document) = sts(endpoint, &[&required, more].concat());
    match status {
        200 => Ok(document),
        _ => Err(format!("{status} {}: {}", element(&document, "Code"), element(&document, "Message"))),
    }
}

/// A client with temporary credentials.
struct RoleClient {
    client: S3Client,
    secret: String,
    token: String,
}

impl RoleClient {
    fn assume(endpoint: &str, role: &str, token: &str, more: &[(&str, &str)]) -> Self {
        let document = assume(endpoint, role, token, more).unwrap();
        let field = |name: &str| element(&document, name);
        let (secret, token) = (field("SecretAccessKey"), field("SessionToken"));
        let credentials = Credentials::new_with_token(field("AccessKeyId"), secret.clone(), token.clone());
        let client = S3Client::new(Address::parse(endpoint).unwrap(), "us-east-1", credentials);
        Self { client, secret, token }
    }

    /// Puts an object. Returns the code of the error; `""` for success.
    fn put(&self, key: &str) -> String {
        let checksum = Checksum::of(b"body");
        let put = self.client.put_object("photos", key, b"body".as_slice().into(), &checksum);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        match runtime.block_on(put) {
            Ok(_) => String::new(),
            Err(S3Error::Refused { code, .. }) => code,
            Err(error) => error.to_string(),
        }
    }
}

fn configure(daemon: &Daemon<'_>, issuer: &Issuer) {
    daemon.ok(&["provider", "create", "corp", "--issuer", &issuer.url, "--audience", "gabion,console"]);
    daemon.ok(&["role", "create", "writers", "--provider", "corp", "--policy", "readwrite", "--any-claims"]);
}

#[test]
fn tokens_give_credentials_with_the_rights_of_a_role() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let endpoint = serve(&daemon);
    let issuer = Issuer::start();
    configure(&daemon, &issuer);
    let home_policy = home.path("policy.json");
    std::fs::write(
        &home_policy,
        r#"{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:PutObject",
            "Resource": "arn:aws:s3:::photos/${aws:username}/*"}}"#,
    )
    .unwrap();
    daemon.ok(&["policy", "create", "home", home_policy.to_str().unwrap()]);
    let role = ["role", "create", "ops", "--provider", "corp", "--policy", "home", "--claim", "groups=op*"];
    daemon.ok(&[&role[..], &["--session-max", "15min"]].concat());

    let member = issuer.token(&json!({"groups": ["dev", "ops"]}));
    let ops = RoleClient::assume(&endpoint, "ops", &member, &[]);
    assert_eq!((ops.put("corp:anna/1").as_str(), ops.put("corp:ben/1").as_str()), ("", "AccessDenied"));
    let document = assume(&endpoint, "ops", &member, &[]).unwrap();
    assert_eq!(element(&document, "SubjectFromWebIdentityToken"), "anna");
    assert_eq!(element(&document, "Arn"), "arn:aws:sts:::assumed-role/ops/test");

    let limit = r#"{"Statement": {"Effect": "Allow", "Action": "s3:PutObject",
        "Resource": "arn:aws:s3:::photos/one/*"}}"#;
    let limited = RoleClient::assume(&endpoint, "writers", &member, &[("Policy", limit)]);
    assert_eq!((limited.put("one/1").as_str(), limited.put("two/1").as_str()), ("", "AccessDenied"));

    let now = unix_time();
    for (role, changes, more, reason) in [
        ("none", json!({}), None, "403 AccessDenied: not authorized to assume the role"),
        (
            "ops",
            json!({"groups": "dev"}),
            None,
            "403 AccessDenied: role 'ops' needs a token whose claim 'groups'",
        ),
        ("ops", json!({}), None, "403 AccessDenied"),
        ("writers", json!({"exp": now - 100}), None, "400 ExpiredTokenException: the token has expired"),
        (
            "writers",
            json!({"aud": "another"}),
            None,
            "400 InvalidIdentityToken: the token is not for an audience",
        ),
        ("writers", json!({"iss": "http://localhost/"}), None, "400 InvalidIdentityToken: the issuer"),
        (
            "writers",
            json!({}),
            Some(("DurationSeconds", "3601")),
            "400 ValidationError: DurationSeconds is 3601",
        ),
        ("writers", json!({}), Some(("Policy", "{}")), "400 ValidationError: Policy is malformed"),
    ] {
        let refused = assume(&endpoint, role, &issuer.token(&changes), &Vec::from_iter(more));
        let refused = refused.unwrap_err();
        assert!(refused.starts_with(reason), "{refused} instead of {reason}");
    }
    let unsigned = member.rsplit_once('.').unwrap().0;
    assert!(assume(&endpoint, "writers", &format!("{unsigned}."), &[]).unwrap_err().contains("signature"));
    assert!(assume(&endpoint, "writers", "x", &[]).unwrap_err().starts_with("400 InvalidIdentityToken"));

    // The session ends while its client works.
    let short = RoleClient::assume(&endpoint, "writers", &member, &[("DurationSeconds", "1")]);
    until("the session ends", || short.put("short") == "ExpiredToken");

    // Changes of a role are in effect for its sessions.
    daemon.ok(&["role", "set", "ops", "--policy", "readonly"]);
    assert_eq!(ops.put("corp:anna/2"), "AccessDenied");
    daemon.ok(&["role", "delete", "ops"]);
    assert_eq!(ops.put("corp:anna/2"), "InvalidToken");
    // A new role of the same name is another one.
    daemon.ok(&["role", "create", "ops", "--provider", "corp", "--policy", "readwrite", "--any-claims"]);
    assert_eq!(ops.put("corp:anna/2"), "InvalidToken");
    let log = daemon.stop();
    for secret in [&ops.secret, &ops.token, &member] {
        assert!(!log.contains(secret.as_str()), "the log contains a secret");
    }
}

#[test]
fn sessions_survive_a_restart_without_their_provider_and_end_with_it() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let endpoint = serve(&daemon);
    let issuer = Issuer::start();
    configure(&daemon, &issuer);
    let anna = RoleClient::assume(&endpoint, "writers", &issuer.token(&json!({})), &[]);
    assert_eq!((anna.put("1").as_str(), issuer.requests()), ("", 1));
    daemon.kill();

    let daemon = home.start();
    until("S3 serves the pool", || daemon.json(&["s3", "status"])[0]["state"] == "active");
    // The session needs neither the provider nor its keys.
    issuer.pretend("http://localhost/other");
    assert_eq!((anna.put("2").as_str(), issuer.requests()), ("", 1));
    let unreachable = assume(&endpoint, "writers", &issuer.token(&json!({})), &[]).unwrap_err();
    // The client does not learn the reason.
    assert_eq!(unreachable, "400 IDPCommunicationError: the identity provider cannot be reached");
    let shown = daemon.ok(&["provider", "show", "corp"]);
    assert!(
        shown.contains("unavailable") && shown.contains("the issuer 'http://localhost/other' instead of"),
        "{shown}"
    );

    assert!(daemon.refused(&["provider", "delete", "corp"]).contains("gabion role delete writers"));
    daemon.ok(&["role", "delete", "writers"]);
    daemon.ok(&["provider", "delete", "corp"]);
    assert_eq!(anna.put("3"), "InvalidToken");
    configure(&daemon, &issuer);
    assert_eq!(anna.put("3"), "InvalidToken");
    daemon.stop();
}

#[test]
fn changed_keys_of_a_provider_are_fetched() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let endpoint = serve(&daemon);
    let mut issuer = Issuer::start();
    configure(&daemon, &issuer);
    let old = issuer.token(&json!({}));
    for _ in 0..3 {
        assert!(assume(&endpoint, "writers", &old, &[]).is_ok());
    }
    assert_eq!(issuer.requests(), 1, "the keys are kept in memory");
    issuer.rotate();
    let new = issuer.token(&json!({}));
    until("the new key is known", || assume(&endpoint, "writers", &new, &[]).is_ok());
    let refused = assume(&endpoint, "writers", &old, &[]).unwrap_err();
    assert!(
        refused.starts_with("400 InvalidIdentityToken: the identity provider has no key '1'"),
        "{refused}"
    );
    // Tokens with unknown keys do not make the daemon ask the provider again and again.
    let before = issuer.requests();
    for _ in 0..20 {
        assert!(assume(&endpoint, "writers", &old, &[]).is_err());
    }
    assert!(issuer.requests() <= before + 2, "{} requests", issuer.requests());
    assert_eq!(daemon.json(&["provider", "show", "corp"])["keys"], 1);
    // A provider without keys has revoked them all. An unknown key makes the daemon ask again.
    issuer.revoke();
    until("the keys are revoked", || {
        assume(&endpoint, "writers", &old, &[]).is_err() && assume(&endpoint, "writers", &new, &[]).is_err()
    });
    assert!(daemon.ok(&["provider", "show", "corp"]).contains("publishes no usable key"));
    daemon.stop();
}

#[test]
fn keys_come_over_verified_tls_or_from_a_file() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let endpoint = serve(&daemon);
    let certificate = home.arg("issuer.pem");
    let issuer = Issuer::start_tls(home.path("issuer.pem").as_path());
    configure(&daemon, &issuer);
    let token = issuer.token(&json!({}));
    let untrusted = assume(&endpoint, "writers", &token, &[]).unwrap_err();
    assert_eq!(untrusted, "400 IDPCommunicationError: the identity provider cannot be reached");
    assert!(daemon.ok(&["provider", "show", "corp"]).contains("certificate"));
    daemon.ok(&["provider", "set", "corp", "--authorities", &certificate]);
    let trusted = RoleClient::assume(&endpoint, "writers", &token, &[]);
    assert_eq!(trusted.put("1"), "");

    let file = home.arg("keys.json");
    std::fs::write(&file, issuer.keys().to_string()).unwrap();
    let issuer_url = "https://issuer.example.org";
    let create = ["provider", "create", "offline", "--issuer", issuer_url, "--audience", "gabion"];
    daemon.ok(&[&create[..], &["--key-file", &file]].concat());
    daemon.ok(&[
        "role",
        "create",
        "offline",
        "--provider",
        "offline",
        "--policy",
        "readwrite",
        "--any-claims",
    ]);
    let token = issuer.token(&json!({"iss": issuer_url}));
    assert_eq!(RoleClient::assume(&endpoint, "offline", &token, &[]).put("2"), "");
    daemon.stop();
}

#[test]
fn boto3_assumes_a_role_with_web_identity() {
    if !has_boto3() {
        return;
    }
    let home = DaemonHome::new();
    let daemon = home.start();
    let endpoint = serve(&daemon);
    let issuer = Issuer::start();
    configure(&daemon, &issuer);
    let (token, foreign) = (issuer.token(&json!({})), issuer.token(&json!({"aud": "another"})));
    run_script(&["web_identity", &endpoint, "arn:aws:iam:::role/writers", &token, &foreign]);
    daemon.stop();
}

#[test]
fn commands_list_and_refuse() {
    let home = DaemonHome::new();
    let daemon = home.start();
    assert!(daemon.ok(&["provider", "list"]).contains("gabion provider create"));
    assert!(daemon.ok(&["role", "list"]).contains("gabion role create"));
    let create =
        |issuer: &'static str| ["provider", "create", "corp", "--issuer", issuer, "--audience", "a,b"];
    for (issuer, reason) in [
        ("http://login.example.org", "this host only"),
        ("login.example.org", "https://"),
        ("https://user@login.example.org", "user name"),
    ] {
        assert!(daemon.refused(&create(issuer)).contains(reason), "{issuer}");
    }
    let missing = home.arg("none.pem");
    let refused = daemon.refused(&[&create("https://a.example")[..], &["--authorities", &missing]].concat());
    assert!(refused.contains("none.pem"), "{refused}");
    daemon.ok(&create("https://login.example.org/main"));
    daemon.ok(&["role", "create", "ci", "--provider", "corp", "--policy", "readonly", "--claim", "sub=ci-*"]);
    let shown = daemon.ok(&["provider", "list"]);
    assert!(shown.contains("https://login.example.org/main") && shown.contains("not fetched"), "{shown}");
    daemon.ok(&["provider", "set", "corp", "--key-file", "", "--authorities", ""]);
    let shown = daemon.ok(&["role", "list"]);
    assert!(shown.contains("sub=ci-*") && shown.contains("3600 s"), "{shown}");
    assert_eq!(daemon.json(&["policy", "list"])[0]["roles"][0], "ci");
    let file = home.arg("policy.json");
    std::fs::write(&file, daemon.ok(&["policy", "show", "readonly"])).unwrap();
    daemon.ok(&["policy", "create", "copy", &file]);
    daemon.ok(&["role", "set", "ci", "--policy", "copy", "--any-claims", "--session-max", "2h"]);
    let role = daemon.json(&["role", "show", "ci"]);
    assert_eq!((role["claims"].clone(), role["session_max"].as_u64()), (json!({}), Some(7200)));
    let without = home.gabion(&["role", "create", "x", "--provider", "corp"]);
    assert!(without.code == Some(2) && without.err.contains("--claim"), "{without:?}");
    let create = ["role", "create", "x", "--provider", "corp", "--any-claims"];
    for (arguments, reason) in [
        (&["provider", "create", "corp", "--issuer", "https://a.example", "--audience", "a"][..], "already"),
        (&["provider", "show", "none"], "gabion provider list"),
        (&["provider", "set", "corp", "--audience", ""], "an audience"),
        (&["provider", "delete", "corp"], "gabion role delete ci"),
        (&["role", "create", "ci", "--provider", "corp", "--any-claims"], "already"),
        (&["role", "create", "x", "--provider", "none", "--any-claims"], "no provider 'none'"),
        (&[&create[..], &["--policy", "none"]].concat()[..], "no policy 'none'"),
        (&[&create[..], &["--session-max", "13h"]].concat()[..], "43200"),
        (&["role", "delete", "none"], "gabion role list"),
        (&["policy", "delete", "copy"], "gabion role set ci --policy"),
    ] {
        let refused = daemon.refused(arguments);
        assert!(refused.contains(reason), "{arguments:?}: {refused}");
    }
    daemon.stop();
    let daemon = home.start();
    assert_eq!(daemon.json(&["role", "show", "ci"]), role);
    daemon.ok(&["role", "delete", "ci"]);
    daemon.ok(&["policy", "delete", "copy"]);
    daemon.ok(&["provider", "delete", "corp"]);
    daemon.stop();
}
