//! `gabion object`.

use std::sync::Arc;

use anyhow::Result;
use api::{Error, ErrorKind, Size, VolumeName};
use s3_client::{Checksum, ListPage, ListRequest};
use serde::Serialize;

use super::CommandContext;
use crate::cli::{DeleteObjectsArgs, GetObjectArgs, ListObjectsArgs, ObjectCommand, PutObjectArgs};
use crate::failure::ExitReason;
use crate::image::Interrupt;
use crate::output::{self, ObjectList, ObjectRow};
use crate::progress::StatusLine;
use crate::terminal::confirm;
use crate::transfer::{self, Destination, ObjectSession, Source};

/// The largest page of S3.
const PAGE_MAX: u64 = 1000;

/// A transferred object.
#[derive(Serialize)]
struct TransferredObject {
    bucket: String,
    key: String,
    size: u64,
    checksum_crc64nvme: String,
}

/// The result of a deletion.
#[derive(Serialize)]
struct DeletedObjects {
    deleted: u64,
}

/// Runs a `gabion object` command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run(ctx: &CommandContext, command: ObjectCommand) -> Result<ExitReason> {
    match command {
        ObjectCommand::Put(arguments) => put(ctx, &arguments).await?,
        ObjectCommand::Get(arguments) => get(ctx, &arguments).await?,
        ObjectCommand::List(arguments) => list(ctx, &arguments).await?,
        ObjectCommand::Delete(arguments) => delete(ctx, &arguments).await?,
    }
    Ok(ExitReason::Success)
}

/// Runs work in a session, whose access key is deleted at the end in any case.
pub(super) async fn in_session<T>(
    ctx: &CommandContext,
    bucket: &VolumeName,
    work: impl AsyncFnOnce(Arc<ObjectSession>) -> Result<T>,
) -> Result<T> {
    let session = Arc::new(ObjectSession::open(&ctx.client, bucket).await?);
    let done = work(session.clone()).await;
    session.close().await;
    done
}

async fn put(ctx: &CommandContext, arguments: &PutObjectArgs) -> Result<()> {
    let PutObjectArgs { bucket, key, file } = arguments;
    let source = Source::of(file);
    let put = async |session| transfer::put(&session, key, &source, ctx.quiet).await;
    let stored = transferred(bucket, key, &in_session(ctx, bucket, put).await?);
    ctx.done(&stored, |stored| format!("object {key} stored in {bucket}, {}", Size(stored.size)))
}

async fn get(ctx: &CommandContext, arguments: &GetObjectArgs) -> Result<()> {
    let GetObjectArgs { bucket, key, file, force } = arguments;
    let destination = Destination::of(file.as_deref(), key, *force)?;
    let get = async |session: Arc<_>| transfer::get(&session, key, &destination, ctx.quiet).await;
    let received = transferred(bucket, key, &in_session(ctx, bucket, get).await?);
    match destination {
        Destination::Stdout => Ok(()),
        Destination::File(path, _) => ctx.done(&received, |received| {
            format!("object {key} written to {}, {}", path.display(), Size(received.size))
        }),
    }
}

fn transferred(bucket: &VolumeName, key: &str, body: &Checksum) -> TransferredObject {
    TransferredObject {
        bucket: bucket.to_string(),
        key: key.to_owned(),
        size: body.length(),
        checksum_crc64nvme: body.to_base64(),
    }
}

async fn list(ctx: &CommandContext, arguments: &ListObjectsArgs) -> Result<()> {
    let work =
        async |session: Arc<ObjectSession>| Interrupt::new()?.or(pages(&session, arguments, ctx.quiet)).await;
    let listed = in_session(ctx, &arguments.bucket, work).await?;
    if ctx.json {
        return ctx.print(&listed, |_| String::new());
    }
    ctx.list(&listed.objects, |row| row.key.clone(), output::objects)?;
    if let Some(next) = &listed.next {
        eprintln!("there are more objects; continue with --after '{next}'");
    }
    Ok(())
}

