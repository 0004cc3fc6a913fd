//! Listings by range scans. A delimiter skips each group by a seek to its end.

use crate::error::Result;
use crate::index::{BUCKET_UPLOADS, IndexSnapshot, OBJECTS, ReadBytes, VERSIONS, failed};
use crate::keys;
use crate::record::{VersionRecord, summary_info};
use crate::types::{ListPage, ListQuery, ObjectInfo, UploadInfo};
use crate::upload::{find_upload, upload_id, upload_info};
use crate::versions::bounds_of;

/// The place of a key in a listing.
pub(crate) enum KeyPlace {
    /// After the last key.
    End,
    /// In a group.
    Group(String),
    /// In a group that the listing has passed.
    PassedGroup(String),
    /// An entry.
    Entry,
}

/// Returns the place of a key that is not before the start of a listing.
pub(crate) fn place_of(query: &ListQuery, key: &str) -> KeyPlace {
    let Some(rest) = key.strip_prefix(query.prefix.as_str()) else { return KeyPlace::End };
    let found = if query.delimiter.is_empty() { None } else { rest.find(query.delimiter.as_str()) };
    let Some(at) = found else { return KeyPlace::Entry };
    let end = query.prefix.len() + at + query.delimiter.len();
    let group = key.get(..end).unwrap_or(key).to_owned();
    if group <= query.after { KeyPlace::PassedGroup(group) } else { KeyPlace::Group(group) }
}

/// Collects a page.
pub(crate) struct PageBuilder<'q, T> {
    query: &'q ListQuery,
    page: ListPage<T>,
    last: String,
    /// Keys are at or after this.
    bound: Vec<u8>,
}

impl<'q, T> PageBuilder<'q, T> {
    pub(crate) fn new(query: &'q ListQuery) -> Self {
        let prefix = query.prefix.as_bytes().to_vec();
        let after = if query.after.is_empty() { Vec::new() } else { keys::after_key(query.after.as_bytes()) };
        Self { query, page: ListPage::default(), last: String::new(), bound: prefix.max(after) }
    }

    /// True if the page has the wanted number of entries and groups.
    fn is_full(&self) -> bool {
        self.page.entries.len() + self.page.prefixes.len() >= self.query.limit
    }

    /// Takes the next key, and `entries` of it.
    fn take(&mut self, key: &str, entries: impl FnOnce() -> Result<Vec<T>>) -> Result<NextStep> {
        match place_of(self.query, key) {
            KeyPlace::End => Ok(NextStep::Done),
            KeyPlace::PassedGroup(group) => {
                self.bound = keys::after_prefix(group.as_bytes());
                Ok(NextStep::Seek)
            }
            _ if self.is_full() => {
                self.page.next = (self.query.limit > 0).then(|| self.last.clone());
                Ok(NextStep::Done)
            }
            KeyPlace::Group(group) => {
                self.bound = keys::after_prefix(group.as_bytes());
                self.last.clone_from(&group);
                self.page.prefixes.push(group);
                Ok(NextStep::Seek)
            }
            KeyPlace::Entry => {
                self.bound = keys::after_key(key.as_bytes());
                key.clone_into(&mut self.last);
                self.page.entries.extend(entries()?);
                Ok(NextStep::NextKey)
            }
        }
    }
}

/// Continues a listing after a key.
#[derive(PartialEq, Eq)]
enum NextStep {
    /// With the next key of the scan.
    NextKey,
    /// With a new scan from the bound.
    Seek,
    /// Not at all.
    Done,
}

/// Lists current objects.
pub(crate) fn list_objects(snapshot: &IndexSnapshot<'_>, query: &ListQuery) -> Result<ListPage<ObjectInfo>> {
    let bucket = snapshot.bucket(&query.bucket)?.number;
    let objects = snapshot.table(OBJECTS)?;
    let end = keys::object_key(bucket + 1, &[]);
    let mut builder = PageBuilder::new(query);
    let mut step = NextStep::Seek;
    while step == NextStep::Seek {
        step = NextStep::Done;
        let start = keys::object_key(bucket, &builder.bound);
        for row in objects.range(start.as_slice()..end.as_slice()).map_err(failed)? {
            let (key, value) = row.map_err(failed)?;
            let key = text(keys::key_of_object(key.value()));
            let entry = || Ok(vec![summary_info(&VersionRecord::decode_summary(value.value())?, &key, true)]);
            step = builder.take(&key, entry)?;
            if step != NextStep::NextKey {
                break;
            }
        }
    }
    Ok(builder.page)
}

