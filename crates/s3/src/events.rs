//! Events of buckets: their rules in the documents of S3, and the messages for receivers.
//!
//! Always true: the rules of the store and the setting that describes them change in one commit.
//! Must not know: how messages reach their receivers.

use object::{Change, ChangeOrigin, EventKind, EventRule, ObjectEvent};
use s3s::dto::{self, FilterRuleName, TimestampFormat};
use s3s::{S3Request, S3Response, S3Result, s3_error};
use serde_json::{Value, json};

use crate::access::scope;
use crate::config::{check_shown, to_json};
use crate::gateway::{Gateway, now_ms};
use crate::listings::is_unreserved;
use crate::settings::NOTIFICATION;
use crate::times::from_ms;

/// The names of the kinds in events, after the prefix `s3:`.
const NAMES: [(EventKind, &str); 8] = [
    (EventKind::Put, "ObjectCreated:Put"),
    (EventKind::Post, "ObjectCreated:Post"),
    (EventKind::Copy, "ObjectCreated:Copy"),
    (EventKind::CompleteUpload, "ObjectCreated:CompleteMultipartUpload"),
    (EventKind::Delete, "ObjectRemoved:Delete"),
    (EventKind::DeleteMarker, "ObjectRemoved:DeleteMarkerCreated"),
    (EventKind::ExpireDelete, "LifecycleExpiration:Delete"),
    (EventKind::ExpireDeleteMarker, "LifecycleExpiration:DeleteMarkerCreated"),
];
/// The longest prefix or suffix in bytes, as in S3.
const FILTER_MAX: usize = 1024;
/// The longest name of a rule in bytes, as in S3.
const ID_MAX: usize = 255;

/// Returns the ARN by which rules name a target.
pub fn target_arn(name: &str) -> String {
    format!("arn:gabion:sqs::{name}:webhook")
}

/// Returns the name of the target in an ARN, also in one of MinIO.
fn target_of_arn(arn: &str) -> Option<&str> {
    match arn.split(':').collect::<Vec<_>>().as_slice() {
        ["arn", "gabion" | "minio", "sqs", _, name, "webhook"] if !name.is_empty() => Some(name),
        _ => None,
    }
}

/// Returns the kinds that a rule names, such as `s3:ObjectCreated:*`.
fn kinds_of(name: &str) -> S3Result<Vec<EventKind>> {
    let unknown = || s3_error!(InvalidArgument, "the event '{name}' is not supported for notifications");
    let wanted = name.strip_prefix("s3:").ok_or_else(unknown)?;
    let is_named = |text: &str| match wanted.strip_suffix('*') {
        Some(group) => group.ends_with(':') && text.starts_with(group),
        None => text == wanted,
    };
    let kinds: Vec<_> = NAMES.iter().filter(|(_, text)| is_named(text)).map(|(kind, _)| *kind).collect();
    if kinds.is_empty() { Err(unknown()) } else { Ok(kinds) }
}

/// Returns the prefix and the suffix of a filter.
fn filter_of(filter: Option<&dto::NotificationConfigurationFilter>) -> S3Result<(String, String)> {
    let (mut prefix, mut suffix) = (None, None);
    let rules = filter.and_then(|filter| filter.key.as_ref()).and_then(|key| key.filter_rules.as_ref());
    for rule in rules.into_iter().flatten() {
        let name = rule.name.as_ref().map(FilterRuleName::as_str).unwrap_or_default();
        let value = rule.value.clone().unwrap_or_default();
        if value.len() > FILTER_MAX {
            return Err(s3_error!(InvalidArgument, "a filter has more than {FILTER_MAX} bytes"));
        }
        let place = match name.to_ascii_lowercase().as_str() {
            FilterRuleName::PREFIX => &mut prefix,
            FilterRuleName::SUFFIX => &mut suffix,
            _ => return Err(s3_error!(InvalidArgument, "the filter '{name}' is neither prefix nor suffix")),
        };
        if place.replace(value).is_some() {
            return Err(s3_error!(InvalidArgument, "a rule has two filters for the {name}"));
        }
    }
    Ok((prefix.unwrap_or_default(), suffix.unwrap_or_default()))
}

