//! `gabion s3`, `gabion bucket` and `gabion key`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use api::types::{ChangeBucket, CreateBucket, CreateKey, EtagKind, StartS3};

use super::CommandContext;
use crate::cli::{BucketCommand, KeyCommand, S3Command};
use crate::failure::ExitReason;
use crate::output;

/// Runs a `gabion s3` command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run(ctx: &CommandContext, command: S3Command) -> Result<ExitReason> {
    match command {
        S3Command::Start { pool, listen, region, domain, lifecycle_day, certificate, private_key } => {
            let (certificate, private_key) = (absolute(certificate)?, absolute(private_key)?);
            let request = StartS3 { listen, region, domain, lifecycle_day, certificate, private_key };
            let started = ctx.client.start_s3(&pool, &request).await?;
            ctx.done(&started, |service| format!("{}://{}", service.scheme(), service.listen))?;
        }
        S3Command::Stop { pool } => {
            ctx.client.stop_s3(&pool).await?;
            ctx.done(&None::<()>, |_| format!("S3 on {pool} stopped"))?;
        }
        S3Command::Status => {
            let services = ctx.client.list_s3().await?;
            ctx.list(&services, |service| service.pool.clone(), output::s3_services)?;
        }
    }
    Ok(ExitReason::Success)
}

/// Returns the absolute path of a file for the daemon, which runs in another directory.
pub(super) fn absolute(path: Option<PathBuf>) -> Result<Option<String>> {
    let Some(path) = path else { return Ok(None) };
    let full = std::path::absolute(&path).with_context(|| format!("'{}'", path.display()))?;
    let text = full.into_os_string().into_string();
    text.map(Some).map_err(|path| anyhow::anyhow!("the path {} is not UTF-8", path.display()))
}

/// Runs a `gabion bucket` command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run_bucket(ctx: &CommandContext, command: BucketCommand) -> Result<ExitReason> {
    match command {
        BucketCommand::Create { name } => {
            let request = CreateBucket { name: name.volume.clone() };
            let created = ctx.client.create_bucket(&name.pool, &request).await?;
            ctx.done(&created, |_| format!("bucket {name} created"))?;
        }
        BucketCommand::List { pool } => {
            let buckets = ctx.client.list_buckets(&pool).await?;
            ctx.list(&buckets, |bucket| bucket.name.clone(), output::buckets)?;
        }
        BucketCommand::Show { name } => {
            let bucket = ctx.client.get_bucket(&name).await?;
            ctx.print(&bucket, output::bucket)?;
        }
        BucketCommand::Set { name, quota, etag } => {
            let etag = etag.map(|kind| if kind == "fast" { EtagKind::Fast } else { EtagKind::Md5 });
            let request = ChangeBucket { quota: quota.map(|size| size.0), etag };
            let changed = ctx.client.change_bucket(&name, &request).await?;
            ctx.done(&changed, |_| format!("bucket {name} changed"))?;
        }
        BucketCommand::Mirror(arguments) => super::mirror::run(ctx, arguments).await?,
        BucketCommand::Delete { name } => {
            ctx.client.delete_bucket(&name).await?;
            ctx.done(&None::<()>, |_| format!("bucket {name} deleted"))?;
        }
    }
    Ok(ExitReason::Success)
}

/// Runs a `gabion key` command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run_key(ctx: &CommandContext, command: KeyCommand) -> Result<ExitReason> {
    match command {
        KeyCommand::Create { user, valid, cluster } => {
            let request = CreateKey { user, valid_s: valid };
            let created = match cluster {
                Some(cluster) => ctx.client.create_cluster_key(&cluster, &request).await?,
                None => ctx.client.create_key(&request).await?,
            };
            // Printed also with --quiet: the secret is shown only now.
            ctx.print(&created, output::new_key)?;
        }
        KeyCommand::List { cluster } => {
            let keys = match cluster {
                Some(cluster) => ctx.client.list_cluster_keys(&cluster).await?,
                None => ctx.client.list_keys().await?,
            };
            ctx.list(&keys, |key| key.access_key.clone(), output::access_keys)?;
        }
        KeyCommand::Delete { key, cluster } => {
            match cluster {
                Some(cluster) => ctx.client.delete_cluster_key(&cluster, &key).await?,
                None => ctx.client.delete_key(&key).await?,
            }
            ctx.done(&None::<()>, |_| format!("access key {key} deleted"))?;
        }
    }
    Ok(ExitReason::Success)
}