/// Lists all versions.
pub(crate) fn list_versions(snapshot: &IndexSnapshot<'_>, query: &ListQuery) -> Result<ListPage<ObjectInfo>> {
    let bucket = snapshot.bucket(&query.bucket)?.number;
    let tables = (snapshot.table(OBJECTS)?, snapshot.table(VERSIONS)?);
    let mut builder = PageBuilder::new(query);
    if let Some(version) = &query.after_version
        && query.after.starts_with(&query.prefix)
    {
        let rest = versions_of(&tables, bucket, &query.after)?;
        let rest: Vec<_> = rest.into_iter().skip_while(|info| info.version != *version).skip(1).collect();
        if !add_versions(&mut builder, &query.after, rest) {
            return Ok(builder.page);
        }
    }
    while let Some(key) = next_key(&tables, bucket, &builder.bound)? {
        if matches!(place_of(query, &key), KeyPlace::Entry) && !builder.is_full() {
            builder.bound = keys::after_key(key.as_bytes());
            builder.last.clone_from(&key);
            let versions = versions_of(&tables, bucket, &key)?;
            if !add_versions(&mut builder, &key, versions) {
                break;
            }
        } else if builder.take(&key, || Ok(Vec::new()))? == NextStep::Done {
            break;
        }
    }
    Ok(builder.page)
}

/// Adds versions of a key up to the limit. Returns false if not all fit.
fn add_versions(builder: &mut PageBuilder<'_, ObjectInfo>, key: &str, versions: Vec<ObjectInfo>) -> bool {
    for version in versions {
        if builder.is_full() {
            builder.page.next = (builder.query.limit > 0).then(|| key.to_owned());
            return false;
        }
        builder.page.entries.push(version);
    }
    true
}

/// The first key at or after a bound in either table.
fn next_key(
    (objects, versions): &(ReadBytes, ReadBytes),
    bucket: u64,
    bound: &[u8],
) -> Result<Option<String>> {
    let (start, end) = (keys::object_key(bucket, bound), keys::object_key(bucket + 1, &[]));
    let first = |table: &ReadBytes, key_of: fn(&[u8]) -> &[u8]| -> Result<Option<String>> {
        let row = table.range(start.as_slice()..end.as_slice()).map_err(failed)?.next();
        Ok(row.transpose().map_err(failed)?.map(|(key, _)| text(key_of(key.value()))))
    };
    let found = [first(objects, keys::key_of_object)?, first(versions, keys::key_of_version)?];
    Ok(found.into_iter().flatten().min())
}

/// All versions of a key, the newest first.
fn versions_of(
    (objects, versions): &(ReadBytes, ReadBytes),
    bucket: u64,
    key: &str,
) -> Result<Vec<ObjectInfo>> {
    let current = objects.get(keys::object_key(bucket, key.as_bytes()).as_slice()).map_err(failed)?;
    let mut found = Vec::new();
    if let Some(row) = current {
        found.push(summary_info(&VersionRecord::decode_summary(row.value())?, key, true));
    }
    let (first, last) = bounds_of(bucket, key);
    for row in versions.range(first.as_slice()..=last.as_slice()).map_err(failed)? {
        let (_, value) = row.map_err(failed)?;
        let is_latest = found.is_empty();
        found.push(summary_info(&VersionRecord::decode_summary(value.value())?, key, is_latest));
    }
    Ok(found)
}

/// Lists the uploads of a bucket.
pub(crate) fn list_uploads(snapshot: &IndexSnapshot<'_>, bucket: &str) -> Result<Vec<UploadInfo>> {
    let bucket = snapshot.bucket(bucket)?.number;
    let (table, uploads) = (snapshot.table(BUCKET_UPLOADS)?, snapshot.uploads()?);
    let (start, end) = (keys::object_key(bucket, &[]), keys::object_key(bucket + 1, &[]));
    let mut found = Vec::new();
    for row in table.range(start.as_slice()..end.as_slice()).map_err(failed)? {
        let number = keys::upload_number(row.map_err(failed)?.0.value());
        found.push(upload_info(number, find_upload(&uploads, &upload_id(number))?.1));
    }
    Ok(found)
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
