//! Operations on buckets.

use std::collections::BTreeMap;

use object::{Change, ObjectErrorKind, Versioning};
use s3s::dto;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::access::scope;
use crate::acl::{self, AccessList, GrantHeaders};
use crate::config::check_ownership;
use crate::errors::{convert, internal, invalid};
use crate::gateway::{Gateway, now_ms, timestamp};
use crate::put::grant_headers;
use crate::settings::{ACL, LOCK, LockConfig, OWNER, OWNERSHIP};

/// The largest number of buckets in an answer, as in S3.
const PAGE_MAX: i32 = 10_000;

impl Gateway {
    pub(crate) async fn create_bucket(
        &self,
        request: S3Request<dto::CreateBucketInput>,
    ) -> S3Result<S3Response<dto::CreateBucketOutput>> {
        let scope = scope(&request.extensions);
        let mut input = request.input;
        let constraint = input.create_bucket_configuration.as_ref();
        let constraint = constraint.and_then(|config| config.location_constraint.as_ref());
        if let Some(wanted) =
            constraint.filter(|wanted| !wanted.as_str().is_empty() && wanted.as_str() != &*self.region)
        {
            let region = &self.region;
            return Err(s3_error!(
                InvalidLocationConstraint,
                "the location '{}' does not exist here: use '{region}'",
                wanted.as_str()
            ));
        }
        let owner = scope.caller.owner().to_owned();
        let mut grants: GrantHeaders = grant_headers!(input);
        grants.write = input.grant_write.take();
        let list = match &input.acl {
            Some(_) if grants.is_some() => {
                return Err(s3_error!(InvalidRequest, "a request has either a canned ACL or grants"));
            }
            Some(canned) => AccessList::canned(canned.as_str(), &owner, &owner)?,
            None if grants.is_some() => {
                AccessList::of_headers(&grants, &owner, &|user| self.keys.has_user(user))?
            }
            None => AccessList::private(&owner),
        };
        let mut settings = BTreeMap::from([(OWNER.to_owned(), owner.clone())]);
        if let Some(mode) = &input.object_ownership {
            settings.insert(OWNERSHIP.to_owned(), check_ownership(mode, &list, &owner)?);
        }
        if list != AccessList::private(&owner) {
            settings.insert(ACL.to_owned(), serde_json::to_string(&list).map_err(internal)?);
        }
        let mut versioning = Versioning::Off;
        if input.object_lock_enabled_for_bucket == Some(true) {
            versioning = Versioning::Enabled;
            let lock = serde_json::to_string(&LockConfig::default()).map_err(internal)?;
            settings.insert(LOCK.to_owned(), lock);
        }
        let name = input.bucket;
        let location = format!("/{name}");
        let change = Change::CreateBucket { name: name.clone(), versioning, settings, now_ms: now_ms() };
        if let Err(error) = self.store.commit(change).await {
            if error.kind() == ObjectErrorKind::Invalid {
                return Err(s3_error!(InvalidBucketName, "{error}"));
            }
            if error.kind() == ObjectErrorKind::BucketExists {
                let existing = self.settings(&name).await?;
                if existing.owner() != owner {
                    return Err(s3_error!(BucketAlreadyExists, "the bucket belongs to another user"));
                }
                // In us-east-1, a request that repeats the creation of a bucket succeeds.
                if &*self.region == "us-east-1" && existing.acl == list {
                    return Ok(S3Response::new(dto::CreateBucketOutput { location: Some(location) }));
                }
            }
            return Err(convert(error));
        }
        Ok(S3Response::new(dto::CreateBucketOutput { location: Some(location) }))
    }

    pub(crate) async fn delete_bucket(
        &self,
        request: S3Request<dto::DeleteBucketInput>,
    ) -> S3Result<S3Response<dto::DeleteBucketOutput>> {
        self.commit(Change::DeleteBucket { name: request.input.bucket }).await?;
        Ok(S3Response::new(dto::DeleteBucketOutput::default()))
    }

