//! Receives bodies: small ones in memory, larger ones in pieces to the store.
//!
//! Always true: a request uses up to two pieces of memory; a body that does not match its length or
//! checksums is not stored.

use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use object::{Body, BodyWriter, ObjectError, ObjectStore, PIECE_BYTES};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum, Md5};
use s3s::dto::StreamingBlob;
use s3s::{S3Result, TrailingHeaders, s3_error};

use crate::attributes::{Attributes, CHECKSUM};
use crate::checksums::{ALGORITHMS, Checksums, hasher};
use crate::encryption::Encryption;
use crate::errors::{convert, custom};
use crate::gateway::{Gateway, blocking};
use crate::md5_service::{BodyMd5, SubmittedPiece};
use crate::sealed::Sealer;

/// The largest body of a request in bytes, as in S3.
const BODY_MAX: u64 = 5 << 30;
/// A client that sends nothing for this time is disconnected.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The claims of a request about its body.
#[derive(Default)]
pub(crate) struct BodyClaims {
    pub(crate) length: Option<i64>,
    pub(crate) md5: Option<String>,
    pub(crate) checksums: Checksums,
    /// The algorithm of the checksum to compute, in any case.
    pub(crate) algorithm: Option<String>,
    /// The names of trailing headers, as the request announces them.
    pub(crate) announced: Option<String>,
    pub(crate) trailers: Option<TrailingHeaders>,
}

/// The form in which a body is stored.
#[derive(Clone, Default)]
pub(crate) struct BodyForm {
    pub(crate) encryption: Option<Encryption>,
    /// Leaves the MD5 out: the ETag is a random number.
    pub(crate) has_fast_etag: bool,
}

/// A received body.
pub(crate) struct ReceivedBody {
    pub(crate) body: Body,
    /// The length before encryption.
    pub(crate) size: u64,
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
        form: BodyForm,
    ) -> S3Result<ReceivedBody> {
        check_claims(&claims)?;
        let length = claims.length.map(|length| u64::try_from(length).unwrap_or(0));
        if length.is_some_and(|length| length > BODY_MAX) {
            return Err(s3_error!(EntityTooLarge, "the body is larger than {BODY_MAX} bytes"));
        }
        let mut sink = BodySink::new(self.store.clone(), &claims, &form, length.unwrap_or(0))?;
        // The MD5 is left out only if no claim needs it.
        let leaves_md5_out = form.has_fast_etag && claims.md5.is_none();
        let mut md5 = (!leaves_md5_out).then(|| self.md5.begin());
        let expected = usize::try_from(length.unwrap_or(0)).unwrap_or(usize::MAX);
        let mut piece = self.pieces.take(expected);
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
            let mut rest = bytes;
            loop {
                let count = piece.fill(&rest);
                rest.advance(count);
                if rest.is_empty() {
                    break;
                }
                // The piece is full, and not the last one.
                let taken = usize::try_from(received).unwrap_or(usize::MAX).saturating_sub(rest.len());
                let next = self.pieces.take(expected.saturating_sub(taken));
                let full = std::mem::replace(&mut piece, next).freeze();
                let submitted = md5.map(|md5| md5.submit(full.clone()));
                sink = blocking(move || sink.push(full).map(|()| sink)).await?.map_err(convert)?;
                md5 = hashed(submitted).await;
            }
        }
        if length.is_some_and(|length| length != received) {
            return Err(s3_error!(IncompleteBody, "the body has {received} bytes, not those of its header"));
        }
        let rest = piece.freeze();
        let submitted = md5.map(|md5| md5.submit(rest.clone()));
        let finished = if sink.writer.is_none() && sink.sealer.is_none() {
            sink.finish(rest)
        } else {
            blocking(move || sink.finish(rest)).await?
        };
        let (body, digests) = finished.map_err(convert)?;
        let md5 = hashed(submitted).await;
        let (etag, checksums) = digests.verify(md5.map(BodyMd5::finish), claims)?;
        Ok(ReceivedBody { body, size: received, etag, checksums })
    }
}

/// Waits for the hash of a stored piece if the body has an MD5.
async fn hashed(submitted: Option<SubmittedPiece>) -> Option<BodyMd5> {
    match submitted {
        Some(submitted) => Some(submitted.hashed().await),
        None => None,
    }
}

/// Checks the form of the claims before the body is received.
fn check_claims(claims: &BodyClaims) -> S3Result<()> {
    if let Some(md5) = &claims.md5 {
        let decoded = base64_simd::STANDARD.decode_to_vec(md5);
        if decoded.is_ok_and(|bytes| bytes.len() == 16) {
            return Ok(());
        }
        return Err(s3_error!(InvalidDigest, "Content-MD5 is not the base64 of 16 bytes"));
    }
    for (name, claimed) in ALGORITHMS.iter().zip(&claims.checksums) {
        let bytes = [4, 4, 8, 20, 32];
        let index = ALGORITHMS.iter().position(|other| other == name).unwrap_or(0);
        if let Some(claimed) = claimed {
            let decoded = base64_simd::STANDARD.decode_to_vec(claimed);
            if !decoded.is_ok_and(|decoded| Some(&decoded.len()) == bytes.get(index)) {
                return Err(s3_error!(InvalidRequest, "Value for x-amz-checksum-{name} header is invalid."));
            }
        }
    }
    Ok(())
}

