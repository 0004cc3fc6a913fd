//! Origins of a mirror: a directory, or a bucket of an S3 service.
//!
//! Always true: entries are in the order of their keys; a body is complete only if it matches the
//! size and the checksum or ETag of its object.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use api::client::ServerTrust;
use api::{Error, ErrorKind};
use bytes::{Buf, Bytes};
use jiff::Timestamp;
use md5::{Digest, Md5};
use s3_client::{Address, Checksum, Credentials, Download, ListPage, ListRequest, ListedObject, S3Client};
use tokio::sync::mpsc::{Receiver, Sender};

/// Attempts of a request after lost connections, and the pause before the second one.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// An object or file.
#[derive(Clone, Debug)]
pub(crate) struct MirrorEntry {
    pub(crate) key: String,
    pub(crate) size: u64,
    /// The ETag without quotes; a file has none.
    pub(crate) etag: Option<String>,
    pub(crate) modified: Option<Timestamp>,
}

impl MirrorEntry {
    fn of_object(object: ListedObject) -> Self {
        let ListedObject { key, size, etag, modified } = object;
        let etag = Some(etag.trim_matches('"').to_owned());
        Self { key, size, etag, modified: modified.parse().ok() }
    }

    /// Returns the MD5 of the body in hexadecimal digits, if the ETag has its form.
    pub(crate) fn md5(&self) -> Option<&str> {
        let is_md5 = |etag: &&str| etag.len() == 32 && etag.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.etag.as_deref().filter(is_md5)
    }
}

/// Joins the pages of a listing.
#[derive(Default)]
pub(crate) struct PageBuffer {
    entries: VecDeque<MirrorEntry>,
    token: Option<String>,
    is_complete: bool,
}

impl PageBuffer {
    /// Returns the next entry; `list` returns the page of a token.
    pub(crate) async fn next(
        &mut self,
        list: impl AsyncFn(Option<&str>) -> Result<ListPage>,
    ) -> Result<Option<MirrorEntry>> {
        while self.entries.is_empty() && !self.is_complete {
            let page = list(self.token.as_deref()).await?;
            self.entries.extend(page.objects.into_iter().map(MirrorEntry::of_object));
            self.token = page.next;
            self.is_complete = self.token.is_none();
        }
        Ok(self.entries.pop_front())
    }
}

/// A bucket of an S3 service.
pub(crate) struct SourceBucket {
    client: S3Client,
    url: String,
    bucket: String,
    pub(crate) prefix: String,
}

/// The settings of requests to the source.
#[derive(Debug, Default)]
pub(crate) struct SourceOptions {
    pub(crate) region: Option<String>,
    /// The PEM file of an authority.
    pub(crate) authority: Option<PathBuf>,
}

