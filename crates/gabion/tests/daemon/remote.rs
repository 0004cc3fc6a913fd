//! The remote API: roles, sessions, wrong tokens, contexts, and the audit log.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;

use api::paths::{self, Method};
use api::types::Role;

use super::harness::DaemonHome;
use super::https::{Https, token};

const LISTEN: [&str; 2] = ["--api-listen", "127.0.0.1:0"];

fn method(method: Method) -> &'static str {
    match method {
        Method::Get => "GET",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Patch => "PATCH",
        Method::Delete => "DELETE",
    }
}

/// Returns a path with names that do not exist.
fn filled(path: &str) -> String {
    let segment = |segment: &str| match segment {
        "{index}" | "{id}" => "60000".to_owned(),
        name if name.starts_with('{') => "no-such-thing".to_owned(),
        other => other.to_owned(),
    };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

#[test]
fn each_endpoint_requires_its_role() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&LISTEN);
    let https = Https::of(&daemon, &home);
    let tokens = Role::ALL.map(|role| (role, token(&daemon, "test", &role.to_string())));
    for row in paths::ALL {
        let (method, path) = (method(row.method), filled(row.path));
        let anybody = https.send(method, &path, &[], "{}");
        let Some(required) = row.role else {
            assert_eq!(anybody.status, 400, "{method} {path}: {anybody:?}");
            continue;
        };
        assert_eq!(anybody.status, 401, "{method} {path}: {anybody:?}");
        for (role, token) in &tokens {
            let answer = https.with_token(token, method, &path, "{}");
            let is_refused = answer.status == 403 && answer.json()["error"]["kind"] == "forbidden";
            assert_eq!(is_refused, *role < required, "{method} {path} as {role}: {answer:?}");
            assert_ne!(answer.status, 401, "{method} {path} as {role}: {answer:?}");
        }
    }
    for path in ["/metrics", "/v1/openapi.json"] {
        assert_eq!(https.send("GET", path, &[], "").status, 401, "{path}");
        assert_eq!(https.with_token(&tokens[0].1, "GET", path, "").status, 200, "{path}");
    }
    assert_eq!(https.send("GET", paths::LIVE, &[], "").status, 401);
    assert_eq!(https.with_token(&tokens[2].1, "GET", "/v1/no-such-endpoint", "").status, 404);
    daemon.stop();
}

#[test]
fn a_session_changes_something_only_with_its_csrf_header() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&LISTEN);
    let https = Https::of(&daemon, &home);
    let secret = token(&daemon, "alice", "admin");
    let begun = https.send("POST", "/v1/access/session", &[], &format!(r#"{{"token":"{secret}"}}"#));
    assert_eq!(begun.status, 201, "{begun:?}");
    let cookie = begun.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    for attribute in ["httponly", "secure", "samesite=strict", "path=/"] {
        assert!(cookie.split("; ").any(|part| part == attribute), "{cookie}");
    }
    // The head is in lower case, and the name of a cookie is not.
    let cookie = format!("cookie: {}", cookie.split(';').next().unwrap().replace("__host-", "__Host-"));
    let csrf = begun.json()["csrf_token"].as_str().unwrap().to_owned();
    let me = https.send("GET", "/v1/access/self", &[&cookie], "");
    assert_eq!((me.status, &me.json()["csrf_token"]), (200, &begun.json()["csrf_token"]));
    let create = |headers: &[&str]| {
        let body = r#"{"name":"made","role":"viewer"}"#;
        https.send("POST", "/v1/access/tokens", headers, body).status
    };
    assert_eq!(create(&[&cookie]), 403);
    assert_eq!(create(&[&cookie, "x-csrf-token: "]), 403);
    assert_eq!(create(&[&cookie, &format!("x-csrf-token: {csrf}0")]), 403);
    assert_eq!(create(&[&format!("x-csrf-token: {csrf}")]), 401);
    assert_eq!(daemon.json(&["token", "list"]).as_array().unwrap().len(), 1, "nothing was created");
    let csrf = format!("x-csrf-token: {csrf}");
    assert_eq!(create(&[&cookie, &csrf]), 201);

    // A restart of the daemon keeps the session.
    daemon.stop();
    let daemon = home.start_with(&["--api-listen", &https.address.to_string()]);
    assert_eq!(https.send("GET", "/v1/access/self", &[&cookie], "").status, 200);

    // The session ends with its token.
    let id = daemon.json(&["token", "list"]);
    let id = id.as_array().unwrap().iter().find(|token| token["name"] == "alice").unwrap();
    daemon.ok(&["token", "delete", id["id"].as_str().unwrap()]);
    assert_eq!(https.send("GET", "/v1/access/self", &[&cookie], "").status, 401);
    assert_eq!(https.with_token(&secret, "GET", "/v1/pools", "").status, 401);
    let log = daemon.stop();
    for secret in [secret.rsplit('_').next().unwrap(), csrf.rsplit(' ').next().unwrap()] {
        assert!(!log.contains(secret), "a secret is in the log: {log}");
    }
}

#[test]
fn a_client_that_does_not_complete_the_handshake_delays_nobody() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&LISTEN);
    let https = Https::of(&daemon, &home);
    let idle: Vec<_> = (0..50).map(|_| std::net::TcpStream::connect(https.address).unwrap()).collect();
    let mut plain = std::net::TcpStream::connect(https.address).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let secret = token(&daemon, "alice", "viewer");
    assert_eq!(https.with_token(&secret, "GET", "/v1/daemon", "").status, 200);
    drop(idle);
    daemon.stop();
}

