//! The versions of a key: which one is current, and how puts and deletions change them.
//!
//! Always true: the table of objects has a row for a key if and only if the newest version of the
//! key is no delete marker; that row is the newest version. The table of versions has all others.

use redb::ReadableTable;

use crate::error::{ObjectError, Result};
use crate::index::{IndexTxn, failed, get_version};
use crate::keys;
use crate::lock::check_deletion;
use crate::record::{BucketRecord, NULL, VersionDetail, VersionRecord, VersionSummary};
use crate::types::{Deletion, Versioning};

/// A version and its place.
pub(crate) struct FoundVersion {
    pub(crate) record: VersionRecord,
    /// True for the row of the table of objects.
    pub(crate) is_current: bool,
}

/// Returns the version of a key by its name in requests.
pub(crate) fn find_version<T: ReadableTable<&'static [u8], &'static [u8]>>(
    objects: &T,
    versions: &T,
    bucket: u64,
    key: &str,
    version: &str,
) -> Result<FoundVersion> {
    let current = get_version(objects, &keys::object_key(bucket, key.as_bytes()))?;
    if let Some(record) = current.filter(|record| record.summary.version() == version) {
        return Ok(FoundVersion { record, is_current: true });
    }
    let found = if version == NULL {
        find_null(versions, bucket, key)?
    } else {
        let sequence = u64::from_str_radix(version, 16).map_err(|_| ObjectError::no_version(key, version))?;
        let record = get_version(versions, &keys::version_key(bucket, key, sequence))?;
        record.filter(|record| record.summary.version() == version)
    };
    let record = found.ok_or_else(|| ObjectError::no_version(key, version))?;
    Ok(FoundVersion { record, is_current: false })
}

/// The range of a key in the table of versions, the newest first.
pub(crate) fn bounds_of(bucket: u64, key: &str) -> (Vec<u8>, Vec<u8>) {
    (keys::version_key(bucket, key, u64::MAX), keys::version_key(bucket, key, 0))
}

fn find_null<T: ReadableTable<&'static [u8], &'static [u8]>>(
    versions: &T,
    bucket: u64,
    key: &str,
) -> Result<Option<VersionRecord>> {
    let (first, last) = bounds_of(bucket, key);
    for row in versions.range(first.as_slice()..=last.as_slice()).map_err(failed)? {
        let (_, value) = row.map_err(failed)?;
        if VersionRecord::decode_summary(value.value())?.is_null {
            return Ok(Some(VersionRecord::decode(value.value())?));
        }
    }
    Ok(None)
}

