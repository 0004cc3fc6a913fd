//! The operations of the protocol. All others answer `NotImplemented` and name the operation.

use s3s::dto;
use s3s::{S3, S3Request, S3Response, S3Result};

use crate::gateway::Gateway;

#[async_trait::async_trait]
impl S3 for Gateway {
    async fn list_buckets(
        &self,
        _: S3Request<dto::ListBucketsInput>,
    ) -> S3Result<S3Response<dto::ListBucketsOutput>> {
        Gateway::list_buckets(self).await
    }

    async fn create_bucket(
        &self,
        request: S3Request<dto::CreateBucketInput>,
    ) -> S3Result<S3Response<dto::CreateBucketOutput>> {
        Gateway::create_bucket(self, request).await
    }

    async fn delete_bucket(
        &self,
        request: S3Request<dto::DeleteBucketInput>,
    ) -> S3Result<S3Response<dto::DeleteBucketOutput>> {
        Gateway::delete_bucket(self, request).await
    }

    async fn head_bucket(
        &self,
        request: S3Request<dto::HeadBucketInput>,
    ) -> S3Result<S3Response<dto::HeadBucketOutput>> {
        Gateway::head_bucket(self, request).await
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<dto::GetBucketLocationInput>,
    ) -> S3Result<S3Response<dto::GetBucketLocationOutput>> {
        Gateway::bucket_location(self, request).await
    }

    async fn get_bucket_versioning(
        &self,
        request: S3Request<dto::GetBucketVersioningInput>,
    ) -> S3Result<S3Response<dto::GetBucketVersioningOutput>> {
        Gateway::bucket_versioning(self, request).await
    }

    async fn put_bucket_versioning(
        &self,
        request: S3Request<dto::PutBucketVersioningInput>,
    ) -> S3Result<S3Response<dto::PutBucketVersioningOutput>> {
        Gateway::set_bucket_versioning(self, request).await
    }

    async fn put_object(
        &self,
        request: S3Request<dto::PutObjectInput>,
    ) -> S3Result<S3Response<dto::PutObjectOutput>> {
        Gateway::put(self, request).await
    }

    async fn get_object(
        &self,
        request: S3Request<dto::GetObjectInput>,
    ) -> S3Result<S3Response<dto::GetObjectOutput>> {
        Gateway::get(self, request).await
    }

    async fn head_object(
        &self,
        request: S3Request<dto::HeadObjectInput>,
    ) -> S3Result<S3Response<dto::HeadObjectOutput>> {
        Gateway::head(self, request).await
    }

    async fn delete_object(
        &self,
        request: S3Request<dto::DeleteObjectInput>,
    ) -> S3Result<S3Response<dto::DeleteObjectOutput>> {
        Gateway::delete(self, request).await
    }

    async fn delete_objects(
        &self,
        request: S3Request<dto::DeleteObjectsInput>,
    ) -> S3Result<S3Response<dto::DeleteObjectsOutput>> {
        Gateway::delete_many(self, request).await
    }

    async fn copy_object(
        &self,
        request: S3Request<dto::CopyObjectInput>,
    ) -> S3Result<S3Response<dto::CopyObjectOutput>> {
        Gateway::copy(self, request).await
    }

    async fn list_objects(
        &self,
        request: S3Request<dto::ListObjectsInput>,
    ) -> S3Result<S3Response<dto::ListObjectsOutput>> {
        Gateway::list_v1(self, request).await
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<dto::ListObjectsV2Input>,
    ) -> S3Result<S3Response<dto::ListObjectsV2Output>> {
        Gateway::list_v2(self, request).await
    }

    async fn list_object_versions(
        &self,
        request: S3Request<dto::ListObjectVersionsInput>,
    ) -> S3Result<S3Response<dto::ListObjectVersionsOutput>> {
        Gateway::list_versions(self, request).await
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<dto::CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<dto::CreateMultipartUploadOutput>> {
        Gateway::create_upload(self, request).await
    }

    async fn upload_part(
        &self,
        request: S3Request<dto::UploadPartInput>,
    ) -> S3Result<S3Response<dto::UploadPartOutput>> {
        Gateway::put_part(self, request).await
    }

    async fn upload_part_copy(
        &self,
        request: S3Request<dto::UploadPartCopyInput>,
    ) -> S3Result<S3Response<dto::UploadPartCopyOutput>> {
        Gateway::copy_part(self, request).await
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<dto::CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<dto::CompleteMultipartUploadOutput>> {
        Gateway::complete_upload(self, request).await
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<dto::AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<dto::AbortMultipartUploadOutput>> {
        Gateway::abort_upload(self, request).await
    }

    async fn list_parts(
        &self,
        request: S3Request<dto::ListPartsInput>,
    ) -> S3Result<S3Response<dto::ListPartsOutput>> {
        Gateway::list_parts(self, request).await
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<dto::ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<dto::ListMultipartUploadsOutput>> {
        Gateway::list_uploads(self, request).await
    }

    async fn get_object_tagging(
        &self,
        request: S3Request<dto::GetObjectTaggingInput>,
    ) -> S3Result<S3Response<dto::GetObjectTaggingOutput>> {
        Gateway::tags(self, request).await
    }

    async fn put_object_tagging(
        &self,
        request: S3Request<dto::PutObjectTaggingInput>,
    ) -> S3Result<S3Response<dto::PutObjectTaggingOutput>> {
        Gateway::set_tags(self, request).await
    }

    async fn delete_object_tagging(
        &self,
        request: S3Request<dto::DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<dto::DeleteObjectTaggingOutput>> {
        Gateway::delete_tags(self, request).await
    }
}
