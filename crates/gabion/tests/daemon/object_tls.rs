//! The S3 service over HTTPS: certificate files, their replacement, and clients.

use std::path::Path;

use api::client::ServerTrust;
use s3_client::{Address, Credentials, S3Client, S3Error};

use super::harness::{DaemonHome, until};
use super::nbd::pattern;

/// Writes a new certificate and its key.
fn write_certificate(certificate: &Path, key: &Path) {
    let pair = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["objects.example.org".to_owned()]).unwrap();
    let made = parameters.self_signed(&pair).unwrap();
    std::fs::write(key, pair.serialize_pem()).unwrap();
    std::fs::write(certificate, made.pem()).unwrap();
}

/// Lists the objects of a bucket by a new connection.
fn list(url: &str, credentials: &Credentials, fingerprint: Option<&str>) -> Result<usize, S3Error> {
    let trust = fingerprint.map(|text| ServerTrust::fingerprint(text).unwrap().client_config().unwrap());
    let address = Address::parse(url).unwrap();
    let client = S3Client::with_tls(address, "us-east-1", credentials.clone(), trust);
    let query = s3_client::ListRequest { limit: 10, ..Default::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(client.list("photos", &query)).map(|page| page.objects.len())
}

#[test]
fn objects_are_served_over_https_with_a_certificate_that_is_replaced() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let (certificate, private_key) = (home.path("s3.pem"), home.path("s3.key"));
    let listen = ["s3", "start", "fast", "--listen", "127.0.0.1:0"];
    let files =
        ["--certificate", certificate.to_str().unwrap(), "--private-key", private_key.to_str().unwrap()];
    let start = [&listen[..], &files].concat();
    assert!(daemon.refused(&start).contains("s3.pem"), "a missing file is named");
    assert_eq!(
        home.gabion(&[&listen[..], &files[..2]].concat()).code,
        Some(2),
        "a certificate without a key"
    );
    write_certificate(&certificate, &private_key);
    let url = daemon.ok(&start).trim().to_owned();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    assert!(daemon.ok(&["s3", "status"]).contains(&url));

    let (file, copy) = (home.path("file"), home.path("copy"));
    let data = pattern(7, 20 << 20);
    std::fs::write(&file, &data).unwrap();
    daemon.ok(&["bucket", "create", "fast/photos"]);
    daemon.ok(&["object", "put", "fast/photos", "key", file.to_str().unwrap()]);
    daemon.ok(&["object", "get", "fast/photos", "key", copy.to_str().unwrap()]);
    assert!(std::fs::read(&copy).unwrap() == data);

    let key = daemon.json(&["key", "create"]);
    let text = |name: &str| key[name].as_str().unwrap().to_owned();
    let credentials = Credentials::new(text("access_key"), text("secret"));
    let fingerprint = || daemon.json(&["s3", "status"])[0]["fingerprint"].as_str().unwrap().to_owned();
    let first = fingerprint();
    assert_eq!(list(&url, &credentials, Some(&first)).unwrap(), 1);
    let plain = url.replace("https://", "http://");
    assert!(list(&plain, &credentials, None).is_err(), "the service answers without TLS");

    write_certificate(&certificate, &private_key);
    until("the new certificate is loaded", || fingerprint() != first);
    let refused = list(&url, &credentials, Some(&first)).unwrap_err();
    assert!(matches!(refused, S3Error::Connect { .. }), "the old certificate is not served: {refused}");
    assert_eq!(list(&url, &credentials, Some(&fingerprint())).unwrap(), 1);
    let second = fingerprint();
    daemon.stop();

    let daemon = home.start();
    until("the service is active", || daemon.json(&["s3", "status"])[0]["state"] == "active");
    assert_eq!(list(&url, &credentials, Some(&second)).unwrap(), 1);
    daemon.stop();
}
