//! The certificate of HTTPS: files of the administrator, or a self-signed certificate that is made
//! at the first start.
//!
//! Invariants: a change of the files takes effect without a restart; a broken pair of files never
//! replaces a working one; the private key is readable by the daemon's user only.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use ring::digest::{SHA256, digest};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::error::{Error, ErrorKind, Result};
use crate::private_file;

/// Years for which a self-signed certificate is valid.
const VALID_YEARS: i32 = 10;
const SECONDS_PER_YEAR: u64 = 31_556_952;

/// Interval at which changes of the files are looked for.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// The files of a certificate and its private key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Size and time of the last change of both files.
type Version = [(u64, Option<SystemTime>); 2];

/// The current certificate.
pub(crate) struct CertificateStore {
    files: CertificateFiles,
    current: RwLock<(Arc<CertifiedKey>, Version)>,
}

impl CertificateStore {
    /// Reads the files.
    ///
    /// # Errors
    /// When a file cannot be read, or the key does not belong to the certificate.
    pub(crate) fn open(files: CertificateFiles) -> Result<Arc<Self>> {
        let version = version(&files);
        let current = RwLock::new((Arc::new(read(&files)?), version));
        Ok(Arc::new(Self { files, current }))
    }

    /// Returns the settings of a server that uses the certificate, and looks for changes of its
    /// files as long as they are in use.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub(crate) fn serve(self: &Arc<Self>) -> Result<Arc<ServerConfig>> {
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::new(ErrorKind::Internal, format!("cannot set up TLS: {error}")))?;
        let mut config = config.with_no_client_auth().with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let reloaded = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RELOAD_INTERVAL).await;
                let Some(certificate) = reloaded.upgrade() else { return };
                certificate.reload();
            }
        });
        Ok(Arc::new(config))
    }

    fn current(&self) -> Arc<CertifiedKey> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Returns the SHA-256 fingerprint of the certificate: pairs of hexadecimal digits and colons.
    pub(crate) fn fingerprint(&self) -> String {
        self.current().cert.first().map(fingerprint).unwrap_or_default()
    }

    /// Reads the files again if they have changed. Keeps the current certificate if they are
    /// broken.
    pub(crate) fn reload(&self) {
        let version = version(&self.files);
        if self.current.read().unwrap_or_else(PoisonError::into_inner).1 == version {
            return;
        }
        let read = read(&self.files);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        current.1 = version;
        match read {
            Ok(certificate) => {
                current.0 = Arc::new(certificate);
                drop(current);
                tracing::info!(fingerprint = self.fingerprint(), "certificate reloaded");
            }
            Err(error) => tracing::error!(%error, "the certificate has changed and is not used"),
        }
    }
}

impl fmt::Debug for CertificateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateStore").field("files", &self.files).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for CertificateStore {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let digest = digest(&SHA256, certificate);
    digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}

fn version(files: &CertificateFiles) -> Version {
    let of = |path: &Path| {
        let metadata = std::fs::metadata(path).ok();
        metadata.map_or((0, None), |metadata| (metadata.len(), metadata.modified().ok()))
    };
    [of(&files.certificate), of(&files.key)]
}

fn read(files: &CertificateFiles) -> Result<CertifiedKey> {
    let failed = |path: &Path, reason: &dyn fmt::Display| {
        Error::new(ErrorKind::Invalid, format!("cannot use {}: {reason}", path.display()))
            .hint("use PEM files of a certificate chain and of its private key")
    };
    let contents = |path: &Path| std::fs::read(path).map_err(|error| failed(path, &error));
    let chain = CertificateDer::pem_slice_iter(&contents(&files.certificate)?).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| failed(&files.certificate, &error))?;
    if chain.is_empty() {
        return Err(failed(&files.certificate, &"the file has no certificate"));
    }
    let key =
        PrivateKeyDer::from_pem_slice(&contents(&files.key)?).map_err(|error| failed(&files.key, &error))?;
    CertifiedKey::from_der(chain, key, &default_provider()).map_err(|error| failed(&files.key, &error))
}

/// Returns the files of the self-signed certificate in the state directory. Makes them if they do
/// not exist.
///
/// # Errors
/// When they cannot be made.
pub(crate) fn self_signed(state_dir: &Path, listen: &[SocketAddr]) -> Result<CertificateFiles> {
    let files = CertificateFiles {
        certificate: state_dir.join("certificate.pem"),
        key: state_dir.join("certificate-key.pem"),
    };
    // The certificate is written last, so that it exists only with its key.
    if !files.certificate.exists() {
        let (certificate, key) = make(names(listen)).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("cannot make a certificate: {error}"))
        })?;
        private_file::replace(&files.key, key.as_bytes())?;
        private_file::replace(&files.certificate, certificate.as_bytes())?;
        tracing::info!(path = %files.certificate.display(), "self-signed certificate made");
    }
    Ok(files)
}

/// Returns the names and addresses of this host.
fn names(listen: &[SocketAddr]) -> Vec<String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned(), host];
    let listen = listen.iter().map(SocketAddr::ip).filter(|address| !address.is_unspecified());
    names.extend(listen.map(|address| address.to_string()));
    names.sort();
    names.dedup();
    names.retain(|name| !name.is_empty());
    names
}

/// Returns a new certificate and its key as PEM.
fn make(names: Vec<String>) -> Result<(String, String), rcgen::Error> {
    let key = rcgen::KeyPair::generate()?;
    let mut parameters = rcgen::CertificateParams::new(names)?;
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "Gabion");
    let year = i32::try_from(crate::unix_time::unix_time() / SECONDS_PER_YEAR).unwrap_or(0) + 1970;
    parameters.not_before = rcgen::date_time_ymd(year - 1, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(year + VALID_YEARS, 1, 1);
    parameters.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = parameters.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_self_signed_certificate_is_made_once_and_its_key_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let files = self_signed(directory.path(), &["192.0.2.1:443".parse().unwrap()]).unwrap();
        let mode = std::fs::metadata(&files.key).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let first = CertificateStore::open(files.clone()).unwrap().fingerprint();
        assert_eq!(first.len(), 32 * 3 - 1);
        assert_eq!(self_signed(directory.path(), &[]).unwrap(), files);
        assert_eq!(CertificateStore::open(files).unwrap().fingerprint(), first);
    }

    #[test]
    fn changed_files_are_reloaded_and_broken_ones_are_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let files = self_signed(directory.path(), &[]).unwrap();
        let store = CertificateStore::open(files.clone()).unwrap();
        let first = store.fingerprint();
        std::fs::write(&files.certificate, "nothing").unwrap();
        store.reload();
        assert_eq!(store.fingerprint(), first);
        std::fs::remove_file(&files.certificate).unwrap();
        self_signed(directory.path(), &[]).unwrap();
        store.reload();
        assert_ne!(store.fingerprint(), first);
        // A key of another certificate.
        let other = tempfile::tempdir().unwrap();
        let wrong = CertificateFiles { key: self_signed(other.path(), &[]).unwrap().key, ..files };
        assert_eq!(CertificateStore::open(wrong).err().unwrap().kind(), ErrorKind::Invalid);
    }
}
