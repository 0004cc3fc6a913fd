//! Buckets of gateways.
//!
//! Counts and quotas are read and set with `radosgw-admin`. Buckets are created and deleted by S3
//! requests to a gateway, because the program creates none and reports no failed deletion.

use api::types::{Bucket, ChangeBucket};
use s3_client::{Address, Credentials, S3Client, S3Error};
use serde_json::json;

use super::address::addresses;
use super::admin::parse;
use super::records::BucketRecord;
use super::{Gateways, check_argument, unsupported};
use crate::blocking::blocking;
use crate::clusters::convert;
use crate::error::{Error, ErrorKind, Result};
use crate::request::shown;

/// The region of requests: gateways accept any.
const REGION: &str = "us-east-1";

/// A change that a gateway makes.
#[derive(Clone, Copy)]
enum BucketRequest {
    Create,
    Delete,
}

impl Gateways {
    /// Returns the buckets of a cluster by name.
    ///
    /// # Errors
    /// `NotFound` without gateways; `Unreachable`.
    pub(crate) async fn buckets(&self, cluster: &str) -> Result<Vec<Bucket>> {
        let records: Vec<BucketRecord> = self.read(cluster, &["bucket", "stats"]).await?;
        let mut buckets: Vec<Bucket> = records.iter().map(BucketRecord::to_wire).collect();
        buckets.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(buckets)
    }