impl IndexTxn<'_> {
    /// Adds the newest version of a key, and moves or removes the versions that it replaces.
    ///
    /// # Errors
    /// When the index fails.
    pub(crate) fn add_version(
        &mut self,
        bucket: &mut BucketRecord,
        key: &str,
        record: &VersionRecord,
    ) -> Result<()> {
        let keeps_null = bucket.info.versioning == Versioning::Enabled;
        if let Some(current) = self.current(bucket.number, key)? {
            self.remove_current(bucket, key, &current)?;
            if keeps_null || !current.summary.is_null {
                self.insert_other(bucket, key, &current)?;
            } else {
                self.unshare(&current.detail.body)?;
            }
        }
        if bucket.info.versioning == Versioning::Suspended
            && let Some(null) = find_null(&self.versions, bucket.number, key)?
        {
            self.remove_other(bucket, key, &null)?;
            self.unshare(&null.detail.body)?;
        }
        if record.summary.is_marker {
            self.insert_other(bucket, key, record)
        } else {
            self.insert_current(bucket, key, record)
        }
    }

    /// Deletes the current object: removes it, or adds a delete marker. The second value is false
    /// without an object to remove.
    ///
    /// # Errors
    /// When the index fails.
    pub(crate) fn delete_current(
        &mut self,
        bucket: &mut BucketRecord,
        key: &str,
        now_ms: u64,
    ) -> Result<(Deletion, bool)> {
        if bucket.info.versioning == Versioning::Off {
            let Some(current) = self.current(bucket.number, key)? else {
                return Ok((Deletion::default(), false));
            };
            self.remove_current(bucket, key, &current)?;
            self.unshare(&current.detail.body)?;
            return Ok((Deletion::default(), true));
        }
        let summary = VersionSummary {
            sequence: self.next_sequence()?,
            is_null: bucket.info.versioning == Versioning::Suspended,
            is_marker: true,
            size: 0,
            modified_ms: now_ms,
            etag: String::new(),
        };
        let version = Some(summary.version());
        let marker = VersionRecord { summary, detail: VersionDetail::default() };
        self.add_version(bucket, key, &marker)?;
        Ok((Deletion { version, is_marker: true }, true))
    }

    /// Deletes a version. The newest of the others becomes current unless it is a delete marker.
    /// The second value is false without such a version.
    ///
    /// # Errors
    /// `Locked`; when the index fails. A version that does not exist is no error.
    pub(crate) fn delete_version(
        &mut self,
        bucket: &mut BucketRecord,
        key: &str,
        version: &str,
        (bypass_governance, now_ms): (bool, u64),
    ) -> Result<(Deletion, bool)> {
        let found = match find_version(&self.objects, &self.versions, bucket.number, key, version) {
            Ok(found) => found,
            Err(error) if error.kind() == crate::error::ObjectErrorKind::NoSuchVersion => {
                return Ok((Deletion { version: Some(version.to_owned()), is_marker: false }, false));
            }
            Err(error) => return Err(error),
        };
        let FoundVersion { record, is_current } = found;
        check_deletion(&record.detail.lock, bypass_governance, now_ms, key)?;
        if is_current {
            self.remove_current(bucket, key, &record)?;
        } else {
            self.remove_other(bucket, key, &record)?;
        }
        self.unshare(&record.detail.body)?;
        if self.current(bucket.number, key)?.is_none()
            && let Some(newest) = self.newest_other(bucket.number, key)?
            && !newest.summary.is_marker
        {
            self.remove_other(bucket, key, &newest)?;
            self.insert_current(bucket, key, &newest)?;
        }
        let is_marker = record.summary.is_marker;
        Ok((Deletion { version: Some(version.to_owned()), is_marker }, true))
    }

    fn newest_other(&self, bucket: u64, key: &str) -> Result<Option<VersionRecord>> {
        let (first, last) = bounds_of(bucket, key);
        let mut rows = self.versions.range(first.as_slice()..=last.as_slice()).map_err(failed)?;
        let Some(row) = rows.next() else { return Ok(None) };
        Ok(Some(VersionRecord::decode(row.map_err(failed)?.1.value())?))
    }

    /// Replaces a version by one with other attributes.
    ///
    /// # Errors
    /// When the index fails.
    pub(crate) fn replace_version(&mut self, bucket: u64, key: &str, found: &FoundVersion) -> Result<()> {
        let value = found.record.encode()?;
        if found.is_current {
            let row = keys::object_key(bucket, key.as_bytes());
            self.objects.insert(row.as_slice(), value.as_slice()).map_err(failed)?;
        } else {
            let row = keys::version_key(bucket, key, found.record.summary.sequence);
            self.versions.insert(row.as_slice(), value.as_slice()).map_err(failed)?;
        }
        Ok(())
    }

    fn insert_current(&mut self, bucket: &mut BucketRecord, key: &str, record: &VersionRecord) -> Result<()> {
        let row = keys::object_key(bucket.number, key.as_bytes());
        self.objects.insert(row.as_slice(), record.encode()?.as_slice()).map_err(failed)?;
        bucket.info.counters.objects += 1;
        bucket.info.counters.bytes += record.summary.size;
        Ok(())
    }

    fn remove_current(&mut self, bucket: &mut BucketRecord, key: &str, record: &VersionRecord) -> Result<()> {
        let row = keys::object_key(bucket.number, key.as_bytes());
        self.objects.remove(row.as_slice()).map_err(failed)?;
        bucket.info.counters.objects -= 1;
        bucket.info.counters.bytes -= record.summary.size;
        Ok(())
    }

    fn insert_other(&mut self, bucket: &mut BucketRecord, key: &str, record: &VersionRecord) -> Result<()> {
        let row = keys::version_key(bucket.number, key, record.summary.sequence);
        self.versions.insert(row.as_slice(), record.encode()?.as_slice()).map_err(failed)?;
        bucket.info.counters.versions += 1;
        bucket.info.counters.bytes += record.summary.size;
        Ok(())
    }

    fn remove_other(&mut self, bucket: &mut BucketRecord, key: &str, record: &VersionRecord) -> Result<()> {
        let row = keys::version_key(bucket.number, key, record.summary.sequence);
        self.versions.remove(row.as_slice()).map_err(failed)?;
        bucket.info.counters.versions -= 1;
        bucket.info.counters.bytes -= record.summary.size;
        Ok(())
    }
}
