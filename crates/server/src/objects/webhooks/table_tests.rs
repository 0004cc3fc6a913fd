//! Tests of the file of webhooks.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn request(name: &str, url: &str, token: Option<&str>) -> CreateWebhook {
    CreateWebhook {
        name: name.to_owned(),
        url: url.to_owned(),
        token: token.map(str::to_owned),
        ..CreateWebhook::default()
    }
}

#[test]
fn tokens_survive_a_restart_encrypted() {
    let directory = tempfile::tempdir().unwrap();
    let webhooks = WebhookFile::open(directory.path()).unwrap();
    let token = "0123456789abcdef";
    webhooks.create(request("hook", "https://example.org/in?key=1", Some(token))).unwrap();
    webhooks.create(request("open", "http://127.0.0.1:80/", None)).unwrap();
    let again = WebhookFile::open(directory.path()).unwrap();
    let hook = again.get("hook").unwrap();
    assert_eq!(
        (hook.token.as_deref(), hook.url.to_string().as_str()),
        (Some(token), "https://example.org/in?key=1")
    );
    assert_eq!(hook.id(), webhooks.get("hook").unwrap().id());
    assert!(again.get("open").unwrap().token.is_none());
    let path = directory.path().join(FILE);
    assert!(!std::fs::read_to_string(&path).unwrap().contains(token));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let other = ChangeWebhook { url: Some("https://example.net/".into()), ..ChangeWebhook::default() };
    again.change("hook", other).unwrap();
    let removal = ChangeWebhook { token: Some(String::new()), ..ChangeWebhook::default() };
    let moved = WebhookFile::open(directory.path()).unwrap().get("hook").unwrap();
    assert_eq!(
        (moved.token.as_deref(), moved.url.to_string().as_str()),
        (Some(token), "https://example.net/")
    );
    assert_ne!(moved.id(), hook.id());
    again.change("hook", removal).unwrap();
    assert!(again.get("hook").unwrap().token.is_none());
    let plain = ChangeWebhook { url: Some("http://example.net/".into()), ..ChangeWebhook::default() };
    assert_eq!(again.change("hook", plain).unwrap_err().kind(), ErrorKind::Invalid);
    again.delete("hook").unwrap();
    assert_eq!(again.delete("hook").unwrap_err().kind(), ErrorKind::NotFound);
    assert!(WebhookFile::open(directory.path()).unwrap().get("hook").is_none());
}

#[test]
fn tokens_are_bound_to_their_webhook_and_key() {
    let directory = tempfile::tempdir().unwrap();
    let webhooks = WebhookFile::open(directory.path()).unwrap();
    webhooks.create(request("hook", "https://example.org/", Some("secret"))).unwrap();
    let path = directory.path().join(FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"hook\"", "\"evil\"")).unwrap();
    assert_eq!(WebhookFile::open(directory.path()).err().unwrap().kind(), ErrorKind::Corrupt);
    std::fs::write(&path, text).unwrap();
    std::fs::write(directory.path().join("s3-keys.key"), [7; 32]).unwrap();
    assert_eq!(WebhookFile::open(directory.path()).err().unwrap().kind(), ErrorKind::Corrupt);
}

#[test]
fn wrong_webhooks_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let webhooks = WebhookFile::open(directory.path()).unwrap();
    for wrong in [
        request("a b", "https://example.org/", None),
        request("hook", "http://example.org/", None),
        request("hook", "https://user:password@example.org/", None),
        request("hook", "https://example.org/", Some("")),
        request("hook", "https://example.org/", Some("two words")),
        CreateWebhook { authorities: Some("/none".into()), ..request("hook", "https://example.org/", None) },
    ] {
        assert_eq!(webhooks.create(wrong.clone()).unwrap_err().kind(), ErrorKind::Invalid, "{wrong:?}");
    }
    let plain = CreateWebhook { allow_http: true, ..request("hook", "http://example.org/", None) };
    webhooks.create(plain.clone()).unwrap();
    assert_eq!(webhooks.create(plain).unwrap_err().kind(), ErrorKind::Exists);
}