    pub(crate) async fn head_bucket(
        &self,
        request: S3Request<dto::HeadBucketInput>,
    ) -> S3Result<S3Response<dto::HeadBucketOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let output =
            dto::HeadBucketOutput { bucket_region: Some(self.region.to_string()), ..Default::default() };
        let mut response = S3Response::new(output);
        let name = request.input.bucket;
        let info = self.read(move |store| store.bucket(&name)).await.unwrap_or_else(|_| bucket.info.clone());
        let counts =
            [("x-gabion-object-count", info.counters.objects), ("x-gabion-bytes-used", info.counters.bytes)];
        response.headers.extend(counts.map(|(name, count)| {
            (hyper::header::HeaderName::from_static(name), hyper::header::HeaderValue::from(count))
        }));
        Ok(response)
    }

    pub(crate) async fn list_buckets(
        &self,
        request: S3Request<dto::ListBucketsInput>,
    ) -> S3Result<S3Response<dto::ListBucketsOutput>> {
        let caller = scope(&request.extensions).caller;
        let input = request.input;
        let limit = input.max_buckets.unwrap_or(PAGE_MAX);
        if !(1..=PAGE_MAX).contains(&limit) {
            return Err(invalid(format!("max-buckets {limit} is out of range: 1 to {PAGE_MAX}")));
        }
        let after = input.continuation_token.as_deref().map(crate::listings::read_token).transpose()?;
        let prefix = input.prefix.clone().unwrap_or_default();
        let owner = caller.owner();
        let is_shown = |bucket: &object::BucketInfo| {
            let of = bucket.settings.get(OWNER).map_or(crate::settings::DEFAULT_USER, String::as_str);
            caller.sees(&bucket.name, of)
                && bucket.name.starts_with(&prefix)
                && after.as_ref().is_none_or(|after| bucket.name > *after)
        };
        let mut rest = self.read(|store| store.buckets()).await?.into_iter().filter(is_shown).peekable();
        let page: Vec<_> = rest.by_ref().take(usize::try_from(limit).unwrap_or(0)).collect();
        let is_truncated = rest.peek().is_some();
        let next = page.last().filter(|_| is_truncated).map(|last| crate::listings::write_token(&last.name));
        let describe = |bucket: object::BucketInfo| dto::Bucket {
            name: Some(bucket.name),
            creation_date: Some(timestamp(bucket.created_ms)),
            ..Default::default()
        };
        Ok(S3Response::new(dto::ListBucketsOutput {
            buckets: Some(page.into_iter().map(describe).collect()),
            owner: Some(acl::owner(owner)),
            continuation_token: next,
            prefix: input.prefix,
        }))
    }

    pub(crate) async fn bucket_location(
        &self,
        _: S3Request<dto::GetBucketLocationInput>,
    ) -> S3Result<S3Response<dto::GetBucketLocationOutput>> {
        // The answer for us-east-1 is empty, as in S3.
        let region = (&*self.region != "us-east-1").then(|| self.region.to_string());
        let location_constraint = region.map(dto::BucketLocationConstraint::from);
        Ok(S3Response::new(dto::GetBucketLocationOutput { location_constraint }))
    }

    pub(crate) async fn bucket_versioning(
        &self,
        request: S3Request<dto::GetBucketVersioningInput>,
    ) -> S3Result<S3Response<dto::GetBucketVersioningOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let status = match bucket.info.versioning {
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
        let has_lock = scope(&request.extensions).bucket()?.lock.is_some();
        let dto::PutBucketVersioningInput { bucket, versioning_configuration, .. } = request.input;
        let status = versioning_configuration.status;
        let versioning = match status.as_ref().map(dto::BucketVersioningStatus::as_str) {
            Some(dto::BucketVersioningStatus::ENABLED) => Versioning::Enabled,
            Some(dto::BucketVersioningStatus::SUSPENDED) if has_lock => {
                return Err(s3_error!(InvalidBucketState, "a bucket with object lock keeps its versions"));
            }
            Some(dto::BucketVersioningStatus::SUSPENDED) => Versioning::Suspended,
            _ => return Err(s3_error!(MalformedXML, "the status must be Enabled or Suspended")),
        };
        self.commit(Change::SetVersioning { bucket, versioning }).await?;
        Ok(S3Response::new(dto::PutBucketVersioningOutput::default()))
    }
}
