//! HTTPS connections to a remote daemon.
//!
//! Invariant: the token is sent only to a server whose certificate was verified: by the authorities
//! of a file or of the system, or by its fingerprint.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::{Error, ErrorKind, Result};

/// Port of a server whose address has none.
const DEFAULT_PORT: u16 = 9188;
/// Longest time to connect, with the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Files of the system with the certificates of authorities.
const SYSTEM_FILES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// The proof that a server is the right one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTrust {
    /// Its certificate is signed by an authority that the system trusts.
    System,
    /// Its certificate is signed by an authority in this text (PEM), or is in this text.
    Authorities(Vec<u8>),
    /// Its certificate has this SHA-256 fingerprint.
    Fingerprint([u8; 32]),
}

impl ServerTrust {
    /// Parses a fingerprint: 64 hexadecimal digits, with or without colons.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn fingerprint(text: &str) -> Result<Self> {
        let digits: Vec<u32> = text.chars().filter(|c| *c != ':').map_while(|c| c.to_digit(16)).collect();
        let is_plain = text.chars().all(|c| c == ':' || c.is_ascii_hexdigit());
        let bytes: Vec<u8> = digits
            .chunks_exact(2)
            .filter_map(|pair| u8::try_from(pair.iter().fold(0, |value, digit| value * 16 + digit)).ok())
            .collect();
        match bytes.try_into() {
            Ok(fingerprint) if is_plain && digits.len() == 64 => Ok(Self::Fingerprint(fingerprint)),
            _ => Err(Error::new(ErrorKind::Invalid, format!("'{text}' is not a SHA-256 fingerprint"))
                .hint("the daemon prints the fingerprint in its log when it starts to serve HTTPS")),
        }
    }

    /// Returns the settings of a client of a server with this proof.
    ///
    /// # Errors
    /// `Invalid` when the authorities have no certificate.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>> {
        config(self).map(Arc::new)
    }
}

/// A remote server, and the token for it.
#[derive(Clone)]
pub struct RemoteServer {
    host: String,
    port: u16,
    name: ServerName<'static>,
    token: Option<String>,
    config: Arc<ClientConfig>,
}

impl fmt::Debug for RemoteServer {
    /// Writes everything but the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteServer")
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for RemoteServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}:{}", self.host, self.port)
    }
}

/// Splits an address such as `https://host:9188` into host, with brackets for IPv6, and port.
fn split(address: &str) -> Option<(&str, u16)> {
    let rest = address.strip_prefix("https://")?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (rest, DEFAULT_PORT),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    (!host.is_empty() && host.chars().all(is_plain)).then_some((host, port))
}

impl RemoteServer {
    /// Returns the server at an address: `https://host:port`, with port 9188 if it has none.
    ///
    /// # Errors
    /// `Invalid` for an invalid address, token or certificate.
    pub fn new(address: &str, token: Option<&str>, trust: &ServerTrust) -> Result<Self> {
        let invalid = || {
            Error::new(ErrorKind::Invalid, format!("'{address}' is not the address of a server"))
                .hint("use, for example, https://storage1:9188")
        };
        let (host, port) = split(address).ok_or_else(invalid)?;
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare).map_err(|_| invalid())?;
        let token = token.map(str::trim).filter(|token| !token.is_empty()).map(str::to_owned);
        if token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(Error::new(ErrorKind::Invalid, "the token contains invalid characters")
                .hint("the file of the token must contain the token only"));
        }
        let config = trust.client_config()?;
        Ok(Self { host: host.to_owned(), port, name, token, config })
    }

    /// Returns the host of the address, with brackets for an IPv6 address.
    pub(super) fn host_name(&self) -> &str {
        &self.host
    }

    /// Returns the value of the header `Host`.
    pub(super) fn host(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns the value of the header `Authorization`.
    pub(super) fn authorization(&self) -> Option<String> {
        self.token.as_ref().map(|token| format!("Bearer {token}"))
    }

    /// Connects and verifies the server.
    ///
    /// # Errors
    /// When the server cannot be reached, or its certificate is not accepted.
    pub(super) async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let connect = async {
            let host = self.host.trim_start_matches('[').trim_end_matches(']');
            let stream = TcpStream::connect((host, self.port)).await?;
            TlsConnector::from(self.config.clone()).connect(self.name.clone(), stream).await
        };
        let timed_out = |_| io::Error::new(io::ErrorKind::TimedOut, "the connection timed out");
        tokio::time::timeout(CONNECT_TIMEOUT, connect).await.map_err(timed_out)?
    }
}

fn config(trust: &ServerTrust) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Internal, format!("cannot set up TLS: {error}")))?;
    let authorities = match trust {
        ServerTrust::Fingerprint(expected) => {
            let verifier = FingerprintVerifier { expected: *expected, provider };
            return Ok(builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth());
        }
        ServerTrust::Authorities(text) => text.clone(),
        ServerTrust::System => {
            SYSTEM_FILES.into_iter().find_map(|path| std::fs::read(Path::new(path)).ok()).unwrap_or_default()
        }
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(
        CertificateDer::pem_slice_iter(&authorities).filter_map(|certificate| certificate.ok()),
    );
    if roots.is_empty() && matches!(trust, ServerTrust::Authorities(_)) {
        return Err(Error::new(ErrorKind::Invalid, "the file of the authorities has no certificate")
            .hint("give a PEM file with --ca-file, or the fingerprint of the server's certificate with --fingerprint"));
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Accepts one certificate, whatever its names and its time.
#[derive(Debug)]
struct FingerprintVerifier {
    expected: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for FingerprintVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if digest(&SHA256, certificate).as_ref() == self.expected {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for (address, expected) in [
            ("https://a", Some(("a", 9188))),
            ("https://a.b:1/", Some(("a.b", 1))),
            ("https://[::1]", Some(("[::1]", 9188))),
            ("https://[::1]:5", Some(("[::1]", 5))),
            ("http://a", None),
            ("a:1", None),
            ("https://", None),
            ("https://a:x", None),
            ("https://a/b", None),
            ("https://a b", None),
        ] {
            assert_eq!(split(address), expected, "{address}");
        }
        assert!(RemoteServer::new("https://[::1]:5", Some("gabion_a_b\n"), &ServerTrust::System).is_ok());
        let error = RemoteServer::new("https://a", Some("a\nb"), &ServerTrust::System).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }

    #[test]
    fn fingerprints_have_64_digits() {
        let digits = "0aFF".repeat(16);
        let ServerTrust::Fingerprint(bytes) = ServerTrust::fingerprint(&digits).unwrap() else { panic!() };
        assert_eq!(bytes[..3], [0x0a, 0xff, 0x0a]);
        assert!(ServerTrust::fingerprint(&vec!["0a"; 32].join(":")).is_ok());
        for wrong in ["", "0a", &digits[1..], &format!("{digits}0"), &digits.replace('0', "g")] {
            assert!(ServerTrust::fingerprint(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_token_is_not_shown() {
        let server = RemoteServer::new("https://a", Some("gabion_a_secret"), &ServerTrust::System).unwrap();
        assert!(!format!("{server:?} {server}").contains("secret"));
        assert_eq!(server.authorization().as_deref(), Some("Bearer gabion_a_secret"));
    }
}
