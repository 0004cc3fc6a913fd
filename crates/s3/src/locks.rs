//! Object lock: the configuration of buckets, retentions and legal holds of versions.

use object::{Change, ObjectRef, RetentionMode, Versioning};
use s3s::dto;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::access::scope;
use crate::errors::custom;
use crate::gateway::{Gateway, now_ms};
use crate::get::mode_name;
use crate::put::retention;
use crate::settings::{DefaultLock, LOCK, LockConfig};
use crate::times::from_ms;

impl Gateway {
    pub(crate) async fn lock_configuration(
        &self,
        request: S3Request<dto::GetObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<dto::GetObjectLockConfigurationOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let config = bucket.lock.ok_or_else(|| {
            s3_error!(ObjectLockConfigurationNotFoundError, "the bucket has no object lock configuration")
        })?;
        let rule = config.default.map(|default| dto::ObjectLockRule {
            default_retention: Some(dto::DefaultRetention {
                days: default.days.and_then(|days| i32::try_from(days).ok()),
                mode: Some(dto::ObjectLockRetentionMode::from_static(mode_name(default.mode))),
                years: default.years.and_then(|years| i32::try_from(years).ok()),
            }),
        });
        let enabled = dto::ObjectLockEnabled::from_static(dto::ObjectLockEnabled::ENABLED);
        let configuration = dto::ObjectLockConfiguration { object_lock_enabled: Some(enabled), rule };
        Ok(S3Response::new(dto::GetObjectLockConfigurationOutput {
            object_lock_configuration: Some(configuration),
        }))
    }

    pub(crate) async fn set_lock_configuration(
        &self,
        request: S3Request<dto::PutObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<dto::PutObjectLockConfigurationOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        if bucket.info.versioning != Versioning::Enabled {
            return Err(s3_error!(InvalidBucketState, "object lock needs a bucket with versioning"));
        }
        let malformed = |message: &'static str| s3_error!(MalformedXML, "{message}");
        let configuration = request.input.object_lock_configuration;
        let configuration = configuration.ok_or_else(|| malformed("the configuration is missing"))?;
        let enabled = configuration.object_lock_enabled.as_ref().map(dto::ObjectLockEnabled::as_str);
        if enabled != Some(dto::ObjectLockEnabled::ENABLED) {
            return Err(malformed("ObjectLockEnabled must be Enabled"));
        }
        let default = match configuration.rule.map(|rule| rule.default_retention) {
            None => None,
            Some(None) => return Err(malformed("the rule has no default retention")),
            Some(Some(given)) => Some(default_lock(given)?),
        };
        let value = serde_json::to_string(&LockConfig { default }).map_err(crate::errors::internal)?;
        let bucket = request.input.bucket;
        self.commit(Change::SetBucket { bucket, name: LOCK.to_owned(), value: Some(value) }).await?;
        Ok(S3Response::new(dto::PutObjectLockConfigurationOutput::default()))
    }

    pub(crate) async fn retention(
        &self,
        request: S3Request<dto::GetObjectRetentionInput>,
    ) -> S3Result<S3Response<dto::GetObjectRetentionOutput>> {
        check_lock(scope(&request.extensions).bucket()?)?;
        let input = request.input;
        let object = ObjectRef { bucket: input.bucket, key: input.key, version: input.version_id };
        let info = self.read(move |store| store.object(&object)).await?;
        let found = info
            .lock
            .retention
            .ok_or_else(|| s3_error!(NoSuchObjectLockConfiguration, "the object has no retention"))?;
        let retention = dto::ObjectLockRetention {
            mode: Some(dto::ObjectLockRetentionMode::from_static(mode_name(found.mode))),
            retain_until_date: Some(from_ms(found.until_ms)),
        };
        Ok(S3Response::new(dto::GetObjectRetentionOutput { retention: Some(retention) }))
    }