    async fn find_bucket(&self, cluster: &str, name: &str) -> Result<Option<Bucket>> {
        check_argument("bucket", name)?;
        match self.run(cluster, &["bucket", "stats", &format!("--bucket={name}")]).await? {
            Ok(output) => Ok(Some(parse::<BucketRecord>(&output)?.to_wire())),
            Err(refusal) if refusal.is_missing() => Ok(None),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Returns a bucket.
    ///
    /// # Errors
    /// `NotFound`; `Unreachable`.
    pub(crate) async fn bucket(&self, cluster: &str, name: &str) -> Result<Bucket> {
        self.find_bucket(cluster, name).await?.ok_or_else(|| missing_bucket(cluster, name))
    }

    /// Creates a bucket of the administrator.
    ///
    /// # Errors
    /// `Exists`; `Invalid` for the name; `Unreachable` if no gateway answers.
    pub(crate) async fn create_bucket(&self, cluster: &str, name: &str) -> Result<Bucket> {
        // A gateway does not report a bucket that its owner creates again.
        if self.find_bucket(cluster, name).await?.is_some() {
            return Err(existing_bucket(cluster, name));
        }
        self.request(cluster, name, BucketRequest::Create).await?;
        tracing::info!(cluster, bucket = name, "bucket created");
        self.bucket(cluster, name).await
    }

    /// Changes the quota of a bucket.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a kind of ETags; `Io` if the quota was not set.
    pub(crate) async fn change_bucket(
        &self,
        cluster: &str,
        name: &str,
        request: ChangeBucket,
    ) -> Result<Bucket> {
        if request.etag.is_some() {
            return Err(unsupported(cluster, "kinds of ETags", "--etag"));
        }
        let before = self.bucket(cluster, name).await?;
        let Some(quota) = request.quota else { return Ok(before) };
        let (bucket, size) = (format!("--bucket={name}"), format!("--max-size={quota}"));
        let change: &[&str] = match quota {
            0 => &["quota", "disable", "--quota-scope=bucket", &bucket],
            _ => &["quota", "enable", "--quota-scope=bucket", &bucket, &size],
        };
        self.run(cluster, change).await??;
        // The program reports no failure of this command.
        let changed = self.bucket(cluster, name).await?;
        if changed.quota.map_or(quota == 0, |set| quota > 0 && set >= quota) {
            tracing::info!(cluster, bucket = name, quota, "quota of a bucket changed");
            return Ok(changed);
        }
        let message = format!("cluster '{cluster}' did not store the quota of bucket '{}'", shown(name));
        Err(Error::new(ErrorKind::Io, message)
            .hint(format!("'gabion cluster status {cluster}' shows its problems")))
    }

    /// Deletes an empty bucket.
    ///
    /// # Errors
    /// `NotFound`; `Busy` for a bucket with objects; `Unreachable` if no gateway answers.
    pub(crate) async fn delete_bucket(&self, cluster: &str, name: &str) -> Result<()> {
        self.bucket(cluster, name).await?;
        self.request(cluster, name, BucketRequest::Delete).await?;
        tracing::info!(cluster, bucket = name, "bucket deleted");
        Ok(())
    }

    /// Sends a request as the administrator to the first gateway that answers.
    async fn request(&self, cluster: &str, bucket: &str, request: BucketRequest) -> Result<()> {
        let (access_key, secret) = self.administrator_key(cluster).await?;
        let mut unreachable = None;
        for address in self.addresses(cluster).await? {
            let Ok(parsed) = Address::parse(&address) else { continue };
            let credentials = Credentials::new(access_key.clone(), secret.clone());
            let client = S3Client::new(parsed, REGION, credentials);
            let answer = match request {
                BucketRequest::Create => client.create_bucket(bucket).await,
                BucketRequest::Delete => client.delete_bucket(bucket).await,
            };
            match answer {
                Ok(()) => return Ok(()),
                Err(error @ S3Error::Connect { .. }) => unreachable = Some(error),
                Err(error) => return Err(explain(cluster, bucket, &error)),
            }
        }
        let reason = match unreachable {
            Some(error) => error.to_string(),
            None => format!("no object gateway of cluster '{cluster}' serves HTTP"),
        };
        Err(Error::new(ErrorKind::Unreachable, reason).hint(format!(
            "'gabion cluster services {cluster}' starts the gateways; with HTTPS only, use an S3 client: \
             'aws s3 mb s3://BUCKET --endpoint-url https://GATEWAY'"
        )))
    }

    /// Returns an access key of the administrator with its secret.
    async fn administrator_key(&self, cluster: &str) -> Result<(String, String)> {
        let user = self.administrator(cluster).await?;
        if let Some(key) = user.any_key() {
            return Ok(key);
        }
        let created = self.create_key(cluster, api::types::CreateKey::default()).await?;
        Ok((created.access_key, created.secret.unwrap_or_default()))
    }

    /// Returns the addresses of the gateways of a cluster.
    async fn addresses(&self, cluster: &str) -> Result<Vec<String>> {
        let (name, directory) = (cluster.to_owned(), self.directory_of(cluster)?);
        let query = move || {
            let options = ceph::options_of(&name, &directory, ceph::GATEWAY_USER)?;
            let client = ceph::RadosClient::connect(&options)?;
            client.monitor_json(&json!({"prefix": "service dump", "format": "json"}))
        };
        Ok(addresses(&blocking(query).await?.map_err(convert)?))
    }
}

fn missing_bucket(cluster: &str, name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("cluster '{cluster}' has no bucket '{}'", shown(name)))
        .hint(format!("'gabion bucket list {cluster}' lists the buckets"))
}

fn existing_bucket(cluster: &str, name: &str) -> Error {
    Error::new(ErrorKind::Exists, format!("cluster '{cluster}' already has a bucket '{name}'"))
        .hint("choose another name")
}

/// Returns the error of a request about a bucket.
fn explain(cluster: &str, bucket: &str, error: &S3Error) -> Error {
    let shown = shown(bucket);
    match error.code() {
        Some("BucketAlreadyExists" | "BucketAlreadyOwnedByYou") => existing_bucket(cluster, bucket),
        Some("NoSuchBucket") => missing_bucket(cluster, bucket),
        Some("BucketNotEmpty") => {
            Error::new(ErrorKind::Busy, format!("bucket '{shown}' of cluster '{cluster}' is not empty"))
                .hint("delete its objects first, also their older versions")
        }
        Some("InvalidBucketName") => {
            Error::new(ErrorKind::Invalid, format!("'{shown}' is not the name of a bucket"))
                .hint("use 3 to 63 lower-case letters, digits, hyphens and dots")
        }
        _ => Error::new(ErrorKind::Io, format!("bucket '{shown}' of cluster '{cluster}': {error}"))
            .hint(format!("'gabion cluster status {cluster}' shows the problems of the cluster")),
    }
}
