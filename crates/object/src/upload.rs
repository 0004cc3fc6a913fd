//! Multipart uploads in the index.
//!
//! Always true: completing an upload moves its bodies to the object without copying them.

use std::collections::BTreeMap;

use redb::ReadableTable;

use crate::conditions::check_conditions;
use crate::error::{ObjectError, ObjectErrorKind, Result};
use crate::events::EventKind;
use crate::index::{IndexTxn, failed};
use crate::keys;
use crate::names::check_key;
use crate::record::{PartRecord, UploadRecord, VersionDetail, VersionSummary, decode, encode};
use crate::segment::{BodySegment, slice};
use crate::types::{Conditions, CopyPart, ObjectLock, Outcome, PartInfo, PutPart, UploadInfo};

/// The largest number of a part, as in S3.
const PARTS_MAX: u16 = 10_000;

/// The request to complete an upload.
pub(crate) struct Completion {
    pub(crate) parts: Vec<(u16, String)>,
    pub(crate) etag: String,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) lock: ObjectLock,
    pub(crate) part_bytes_min: u64,
    pub(crate) now_ms: u64,
}

impl IndexTxn<'_> {
    pub(crate) fn create_upload(
        &mut self,
        bucket: &str,
        key: String,
        attributes: BTreeMap<String, String>,
        now_ms: u64,
    ) -> Result<Outcome> {
        check_key(&key)?;
        let bucket = self.bucket(bucket)?;
        let number = self.next_sequence()?;
        let row = keys::upload_key(bucket.number, &key, number);
        let record = UploadRecord {
            bucket: bucket.number,
            bucket_name: bucket.info.name,
            key,
            attributes,
            created_ms: now_ms,
        };
        self.uploads.insert(number, encode(&record)?.as_slice()).map_err(failed)?;
        self.bucket_uploads.insert(row.as_slice(), [].as_slice()).map_err(failed)?;
        Ok(Outcome::Upload(upload_id(number)))
    }

    pub(crate) fn put_part(&mut self, part: PutPart) -> Result<Outcome> {
        let PutPart { upload, number, body, size, etag, attributes, now_ms } = part;
        check_part_number(number)?;
        let upload = self.find_upload(&upload)?.0;
        let size = size.unwrap_or(body.len());
        let body = self.add_body(body)?;
        self.replace_part(upload, number, &PartRecord { size, etag, modified_ms: now_ms, attributes, body })
    }

    pub(crate) fn copy_part(&mut self, part: CopyPart) -> Result<Outcome> {
        let CopyPart { source, source_conditions, range, upload, number, etag, now_ms } = part;
        check_part_number(number)?;
        let upload = self.find_upload(&upload)?.0;
        let found = self.find(&source)?.record;
        check_conditions(Some(found.summary.state()), &source_conditions, &source.key)?;
        let stored: u64 = found.detail.body.iter().map(BodySegment::len).sum();
        let range = range.unwrap_or(0..stored);
        if range.end > stored || range.start > range.end {
            let message = format!("bytes {range:?} are beyond the end of object '{}'", source.key);
            return Err(ObjectError::new(ObjectErrorKind::Invalid, message));
        }
        let size = range.end - range.start;
        let body = slice(&found.detail.body, range);
        self.share(&body)?;
        let attributes = BTreeMap::new();
        self.replace_part(upload, number, &PartRecord { size, etag, modified_ms: now_ms, attributes, body })
    }

    fn replace_part(&mut self, upload: u64, number: u16, part: &PartRecord) -> Result<Outcome> {
        let row = keys::part_key(upload, number);
        if let Some(before) = self.part(upload, number)? {
            self.unshare(&before.body)?;
        }
        self.parts.insert(row.as_slice(), encode(part)?.as_slice()).map_err(failed)?;
        Ok(Outcome::Done)
    }

    fn part(&self, upload: u64, number: u16) -> Result<Option<PartRecord>> {
        let row = self.parts.get(keys::part_key(upload, number).as_slice()).map_err(failed)?;
        row.map(|row| decode(row.value())).transpose()
    }

    pub(crate) fn complete_upload(
        &mut self,
        upload: &str,
        completion: Completion,
        conditions: &Conditions,
    ) -> Result<Outcome> {
        let (number, record) = self.find_upload(upload)?;
        let chosen = self.choose_parts(number, &completion)?;
        let bucket = self.bucket(&record.bucket_name)?;
        self.check_current(&bucket, &record.key, conditions)?;
        self.check_quota(&bucket, &record.key, chosen.iter().map(|part| part.size).sum())?;
        // References of the object are added before those of the parts are dropped.
        let mut detail = VersionDetail {
            attributes: record.attributes.clone(),
            lock: completion.lock,
            ..VersionDetail::default()
        };
        detail.attributes.extend(completion.attributes);
        for part in chosen {
            self.share(&part.body)?;
            detail.parts.push(part.size);
            detail.body.extend(part.body);
        }
        self.remove_upload(number, &record)?;
        let size = detail.parts.iter().sum();
        let summary = VersionSummary::new(size, completion.etag, completion.now_ms);
        self.add_object(bucket, &record.key, summary, detail, EventKind::CompleteUpload)
    }

    fn choose_parts(&self, upload: u64, completion: &Completion) -> Result<Vec<PartRecord>> {
        let mut chosen: Vec<PartRecord> = Vec::new();
        let mut last = 0;
        if completion.parts.is_empty() {
            return Err(ObjectError::new(ObjectErrorKind::InvalidPart, "the list of parts is empty"));
        }
        for (number, etag) in &completion.parts {
            if *number <= last {
                let message = format!("part {number} follows part {last}");
                return Err(ObjectError::new(ObjectErrorKind::InvalidPartOrder, message));
            }
            last = *number;
            let part = self.part(upload, *number)?.filter(|part| part.etag == *etag);
            let part = part.ok_or_else(|| {
                let message = format!("part {number} with ETag '{etag}' was not uploaded");
                ObjectError::new(ObjectErrorKind::InvalidPart, message)
            })?;
            chosen.push(part);
        }
        let all_but_last = chosen.split_last().map_or(&[][..], |(_, rest)| rest);
        if let Some(small) = all_but_last.iter().find(|part| part.size < completion.part_bytes_min) {
            let message =
                format!("a part has {} bytes: the minimum is {}", small.size, completion.part_bytes_min);
            return Err(ObjectError::new(ObjectErrorKind::PartTooSmall, message));
        }
        Ok(chosen)
    }

    pub(crate) fn abort_upload(&mut self, upload: &str) -> Result<Outcome> {
        let (number, record) = self.find_upload(upload)?;
        self.remove_upload(number, &record)?;
        Ok(Outcome::Done)
    }

    /// Aborts all uploads of a bucket.
    pub(crate) fn abort_uploads(&mut self, bucket: u64) -> Result<()> {
        let (start, end) = (keys::object_key(bucket, &[]), keys::object_key(bucket + 1, &[]));
        let mut numbers = Vec::new();
        for row in self.bucket_uploads.range(start.as_slice()..end.as_slice()).map_err(failed)? {
            numbers.push(keys::upload_number(row.map_err(failed)?.0.value()));
        }
        for number in numbers {
            self.abort_upload(&upload_id(number))?;
        }
        Ok(())
    }

    fn remove_upload(&mut self, number: u64, record: &UploadRecord) -> Result<()> {
        for (row, part) in parts_of(&self.parts, number, 0, usize::MAX)? {
            self.unshare(&part.body)?;
            self.parts.remove(keys::part_key(number, row).as_slice()).map_err(failed)?;
        }
        let row = keys::upload_key(record.bucket, &record.key, number);
        self.bucket_uploads.remove(row.as_slice()).map_err(failed)?;
        self.uploads.remove(number).map_err(failed)?;
        Ok(())
    }

    fn find_upload(&self, upload: &str) -> Result<(u64, UploadRecord)> {
        find_upload(&self.uploads, upload)
    }
}