/// The destination of a body: digests, encryption, and the store.
struct BodySink {
    store: std::sync::Arc<dyn ObjectStore>,
    digests: Digests,
    sealer: Option<Sealer>,
    writer: Option<Box<dyn BodyWriter>>,
    expected: u64,
}

impl BodySink {
    fn new(
        store: std::sync::Arc<dyn ObjectStore>,
        claims: &BodyClaims,
        form: &BodyForm,
        expected: u64,
    ) -> S3Result<Self> {
        let sealer = form.encryption.as_ref().map(|encryption| Sealer::new(&encryption.root)).transpose();
        let digests = Digests::new(claims);
        Ok(Self { store, digests, sealer: sealer.map_err(convert)?, writer: None, expected })
    }

    fn write(&mut self, bytes: Bytes) -> Result<(), ObjectError> {
        let (store, expected) = (&self.store, self.expected);
        self.writer.get_or_insert_with(|| store.body_writer(expected)).write_bytes(bytes)
    }

    /// Takes a piece of the body.
    fn push(&mut self, piece: Bytes) -> Result<(), ObjectError> {
        self.digests.update(&piece);
        let Some(sealer) = &mut self.sealer else { return self.write(piece) };
        sealer.push(&piece)?;
        if sealer.sealed.len() > PIECE_BYTES {
            let rest = sealer.sealed.split_off(PIECE_BYTES);
            let full = std::mem::replace(&mut sealer.sealed, rest);
            self.write(full.into())?;
        }
        Ok(())
    }

    /// Takes the last piece of the body.
    fn finish(mut self, piece: Bytes) -> Result<(Body, Digests), ObjectError> {
        self.digests.update(&piece);
        let sealed = match &mut self.sealer {
            None => None,
            Some(sealer) => {
                sealer.push(&piece)?;
                sealer.finish()?;
                Some(std::mem::take(&mut sealer.sealed))
            }
        };
        let body = match self.writer.take() {
            None => Body::Bytes(sealed.unwrap_or_else(|| piece.to_vec())),
            Some(mut writer) => {
                writer.write_bytes(sealed.map_or(piece, Bytes::from))?;
                writer.finish()?
            }
        };
        Ok((body, self.digests))
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
        let message = "the body does not match x-amz-content-sha256";
        return custom("XAmzContentSHA256Mismatch", hyper::StatusCode::BAD_REQUEST, message);
    }
    s3_error!(IncompleteBody, "the body ended early or is malformed: {text}")
}

/// The digests of a body other than its MD5.
struct Digests {
    others: ChecksumHasher,
}

impl Digests {
    fn new(claims: &BodyClaims) -> Self {
        let announced = claims.announced.as_deref().unwrap_or_default().to_ascii_lowercase();
        let wanted = |name: &str| {
            let index = ALGORITHMS.iter().position(|other| *other == name).unwrap_or(0);
            claims.checksums.get(index).is_some_and(Option::is_some)
                || claims.algorithm.as_deref().is_some_and(|wanted| wanted.eq_ignore_ascii_case(name))
                || announced.split(',').any(|header| header.trim() == format!("x-amz-checksum-{name}"))
        };
        Self { others: hasher(wanted) }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.others.update(bytes);
    }

    /// Compares the digests with the claims. Returns the ETag and the checksums.
    fn verify(self, md5: Option<[u8; 16]>, claims: BodyClaims) -> S3Result<(String, Attributes)> {
        let etag = match md5 {
            Some(md5) => {
                if let Some(claimed) = &claims.md5
                    && *claimed != base64_simd::STANDARD.encode_to_string(md5)
                {
                    return Err(s3_error!(BadDigest, "the body does not match Content-MD5"));
                }
                hex(&md5)
            }
            None => random_etag()?,
        };
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
        Ok((etag, checksums))
    }
}

/// An ETag that is no MD5. Clients recognise it by the hyphen, as that of an upload of parts.
fn random_etag() -> S3Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| s3_error!(InternalError, "no random numbers"))?;
    Ok(format!("{}-1", hex(&bytes)))
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| DIGITS.get(usize::from(value)).map_or('0', |digit| char::from(*digit));
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The MD5 of bytes in hexadecimal digits.
pub(crate) fn md5_hex(bytes: &[u8]) -> String {
    hex(Md5::checksum(bytes).as_slice())
}