impl SourceBucket {
    /// Reads an address, `http://HOST:PORT/BUCKET[/PREFIX]`. The credentials are in the
    /// environment.
    ///
    /// # Errors
    /// For other addresses; without credentials.
    pub(crate) fn open(url: &str, options: &SourceOptions) -> Result<Self> {
        let invalid = || {
            let message = format!("'{url}' names no bucket");
            Error::new(ErrorKind::Invalid, message).hint("use, for example, http://minio1:9000/photos")
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
        let (host, path) = rest.split_once('/').ok_or_else(invalid)?;
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        if bucket.is_empty() {
            return Err(invalid().into());
        }
        let address = Address::parse(&format!("{scheme}://{host}"))?;
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (access, secret) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"));
        let (Some(access), Some(secret)) = (access, secret) else {
            let message = format!("there are no credentials for {scheme}://{host}");
            return Err(Error::new(ErrorKind::Denied, message)
                .hint("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment")
                .into());
        };
        let credentials = match variable("AWS_SESSION_TOKEN") {
            Some(token) => Credentials::new_with_token(access, secret, token),
            None => Credentials::new(access, secret),
        };
        let trust = match &options.authority {
            Some(path) => ServerTrust::Authorities(
                fs::read(path).with_context(|| format!("cannot read {}", path.display()))?,
            ),
            None => ServerTrust::System,
        };
        let tls = if scheme == "https" { Some(trust.client_config()?) } else { None };
        let region = options.region.clone().or_else(|| variable("AWS_REGION"));
        let region = region.or_else(|| variable("AWS_DEFAULT_REGION"));
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        let client = S3Client::with_tls(address, region, credentials, tls);
        let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
        Ok(Self { client, url: format!("{scheme}://{host}/{bucket}"), bucket, prefix })
    }

    /// Repeats a request after lost connections.
    async fn retry<T>(&self, key: &str, mut request: impl AsyncFnMut() -> s3_client::Result<T>) -> Result<T> {
        let mut attempt = 1;
        loop {
            match request().await {
                Ok(done) => return Ok(done),
                Err(error) if error.is_transient() && attempt < ATTEMPTS => {
                    tokio::time::sleep(PAUSE * attempt).await;
                    attempt += 1;
                }
                Err(error) => {
                    let name = format!("{}/{key}", self.url);
                    return Err(Error::new(ErrorKind::Io, format!("{name}: {error}")).into());
                }
            }
        }
    }

    async fn page(&self, token: Option<&str>) -> Result<ListPage> {
        let request = ListRequest { prefix: &self.prefix, token, limit: 1000, ..ListRequest::default() };
        self.retry("", async || self.client.list(&self.bucket, &request).await).await
    }

    /// Sends the body of an object. A body that does not match its object ends with an error.
    pub(crate) async fn send(
        &self,
        entry: &MirrorEntry,
        is_md5: bool,
        sender: &Sender<io::Result<Bytes>>,
    ) -> Result<()> {
        let sent = self.try_send(entry, is_md5, sender).await;
        if let Err(error) = &sent {
            // The receiver may have failed first.
            let _ = sender.send(Err(io::Error::other(format!("{error:#}")))).await;
        }
        sent
    }

    async fn open_range(&self, key: &str, from: u64, to: u64, etag: &str) -> Result<Download> {
        let range = (from > 0).then_some(from..to);
        let open = async || self.client.get_object(&self.bucket, key, range.clone(), Some(etag)).await;
        let download = self.retry(key, open).await?;
        if download.head.length == to - from {
            return Ok(download);
        }
        let message =
            format!("{}/{key} has {} bytes instead of {}", self.url, download.head.length, to - from);
        Err(Error::new(ErrorKind::Busy, message).hint("run the command again").into())
    }

    async fn try_send(
        &self,
        entry: &MirrorEntry,
        is_md5: bool,
        sender: &Sender<io::Result<Bytes>>,
    ) -> Result<()> {
        let MirrorEntry { key, size, .. } = entry;
        let etag = format!("\"{}\"", entry.etag.as_deref().unwrap_or_default());
        let mut download = self.open_range(key, 0, *size, &etag).await?;
        let wanted = download.head.checksum.clone();
        let (mut checksum, mut md5, mut losses) = (Checksum::default(), Md5::new(), 0);
        while checksum.length() < *size {
            match download.next().await {
                Ok(Some(bytes)) => {
                    checksum.update(&bytes);
                    md5.update(&bytes);
                    if sender.send(Ok(bytes)).await.is_err() {
                        return Ok(());
                    }
                }
                Err(error) if error.is_transient() && losses < ATTEMPTS => {
                    losses += 1;
                    download = self.open_range(key, checksum.length(), *size, &etag).await?;
                }
                Ok(None) => break,
                Err(error) => {
                    return Err(Error::new(ErrorKind::Io, format!("{}/{key}: {error}", self.url)).into());
                }
            }
        }
        let found: String = md5.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let damage = match (&wanted, entry.md5().filter(|_| is_md5)) {
            _ if checksum.length() != *size => Some(format!("{} of {size} bytes arrived", checksum.length())),
            (Some(wanted), _) if *wanted != checksum.to_base64() => {
                Some(format!("its CRC-64/NVME is {}, not {wanted}", checksum.to_base64()))
            }
            (None, Some(etag)) if !etag.eq_ignore_ascii_case(&found) => {
                Some(format!("its MD5 is {found}, and its ETag is {etag}"))
            }
            _ => None,
        };
        let Some(damage) = damage else { return Ok(()) };
        let message = format!("{}/{key} was damaged on its way: {damage}", self.url);
        let hint = "if the ETags of the source are not MD5s, as with SSE-KMS, use --ignore-etags";
        Err(Error::new(ErrorKind::Corrupt, message).hint(hint).into())
    }
}

/// The origin of bodies.
pub(crate) enum Origin {
    /// The files below a directory, whose keys are their paths.
    Directory(PathBuf),
    /// A bucket.
    Bucket(SourceBucket),
}

/// A directory or bucket to be mirrored.
pub(crate) struct MirrorSource {
    pub(crate) origin: Arc<Origin>,
    /// Files without a key, with the reason.
    pub(crate) refused: Vec<String>,
    /// The files of a directory by key.
    files: VecDeque<MirrorEntry>,
    pages: PageBuffer,
}

impl MirrorSource {
    /// Opens the source that an argument names.
    ///
    /// # Errors
    /// For an unreadable directory or an address without a bucket.
    pub(crate) fn open(argument: &str, options: &SourceOptions) -> Result<Self> {
        let (mut files, mut refused) = (Vec::new(), Vec::new());
        let origin = if argument.contains("://") {
            Origin::Bucket(SourceBucket::open(argument, options)?)
        } else {
            walk(Path::new(argument), "", &mut files, &mut refused)?;
            files.sort_by(|one: &MirrorEntry, other| one.key.cmp(&other.key));
            Origin::Directory(PathBuf::from(argument))
        };
        Ok(Self { origin: Arc::new(origin), refused, files: files.into(), pages: PageBuffer::default() })
    }

