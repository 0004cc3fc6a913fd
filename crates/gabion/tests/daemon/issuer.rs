//! An identity provider of the tests: its keys, its discovery document, and its tokens.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64_simd::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

/// The contents of the documents, and a count of the requests for the keys.
#[derive(Default)]
struct Published {
    issuer: Mutex<String>,
    keys: Mutex<Value>,
    requests: AtomicUsize,
}

/// An identity provider on this host.
pub(super) struct Issuer {
    pub(super) url: String,
    published: Arc<Published>,
    key: EcdsaKeyPair,
    name: String,
}

fn new_key() -> EcdsaKeyPair {
    let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap()
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode_to_string(bytes)
}

pub(super) fn unix_time() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

impl Issuer {
    /// Starts an issuer that speaks HTTP.
    pub(super) fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts an issuer that speaks HTTPS with a certificate, whose file is written.
    pub(super) fn start_tls(certificate: &Path) -> Self {
        let pair = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let made = parameters.self_signed(&pair).unwrap();
        std::fs::write(certificate, made.pem()).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(made.pem().as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(pair.serialize_pem().as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        Self::start_with(Some(Arc::new(config.with_single_cert(chain, key).unwrap())))
    }

    fn start_with(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://localhost:{port}/realms/main");
        let published = Arc::new(Published::default());
        let issuer =
            Self { url: url.clone(), published: published.clone(), key: new_key(), name: "1".into() };
        issuer.publish();
        *published.issuer.lock().unwrap() = url;
        // The thread ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Clients may leave, or refuse the certificate.
                let _ = match &tls {
                    None => answer(stream, &published),
                    Some(tls) => {
                        let connection = rustls::ServerConnection::new(tls.clone()).unwrap();
                        answer(rustls::StreamOwned::new(connection, stream), &published)
                    }
                };
            }
        });
        issuer
    }

    /// Names another issuer in the discovery document.
    pub(super) fn pretend(&self, issuer: &str) {
        *self.published.issuer.lock().unwrap() = issuer.to_owned();
    }

    /// Replaces the key by a new one.
    pub(super) fn rotate(&mut self) {
        self.key = new_key();
        self.name = format!("{}1", self.name);
        self.publish();
    }

    /// Publishes no keys any more.
    pub(super) fn revoke(&self) {
        *self.published.keys.lock().unwrap() = json!({"keys": []});
    }

    fn publish(&self) {
        *self.published.keys.lock().unwrap() = self.keys();
    }

    /// Returns the set of the public keys.
    pub(super) fn keys(&self) -> Value {
        let point = self.key.public_key().as_ref();
        json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": self.name, "alg": "ES256", "use": "sig",
            "x": encode(&point[1..33]), "y": encode(&point[33..])}]})
    }

    /// Returns how often the keys were requested.
    pub(super) fn requests(&self) -> usize {
        self.published.requests.load(Ordering::SeqCst)
    }

    /// Returns a token for the audience `gabion` with other or additional claims.
    pub(super) fn token(&self, changes: &Value) -> String {
        let mut claims = json!({"iss": self.url, "aud": "gabion", "sub": "anna", "exp": unix_time() + 600});
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let header = json!({"alg": "ES256", "kid": self.name, "typ": "JWT"});
        let message = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = self.key.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", encode(signature))
    }
}

/// Answers the requests of a connection.
fn answer(stream: impl Read + Write, published: &Published) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let mut header = String::from("-");
    while !header.trim().is_empty() {
        header.clear();
        stream.read_line(&mut header)?;
    }
    let issuer = published.issuer.lock().unwrap().clone();
    let path = line.split(' ').nth(1).unwrap_or_default();
    let body = if path.ends_with("/.well-known/openid-configuration") {
        json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")})
    } else {
        published.requests.fetch_add(1, Ordering::SeqCst);
        published.keys.lock().unwrap().clone()
    };
    let body = body.to_string();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.get_mut().write_all(head.as_bytes())?;
    stream.get_mut().write_all(body.as_bytes())?;
    stream.get_mut().flush()
}

/// Sends a request to STS and returns the status and the document of the answer.
pub(super) fn sts(endpoint: &str, parameters: &[(&str, &str)]) -> (u16, String) {
    let address: SocketAddr = endpoint.trim_start_matches("http://").parse().unwrap();
    let encoded = |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02X}")).collect() };
    let fields: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let body = fields.join("&");
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/x-www-form-urlencoded; \
         charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// Returns the text of an element of a document.
pub(super) fn element(document: &str, name: &str) -> String {
    let begin = document.split_once(&format!("<{name}>"));
    let (text, _) = begin.and_then(|(_, rest)| rest.split_once("</")).unwrap_or_else(|| panic!("{document}"));
    text.to_owned()
}
