//! A plain HTTPS client, which sends exactly the headers that a test wants.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use super::harness::{Daemon, DaemonHome};

/// The HTTPS address of a daemon, and its certificate.
pub(crate) struct Https {
    pub(crate) address: SocketAddr,
    pub(crate) fingerprint: String,
    config: Arc<ClientConfig>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Https {
    /// Returns the address that the daemon has logged.
    pub(crate) fn of(daemon: &Daemon<'_>, home: &DaemonHome) -> Self {
        let log = daemon.log();
        let line = log.lines().find(|line| line.contains("serving HTTPS")).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        let mut roots = RootCertStore::empty();
        let text = std::fs::read(home.path("state/certificate.pem")).unwrap();
        roots.add(CertificateDer::from_pem_slice(&text).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
        // A resumed session has no certificate to verify.
        config.resumption = rustls::client::Resumption::disabled();
        Self {
            address: line["address"].as_str().unwrap().parse().unwrap(),
            fingerprint: line["fingerprint"].as_str().unwrap().to_owned(),
            config: Arc::new(config),
        }
    }

    /// Opens a connection and verifies the certificate.
    pub(crate) fn connect(&self, from: Option<IpAddr>) -> StreamOwned<ClientConnection, TcpStream> {
        let stream = match from {
            None => TcpStream::connect(self.address).unwrap(),
            Some(from) => connect_from(from, self.address),
        };
        let name = ServerName::from(self.address.ip());
        StreamOwned::new(ClientConnection::new(self.config.clone(), name).unwrap(), stream)
    }

    /// Sends a request with these header lines.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
        self.send_from(None, method, path, headers, body)
    }

    /// Sends a request from another address of this host.
    pub(crate) fn send_from(
        &self,
        from: Option<IpAddr>,
        method: &str,
        path: &str,
        headers: &[&str],
        body: &str,
    ) -> Answer {
        let mut stream = self.connect(from);
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: gabion\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        )
        .unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        let response = String::from_utf8(response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    /// Returns true if the server's certificate is the one of this client.
    pub(crate) fn try_connect(&self) -> bool {
        let mut stream = self.connect(None);
        stream.conn.complete_io(&mut stream.sock).is_ok()
    }

    /// Sends a request without a body. `None` if the connection is closed.
    pub(crate) fn try_send_from(
        &self,
        from: IpAddr,
        method: &str,
        path: &str,
        headers: &[&str],
    ) -> Option<u16> {
        let mut stream = self.connect(Some(from));
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        write!(stream, "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n").ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        response.split(' ').nth(1)?.parse().ok()
    }

    /// Sends a request with a token.
    pub(crate) fn with_token(&self, token: &str, method: &str, path: &str, body: &str) -> Answer {
        self.send(method, path, &[&format!("authorization: Bearer {token}")], body)
    }
}

pub(crate) fn connect_from(from: IpAddr, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&stream, &SocketAddr::new(from, 0)).unwrap();
    connect(&stream, &to).unwrap();
    TcpStream::from(stream)
}

/// Creates a token with a role on the Unix socket.
pub(crate) fn token(daemon: &Daemon<'_>, name: &str, role: &str) -> String {
    daemon.ok(&["token", "create", name, "--role", role]).trim().to_owned()
}