    /// Returns the prefix of its keys.
    pub(crate) fn prefix(&self) -> &str {
        match &*self.origin {
            Origin::Directory(_) => "",
            Origin::Bucket(bucket) => &bucket.prefix,
        }
    }

    /// Returns the next entry by key.
    pub(crate) async fn next(&mut self) -> Result<Option<MirrorEntry>> {
        match &*self.origin {
            Origin::Directory(_) => Ok(self.files.pop_front()),
            Origin::Bucket(bucket) => self.pages.next(async |token| bucket.page(token).await).await,
        }
    }
}

/// Collects the regular files below a directory. Symbolic links are not followed.
fn walk(
    directory: &Path,
    prefix: &str,
    entries: &mut Vec<MirrorEntry>,
    refused: &mut Vec<String>,
) -> Result<()> {
    let unreadable = || format!("cannot read {}", directory.display());
    for file in fs::read_dir(directory).with_context(unreadable)? {
        let file = file.with_context(unreadable)?;
        let metadata = file.metadata().with_context(|| format!("cannot read {}", file.path().display()))?;
        let Ok(name) = file.file_name().into_string() else {
            refused.push(format!("{}: the name is not UTF-8", file.path().display()));
            continue;
        };
        let key = format!("{prefix}{name}");
        if metadata.is_dir() {
            walk(&file.path(), &format!("{key}/"), entries, refused)?;
        } else if metadata.is_file() {
            let modified = metadata.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
            entries.push(MirrorEntry { key, size: metadata.len(), etag: None, modified });
        } else {
            refused.push(format!("{}: not a regular file", file.path().display()));
        }
    }
    Ok(())
}

/// Reads a body that arrives in pieces, on a thread that may block.
pub(crate) struct PieceReader {
    pub(crate) pieces: Receiver<io::Result<Bytes>>,
    pub(crate) current: Bytes,
}

impl Read for PieceReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.current = piece?,
                None => return Ok(0),
            }
        }
        let count = into.len().min(self.current.len());
        if let Some(into) = into.get_mut(..count) {
            self.current.copy_to_slice(into);
        }
        Ok(count)
    }
}
