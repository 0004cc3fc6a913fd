//! Checksums of parts, and of objects that are made of parts.

use crc_fast::CrcAlgorithm;
use object::PartInfo;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
use s3s::dto::ChecksumType;
use s3s::{S3Result, s3_error};

use crate::attributes::{self, Attributes, CHECKSUM, CHECKSUM_TYPE};

/// The algorithms by the names of their headers.
pub(crate) const ALGORITHMS: [&str; 5] = ["crc32", "crc32c", "crc64nvme", "sha1", "sha256"];
/// The algorithm of an upload, as an attribute.
pub(crate) const UPLOAD_ALGORITHM: &str = "upload-checksum-algorithm";
/// The checksums of the parts of an object, separated by spaces, as an attribute.
pub(crate) const PART_CHECKSUMS: &str = "part-checksums";

/// Checksums in base64 by algorithm.
pub(crate) type Checksums = [Option<String>; 5];

/// Returns a hasher for the algorithms for which `wanted` holds.
pub(crate) fn hasher(wanted: impl Fn(&str) -> bool) -> ChecksumHasher {
    ChecksumHasher {
        crc32: wanted("crc32").then(Crc32::new),
        crc32c: wanted("crc32c").then(Crc32c::new),
        crc64nvme: wanted("crc64nvme").then(Crc64Nvme::new),
        sha1: wanted("sha1").then(Sha1::new),
        sha256: wanted("sha256").then(Sha256::new),
    }
}

/// Adds the algorithm and type of a new upload to its attributes.
///
/// # Errors
/// For a type that the algorithm does not have.
pub(crate) fn begin_upload(
    all: &mut Attributes,
    algorithm: Option<&str>,
    kind: Option<&str>,
) -> S3Result<()> {
    let Some(algorithm) = algorithm else {
        if kind.is_some() {
            return Err(s3_error!(InvalidRequest, "a checksum type needs a checksum algorithm"));
        }
        return Ok(());
    };
    let name = algorithm.to_ascii_lowercase();
    if !ALGORITHMS.contains(&name.as_str()) {
        return Err(s3_error!(InvalidRequest, "the checksum algorithm '{algorithm}' is unknown"));
    }
    let default = if name == "crc64nvme" { ChecksumType::FULL_OBJECT } else { ChecksumType::COMPOSITE };
    let kind = kind.unwrap_or(default);
    let is_valid = match kind {
        ChecksumType::FULL_OBJECT => name.starts_with("crc"),
        ChecksumType::COMPOSITE => name != "crc64nvme",
        _ => false,
    };
    if !is_valid {
        return Err(s3_error!(InvalidRequest, "checksums {algorithm} of type {kind} do not exist"));
    }
    all.insert(UPLOAD_ALGORITHM.to_owned(), name);
    all.insert(CHECKSUM_TYPE.to_owned(), kind.to_owned());
    Ok(())
}

