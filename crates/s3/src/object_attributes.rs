//! GetObjectAttributes: size, checksums and parts of an object.

use object::{ObjectInfo, ObjectRef};
use s3s::dto;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::access::scope;
use crate::attributes::{self, Attributes, CHECKSUM, size, version};
use crate::checksums::PART_CHECKSUMS;
use crate::gateway::{Gateway, timestamp};
use crate::put::customer_key;

/// The largest number of parts in an answer.
const PARTS_MAX: i32 = 1000;

impl Gateway {
    pub(crate) async fn object_attributes(
        &self,
        request: S3Request<dto::GetObjectAttributesInput>,
    ) -> S3Result<S3Response<dto::GetObjectAttributesOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let input = request.input;
        let object = ObjectRef { bucket: input.bucket, key: input.key, version: input.version_id };
        let info = self.read(move |store| store.object(&object)).await?;
        let customer =
            customer_key(input.sse_customer_algorithm, input.sse_customer_key, input.sse_customer_key_md5);
        self.service_keys.open(&info.attributes, &customer)?;
        if input.object_attributes.is_empty() {
            return Err(s3_error!(InvalidArgument, "x-amz-object-attributes names no attribute"));
        }
        // Clients send the names in one header, separated by commas.
        let names: Vec<&str> =
            input.object_attributes.iter().flat_map(|name| name.as_str().split(',')).map(str::trim).collect();
        let has = |name: &str| names.contains(&name);
        let max = input.max_parts.unwrap_or(PARTS_MAX).clamp(0, PARTS_MAX);
        let after = input.part_number_marker.unwrap_or(0);
        let has_parts = has("ObjectParts") && !info.parts.is_empty();
        let all = &info.attributes;
        let has_checksum = all.keys().any(|name| name.starts_with(CHECKSUM));
        let class = dto::StorageClass::from_static(dto::StorageClass::STANDARD);
        Ok(S3Response::new(dto::GetObjectAttributesOutput {
            e_tag: has("ETag").then(|| dto::ETag::Strong(info.etag.clone())),
            checksum: (has("Checksum") && has_checksum).then(|| describe(all)),
            object_parts: has_parts.then(|| parts(&info, after, max)),
            object_size: size(info.size).filter(|_| has("ObjectSize")),
            storage_class: has("StorageClass").then_some(class),
            last_modified: Some(timestamp(info.modified_ms)),
            version_id: version(&info, bucket.info.versioning),
            ..Default::default()
        }))
    }
}

fn describe(all: &Attributes) -> dto::Checksum {
    dto::Checksum {
        checksum_crc32: attributes::checksum(all, "crc32"),
        checksum_crc32c: attributes::checksum(all, "crc32c"),
        checksum_crc64nvme: attributes::checksum(all, "crc64nvme"),
        checksum_sha1: attributes::checksum(all, "sha1"),
        checksum_sha256: attributes::checksum(all, "sha256"),
        checksum_type: attributes::checksum_type(all),
    }
}

fn parts(info: &ObjectInfo, after: i32, max: i32) -> dto::GetObjectAttributesParts {
    let sums: Vec<&str> =
        info.attributes.get(PART_CHECKSUMS).map(|text| text.split(' ').collect()).unwrap_or_default();
    let algorithm = info.attributes.keys().find_map(|name| name.strip_prefix(CHECKSUM)).unwrap_or_default();
    let numbered = (1_i32..).zip(&info.parts).enumerate();
    let mut rest = numbered.filter(|(_, (number, _))| *number > after).peekable();
    let mut found = Vec::new();
    while let Some((index, (number, bytes))) =
        rest.next_if(|_| found.len() < usize::try_from(max).unwrap_or(0))
    {
        let sum = |name: &str| sums.get(index).filter(|_| name == algorithm).map(|text| (*text).to_owned());
        found.push(dto::ObjectPart {
            checksum_crc32: sum("crc32"),
            checksum_crc32c: sum("crc32c"),
            checksum_crc64nvme: sum("crc64nvme"),
            checksum_sha1: sum("sha1"),
            checksum_sha256: sum("sha256"),
            part_number: Some(number),
            size: size(*bytes),
        });
    }
    let is_truncated = rest.peek().is_some();
    let last = found.last().and_then(|part| part.part_number);
    dto::GetObjectAttributesParts {
        is_truncated: Some(is_truncated),
        max_parts: Some(max),
        next_part_number_marker: last,
        part_number_marker: Some(after),
        // Only parts with checksums are listed, as in S3.
        parts: (!sums.is_empty()).then_some(found),
        total_parts_count: i32::try_from(info.parts.len()).ok(),
    }
}
