//! The settings of buckets: policy, block of public access, CORS, lifecycle, encryption, ownership,
//! tags, and access lists of buckets and objects.

use object::{Change, ObjectRef};
use s3s::dto;
use s3s::{S3Request, S3Response, S3Result, s3_error};
use serde::Serialize;

use crate::access::scope;
use crate::acl::{AccessList, GrantHeaders};
use crate::attributes;
use crate::errors::{custom, internal};
use crate::gateway::Gateway;
use crate::policy::PolicyDocument;
use crate::put::grant_headers;
use crate::settings::{
    ACL, BucketSettings, CORS, DefaultEncryption, ENCRYPTION, LIFECYCLE, OWNERSHIP, POLICY, PUBLIC_ACCESS,
    PublicAccess, TAGGING,
};
use crate::tags;

/// The largest number of tags of a bucket, as in S3.
const TAGS_MAX: usize = 50;

/// Encodes the value of a setting.
pub(crate) fn to_json(value: &impl Serialize) -> S3Result<Option<String>> {
    serde_json::to_string(value).map(Some).map_err(internal)
}

impl Gateway {
    /// Sets or removes a setting of a bucket.
    async fn set(&self, bucket: String, name: &str, value: Option<String>) -> S3Result<()> {
        self.commit(Change::SetBucket { bucket, name: name.to_owned(), value }).await?;
        Ok(())
    }

