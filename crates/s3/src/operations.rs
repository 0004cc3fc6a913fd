//! The operations of the protocol. All others answer `NotImplemented` and name the operation.

use s3s::dto;
use s3s::{S3, S3Request, S3Response, S3Result};

use crate::gateway::Gateway;

/// Connects operations of the protocol with the methods that execute them.
macro_rules! operations {
    ($($operation:ident => $method:ident: $input:ident -> $output:ident;)*) => {
        #[async_trait::async_trait]
        impl S3 for Gateway {
            $(
                async fn $operation(
                    &self,
                    request: S3Request<dto::$input>,
                ) -> S3Result<S3Response<dto::$output>> {
                    Gateway::$method(self, request).await
                }
            )*
        }
    };
}

operations! {
    list_buckets => list_buckets: ListBucketsInput -> ListBucketsOutput;
    create_bucket => create_bucket: CreateBucketInput -> CreateBucketOutput;
    delete_bucket => delete_bucket: DeleteBucketInput -> DeleteBucketOutput;
    head_bucket => head_bucket: HeadBucketInput -> HeadBucketOutput;
    get_bucket_location => bucket_location: GetBucketLocationInput -> GetBucketLocationOutput;
    get_bucket_versioning => bucket_versioning: GetBucketVersioningInput -> GetBucketVersioningOutput;
    put_bucket_versioning => set_bucket_versioning: PutBucketVersioningInput -> PutBucketVersioningOutput;
    get_bucket_acl => bucket_acl: GetBucketAclInput -> GetBucketAclOutput;
    put_bucket_acl => set_bucket_acl: PutBucketAclInput -> PutBucketAclOutput;
    get_bucket_policy => policy: GetBucketPolicyInput -> GetBucketPolicyOutput;
    put_bucket_policy => set_policy: PutBucketPolicyInput -> PutBucketPolicyOutput;
    delete_bucket_policy => delete_policy: DeleteBucketPolicyInput -> DeleteBucketPolicyOutput;
    get_bucket_policy_status => policy_status: GetBucketPolicyStatusInput -> GetBucketPolicyStatusOutput;
    get_public_access_block => public_access: GetPublicAccessBlockInput -> GetPublicAccessBlockOutput;
    put_public_access_block => set_public_access: PutPublicAccessBlockInput -> PutPublicAccessBlockOutput;
    delete_public_access_block => delete_public_access:
        DeletePublicAccessBlockInput -> DeletePublicAccessBlockOutput;
    get_bucket_cors => cors: GetBucketCorsInput -> GetBucketCorsOutput;
    put_bucket_cors => set_cors: PutBucketCorsInput -> PutBucketCorsOutput;
    delete_bucket_cors => delete_cors: DeleteBucketCorsInput -> DeleteBucketCorsOutput;
    get_bucket_lifecycle_configuration => lifecycle:
        GetBucketLifecycleConfigurationInput -> GetBucketLifecycleConfigurationOutput;
    put_bucket_lifecycle_configuration => set_lifecycle:
        PutBucketLifecycleConfigurationInput -> PutBucketLifecycleConfigurationOutput;
    delete_bucket_lifecycle => delete_lifecycle: DeleteBucketLifecycleInput -> DeleteBucketLifecycleOutput;
    get_bucket_encryption => encryption: GetBucketEncryptionInput -> GetBucketEncryptionOutput;
    put_bucket_encryption => set_encryption: PutBucketEncryptionInput -> PutBucketEncryptionOutput;
    delete_bucket_encryption => delete_encryption: DeleteBucketEncryptionInput -> DeleteBucketEncryptionOutput;
    get_bucket_notification_configuration => notification:
        GetBucketNotificationConfigurationInput -> GetBucketNotificationConfigurationOutput;
    put_bucket_notification_configuration => set_notification:
        PutBucketNotificationConfigurationInput -> PutBucketNotificationConfigurationOutput;
    get_bucket_ownership_controls => ownership:
        GetBucketOwnershipControlsInput -> GetBucketOwnershipControlsOutput;
    put_bucket_ownership_controls => set_ownership:
        PutBucketOwnershipControlsInput -> PutBucketOwnershipControlsOutput;
    delete_bucket_ownership_controls => delete_ownership:
        DeleteBucketOwnershipControlsInput -> DeleteBucketOwnershipControlsOutput;
    get_bucket_tagging => bucket_tags: GetBucketTaggingInput -> GetBucketTaggingOutput;
    put_bucket_tagging => set_bucket_tags: PutBucketTaggingInput -> PutBucketTaggingOutput;
    delete_bucket_tagging => delete_bucket_tags: DeleteBucketTaggingInput -> DeleteBucketTaggingOutput;
    get_bucket_request_payment => request_payment: GetBucketRequestPaymentInput -> GetBucketRequestPaymentOutput;
    get_object_lock_configuration => lock_configuration:
        GetObjectLockConfigurationInput -> GetObjectLockConfigurationOutput;
    put_object_lock_configuration => set_lock_configuration:
        PutObjectLockConfigurationInput -> PutObjectLockConfigurationOutput;
    get_object_retention => retention: GetObjectRetentionInput -> GetObjectRetentionOutput;
    put_object_retention => set_retention: PutObjectRetentionInput -> PutObjectRetentionOutput;
    get_object_legal_hold => legal_hold: GetObjectLegalHoldInput -> GetObjectLegalHoldOutput;
    put_object_legal_hold => set_legal_hold: PutObjectLegalHoldInput -> PutObjectLegalHoldOutput;
    put_object => put: PutObjectInput -> PutObjectOutput;
    get_object => get: GetObjectInput -> GetObjectOutput;
    head_object => head: HeadObjectInput -> HeadObjectOutput;
    get_object_attributes => object_attributes: GetObjectAttributesInput -> GetObjectAttributesOutput;
    get_object_acl => object_acl: GetObjectAclInput -> GetObjectAclOutput;
    put_object_acl => set_object_acl: PutObjectAclInput -> PutObjectAclOutput;
    delete_object => delete: DeleteObjectInput -> DeleteObjectOutput;
    delete_objects => delete_many: DeleteObjectsInput -> DeleteObjectsOutput;
    copy_object => copy: CopyObjectInput -> CopyObjectOutput;
    list_objects => list_v1: ListObjectsInput -> ListObjectsOutput;
    list_objects_v2 => list_v2: ListObjectsV2Input -> ListObjectsV2Output;
    list_object_versions => list_versions: ListObjectVersionsInput -> ListObjectVersionsOutput;
    create_multipart_upload => create_upload: CreateMultipartUploadInput -> CreateMultipartUploadOutput;
    upload_part => put_part: UploadPartInput -> UploadPartOutput;
    upload_part_copy => copy_part: UploadPartCopyInput -> UploadPartCopyOutput;
    complete_multipart_upload => complete_upload:
        CompleteMultipartUploadInput -> CompleteMultipartUploadOutput;
    abort_multipart_upload => abort_upload: AbortMultipartUploadInput -> AbortMultipartUploadOutput;
    list_parts => list_parts: ListPartsInput -> ListPartsOutput;
    list_multipart_uploads => list_uploads: ListMultipartUploadsInput -> ListMultipartUploadsOutput;
    get_object_tagging => tags: GetObjectTaggingInput -> GetObjectTaggingOutput;
    put_object_tagging => set_tags: PutObjectTaggingInput -> PutObjectTaggingOutput;
    delete_object_tagging => delete_tags: DeleteObjectTaggingInput -> DeleteObjectTaggingOutput;
}