/// The id of an upload for clients.
pub(crate) fn upload_id(number: u64) -> String {
    format!("{number:016x}")
}

/// Returns an upload by its id.
pub(crate) fn find_upload(
    uploads: &impl ReadableTable<u64, &'static [u8]>,
    upload: &str,
) -> Result<(u64, UploadRecord)> {
    let number = u64::from_str_radix(upload, 16).map_err(|_| ObjectError::no_upload(upload))?;
    let row = uploads.get(number).map_err(failed)?.filter(|_| upload_id(number) == upload);
    let record = decode(row.ok_or_else(|| ObjectError::no_upload(upload))?.value())?;
    Ok((number, record))
}

/// Returns up to `limit` parts of an upload by number, from the one after `after` on.
pub(crate) fn parts_of(
    parts: &impl ReadableTable<&'static [u8], &'static [u8]>,
    upload: u64,
    after: u16,
    limit: usize,
) -> Result<Vec<(u16, PartRecord)>> {
    let first = keys::part_key(upload, after.saturating_add(1));
    let last = keys::part_key(upload, u16::MAX);
    let mut found = Vec::new();
    for row in parts.range(first.as_slice()..=last.as_slice()).map_err(failed)?.take(limit) {
        let (key, value) = row.map_err(failed)?;
        found.push((keys::part_number(key.value()), decode(value.value())?));
    }
    Ok(found)
}

/// An upload for callers.
pub(crate) fn upload_info(number: u64, record: UploadRecord) -> UploadInfo {
    let UploadRecord { bucket_name, key, attributes, created_ms, .. } = record;
    UploadInfo { id: upload_id(number), bucket: bucket_name, key, attributes, created_ms }
}

/// A part for callers.
pub(crate) fn part_info(number: u16, record: PartRecord) -> PartInfo {
    let PartRecord { size, etag, modified_ms, attributes, .. } = record;
    PartInfo { number, size, etag, modified_ms, attributes }
}

/// Checks the number of a part.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check_part_number(number: u16) -> Result<()> {
    if (1..=PARTS_MAX).contains(&number) {
        return Ok(());
    }
    let message = format!("part number {number} is out of range: 1 to {PARTS_MAX}");
    Err(ObjectError::new(ObjectErrorKind::Invalid, message))
}
