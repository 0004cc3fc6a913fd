//! A bucket, a PUT and a GET over S3, by curl or the client of this program.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use api::client::Client;
use api::types::{CreateKey, StartS3};
use s3_client::{Address, Checksum, Credentials, S3Client};
use serde::Serialize;

pub(super) const BUCKET: &str = "photos";
const KEY: &str = "2026/data.img";
/// Time for which the access key is valid, in seconds.
const KEY_VALID_S: u64 = 3600;
/// Bytes that are compared at once.
const CHUNK: usize = 1 << 20;

/// The client of the S3 service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum S3Tool {
    Curl,
    BuiltIn,
}

impl S3Tool {
    /// Returns the preferred installed client.
    pub(super) fn find(built_in: bool) -> Self {
        let output = Command::new("curl").args(["--help", "all"]).stderr(Stdio::null()).output();
        let signs =
            output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--aws-sigv4"));
        if signs && !built_in { Self::Curl } else { Self::BuiltIn }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::BuiltIn => "the built-in client",
        }
    }
}

/// The rates of the step.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ObjectRates {
    /// The client.
    pub(super) client: &'static str,
    /// Size of the object in bytes.
    pub(super) bytes: u64,
    /// Bytes per second of the PUT, until it was durable.
    pub(super) put_bytes_per_s: f64,
    /// Bytes per second of the GET.
    pub(super) get_bytes_per_s: f64,
}

/// The service of a pool, with its bucket.
#[derive(Clone)]
pub(super) struct QuickBucket {
    url: String,
    region: String,
    access_key: String,
    secret_key: String,
    tool: S3Tool,
}

impl QuickBucket {
    /// Starts S3 on a pool and creates the bucket.
    ///
    /// # Errors
    /// If the daemon or the service refuses it.
    pub(super) async fn create(client: &Client, pool: &str, tool: S3Tool) -> Result<Self> {
        let start = StartS3 { listen: "127.0.0.1:0".into(), ..StartS3::default() };
        let service = client.start_s3(pool, &start).await?;
        let key = client.create_key(&CreateKey { user: None, valid_s: Some(KEY_VALID_S) }).await?;
        let bucket = Self {
            url: format!("http://{}", service.listen),
            region: service.region,
            access_key: key.access_key,
            secret_key: key.secret.context("the daemon returned no secret key")?,
            tool,
        };
        bucket.client()?.create_bucket(BUCKET).await?;
        Ok(bucket)
    }

    /// Returns the address of the object.
    pub(super) fn address(&self) -> String {
        format!("{}/{BUCKET}/{KEY}", self.url)
    }

    fn client(&self) -> Result<S3Client> {
        let credentials = Credentials::new(self.access_key.clone(), self.secret_key.clone());
        Ok(S3Client::new(Address::parse(&self.url)?, self.region.clone(), credentials))
    }

    /// Puts a file as the object.
    ///
    /// # Errors
    /// If the client fails.
    pub(super) fn put(&self, file: &Path) -> Result<()> {
        match self.tool {
            S3Tool::Curl => self.curl(&["--upload-file".as_ref(), file.as_os_str()]),
            S3Tool::BuiltIn => block_on(async {
                let body = std::fs::read(file)?;
                let checksum = Checksum::of(&body);
                self.client()?.put_object(BUCKET, KEY, body.into(), &checksum).await?;
                Ok(())
            }),
        }
    }

    /// Gets the object into a file.
    ///
    /// # Errors
    /// If the client fails.
    pub(super) fn get(&self, file: &Path) -> Result<()> {
        match self.tool {
            S3Tool::Curl => self.curl(&["--output".as_ref(), file.as_os_str()]),
            S3Tool::BuiltIn => block_on(async {
                let mut out = std::fs::File::create(file)?;
                let mut download = self.client()?.get_object(BUCKET, KEY, None, None).await?;
                while let Some(bytes) = download.next().await? {
                    out.write_all(&bytes)?;
                }
                Ok(())
            }),
        }
    }

    /// Runs curl. The secret key is in its standard input, where other users cannot see it.
    fn curl(&self, arguments: &[&std::ffi::OsStr]) -> Result<()> {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail", "--config", "-"]);
        // Older releases of curl sign no hash of the payload, which the service requires.
        command.args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
        command.arg("--aws-sigv4").arg(format!("aws:amz:{}:s3", self.region));
        command.args(arguments).arg(self.address());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("starting curl")?;
        let config = format!("user = \"{}:{}\"\n", self.access_key, self.secret_key);
        child.stdin.take().context("curl has no input")?.write_all(config.as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("curl failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// Compares two files.
///
/// # Errors
/// If they differ.
pub(super) fn compare(left: &Path, right: &Path) -> Result<()> {
    let (mut first, mut second) = (std::fs::File::open(left)?, std::fs::File::open(right)?);
    let (mut ours, mut theirs) = (vec![0; CHUNK], vec![0; CHUNK]);
    let same_length = first.metadata()?.len() == second.metadata()?.len();
    let mut left_bytes = first.metadata()?.len();
    while same_length && left_bytes > 0 {
        let count = usize::try_from(left_bytes).unwrap_or(usize::MAX).min(CHUNK);
        let (Some(ours), Some(theirs)) = (ours.get_mut(..count), theirs.get_mut(..count)) else { break };
        first.read_exact(ours)?;
        second.read_exact(theirs)?;
        if ours != theirs {
            bail!("{} differs from {}", right.display(), left.display());
        }
        left_bytes -= count as u64;
    }
    if !same_length {
        bail!("{} and {} have different lengths", right.display(), left.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_compared_to_their_last_byte() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let mut bytes = vec![7; CHUNK + 3];
        let (left, same) = (file("left", &bytes), file("same", &bytes));
        compare(&left, &same).unwrap();
        bytes[CHUNK + 2] = 8;
        assert!(compare(&left, &file("other", &bytes)).unwrap_err().to_string().contains("differs"));
        assert!(compare(&left, &file("short", &bytes[1..])).unwrap_err().to_string().contains("lengths"));
    }
}