/// Computes the checksum of a completed upload from those of its parts. Returns it as attributes.
///
/// # Errors
/// `InvalidPart` if a part has no checksum; `InternalError` for a damaged one.
pub(crate) fn complete_upload(upload: &Attributes, parts: &[&PartInfo]) -> S3Result<Attributes> {
    let mut all = Attributes::new();
    let Some(name) = upload.get(UPLOAD_ALGORITHM) else { return Ok(all) };
    let is_full = upload.get(CHECKSUM_TYPE).is_some_and(|kind| kind == ChecksumType::FULL_OBJECT);
    let mut texts = Vec::with_capacity(parts.len());
    let mut joined = Vec::new();
    let mut combined: Option<u64> = None;
    for part in parts {
        let text = attributes::checksum(&part.attributes, name)
            .ok_or_else(|| s3_error!(InvalidPart, "part {} has no checksum {name}", part.number))?;
        let bytes = base64_simd::STANDARD.decode_to_vec(&text);
        let bytes = bytes.map_err(|_| s3_error!(InternalError, "a checksum of a part is damaged"))?;
        if is_full {
            let value = bytes.iter().fold(0_u64, |value, byte| (value << 8) | u64::from(*byte));
            combined = Some(match combined {
                None => value,
                Some(before) => crc_fast::checksum_combine(crc_algorithm(name), before, value, part.size),
            });
        } else {
            joined.extend_from_slice(&bytes);
        }
        texts.push(text);
    }
    let value = if is_full {
        #[allow(clippy::big_endian_bytes, reason = "checksums of S3 are big-endian")]
        let bytes = combined.unwrap_or(0).to_be_bytes();
        let skip = if name == "crc64nvme" { 0 } else { 4 };
        base64_simd::STANDARD.encode_to_string(bytes.get(skip..).unwrap_or_default())
    } else {
        format!("{}-{}", digest(name, &joined), parts.len())
    };
    all.insert(format!("{CHECKSUM}{name}"), value);
    all.insert(PART_CHECKSUMS.to_owned(), texts.join(" "));
    Ok(all)
}

fn crc_algorithm(name: &str) -> CrcAlgorithm {
    match name {
        "crc32" => CrcAlgorithm::Crc32IsoHdlc,
        "crc32c" => CrcAlgorithm::Crc32Iscsi,
        _ => CrcAlgorithm::Crc64Nvme,
    }
}

/// The checksum of bytes in base64.
fn digest(name: &str, bytes: &[u8]) -> String {
    let mut hasher = hasher(|other| other == name);
    hasher.update(bytes);
    let found = hasher.finalize();
    let found = [
        found.checksum_crc32,
        found.checksum_crc32c,
        found.checksum_crc64nvme,
        found.checksum_sha1,
        found.checksum_sha256,
    ];
    found.into_iter().flatten().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn part(number: u16, name: &str, bytes: &[u8]) -> PartInfo {
        PartInfo {
            number,
            size: bytes.len() as u64,
            etag: String::new(),
            modified_ms: 0,
            attributes: BTreeMap::from([(format!("{CHECKSUM}{name}"), digest(name, bytes))]),
        }
    }

    #[test]
    fn checksums_of_parts_combine_to_that_of_the_object() {
        for name in ["crc32", "crc32c", "crc64nvme"] {
            let mut upload = Attributes::new();
            begin_upload(&mut upload, Some(name), Some("FULL_OBJECT")).unwrap();
            let parts = [part(1, name, b"hello "), part(2, name, b"wor"), part(3, name, b"ld")];
            let found = complete_upload(&upload, &parts.iter().collect::<Vec<_>>()).unwrap();
            assert_eq!(found[&format!("{CHECKSUM}{name}")], digest(name, b"hello world"), "{name}");
        }
    }

    #[test]
    fn composite_checksums_cover_the_checksums_of_parts() {
        let mut upload = Attributes::new();
        begin_upload(&mut upload, Some("SHA256"), None).unwrap();
        let parts = [part(1, "sha256", b"a"), part(2, "sha256", b"b")];
        let found = complete_upload(&upload, &parts.iter().collect::<Vec<_>>()).unwrap();
        // By Python: base64(sha256(sha256(b"a").digest() + sha256(b"b").digest())).
        assert_eq!(found["checksum:sha256"], "5aAf7hTg7VxIcU8iGA8lrYNltT+XefedxKPX6Tlj+Uo=-2");
    }

    #[test]
    fn types_that_do_not_exist_are_refused() {
        for (name, kind) in [("CRC64NVME", "COMPOSITE"), ("SHA1", "FULL_OBJECT"), ("MD4", "COMPOSITE")] {
            assert!(begin_upload(&mut Attributes::new(), Some(name), Some(kind)).is_err(), "{name}");
        }
        assert!(begin_upload(&mut Attributes::new(), None, Some("COMPOSITE")).is_err());
    }
}