    pub(crate) async fn set_retention(
        &self,
        request: S3Request<dto::PutObjectRetentionInput>,
    ) -> S3Result<S3Response<dto::PutObjectRetentionOutput>> {
        let scope = scope(&request.extensions);
        check_lock(scope.bucket()?)?;
        let input = request.input;
        let now_ms = now_ms();
        let given = input.retention.ok_or_else(|| s3_error!(MalformedXML, "the retention is missing"))?;
        let retention = match (given.mode, given.retain_until_date) {
            (None, None) => None,
            (Some(mode), Some(until)) => Some(retention(mode.as_str(), &until, now_ms)?),
            _ => return Err(s3_error!(MalformedXML, "a retention needs a mode and an end")),
        };
        let bypass_governance =
            self.may_bypass(&scope, &input.key, input.bypass_governance_retention).await?;
        let object = ObjectRef { bucket: input.bucket, key: input.key, version: input.version_id };
        self.commit(Change::SetRetention { object, retention, bypass_governance, now_ms }).await?;
        Ok(S3Response::new(dto::PutObjectRetentionOutput::default()))
    }

    pub(crate) async fn legal_hold(
        &self,
        request: S3Request<dto::GetObjectLegalHoldInput>,
    ) -> S3Result<S3Response<dto::GetObjectLegalHoldOutput>> {
        check_lock(scope(&request.extensions).bucket()?)?;
        let input = request.input;
        let object = ObjectRef { bucket: input.bucket, key: input.key, version: input.version_id };
        let info = self.read(move |store| store.object(&object)).await?;
        let status = if info.lock.legal_hold { "ON" } else { "OFF" };
        let status = dto::ObjectLockLegalHoldStatus::from(status.to_owned());
        let legal_hold = Some(dto::ObjectLockLegalHold { status: Some(status) });
        Ok(S3Response::new(dto::GetObjectLegalHoldOutput { legal_hold }))
    }

    pub(crate) async fn set_legal_hold(
        &self,
        request: S3Request<dto::PutObjectLegalHoldInput>,
    ) -> S3Result<S3Response<dto::PutObjectLegalHoldOutput>> {
        check_lock(scope(&request.extensions).bucket()?)?;
        let input = request.input;
        let status = input.legal_hold.and_then(|hold| hold.status);
        let legal_hold = match status.as_ref().map(dto::ObjectLockLegalHoldStatus::as_str) {
            Some("ON") => true,
            Some("OFF") => false,
            _ => return Err(s3_error!(MalformedXML, "the legal hold must be ON or OFF")),
        };
        let object = ObjectRef { bucket: input.bucket, key: input.key, version: input.version_id };
        self.commit(Change::SetLegalHold { object, legal_hold }).await?;
        Ok(S3Response::new(dto::PutObjectLegalHoldOutput::default()))
    }
}

fn check_lock(bucket: &crate::settings::BucketSettings) -> S3Result<()> {
    if bucket.lock.is_some() {
        return Ok(());
    }
    Err(s3_error!(InvalidRequest, "Bucket is missing Object Lock Configuration"))
}

fn default_lock(given: dto::DefaultRetention) -> S3Result<DefaultLock> {
    let mode = match given.mode.as_ref().map(dto::ObjectLockRetentionMode::as_str) {
        Some("GOVERNANCE") => RetentionMode::Governance,
        Some("COMPLIANCE") => RetentionMode::Compliance,
        _ => return Err(s3_error!(MalformedXML, "the mode must be GOVERNANCE or COMPLIANCE")),
    };
    let period = |value: Option<i32>| match value.map(u32::try_from) {
        None => Ok(None),
        Some(Ok(value)) if (1..=36_500).contains(&value) => Ok(Some(value)),
        Some(_) => {
            let message = "the default retention period must be a positive number";
            Err(custom("InvalidRetentionPeriod", hyper::StatusCode::BAD_REQUEST, message))
        }
    };
    if given.days.is_some() == given.years.is_some() {
        return Err(s3_error!(MalformedXML, "the default retention has either days or years"));
    }
    Ok(DefaultLock { mode, days: period(given.days)?, years: period(given.years)? })
}