/// Checks a configuration, and gives a name to rules without one. Returns the rules for the store.
fn check(
    config: &mut dto::NotificationConfiguration,
    owner: &str,
    has_target: &dyn Fn(&str) -> bool,
) -> S3Result<Vec<EventRule>> {
    let has_others = config.topic_configurations.as_ref().is_some_and(|list| !list.is_empty())
        || config.lambda_function_configurations.as_ref().is_some_and(|list| !list.is_empty())
        || config.event_bridge_configuration.is_some();
    if has_others {
        return Err(s3_error!(
            NotImplemented,
            "events go to webhooks only: use a QueueConfiguration with the ARN of one"
        ));
    }
    let mut rules: Vec<EventRule> = Vec::new();
    for (index, queue) in config.queue_configurations.iter_mut().flatten().enumerate() {
        let id = queue.id.get_or_insert_with(|| format!("rule-{index}"));
        if id.len() > ID_MAX || rules.iter().any(|rule| rule.id == *id) {
            return Err(s3_error!(
                InvalidArgument,
                "the id '{id}' of a rule is used twice, or has more than {ID_MAX} bytes"
            ));
        }
        let arn = &queue.queue_arn;
        let target = target_of_arn(arn).filter(|name| has_target(name));
        let target = target.ok_or_else(|| {
            let wanted = target_arn("NAME");
            s3_error!(InvalidArgument, "'{arn}' is not the ARN of a webhook, which is {wanted}")
        })?;
        let mut kinds: Vec<EventKind> = Vec::new();
        for event in &queue.events {
            kinds.extend(kinds_of(event.as_ref())?);
        }
        if kinds.is_empty() {
            return Err(s3_error!(MalformedXML, "the rule '{id}' names no event"));
        }
        kinds.sort_unstable();
        kinds.dedup();
        let (prefix, suffix) = filter_of(queue.filter.as_ref())?;
        let (id, target, owner) = (id.clone(), target.to_owned(), owner.to_owned());
        rules.push(EventRule { id, target, owner, kinds, prefix, suffix });
    }
    Ok(rules)
}

impl Gateway {
    pub(crate) async fn notification(
        &self,
        request: S3Request<dto::GetBucketNotificationConfigurationInput>,
    ) -> S3Result<S3Response<dto::GetBucketNotificationConfigurationOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        check_shown(&bucket, NOTIFICATION)?;
        let found = bucket.notification.clone().unwrap_or_default();
        Ok(S3Response::new(dto::GetBucketNotificationConfigurationOutput {
            queue_configurations: found.queue_configurations,
            ..Default::default()
        }))
    }

    pub(crate) async fn set_notification(
        &self,
        request: S3Request<dto::PutBucketNotificationConfigurationInput>,
    ) -> S3Result<S3Response<dto::PutBucketNotificationConfigurationOutput>> {
        let scope = scope(&request.extensions);
        let bucket = scope.bucket()?.clone();
        let mut config = request.input.notification_configuration;
        let has_target = |name: &str| self.targets.as_ref().is_some_and(|targets| targets.has_target(name));
        let rules = check(&mut config, bucket.owner(), &has_target)?;
        let value = if rules.is_empty() { None } else { to_json(&config)? };
        let change = Change::SetEventRules {
            bucket: request.input.bucket,
            rules,
            name: NOTIFICATION.to_owned(),
            value,
            now_ms: now_ms(),
        };
        self.commit_from(change, scope.caller.source(ChangeOrigin::Request)).await?;
        Ok(S3Response::new(dto::PutBucketNotificationConfigurationOutput::default()))
    }
}

/// Returns the message of an event for its receiver: the JSON of S3, version 2.1.
pub fn event_message(event: &ObjectEvent, region: &str) -> Value {
    let id = format!("{:016X}", event.number);
    let time = time_text(event.time_ms);
    let Some((_, name)) = NAMES.iter().find(|(kind, _)| *kind == event.kind) else {
        return json!({
            "Service": "Amazon S3",
            "Event": "s3:TestEvent",
            "Time": time,
            "Bucket": event.bucket,
            "RequestId": id,
            "HostId": "gabion",
        });
    };
    let mut object = json!({ "key": encoded_key(&event.key), "sequencer": id });
    if let Value::Object(fields) = &mut object {
        if !event.etag.is_empty() {
            fields.insert("size".to_owned(), event.size.into());
            fields.insert("eTag".to_owned(), event.etag.as_str().into());
        }
        if let Some(version) = &event.version {
            fields.insert("versionId".to_owned(), version.as_str().into());
        }
    }
    let record = json!({
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": region,
        "eventTime": time,
        "eventName": name,
        "userIdentity": { "principalId": event.principal },
        "requestParameters": { "sourceIPAddress": event.address },
        "responseElements": { "x-amz-request-id": id, "x-amz-id-2": "gabion" },
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": event.rule,
            "bucket": {
                "name": event.bucket,
                "ownerIdentity": { "principalId": event.owner },
                "arn": format!("arn:aws:s3:::{}", event.bucket),
            },
            "object": object,
        },
    });
    json!({ "Records": [record] })
}

fn time_text(ms: u64) -> String {
    let mut text = Vec::new();
    // Writing into memory does not fail.
    let _ = from_ms(ms).format(TimestampFormat::DateTime, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Encodes a key as S3 does in events: a plus stands for a space, and slashes stay.
fn encoded_key(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b' ' => text.push('+'),
            b'/' => text.push('/'),
            _ if is_unreserved(byte) => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
