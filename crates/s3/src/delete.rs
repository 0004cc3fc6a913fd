//! Deletions of objects and versions, one or many.

use object::{Change, ChangeOrigin, Conditions, DeleteObject, Deletion, ObjectRef, Outcome, Versioning};
use s3s::dto;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::access::{AccessRequest, RequestScope, scope};
use crate::acl::AclRight;
use crate::attributes::condition;
use crate::errors::{convert, unexpected_outcome};
use crate::gateway::{Gateway, now_ms};
use crate::times::to_ms;

/// The largest number of objects in a request, as in S3.
const OBJECTS_MAX: usize = 1000;

/// Conditions of a deletion.
fn conditions(if_match: Option<String>, modified: Option<&dto::Timestamp>, size: Option<i64>) -> Conditions {
    Conditions {
        if_match,
        if_none_match: None,
        if_match_size: size.map(|size| u64::try_from(size).unwrap_or(u64::MAX)),
        if_match_second: modified.map(|time| to_ms(time) / 1000),
    }
}

/// The version in answers, if the bucket keeps versions.
fn shown(version: Option<String>, versioning: Versioning) -> Option<String> {
    version.filter(|version| versioning != Versioning::Off || version != "null")
}

impl Gateway {
    pub(crate) async fn delete(
        &self,
        request: S3Request<dto::DeleteObjectInput>,
    ) -> S3Result<S3Response<dto::DeleteObjectOutput>> {
        let scope = scope(&request.extensions);
        let versioning = scope.bucket()?.info.versioning;
        let input = request.input;
        let bypass_governance =
            self.may_bypass(&scope, &input.key, input.bypass_governance_retention).await?;
        let modified = input.if_match_last_modified_time.as_ref();
        let conditions = conditions(condition(input.if_match), modified, input.if_match_size);
        let object = ObjectRef { bucket: input.bucket, key: input.key, version: input.version_id };
        let delete = DeleteObject { object, conditions, bypass_governance, now_ms: now_ms() };
        let source = scope.caller.source(ChangeOrigin::Request);
        let Outcome::Deleted(deletion) = self.commit_from(Change::Delete(delete), source).await? else {
            return Err(unexpected_outcome());
        };
        Ok(S3Response::new(dto::DeleteObjectOutput {
            delete_marker: deletion.is_marker.then_some(true),
            version_id: shown(deletion.version, versioning),
            ..Default::default()
        }))
    }

    async fn may_delete(&self, scope: &RequestScope, each: &dto::ObjectIdentifier) -> S3Result<()> {
        let version = each.version_id.as_deref();
        let action = if version.is_some() { "s3:DeleteObjectVersion" } else { "s3:DeleteObject" };
        let object = Some((each.key.as_str(), version));
        let request = AccessRequest { action, right: Some(AclRight::Write), object };
        self.authorize(&scope.caller, scope.bucket()?, request).await
    }

    pub(crate) async fn delete_many(
        &self,
        request: S3Request<dto::DeleteObjectsInput>,
    ) -> S3Result<S3Response<dto::DeleteObjectsOutput>> {
        let scope = scope(&request.extensions);
        let dto::DeleteObjectsInput { bucket, delete, bypass_governance_retention, .. } = request.input;
        if delete.objects.is_empty() || delete.objects.len() > OBJECTS_MAX {
            return Err(s3_error!(MalformedXML, "a request names 1 to {OBJECTS_MAX} objects"));
        }
        let is_quiet = delete.quiet.unwrap_or(false);
        let bypass_governance = self.may_bypass(&scope, "", bypass_governance_retention).await?;
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        let mut refuse = |key: String, version_id: Option<String>, error: s3s::S3Error| {
            errors.push(dto::Error {
                code: Some(error.code().as_str().to_owned()),
                key: Some(key),
                message: error.message().map(str::to_owned),
                version_id,
            });
        };
        // All changes are queued before the first answer is awaited: they share commits.
        let mut pending = Vec::with_capacity(delete.objects.len());
        for each in delete.objects {
            if let Err(error) = self.may_delete(&scope, &each).await {
                refuse(each.key, each.version_id, error);
                continue;
            }
            let (key, version) = (each.key, each.version_id);
            let object = ObjectRef { bucket: bucket.clone(), key: key.clone(), version: version.clone() };
            let if_match = each.e_tag.map(dto::ETag::into_value);
            let conditions = conditions(if_match, each.last_modified_time.as_ref(), each.size);
            let delete = DeleteObject { object, conditions, bypass_governance, now_ms: now_ms() };
            let source = scope.caller.source(ChangeOrigin::Request);
            pending.push((key, version, self.store.commit_from(Change::Delete(delete), source)));
        }
        for (key, version, pending) in pending {
            match pending.await.map_err(convert) {
                Ok(Outcome::Deleted(_)) if is_quiet => {}
                Ok(Outcome::Deleted(Deletion { version: found, is_marker })) => {
                    deleted.push(dto::DeletedObject {
                        key: Some(key),
                        delete_marker: is_marker.then_some(true),
                        delete_marker_version_id: found.filter(|_| is_marker),
                        version_id: version,
                    });
                }
                Ok(_) => return Err(unexpected_outcome()),
                Err(error) => refuse(key, version, error),
            }
        }
        Ok(S3Response::new(dto::DeleteObjectsOutput {
            deleted: Some(deleted),
            errors: (!errors.is_empty()).then_some(errors),
            ..Default::default()
        }))
    }
}