/// Reads pages up to the limit of the arguments.
async fn pages(session: &ObjectSession, arguments: &ListObjectsArgs, quiet: bool) -> Result<ObjectList> {
    let ListObjectsArgs { bucket, prefix, delimiter, after, limit } = arguments;
    let (mut listed, mut token) = (ObjectList::default(), None);
    let mut line = StatusLine::new(quiet);
    loop {
        let left = limit - listed.objects.len() as u64;
        // At most 1,000.
        let page_limit = usize::try_from(left.min(PAGE_MAX)).unwrap_or(1);
        let request = async || {
            let token: Option<&String> = token.as_ref();
            let request =
                ListRequest { prefix, delimiter, after, token: token.map(String::as_str), limit: page_limit };
            session.client.list(&bucket.volume, &request).await
        };
        let page = session.retry("", request).await?;
        token = page.next.clone();
        listed.objects.extend(rows(page));
        line.show(&format!("list {bucket}: {} objects", listed.objects.len()));
        if token.is_none() {
            return Ok(listed);
        }
        if listed.objects.len() as u64 >= *limit {
            listed.next = listed.objects.last().map(|row| row.key.clone());
            return Ok(listed);
        }
    }
}

/// Joins the objects and the groups of a page by key.
fn rows(page: ListPage) -> Vec<ObjectRow> {
    let groups = page.prefixes.into_iter().map(|key| ObjectRow { key, ..ObjectRow::default() });
    let objects = page.objects.into_iter().map(|object| ObjectRow {
        key: object.key,
        size: Some(object.size),
        modified: Some(object.modified),
        etag: Some(object.etag.trim_matches('"').to_owned()),
    });
    let mut rows: Vec<ObjectRow> = objects.chain(groups).collect();
    rows.sort_by(|first, second| first.key.cmp(&second.key));
    rows
}

async fn delete(ctx: &CommandContext, arguments: &DeleteObjectsArgs) -> Result<()> {
    let DeleteObjectsArgs { bucket, keys, prefix, yes } = arguments;
    let deleted = match prefix {
        Some(prefix) => {
            confirm(*yes, &deletion(bucket, prefix))?;
            let work = async |session: Arc<ObjectSession>| {
                Interrupt::new()?.or(delete_prefix(&session, prefix, ctx.quiet)).await
            };
            in_session(ctx, bucket, work).await?
        }
        None => {
            let work =
                async |session: Arc<ObjectSession>| Interrupt::new()?.or(delete_keys(&session, keys)).await;
            in_session(ctx, bucket, work).await?
        }
    };
    ctx.done(&DeletedObjects { deleted }, |_| match keys.as_slice() {
        [key] => format!("object {key} of {bucket} deleted"),
        _ => format!("{deleted} objects of {bucket} deleted"),
    })
}

fn deletion(bucket: &VolumeName, prefix: &str) -> String {
    match prefix {
        "" => format!("deletes all objects of bucket {bucket}"),
        _ => format!("deletes all objects of bucket {bucket} whose key begins with '{prefix}'"),
    }
}

/// Deletes named objects, which must exist.
async fn delete_keys(session: &ObjectSession, keys: &[String]) -> Result<u64> {
    let bucket = &session.bucket.volume;
    for key in keys {
        // S3 reports no error for an object that does not exist.
        session.retry(key, async || session.client.head_object(bucket, key).await).await?;
    }
    for key in keys {
        session.retry(key, async || session.client.delete_object(bucket, key).await).await?;
    }
    Ok(keys.len() as u64)
}

/// Deletes the objects that a listing shows, in requests of a page.
async fn delete_prefix(session: &ObjectSession, prefix: &str, quiet: bool) -> Result<u64> {
    let bucket = &session.bucket.volume;
    let (mut deleted, mut after) = (0, String::new());
    let mut line = StatusLine::new(quiet);
    loop {
        let request = async || {
            let request = ListRequest { prefix, after: &after, limit: 1000, ..ListRequest::default() };
            session.client.list(bucket, &request).await
        };
        let page = session.retry("", request).await?;
        let keys: Vec<String> = page.objects.into_iter().map(|object| object.key).collect();
        let Some(last) = keys.last() else { return Ok(deleted) };
        let refused = session.retry("", async || session.client.delete_objects(bucket, &keys).await).await?;
        if let Some((key, reason)) = refused.first() {
            let message = format!("object '{key}' of bucket {} was not deleted: {reason}", session.bucket);
            return Err(Error::new(ErrorKind::Denied, message).into());
        }
        deleted += keys.len() as u64;
        after.clone_from(last);
        line.show(&format!("delete {}: {deleted} objects", session.bucket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_objects_are_joined_by_key() {
        let object = |key: &str| s3_client::ListedObject {
            key: key.into(),
            size: 1,
            etag: "\"x\"".into(),
            modified: "2026-01-02T03:04:05.000Z".into(),
        };
        let page =
            ListPage { objects: vec![object("a"), object("c")], prefixes: vec!["b/".into()], next: None };
        let keys: Vec<String> = rows(page).into_iter().map(|row| row.key).collect();
        assert_eq!(keys, ["a", "b/", "c"]);
    }
}
