//! Tests of the documents of notifications and of messages.

use s3s::dto::{Event, QueueConfiguration, S3KeyFilter};

use super::*;

fn queue(arn: &str, events: &[&str], filters: &[(&str, &str)]) -> QueueConfiguration {
    let rule = |(name, value): &(&str, &str)| dto::FilterRule {
        name: Some(FilterRuleName::from((*name).to_owned())),
        value: Some((*value).to_owned()),
    };
    let key = Some(S3KeyFilter { filter_rules: Some(filters.iter().map(rule).collect()) });
    QueueConfiguration {
        events: events.iter().map(|name| Event::from((*name).to_owned())).collect(),
        filter: Some(dto::NotificationConfigurationFilter { key }),
        id: None,
        queue_arn: arn.to_owned(),
    }
}

fn checked(queues: Vec<QueueConfiguration>) -> Result<Vec<EventRule>, String> {
    let mut config =
        dto::NotificationConfiguration { queue_configurations: Some(queues), ..Default::default() };
    let rules = check(&mut config, "anna", &|name| name == "hook");
    rules.map_err(|error| error.message().unwrap_or_default().to_owned())
}

#[test]
fn documents_become_rules() {
    let rules = checked(vec![
        queue(
            "arn:gabion:sqs::hook:webhook",
            &["s3:ObjectCreated:*"],
            &[("Prefix", "a/"), ("suffix", ".png")],
        ),
        queue(
            "arn:minio:sqs:us-east-1:hook:webhook",
            &["s3:ObjectRemoved:Delete", "s3:ObjectRemoved:*"],
            &[],
        ),
        queue(&target_arn("hook"), &["s3:LifecycleExpiration:*"], &[]),
    ]);
    let rules = rules.unwrap();
    let found: Vec<_> = rules.iter().map(|rule| (rule.id.as_str(), rule.kinds.clone())).collect();
    let created = vec![EventKind::Put, EventKind::Post, EventKind::Copy, EventKind::CompleteUpload];
    let expired = vec![EventKind::ExpireDelete, EventKind::ExpireDeleteMarker];
    let expected = [
        ("rule-0", created),
        ("rule-1", vec![EventKind::Delete, EventKind::DeleteMarker]),
        ("rule-2", expired),
    ];
    assert_eq!(found, expected);
    let first = rules.first().unwrap();
    assert_eq!((first.prefix.as_str(), first.suffix.as_str(), first.target.as_str()), ("a/", ".png", "hook"));
    assert_eq!(first.owner, "anna");
}

#[test]
fn wrong_documents_are_refused_with_the_reason() {
    let arn = target_arn("hook");
    for (arn, events, filters, reason) in [
        ("arn:aws:sqs:us-east-1:1:queue", &["s3:ObjectCreated:*"][..], &[][..], "not the ARN of a webhook"),
        (&target_arn("other"), &["s3:ObjectCreated:*"], &[], "not the ARN of a webhook"),
        (&arn, &["s3:ObjectCreated"], &[], "'s3:ObjectCreated' is not supported"),
        (&arn, &["s3:*"], &[], "'s3:*' is not supported"),
        (&arn, &["s3:ObjectTagging:*"], &[], "not supported"),
        (&arn, &["s3:TestEvent"], &[], "not supported"),
        (&arn, &[], &[], "names no event"),
        (&arn, &["s3:ObjectCreated:Put"], &[("infix", "a")], "neither prefix nor suffix"),
        (&arn, &["s3:ObjectCreated:Put"], &[("prefix", "a"), ("Prefix", "b")], "two filters"),
    ] {
        let error = checked(vec![queue(arn, events, filters)]).unwrap_err();
        assert!(error.contains(reason), "{arn} {events:?}: {error}");
    }
    let same = |id: &str| QueueConfiguration {
        id: Some(id.to_owned()),
        ..queue(&arn, &["s3:ObjectCreated:Put"], &[])
    };
    assert!(checked(vec![same("x"), same("x")]).unwrap_err().contains("used twice"));
    let mut topics = dto::NotificationConfiguration {
        topic_configurations: Some(vec![dto::TopicConfiguration {
            events: Vec::new(),
            filter: None,
            id: None,
            topic_arn: "arn".into(),
        }]),
        ..Default::default()
    };
    assert_eq!(check(&mut topics, "anna", &|_| true).unwrap_err().code().as_str(), "NotImplemented");
}

fn event(kind: EventKind) -> ObjectEvent {
    ObjectEvent {
        number: 26,
        kind,
        rule: "all".into(),
        bucket: "photos".into(),
        owner: "anna".into(),
        key: "2026/blue sky+ü.png".into(),
        version: Some("00000000000000a1".into()),
        size: 7,
        etag: "abc".into(),
        time_ms: 1_795_478_400_125,
        principal: "ben".into(),
        address: "192.0.2.1".into(),
    }
}

#[test]
fn messages_have_the_form_of_s3() {
    let message = event_message(&event(EventKind::CompleteUpload), "eu-1");
    let record = &message["Records"][0];
    assert_eq!(record["eventName"], "ObjectCreated:CompleteMultipartUpload");
    assert_eq!((&record["eventVersion"], &record["awsRegion"]), (&json!("2.1"), &json!("eu-1")));
    assert_eq!(record["eventTime"], "2026-11-24T00:00:00.125Z");
    assert_eq!(record["userIdentity"]["principalId"], "ben");
    assert_eq!(record["s3"]["bucket"]["ownerIdentity"]["principalId"], "anna");
    assert_eq!(record["s3"]["configurationId"], "all");
    let object = json!({
        "key": "2026/blue+sky%2B%C3%BC.png",
        "size": 7,
        "eTag": "abc",
        "versionId": "00000000000000a1",
        "sequencer": "000000000000001A",
    });
    assert_eq!(record["s3"]["object"], object);
    let deleted = ObjectEvent { etag: String::new(), size: 0, version: None, ..event(EventKind::Delete) };
    let object = &event_message(&deleted, "eu-1")["Records"][0]["s3"]["object"];
    assert_eq!(*object, json!({ "key": "2026/blue+sky%2B%C3%BC.png", "sequencer": "000000000000001A" }));
    let test = event_message(&event(EventKind::Test), "eu-1");
    assert_eq!((&test["Event"], &test["Bucket"]), (&json!("s3:TestEvent"), &json!("photos")));
    assert!(test.get("Records").is_none());
}