    pub(crate) async fn policy(
        &self,
        request: S3Request<dto::GetBucketPolicyInput>,
    ) -> S3Result<S3Response<dto::GetBucketPolicyOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let policy = bucket.info.settings.get(POLICY).cloned();
        let policy = policy.ok_or_else(|| s3_error!(NoSuchBucketPolicy, "the bucket has no policy"))?;
        Ok(S3Response::new(dto::GetBucketPolicyOutput { policy: Some(policy) }))
    }

    pub(crate) async fn set_policy(
        &self,
        request: S3Request<dto::PutBucketPolicyInput>,
    ) -> S3Result<S3Response<dto::PutBucketPolicyOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let input = request.input;
        let parsed = PolicyDocument::parse_of_bucket(&input.policy, &input.bucket)
            .map_err(|reason| s3_error!(MalformedPolicy, "{reason}"))?;
        // Only new policies are refused: a stored one may contain such a principal.
        if let Some(principal) = parsed.session_principal() {
            return Err(s3_error!(
                MalformedPolicy,
                "the principal '{principal}' is a session: name its role, arn:aws:iam:::role/NAME"
            ));
        }
        if bucket.public_access.block_policy && parsed.is_public() {
            return Err(s3_error!(AccessDenied, "the block of public access refuses public policies"));
        }
        self.set(input.bucket, POLICY, Some(input.policy)).await?;
        let mut response = S3Response::new(dto::PutBucketPolicyOutput::default());
        response.status = Some(hyper::StatusCode::NO_CONTENT);
        Ok(response)
    }

    pub(crate) async fn delete_policy(
        &self,
        request: S3Request<dto::DeleteBucketPolicyInput>,
    ) -> S3Result<S3Response<dto::DeleteBucketPolicyOutput>> {
        self.set(request.input.bucket, POLICY, None).await?;
        Ok(S3Response::new(dto::DeleteBucketPolicyOutput::default()))
    }

    pub(crate) async fn policy_status(
        &self,
        request: S3Request<dto::GetBucketPolicyStatusInput>,
    ) -> S3Result<S3Response<dto::GetBucketPolicyStatusOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let has_public_policy = bucket.policy.as_ref().is_some_and(PolicyDocument::is_public);
        let has_public_list = bucket.acl.is_public() && !bucket.public_access.ignore_acls;
        let is_public = (has_public_policy || has_public_list) && !bucket.public_access.restrict;
        let status = dto::PolicyStatus { is_public: Some(is_public) };
        Ok(S3Response::new(dto::GetBucketPolicyStatusOutput { policy_status: Some(status) }))
    }

    pub(crate) async fn public_access(
        &self,
        request: S3Request<dto::GetPublicAccessBlockInput>,
    ) -> S3Result<S3Response<dto::GetPublicAccessBlockOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        if !bucket.info.settings.contains_key(PUBLIC_ACCESS) {
            let message = "the bucket has no block of public access";
            let status = hyper::StatusCode::NOT_FOUND;
            return Err(custom("NoSuchPublicAccessBlockConfiguration", status, message));
        }
        let found = bucket.public_access;
        Ok(S3Response::new(dto::GetPublicAccessBlockOutput {
            public_access_block_configuration: Some(dto::PublicAccessBlockConfiguration {
                block_public_acls: Some(found.block_acls),
                block_public_policy: Some(found.block_policy),
                ignore_public_acls: Some(found.ignore_acls),
                restrict_public_buckets: Some(found.restrict),
            }),
        }))
    }

    pub(crate) async fn set_public_access(
        &self,
        request: S3Request<dto::PutPublicAccessBlockInput>,
    ) -> S3Result<S3Response<dto::PutPublicAccessBlockOutput>> {
        let given = request.input.public_access_block_configuration;
        let value = PublicAccess {
            block_acls: given.block_public_acls.unwrap_or(false),
            ignore_acls: given.ignore_public_acls.unwrap_or(false),
            block_policy: given.block_public_policy.unwrap_or(false),
            restrict: given.restrict_public_buckets.unwrap_or(false),
        };
        self.set(request.input.bucket, PUBLIC_ACCESS, to_json(&value)?).await?;
        Ok(S3Response::new(dto::PutPublicAccessBlockOutput::default()))
    }

    pub(crate) async fn delete_public_access(
        &self,
        request: S3Request<dto::DeletePublicAccessBlockInput>,
    ) -> S3Result<S3Response<dto::DeletePublicAccessBlockOutput>> {
        self.set(request.input.bucket, PUBLIC_ACCESS, None).await?;
        Ok(S3Response::new(dto::DeletePublicAccessBlockOutput::default()))
    }

    pub(crate) async fn cors(
        &self,
        request: S3Request<dto::GetBucketCorsInput>,
    ) -> S3Result<S3Response<dto::GetBucketCorsOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        check_shown(&bucket, CORS)?;
        let missing = || s3_error!(NoSuchCORSConfiguration, "the bucket has no CORS configuration");
        let cors = bucket.cors.clone().ok_or_else(missing)?;
        Ok(S3Response::new(dto::GetBucketCorsOutput { cors_rules: Some(cors.cors_rules) }))
    }

    pub(crate) async fn set_cors(
        &self,
        request: S3Request<dto::PutBucketCorsInput>,
    ) -> S3Result<S3Response<dto::PutBucketCorsOutput>> {
        let input = request.input;
        crate::cors::check(&input.cors_configuration)?;
        self.set(input.bucket, CORS, to_json(&input.cors_configuration)?).await?;
        Ok(S3Response::new(dto::PutBucketCorsOutput::default()))
    }

    pub(crate) async fn delete_cors(
        &self,
        request: S3Request<dto::DeleteBucketCorsInput>,
    ) -> S3Result<S3Response<dto::DeleteBucketCorsOutput>> {
        self.set(request.input.bucket, CORS, None).await?;
        Ok(S3Response::new(dto::DeleteBucketCorsOutput::default()))
    }

    pub(crate) async fn lifecycle(
        &self,
        request: S3Request<dto::GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<dto::GetBucketLifecycleConfigurationOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        check_shown(&bucket, LIFECYCLE)?;
        let missing = || s3_error!(NoSuchLifecycleConfiguration, "the bucket has no lifecycle configuration");
        let rules = bucket.lifecycle.clone().ok_or_else(missing)?.rules;
        Ok(S3Response::new(dto::GetBucketLifecycleConfigurationOutput {
            rules: Some(rules),
            ..Default::default()
        }))
    }

    pub(crate) async fn set_lifecycle(
        &self,
        request: S3Request<dto::PutBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<dto::PutBucketLifecycleConfigurationOutput>> {
        let input = request.input;
        let given = input.lifecycle_configuration;
        let given = given.ok_or_else(|| s3_error!(MalformedXML, "the configuration is missing"))?;
        let checked = crate::lifecycle::check(given)?;
        self.set(input.bucket, LIFECYCLE, to_json(&checked)?).await?;
        Ok(S3Response::new(dto::PutBucketLifecycleConfigurationOutput::default()))
    }

    pub(crate) async fn delete_lifecycle(
        &self,
        request: S3Request<dto::DeleteBucketLifecycleInput>,
    ) -> S3Result<S3Response<dto::DeleteBucketLifecycleOutput>> {
        self.set(request.input.bucket, LIFECYCLE, None).await?;
        Ok(S3Response::new(dto::DeleteBucketLifecycleOutput::default()))
    }

    pub(crate) async fn encryption(
        &self,
        request: S3Request<dto::GetBucketEncryptionInput>,
    ) -> S3Result<S3Response<dto::GetBucketEncryptionOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let found = bucket.encryption.clone().ok_or_else(|| {
            s3_error!(ServerSideEncryptionConfigurationNotFoundError, "the bucket has no default encryption")
        })?;
        let by_default = dto::ServerSideEncryptionByDefault {
            kms_master_key_id: found.key_id,
            sse_algorithm: dto::ServerSideEncryption::from(found.algorithm),
        };
        let rule = dto::ServerSideEncryptionRule {
            apply_server_side_encryption_by_default: Some(by_default),
            bucket_key_enabled: Some(false),
        };
        let configuration = dto::ServerSideEncryptionConfiguration { rules: vec![rule] };
        Ok(S3Response::new(dto::GetBucketEncryptionOutput {
            server_side_encryption_configuration: Some(configuration),
        }))
    }

    pub(crate) async fn set_encryption(
        &self,
        request: S3Request<dto::PutBucketEncryptionInput>,
    ) -> S3Result<S3Response<dto::PutBucketEncryptionOutput>> {
        let input = request.input;
        let rule = input.server_side_encryption_configuration.rules.into_iter().next();
        let given = rule.and_then(|rule| rule.apply_server_side_encryption_by_default);
        let given = given.ok_or_else(|| s3_error!(MalformedXML, "the configuration has no default"))?;
        let algorithm = given.sse_algorithm.as_str().to_owned();
        let is_valid = match algorithm.as_str() {
            "AES256" => given.kms_master_key_id.is_none(),
            "aws:kms" => given.kms_master_key_id.is_some(),
            _ => false,
        };
        if !is_valid {
            return Err(s3_error!(MalformedXML, "the default is AES256, or aws:kms with the id of a key"));
        }
        let value = DefaultEncryption { algorithm, key_id: given.kms_master_key_id };
        self.set(input.bucket, ENCRYPTION, to_json(&value)?).await?;
        Ok(S3Response::new(dto::PutBucketEncryptionOutput::default()))
    }

    pub(crate) async fn delete_encryption(
        &self,
        request: S3Request<dto::DeleteBucketEncryptionInput>,
    ) -> S3Result<S3Response<dto::DeleteBucketEncryptionOutput>> {
        self.set(request.input.bucket, ENCRYPTION, None).await?;
        Ok(S3Response::new(dto::DeleteBucketEncryptionOutput::default()))
    }

    pub(crate) async fn ownership(
        &self,
        request: S3Request<dto::GetBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<dto::GetBucketOwnershipControlsOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let found = bucket.info.settings.get(OWNERSHIP).cloned().ok_or_else(|| {
            s3_error!(OwnershipControlsNotFoundError, "the bucket has no ownership controls")
        })?;
        let rule = dto::OwnershipControlsRule { object_ownership: dto::ObjectOwnership::from(found) };
        let controls = dto::OwnershipControls { rules: vec![rule] };
        Ok(S3Response::new(dto::GetBucketOwnershipControlsOutput { ownership_controls: Some(controls) }))
    }

    pub(crate) async fn set_ownership(
        &self,
        request: S3Request<dto::PutBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<dto::PutBucketOwnershipControlsOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let input = request.input;
        let rule = input.ownership_controls.rules.into_iter().next();
        let rule = rule.ok_or_else(|| s3_error!(MalformedXML, "the controls have no rule"))?;
        let mode = check_ownership(&rule.object_ownership, &bucket.acl, bucket.owner())?;
        self.set(input.bucket, OWNERSHIP, Some(mode)).await?;
        Ok(S3Response::new(dto::PutBucketOwnershipControlsOutput::default()))
    }

    pub(crate) async fn delete_ownership(
        &self,
        request: S3Request<dto::DeleteBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<dto::DeleteBucketOwnershipControlsOutput>> {
        self.set(request.input.bucket, OWNERSHIP, None).await?;
        Ok(S3Response::new(dto::DeleteBucketOwnershipControlsOutput::default()))
    }

    pub(crate) async fn bucket_tags(
        &self,
        request: S3Request<dto::GetBucketTaggingInput>,
    ) -> S3Result<S3Response<dto::GetBucketTaggingOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let tags = bucket.info.settings.get(TAGGING);
        let tags = tags.ok_or_else(|| s3_error!(NoSuchTagSet, "the bucket has no tags"))?;
        let tag_set = tags::to_wire(tags::parse(tags));
        Ok(S3Response::new(dto::GetBucketTaggingOutput { tag_set }))
    }

    pub(crate) async fn set_bucket_tags(
        &self,
        request: S3Request<dto::PutBucketTaggingInput>,
    ) -> S3Result<S3Response<dto::PutBucketTaggingOutput>> {
        let input = request.input;
        let tags = tags::check_set(input.tagging.tag_set, TAGS_MAX)?;
        self.set(input.bucket, TAGGING, Some(tags::write(&tags))).await?;
        let mut response = S3Response::new(dto::PutBucketTaggingOutput::default());
        response.status = Some(hyper::StatusCode::NO_CONTENT);
        Ok(response)
    }

    pub(crate) async fn delete_bucket_tags(
        &self,
        request: S3Request<dto::DeleteBucketTaggingInput>,
    ) -> S3Result<S3Response<dto::DeleteBucketTaggingOutput>> {
        self.set(request.input.bucket, TAGGING, None).await?;
        Ok(S3Response::new(dto::DeleteBucketTaggingOutput::default()))
    }

    pub(crate) async fn bucket_acl(
        &self,
        request: S3Request<dto::GetBucketAclInput>,
    ) -> S3Result<S3Response<dto::GetBucketAclOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let list = effective_list(&bucket, bucket.acl.clone());
        let (owner, grants) = list.to_wire();
        Ok(S3Response::new(dto::GetBucketAclOutput { grants: Some(grants), owner: Some(owner) }))
    }

    pub(crate) async fn set_bucket_acl(
        &self,
        request: S3Request<dto::PutBucketAclInput>,
    ) -> S3Result<S3Response<dto::PutBucketAclOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let mut input = request.input;
        let mut grants: GrantHeaders = grant_headers!(input);
        grants.write = input.grant_write.take();
        let canned = input.acl.as_ref().map(dto::BucketCannedACL::as_str);
        let list =
            self.requested_list(&bucket, bucket.owner(), canned, &grants, input.access_control_policy)?;
        self.set(input.bucket, ACL, to_json(&list)?).await?;
        Ok(S3Response::new(dto::PutBucketAclOutput::default()))
    }

    /// Returns the list of a request that replaces one.
    fn requested_list(
        &self,
        bucket: &BucketSettings,
        owner: &str,
        canned: Option<&str>,
        grants: &GrantHeaders,
        document: Option<dto::AccessControlPolicy>,
    ) -> S3Result<AccessList> {
        let given =
            usize::from(canned.is_some()) + usize::from(grants.is_some()) + usize::from(document.is_some());
        if given != 1 {
            return Err(s3_error!(
                InvalidRequest,
                "a request has one of a canned ACL, grants, and a document"
            ));
        }
        if bucket.is_owner_enforced {
            return Err(s3_error!(AccessControlListNotSupported, "the bucket does not allow ACLs"));
        }
        let has_user = |user: &str| self.keys.has_user(user) || user == bucket.owner() || user == owner;
        let list = match (canned, document) {
            (Some(canned), _) => AccessList::canned(canned, owner, bucket.owner())?,
            (None, Some(document)) => AccessList::of_document(document, owner, &has_user)?,
            (None, None) => AccessList::of_headers(grants, owner, &has_user)?,
        };
        if bucket.public_access.block_acls && list.is_public() {
            return Err(s3_error!(AccessDenied, "the block of public access refuses public ACLs"));
        }
        Ok(list)
    }

    pub(crate) async fn object_acl(
        &self,
        request: S3Request<dto::GetObjectAclInput>,
    ) -> S3Result<S3Response<dto::GetObjectAclOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let input = request.input;
        let object = ObjectRef { bucket: input.bucket, key: input.key, version: input.version_id };
        let info = self.read(move |store| store.object(&object)).await?;
        let list = effective_list(&bucket, attributes::access_list(&info.attributes, bucket.owner()));
        let (owner, grants) = list.to_wire();
        let (grants, owner) = (Some(grants), Some(owner));
        Ok(S3Response::new(dto::GetObjectAclOutput { grants, owner, ..Default::default() }))
    }

    pub(crate) async fn set_object_acl(
        &self,
        request: S3Request<dto::PutObjectAclInput>,
    ) -> S3Result<S3Response<dto::PutObjectAclOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let mut input = request.input;
        let grants = grant_headers!(input);
        let canned = input.acl.as_ref().map(dto::ObjectCannedACL::as_str);
        let object = ObjectRef { bucket: input.bucket, key: input.key, version: input.version_id };
        let lookup = object.clone();
        let info = self.read(move |store| store.object(&lookup)).await?;
        let before = attributes::access_list(&info.attributes, bucket.owner());
        let list =
            self.requested_list(&bucket, &before.owner, canned, &grants, input.access_control_policy)?;
        let mut all = attributes::Attributes::new();
        attributes::set_access_list(&mut all, &list, bucket.owner());
        let value = all.remove(attributes::ACL);
        self.commit(Change::SetAttribute { object, name: attributes::ACL.to_owned(), value }).await?;
        Ok(S3Response::new(dto::PutObjectAclOutput::default()))
    }

    pub(crate) async fn request_payment(
        &self,
        _: S3Request<dto::GetBucketRequestPaymentInput>,
    ) -> S3Result<S3Response<dto::GetBucketRequestPaymentOutput>> {
        let payer = Some(dto::Payer::from_static(dto::Payer::BUCKET_OWNER));
        Ok(S3Response::new(dto::GetBucketRequestPaymentOutput { payer }))
    }
}

