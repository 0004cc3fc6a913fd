//! The body of an object while it arrives.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{HeaderMap, Response};
use tokio::time::timeout;

use crate::connection::{ConnectionPool, Lease, SILENCE_MAX, silent};
use crate::error::{Result, S3Error};

/// The properties of an object in the headers of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectHead {
    /// The length of the body, or of the requested range, in bytes.
    pub length: u64,
    /// The ETag with its quotes.
    pub etag: String,
    /// The CRC-64/NVME of the whole object in base64, if the service has one.
    pub checksum: Option<String>,
}

impl ObjectHead {
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let length = text("content-length").and_then(|length| length.parse().ok());
        let is_whole = text("x-amz-checksum-type").is_none_or(|kind| kind == "FULL_OBJECT");
        Ok(Self {
            length: length.ok_or_else(|| S3Error::Response("an object without its length".into()))?,
            etag: text("etag").unwrap_or_default().to_owned(),
            checksum: text("x-amz-checksum-crc64nvme").filter(|_| is_whole).map(str::to_owned),
        })
    }
}

/// An object whose body is read with [`Download::next`].
pub struct Download {
    /// The headers.
    pub head: ObjectHead,
    body: Incoming,
    left: u64,
    pool: Arc<ConnectionPool>,
    lease: Option<Lease>,
}

impl Download {
    pub(crate) fn new(response: Response<Incoming>, lease: Lease, pool: Arc<ConnectionPool>) -> Result<Self> {
        let head = ObjectHead::of(response.headers())?;
        let left = head.length;
        Ok(Self { head, body: response.into_body(), left, pool, lease: Some(lease) })
    }

    /// Returns the next bytes, or `None` after the announced length.
    ///
    /// # Errors
    /// When the connection ends early or the service falls silent.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let frame = timeout(SILENCE_MAX, self.body.frame()).await.map_err(|_| silent())?;
            match frame {
                None if self.left > 0 => {
                    return Err(S3Error::Response(format!("{} bytes of the body are missing", self.left)));
                }
                None => {
                    if let Some(lease) = self.lease.take() {
                        self.pool.put_back(lease);
                    }
                    return Ok(None);
                }
                Some(frame) => {
                    // Trailers carry no data.
                    let Ok(data) = frame?.into_data() else { continue };
                    let left = self.left.checked_sub(data.len() as u64);
                    self.left = left.ok_or_else(|| S3Error::Response("the body is too long".into()))?;
                    return Ok(Some(data));
                }
            }
        }
    }
}
