//! Receives bodies: small ones in memory, larger ones in pieces to the store.
//!
//! Always true: a request uses up to two pieces of memory; a body that does not match its length or
//! checksums is not stored.

use std::time::Duration;

use bytes::BytesMut;
use futures_util::StreamExt;
use object::Body;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use s3s::dto::StreamingBlob;
use s3s::{S3Result, TrailingHeaders, s3_error};

use crate::attributes::{Attributes, CHECKSUM};
use crate::errors::convert;
use crate::gateway::{Gateway, blocking};

/// The bytes of a piece. Smaller bodies stay in memory.
const PIECE: usize = 1 << 20;
/// The largest body of a request in bytes, as in S3.
const BODY_MAX: u64 = 5 << 30;
/// A client that sends nothing for this time is disconnected.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The algorithms by the names of their headers.
pub(crate) const ALGORITHMS: [&str; 5] = ["crc32", "crc32c", "crc64nvme", "sha1", "sha256"];

/// Checksums that a client sent, in base64, by algorithm.
pub(crate) type SentChecksums = [Option<String>; 5];

/// The claims of a request about its body.
pub(crate) struct BodyClaims {
    pub(crate) length: Option<i64>,
    pub(crate) md5: Option<String>,
    pub(crate) checksums: SentChecksums,
    /// The algorithm of the checksum to compute, in any case.
    pub(crate) algorithm: Option<String>,
    /// The names of trailing headers, as the request announces them.
    pub(crate) announced: Option<String>,
    pub(crate) trailers: Option<TrailingHeaders>,
}

/// A received body.
pub(crate) struct ReceivedBody {
    pub(crate) body: Body,
    /// The MD5 in hexadecimal digits.
    pub(crate) etag: String,
    /// The checksums as attributes.
    pub(crate) checksums: Attributes,
}

impl Gateway {
    /// Receives a body and verifies the claims about it.
    ///
    /// # Errors
    /// `BadDigest`, `IncompleteBody`, `EntityTooLarge`, `RequestTimeout`; errors of the store.
    pub(crate) async fn receive(
        &self,
        stream: Option<StreamingBlob>,
        claims: BodyClaims,
    ) -> S3Result<ReceivedBody> {
        let mut digests = Digests::new(&claims);
        let length = claims.length.map(|length| u64::try_from(length).unwrap_or(0));
        if length.is_some_and(|length| length > BODY_MAX) {
            return Err(s3_error!(EntityTooLarge, "the body is larger than {BODY_MAX} bytes"));
        }
        let mut piece = BytesMut::new();
        let mut writer = None;
        let mut received = 0;
        let mut stream = stream;
        while let Some(source) = &mut stream {
            let next = tokio::time::timeout(IDLE_MAX, source.next()).await;
            let next = next.map_err(|_| s3_error!(RequestTimeout, "no data for {} s", IDLE_MAX.as_secs()))?;
            let Some(bytes) = next else { break };
            let bytes = bytes.map_err(|error| body_error(&*error))?;
            received += bytes.len() as u64;
            if received > BODY_MAX {
                return Err(s3_error!(EntityTooLarge, "the body is larger than {BODY_MAX} bytes"));
            }
            piece.extend_from_slice(&bytes);
            while piece.len() > PIECE {
                let full = piece.split_to(PIECE).freeze();
                let mut open = match writer.take() {
                    Some(open) => open,
                    None => self.store.body_writer(length.unwrap_or(0)),
                };
                let mut hashing = digests;
                let (open, hashing) = blocking(move || {
                    hashing.update(&full);
                    open.write(&full).map(|()| (open, hashing))
                })
                .await?
                .map_err(convert)?;
                (writer, digests) = (Some(open), hashing);
            }
        }
        if length.is_some_and(|length| length != received) {
            return Err(s3_error!(IncompleteBody, "the body has {received} bytes, not those of its header"));
        }
        let rest = piece.freeze();
        let body = match writer {
            None => {
                digests.update(&rest);
                Body::Bytes(rest.to_vec())
            }
            Some(mut writer) => {
                let mut hashing = digests;
                let (body, hashing) = blocking(move || {
                    hashing.update(&rest);
                    writer.write(&rest)?;
                    Ok((writer.finish()?, hashing))
                })
                .await?
                .map_err(convert)?;
                digests = hashing;
                body
            }
        };
        digests.verify(claims, body)
    }
}

