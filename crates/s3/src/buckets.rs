//! Operations on buckets.

use object::{Change, Versioning};
use s3s::dto;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::gateway::{Gateway, now_ms, timestamp};

impl Gateway {
    pub(crate) async fn create_bucket(
        &self,
        request: S3Request<dto::CreateBucketInput>,
    ) -> S3Result<S3Response<dto::CreateBucketOutput>> {
        let input = request.input;
        if input.object_lock_enabled_for_bucket == Some(true) {
            return Err(s3_error!(NotImplemented, "object lock is not implemented"));
        }
        let location = format!("/{}", input.bucket);
        self.commit(Change::CreateBucket { name: input.bucket, now_ms: now_ms() }).await?;
        Ok(S3Response::new(dto::CreateBucketOutput { location: Some(location) }))
    }

    pub(crate) async fn delete_bucket(
        &self,
        request: S3Request<dto::DeleteBucketInput>,
    ) -> S3Result<S3Response<dto::DeleteBucketOutput>> {
        self.commit(Change::DeleteBucket { name: request.input.bucket }).await?;
        Ok(S3Response::new(dto::DeleteBucketOutput::default()))
    }

    /// Checks that a bucket exists.
    ///
    /// # Errors
    /// `NoSuchBucket`.
    pub(crate) async fn check_bucket(&self, name: String) -> S3Result<object::BucketInfo> {
        self.read(move |store| store.bucket(&name)).await
    }

    pub(crate) async fn head_bucket(
        &self,
        request: S3Request<dto::HeadBucketInput>,
    ) -> S3Result<S3Response<dto::HeadBucketOutput>> {
        self.check_bucket(request.input.bucket).await?;
        Ok(S3Response::new(dto::HeadBucketOutput {
            bucket_region: Some(self.region.to_string()),
            ..Default::default()
        }))
    }

    pub(crate) async fn list_buckets(&self) -> S3Result<S3Response<dto::ListBucketsOutput>> {
        let buckets = self.read(|store| store.buckets()).await?;
        let describe = |bucket: object::BucketInfo| dto::Bucket {
            name: Some(bucket.name),
            creation_date: Some(timestamp(bucket.created_ms)),
            ..Default::default()
        };
        Ok(S3Response::new(dto::ListBucketsOutput {
            buckets: Some(buckets.into_iter().map(describe).collect()),
            owner: Some(dto::Owner { display_name: Some("gabion".into()), id: Some("gabion".into()) }),
            ..Default::default()
        }))
    }

    pub(crate) async fn bucket_location(
        &self,
        request: S3Request<dto::GetBucketLocationInput>,
    ) -> S3Result<S3Response<dto::GetBucketLocationOutput>> {
        self.check_bucket(request.input.bucket).await?;
        // The answer for us-east-1 is empty, as in S3.
        let region = (&*self.region != "us-east-1").then(|| self.region.to_string());
        let location_constraint = region.map(dto::BucketLocationConstraint::from);
        Ok(S3Response::new(dto::GetBucketLocationOutput { location_constraint }))
    }

    pub(crate) async fn bucket_versioning(
        &self,
        request: S3Request<dto::GetBucketVersioningInput>,
    ) -> S3Result<S3Response<dto::GetBucketVersioningOutput>> {
        let bucket = self.check_bucket(request.input.bucket).await?;
        let status = match bucket.versioning {
            Versioning::Off => None,
            Versioning::Enabled => Some(dto::BucketVersioningStatus::ENABLED),
            Versioning::Suspended => Some(dto::BucketVersioningStatus::SUSPENDED),
        };
        let status = status.map(dto::BucketVersioningStatus::from_static);
        Ok(S3Response::new(dto::GetBucketVersioningOutput { status, ..Default::default() }))
    }

    pub(crate) async fn set_bucket_versioning(
        &self,
        request: S3Request<dto::PutBucketVersioningInput>,
    ) -> S3Result<S3Response<dto::PutBucketVersioningOutput>> {
        let dto::PutBucketVersioningInput { bucket, versioning_configuration, .. } = request.input;
        let status = versioning_configuration.status;
        let versioning = match status.as_ref().map(dto::BucketVersioningStatus::as_str) {
            Some(dto::BucketVersioningStatus::ENABLED) => Versioning::Enabled,
            Some(dto::BucketVersioningStatus::SUSPENDED) => Versioning::Suspended,
            _ => return Err(s3_error!(MalformedXML, "the status must be Enabled or Suspended")),
        };
        self.commit(Change::SetVersioning { bucket, versioning }).await?;
        Ok(S3Response::new(dto::PutBucketVersioningOutput::default()))
    }
}