/// Refuses to show a setting that cannot be read as a missing one.
///
/// # Errors
/// `InternalError`.
pub(crate) fn check_shown(bucket: &BucketSettings, setting: &str) -> S3Result<()> {
    if !bucket.unreadable.contains(&setting) {
        return Ok(());
    }
    Err(s3_error!(
        InternalError,
        "the stored setting '{setting}' of bucket '{}' cannot be read: replace it or delete it",
        bucket.info.name
    ))
}

/// The list that counts in a bucket: without lists, the owner has full control.
fn effective_list(bucket: &BucketSettings, list: AccessList) -> AccessList {
    if bucket.is_owner_enforced { AccessList::private(bucket.owner()) } else { list }
}

/// Checks a mode of ownership. Returns its name.
///
/// # Errors
/// For an unknown mode; for a bucket whose list grants rights, if lists are to be ignored.
pub(crate) fn check_ownership(
    mode: &dto::ObjectOwnership,
    list: &AccessList,
    owner: &str,
) -> S3Result<String> {
    let name = mode.as_str();
    if !["BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter"].contains(&name) {
        return Err(s3_error!(MalformedXML, "the object ownership '{name}' is unknown"));
    }
    if name == "BucketOwnerEnforced" && *list != AccessList::private(owner) {
        return Err(s3_error!(
            InvalidBucketAclWithObjectOwnership,
            "a bucket whose ACL grants rights to others cannot enforce its owner"
        ));
    }
    Ok(name.to_owned())
}