/// An error of the stream of a body: the client's fault, or a broken connection.
fn body_error(error: &(dyn std::error::Error + 'static)) -> s3s::S3Error {
    let text = error.to_string();
    if text.contains("SignatureMismatch") {
        return s3_error!(SignatureDoesNotMatch, "the signature of a chunk is wrong");
    }
    if text.contains(crate::chunk_limit::TOO_LARGE) {
        return s3_error!(InvalidRequest, "{text}");
    }
    if text.to_ascii_lowercase().contains("checksum") {
        return s3_error!(BadDigest, "the body does not match x-amz-content-sha256");
    }
    s3_error!(IncompleteBody, "the body ended early or is malformed: {text}")
}

/// The digests of a body.
struct Digests {
    md5: Md5,
    others: ChecksumHasher,
}

impl Digests {
    fn new(claims: &BodyClaims) -> Self {
        let announced = claims.announced.as_deref().unwrap_or_default().to_ascii_lowercase();
        let wanted = |index: usize| {
            let name = ALGORITHMS.get(index).copied().unwrap_or_default();
            claims.checksums.get(index).is_some_and(Option::is_some)
                || claims.algorithm.as_deref().is_some_and(|wanted| wanted.eq_ignore_ascii_case(name))
                || announced.split(',').any(|header| header.trim() == format!("x-amz-checksum-{name}"))
        };
        let others = ChecksumHasher {
            crc32: wanted(0).then(Crc32::new),
            crc32c: wanted(1).then(Crc32c::new),
            crc64nvme: wanted(2).then(Crc64Nvme::new),
            sha1: wanted(3).then(Sha1::new),
            sha256: wanted(4).then(Sha256::new),
        };
        Self { md5: Md5::new(), others }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        self.others.update(bytes);
    }

    fn verify(self, claims: BodyClaims, body: Body) -> S3Result<ReceivedBody> {
        let md5 = self.md5.finalize();
        if let Some(claimed) = &claims.md5 {
            let decoded = base64_simd::STANDARD.decode_to_vec(claimed);
            let decoded = decoded.map_err(|_| s3_error!(InvalidDigest, "Content-MD5 is not base64"))?;
            if decoded.len() != 16 {
                return Err(s3_error!(InvalidDigest, "Content-MD5 has {} bytes", decoded.len()));
            }
            if decoded != md5.as_slice() {
                return Err(s3_error!(BadDigest, "the body does not match Content-MD5"));
            }
        }
        let found = self.others.finalize();
        let found = [
            found.checksum_crc32,
            found.checksum_crc32c,
            found.checksum_crc64nvme,
            found.checksum_sha1,
            found.checksum_sha256,
        ];
        let trailers = claims.trailers.as_ref().and_then(TrailingHeaders::take);
        let mut checksums = Attributes::new();
        for ((name, found), claimed) in ALGORITHMS.into_iter().zip(found).zip(claims.checksums) {
            let Some(found) = found else { continue };
            let header = format!("x-amz-checksum-{name}");
            let trailer = trailers.as_ref().and_then(|headers| headers.get(&header)?.to_str().ok());
            if let Some(claimed) = claimed.as_deref().or(trailer)
                && claimed != found
            {
                return Err(s3_error!(BadDigest, "the body does not match {header}"));
            }
            checksums.insert(format!("{CHECKSUM}{name}"), found);
        }
        Ok(ReceivedBody { body, etag: hex(md5.as_slice()), checksums })
    }
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The MD5 of bytes in hexadecimal digits.
pub(crate) fn md5_hex(bytes: &[u8]) -> String {
    hex(Md5::checksum(bytes).as_slice())
}