#[test]
fn commands_use_a_remote_daemon_by_flags_and_contexts() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&LISTEN);
    let https = Https::of(&daemon, &home);
    let server = format!("https://{}", https.address);
    for role in ["operator", "admin"] {
        std::fs::write(home.path(role), token(&daemon, role, role) + "\n").unwrap();
    }
    let remote = |arguments: &[&str]| {
        let mut command = home.client(arguments);
        // No socket: a command that used it would fail.
        command.env("GABION_SOCKET", "").env("XDG_CONFIG_HOME", home.path("config"));
        super::harness::run(&mut command)
    };
    let (admin, operator) = (home.arg("admin"), home.arg("operator"));
    let files = home.arg("drives");
    let create =
        ["pool", "create", "fast", "--level", "1", "--files", &files, "--file-size", "64M", "--count", "2"];
    let flags = |token| ["--server", &server, "--token-file", token, "--fingerprint", &https.fingerprint];
    let ran = remote(&[&create[..], &flags(&operator)].concat());
    assert!(ran.code == Some(1) && ran.err.contains("'operator' has the role operator"), "{ran:?}");
    let ran = remote(&[&create[..], &flags(&admin)].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");

    // The certificate is not trusted without its fingerprint, and a wrong one is refused.
    let ran = remote(&["pool", "list", "--server", &server, "--token-file", &admin]);
    assert!(ran.code == Some(1) && ran.err.contains("--fingerprint"), "{ran:?}");
    let wrong = "00".repeat(32);
    let ran = remote(&["pool", "list", "--server", &server, "--fingerprint", &wrong]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let authority = home.arg("state/certificate.pem");
    let ran =
        remote(&["pool", "list", "-q", "--server", &server, "--token-file", &admin, "--ca-file", &authority]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "fast\n"), "{ran:?}");

    let ran = remote(&[&["context", "add", "rack1"], &flags(&operator)[..]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(remote(&["context", "use", "rack1"]).code, Some(0));
    assert_eq!(remote(&["volume", "create", "fast/a", "--size", "8M"]).code, Some(0));
    let ran = remote(&["context", "list"]);
    assert!(ran.out.lines().any(|line| line.starts_with('*') && line.contains("rack1")), "{ran:?}");
    let stored = std::fs::read_to_string(home.path("config/gabion/contexts.toml")).unwrap();
    assert!(!stored.contains("gabion_"), "a token is in the file of contexts: {stored}");
    assert_eq!(remote(&["context", "use", "no-such-context"]).code, Some(1));
    assert_eq!(remote(&["context", "remove", "rack1"]).code, Some(0));

    // The audit log has clients, requests and results.
    let audit = daemon.json(&["audit"]);
    let has =
        |client: &str, path: &str, status: u64| {
            audit.as_array().unwrap().iter().any(|record| {
                record["client"] == client && record["path"] == path && record["status"] == status
            })
        };
    assert!(has("operator", "/v1/pools", 403) && has("admin", "/v1/pools", 202), "{audit}");
    assert!(has("operator", "/v1/pools/fast/volumes", 201), "{audit}");
    let local =
        audit.as_array().unwrap().iter().find(|record| record["path"] == "/v1/access/tokens").unwrap();
    assert!(
        local["client"].as_str().unwrap().starts_with("local user") && local["address"].is_null(),
        "{local}"
    );
    daemon.stop();
}

#[test]
fn live_status_is_sent_as_events_until_the_daemon_stops() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&LISTEN);
    let https = Https::of(&daemon, &home);
    let secret = token(&daemon, "alice", "viewer");
    assert_eq!(https.send("GET", paths::LIVE, &[], "").status, 401);
    let open = || {
        let mut stream = https.connect(None);
        let path = paths::LIVE;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {secret}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        BufReader::new(stream)
    };
    let next = |stream: &mut dyn BufRead| -> serde_json::Value {
        loop {
            let mut line = String::new();
            assert!(stream.read_line(&mut line).unwrap() > 0, "the stream has ended");
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    };
    let (mut first, mut second) = (open(), open());
    assert_eq!(next(&mut first)["pools"], serde_json::json!([]));
    daemon.make_pool();
    while next(&mut second)["pools"][0]["health"] != "healthy" {}
    // The stop waits for requests in flight, and a stream is none that would not end.
    daemon.stop();
    let mut rest = String::new();
    let _ = first.read_to_string(&mut rest);
}

#[test]
fn the_console_needs_no_token_and_has_a_strict_policy() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&LISTEN);
    let https = Https::of(&daemon, &home);
    let page = https.send("GET", "/", &[], "");
    assert!(page.status == 200 && page.head.contains("default-src 'none'; script-src 'self'"), "{page:?}");
    for attribute in ["src=\"", "href=\"/"] {
        let start = page.body.find(attribute).unwrap() + attribute.len();
        let path = page.body[start..].split('"').next().unwrap();
        let path = format!("/{}", path.trim_start_matches('/'));
        assert_eq!(https.send("GET", &path, &[], "").status, 200, "{path}");
    }
    assert_eq!(https.send("GET", "/assets/../../etc/passwd", &[], "").status, 404);
    daemon.stop();
}

#[test]
fn the_socket_group_may_use_the_api() {
    let group =
        if rustix::process::geteuid().is_root() { 54_321 } else { rustix::process::getegid().as_raw() };
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--socket-group", &group.to_string()]);
    let metadata = std::fs::metadata(home.socket()).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o660);
    assert_eq!(std::os::unix::fs::MetadataExt::gid(&metadata), group);
    daemon.stop();
}
